//! I13: of two simultaneous messages neither comes first.

use policy_core::{Effect, Event};
use schemas::delivery::{Award, Notification};
use schemas::policy::TieBreak;
use schemas::record::{AdmittedMessage, EngineEvent, Entry};
use schemas::{Act, NegotiationId};

use crate::checks::{Check, Checked, Counts};
use crate::world::{Log, Run, closes, fold, messages_of};

/// Most pairs tried in one case, so that no case takes long.
const PAIRS_MAX: usize = 6;

/// Two neighbouring messages of different contractors at the same time may change places without changing who is
/// awarded what, unless collection closes between them. Once it has closed, the same holds unless the first of the two
/// moves the negotiation on: an award refused may begin the round that the other one answers.
pub(crate) fn check(run: &Run, counts: &Counts) -> Checked {
    let log = run.log();
    let messages = messages_of(&log, |_| true);
    let pairs = messages.windows(2).filter(|pair| are_equals(run, &log, pair[0], pair[1]));
    for pair in pairs.take(PAIRS_MAX) {
        let mut swapped = log.clone();
        let (one, other) = (entry(&log, pair[0]), entry(&log, pair[1]));
        *entry_mut(&mut swapped, pair[0]) = other.clone();
        *entry_mut(&mut swapped, pair[1]) = one.clone();
        if [&log, &swapped].into_iter().any(|log| moves_on_at(run, log, pair[0], one)) {
            continue;
        }
        let Entry::Message(message) = one else { continue };
        let before = awarded(run.effects(), &message.negotiation);
        let again = fold(&run.limits, &swapped);
        let after = awarded(again.iter().flatten(), &message.negotiation);
        counts.hold(Check::OrderOfEquals, before == after, || format!("{pair:?}: {before:#?} {after:#?}"))?;
    }
    Ok(())
}

fn entry(log: &Log, place: (usize, usize)) -> &Entry {
    &log[place.0].2.entries[place.1]
}

fn entry_mut(log: &mut Log, place: (usize, usize)) -> &mut Entry {
    &mut log[place.0].2.entries[place.1]
}

/// Whether two places hold neighbouring messages of two contractors of one negotiation, at one time, and nothing in the
/// log refers to either by its position.
fn are_equals(run: &Run, log: &Log, left: (usize, usize), right: (usize, usize)) -> bool {
    let is_next = if left.0 == right.0 {
        right.1 == left.1 + 1
    } else {
        right.0 == left.0 + 1 && right.1 == 0 && left.1 + 1 == log[left.0].2.entries.len()
    };
    let (Entry::Message(one), Entry::Message(other)) = (entry(log, left), entry(log, right)) else { return false };
    let speaks_for_itself = |message: &AdmittedMessage| message.from.as_str() != message.negotiation.initiator();
    let refers_to_positions = log.iter().flat_map(|(_, _, record)| &record.entries).any(|entry| match entry {
        Entry::Message(message) => message.act == Act::Accept,
        Entry::Engine { event, .. } => matches!(event, EngineEvent::DeliveryFailed { .. }),
        Entry::Tick => false,
    });
    is_next
        && run.steps[left.0].now == run.steps[right.0].now
        && one.negotiation == other.negotiation
        && one.from != other.from
        && speaks_for_itself(one)
        && speaks_for_itself(other)
        && !refers_to_positions
        && run.policy_of(&one.negotiation).is_some_and(|policy| policy.tie_break != TieBreak::Arrival)
}

/// Whether what stands at a place moves the negotiation on.
fn moves_on_at(run: &Run, log: &Log, place: (usize, usize), of: &Entry) -> bool {
    let Entry::Message(message) = of else { return false };
    let mut cut: Log = log[..=place.0].to_vec();
    cut[place.0].2.entries.truncate(place.1 + 1);
    let effects = fold(&run.limits, &cut);
    let mut without = cut.clone();
    without[place.0].2.entries.truncate(place.1);
    let before = fold(&run.limits, &without);
    let count = |effects: &[Vec<Effect>]| {
        effects.iter().flatten().filter(|effect| moves_on(effect, &message.negotiation)).count()
    };
    count(&effects) != count(&before)
}

fn moves_on(effect: &Effect, of: &NegotiationId) -> bool {
    let is_step = match effect {
        Effect::Event(Event::AwardLost { negotiation, .. } | Event::Transition { negotiation, .. }) => {
            negotiation == of
        }
        Effect::Event(_) | Effect::Deliver(_) | Effect::Register(_) | Effect::Notice(_) => false,
    };
    is_step || closes(effect, of)
}

/// Who was awarded what, for how much, and how it ended.
fn awarded<'a>(effects: impl Iterator<Item = &'a Effect>, of: &NegotiationId) -> Vec<String> {
    let told = effects.filter_map(|effect| match effect {
        Effect::Deliver(deliver) if deliver.negotiation == *of => {
            let Notification::Accept(award) = &*deliver.told else { return None };
            let Award { lot, award_no, terms, payment, .. } = award;
            Some(format!("{} lot {lot} award {award_no} {terms:?} pays {payment:?}", deliver.to))
        }
        Effect::Event(Event::Ended { negotiation, outcome, at, .. }) if negotiation == of => {
            Some(format!("{outcome:?} at {at:?}"))
        }
        Effect::Deliver(_) | Effect::Register(_) | Effect::Notice(_) | Effect::Event(_) => None,
    });
    told.collect()
}
