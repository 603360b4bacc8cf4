//! I7: a message that stands in the log twice counts once.

use policy_core::{Effect, Event};
use policy_reference::fact::facts;
use schemas::delivery::{Disposition, Notification};
use schemas::record::{AdmittedMessage, EngineEvent, Entry};
use schemas::{MsgId, NegotiationId, Timestamp};

use crate::checks::{Check, Checked, Counts};
use crate::documents::msg_id;
use crate::world::{Run, Step, fold};

/// The `which`-th message again, at the end of the `where_to`-th record after it, adds its own answer and nothing else.
/// The copy stands behind the record's other entries, so that theirs keep their positions and its answer comes last.
pub(crate) fn check(run: &Run, which: usize, where_to: usize, counts: &Counts) -> Checked {
    let messages: Vec<_> = run.steps.iter().enumerate().flat_map(remembered_messages).collect();
    let Some((first, message, disposition)) = messages.get(which % messages.len().max(1)) else { return Ok(()) };
    let target = first + where_to % (run.steps.len() - first);
    if !counts_for_nothing(run, target, message) {
        return Ok(());
    }
    let mut log = run.log();
    log[target].2.entries.push(Entry::Message((*message).clone()));
    for (index, (step, effects)) in run.steps.iter().zip(&fold(&run.limits, &log)).enumerate() {
        let own = if index == target { step.effects.len() } else { effects.len() };
        let (effects, answer) = effects.split_at(own.min(effects.len()));
        let is_same = facts(&step.effects) == facts(effects);
        let why = || format!("record {}: {:#?} without, {effects:#?} with a copy in {target}", step.seq, step.effects);
        counts.hold(Check::TwiceIsOnce, is_same, why)?;
        if index == target {
            let is_answer = is_answer(answer, message, *disposition);
            counts
                .hold(Check::TwiceIsOnce, is_answer, || format!("{message:?}, first {disposition:?}: {answer:#?}"))?;
        }
    }
    Ok(())
}

/// Messages of a step that their negotiation remembers, with their dispositions.
fn remembered_messages((index, step): (usize, &Step)) -> Vec<(usize, &AdmittedMessage, Disposition)> {
    let messages = step.record.entries.iter().filter_map(|entry| match entry {
        Entry::Message(message) => Some(message),
        Entry::Tick | Entry::Engine { .. } => None,
    });
    let remembered = messages.filter_map(|message| {
        let id = msg_id(message);
        let mut receipts = step.effects.iter().filter_map(|effect| disposition(effect, message, &id));
        // Two receipts in one record: the message itself stands there twice.
        match (receipts.next(), receipts.next()) {
            (Some(disposition), None) if is_remembered(disposition) => Some((index, message, disposition)),
            (_, _) => None,
        }
    });
    remembered.collect()
}

fn disposition(effect: &Effect, message: &AdmittedMessage, id: &MsgId) -> Option<Disposition> {
    let Effect::Deliver(deliver) = effect else { return None };
    let Notification::Ack(receipt) = &*deliver.told else { return None };
    let is_its_own = deliver.to == message.from && deliver.negotiation == message.negotiation && receipt.ack_of == *id;
    is_its_own.then_some(receipt.disposition)
}

/// Strangers' and unreadable messages leave nothing behind; copies and conflicts are not the first.
fn is_remembered(disposition: Disposition) -> bool {
    use Disposition as D;
    !matches!(disposition, D::Unauthorized | D::Malformed | D::RateLimited | D::Duplicate | D::Conflict)
}

/// Whether a copy in a record ought to change nothing: its negotiation is still recognised, and nobody gives up a
/// delivery to its sender later, which any sign of life, a copy too, would make count for nothing (docs/spec/contract-net.md#cn-18).
fn counts_for_nothing(run: &Run, target: usize, message: &AdmittedMessage) -> bool {
    let is_given_up = run.steps[target..].iter().flat_map(|step| &step.record.entries).any(|entry| {
        matches!(entry, Entry::Engine { event: EngineEvent::DeliveryFailed { to, .. }, .. } if *to == message.from)
    });
    !is_given_up && recognised_until(run, &message.negotiation).is_some_and(|until| run.steps[target].now <= until)
}

fn recognised_until(run: &Run, negotiation: &NegotiationId) -> Option<Timestamp> {
    run.effects().find_map(|effect| {
        let Effect::Deliver(deliver) = effect else { return None };
        let Notification::Cfp(call) = &*deliver.told else { return None };
        (deliver.negotiation == *negotiation).then(|| call.ends_by.0.plus_ms(run.limits.tombstone_grace_ms))
    })
}

/// Whether effects are the receipt of a copy, and what its sender was told beside the first one.
fn is_answer(effects: &[Effect], message: &AdmittedMessage, first: Disposition) -> bool {
    let id = msg_id(message);
    let mut receipts = 0;
    let only_answers = effects.iter().all(|effect| match effect {
        Effect::Deliver(deliver) => {
            if let Notification::Ack(receipt) = &*deliver.told {
                receipts += 1;
                return receipt.disposition == Disposition::Duplicate && receipt.first == Some(first);
            }
            deliver.to == message.from && deliver.in_reply_to.as_ref() == Some(&id)
        }
        Effect::Event(event) => matches!(event, Event::Disposed { .. }),
        Effect::Register(_) | Effect::Notice(_) => false,
    });
    only_answers && receipts == 1
}
