//! What must hold of a panel whatever its seats say, and in whatever order: the log is folded once more with another answer, with
//! other ratings, with two answers in each other's place.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use policy_core::Deliver;
use schemas::delivery::{Ask, Finding, Notification, ProgressReport, Rated};
use schemas::panel::{PanelAnswer, PanelSpec, RATING_MAX};
use schemas::record::AdmittedMessage;
use schemas::{AgentId, DeliveryId, Digest, NegotiationId, Position};
use serde_json::json;

use super::altered::{AlteredLog, altered, drawn};
use super::{Caused, FoldedLog, Logged};
use crate::trace::Trace;
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks one answer, one set of ratings and one pair of answers, drawn by the seed.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let answers = taken(folded);
    check_changed_answer(trace, folded, &answers, verdict);
    check_changed_ratings(trace, folded, &answers, verdict);
    check_exchanged(trace, folded, &answers, verdict);
}

/// An answer of a seat that was taken.
struct TakenAnswer<'a> {
    position: Position,
    logged: &'a Logged,
    said: PanelAnswer,
    /// What it answers.
    ask: &'a Ask,
    ask_id: DeliveryId,
    /// Sequence of the record that asked.
    asked_by: u64,
}

impl TakenAnswer<'_> {
    fn message(&self) -> &AdmittedMessage {
        &self.logged.message
    }

    fn is_of(&self, other: &Self) -> bool {
        self.message().negotiation == other.message().negotiation && self.said.round == other.said.round
    }
}

/// The answers of seats that were taken, in the order of the log.
fn taken(folded: &FoldedLog) -> Vec<TakenAnswer<'_>> {
    let mut asks: BTreeMap<(&NegotiationId, &AgentId, u32), (u64, DeliveryId, &Ask)> = BTreeMap::new();
    for (id, Caused { seq, deliver }) in &folded.deliveries {
        if let Notification::Ask(ask) = &*deliver.told
            && ask.rank.is_none()
            && !ask.review
        {
            asks.insert((&deliver.negotiation, &deliver.to, ask.round), (*seq, *id, ask));
        }
    }
    let answers = folded.taken_answers().into_iter().filter(|(.., said)| said.answer.is_some());
    let answers = answers.filter_map(|(position, logged, said)| {
        let AdmittedMessage { negotiation, from, .. } = &logged.message;
        let (asked_by, ask_id, ask) = *asks.get(&(negotiation, from, said.round))?;
        Some(TakenAnswer { position, logged, said, ask, ask_id, asked_by })
    });
    answers.collect()
}

/// With another answer of one seat, everybody else is told the same, byte for byte, until the round is over in one of the logs;
/// only whether a later wave is asked may differ.
fn check_changed_answer(trace: &Trace, folded: &FoldedLog, answers: &[TakenAnswer<'_>], verdict: &mut Verdict) {
    let Some(answer) = drawn(trace.seed, answers.iter().collect()) else { return };
    let is_another = |other: &&TakenAnswer<'_>| other.is_of(answer) && other.said.answer != answer.said.answer;
    let another = answers.iter().find(is_another).map_or(json!(null), |other| json!(other.said.answer));
    let changed = altered(answer.message(), |payload| {
        payload["answer"] = another;
        payload["text"] = json!("something else");
        if let Some(ratings) = payload.get_mut("ratings").and_then(|ratings| ratings.as_array_mut()) {
            ratings.reverse();
        }
        Some(())
    });
    let Some(changed) = changed else { return };
    let (negotiation, sender) = (&changed.negotiation.clone(), &changed.from.clone());
    let replaced = BTreeMap::from([(answer.position, changed)]);
    AlteredLog { trace, negotiation, replaced }.fold(|record| {
        if record.seq < answer.position.seq {
            return ControlFlow::Continue(());
        }
        let (one, other): (Vec<&Deliver>, Vec<&Deliver>) =
            (record.told(negotiation).collect(), folded.told(record.seq, negotiation).collect());
        let is_over = |deliver: &&Deliver| ends_round(&deliver.told, answer.said.round);
        if record.fails() || one.iter().chain(&other).copied().any(|deliver| is_over(&deliver)) {
            return ControlFlow::Break(());
        }
        let (one, other) = (ToldInRound::of(&one, sender), ToldInRound::of(&other, sender));
        verdict.check(Invariant::RoundSealed, one.is_as(&other), || {
            format!(
                "record {}: another answer at {} changes what is told to others: {other:?}, {one:?}",
                record.seq, answer.position
            )
        });
        if one.asks.keys().eq(other.asks.keys()) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
}

/// Whether the round is over once this is told.
fn ends_round(told: &Notification, round: u32) -> bool {
    if let Notification::Ask(ask) = told {
        return ask.round > round || ask.rank.is_some() || ask.review;
    }
    matches!(told, Notification::Closed(_) | Notification::Inform(_))
}

/// What one record tells everybody but one agent while a round runs.
#[derive(Debug)]
struct ToldInRound {
    /// By recipient.
    asks: BTreeMap<AgentId, String>,
    others: Vec<String>,
}

impl ToldInRound {
    fn of(told: &[&Deliver], sender: &AgentId) -> Self {
        let told = || told.iter().filter(|deliver| deliver.to != *sender);
        let is_ask = |deliver: &&&Deliver| matches!(&*deliver.told, Notification::Ask(_));
        let words = |deliver: &Deliver| format!("{} {:?} {:?}", deliver.to, deliver.told, deliver.in_reply_to);
        let mut others: Vec<String> = told().filter(|deliver| !is_ask(deliver)).map(|deliver| words(deliver)).collect();
        others.sort();
        Self { asks: told().filter(is_ask).map(|deliver| (deliver.to.clone(), words(deliver))).collect(), others }
    }

    /// Whether agents asked in both get the same ask, and all other deliveries are equal.
    fn is_as(&self, other: &Self) -> bool {
        let is_same = |(to, ask): (&AgentId, &String)| other.asks.get(to).is_none_or(|other| other == ask);
        self.others == other.others && self.asks.iter().all(is_same)
    }
}

/// Who rates its peers otherwise has the same importance as before in the round it rates.
fn check_changed_ratings(trace: &Trace, folded: &FoldedLog, answers: &[TakenAnswer<'_>], verdict: &mut Verdict) {
    let rules = folded.panel_rules();
    let findings: BTreeMap<&NegotiationId, &Finding> =
        folded.findings().map(|(_, id, finding)| (id, finding)).collect();
    let is_rating = |answer: &&TakenAnswer<'_>| {
        let negotiation = &answer.message().negotiation;
        // Ratings given in the round of a selection decide who goes on.
        let is_selected =
            |rules: &PanelSpec| rules.select.as_ref().is_some_and(|select| select.after_round == answer.said.round);
        answer.said.ratings.is_some()
            && answer.ask.rate == Some(Rated::Peers)
            && rules.get(negotiation).is_some_and(|rules| !is_selected(rules))
            && findings.get(negotiation).is_some_and(|finding| finding.round >= answer.said.round)
    };
    let Some(answer) = drawn(trace.seed, answers.iter().filter(is_rating).collect()) else { return };
    let AdmittedMessage { negotiation, from, .. } = answer.message();
    let changed = altered(answer.message(), |payload| {
        let others = answer.said.ratings.iter().flatten().map(|rating| rating % RATING_MAX + 1);
        payload["ratings"] = others.collect();
        Some(())
    });
    let Some(changed) = changed else { return };
    let rated = answer.said.round.saturating_sub(2) as usize;
    let importance = |finding: &Finding| {
        let seat = finding.panelists.iter().find(|seat| seat.agent == *from)?;
        seat.importance_e12.get(rated).copied()
    };
    let mut found = None;
    AlteredLog { trace, negotiation, replaced: BTreeMap::from([(answer.position, changed)]) }.fold(|record| {
        found = record.told(negotiation).find_map(finding_of).map(importance);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let before = findings.get(negotiation).map(|finding| importance(finding));
    verdict.check(Invariant::OwnRatingInert, found == before, || {
        format!("other ratings of {from} at {} make its importance {found:?} instead of {before:?}", answer.position)
    });
}

fn finding_of(deliver: &Deliver) -> Option<&Finding> {
    let Notification::Inform(ProgressReport::Finding(finding)) = &*deliver.told else { return None };
    Some(finding)
}

/// With the first and the last answer of one wave in each other's place, the panel asks the same and finds the same.
fn check_exchanged(trace: &Trace, folded: &FoldedLog, answers: &[TakenAnswer<'_>], verdict: &mut Verdict) {
    let pairs = answers.iter().enumerate().filter_map(|(number, one)| {
        let is_of_wave = |other: &&TakenAnswer<'_>| other.is_of(one) && other.asked_by == one.asked_by;
        if answers.get(..number)?.iter().any(|before| is_of_wave(&before)) {
            return None;
        }
        let other = answers.get(number + 1..)?.iter().rfind(is_of_wave)?;
        let (from, to) = (&one.message().from, &other.message().from);
        let between = folded.messages.range(one.position..=other.position).filter(|(_, logged)| {
            let message = &logged.message;
            message.negotiation == one.message().negotiation && [from, to].contains(&&message.from)
        });
        // Whose ask could not be delivered is waited for no longer: with its answer in the place of another's, a wave is complete
        // at another record.
        let is_waited_for = |answer: &TakenAnswer<'_>| !folded.given_up.contains(&answer.ask_id);
        let is_pair = from != to && is_waited_for(one) && is_waited_for(other);
        (is_pair && between.count() == 2).then_some((one, other))
    });
    // Where seats are dropped after a round, the order of its answers could decide who.
    let rules = folded.panel_rules();
    let is_selected = |(one, _): &(&TakenAnswer<'_>, &TakenAnswer<'_>)| {
        let rules = rules.get(&one.message().negotiation);
        let select = rules.and_then(|rules| rules.select.as_ref());
        select.is_some_and(|select| select.after_round == one.said.round)
    };
    let (selected, others): (Vec<_>, Vec<_>) = pairs.partition(is_selected);
    let Some((one, other)) = drawn(trace.seed, if selected.is_empty() { others } else { selected }) else { return };
    let negotiation = &one.message().negotiation;
    let replaced = BTreeMap::from([(one.position, other.message().clone()), (other.position, one.message().clone())]);
    AlteredLog { trace, negotiation, replaced }.fold(|record| {
        if record.seq < one.position.seq {
            return ControlFlow::Continue(());
        }
        if record.fails() {
            return ControlFlow::Break(());
        }
        let mut exchanged: Vec<String> = record.told(negotiation).filter_map(course).collect();
        let mut before: Vec<String> = folded.told(record.seq, negotiation).filter_map(course).collect();
        exchanged.sort();
        before.sort();
        if !(exchanged.is_empty() && before.is_empty()) {
            verdict.check(Invariant::OrderFree, exchanged == before, || {
                format!(
                    "record {}: the answers at {} and {} exchanged, {before:?} becomes {exchanged:?}",
                    record.seq, one.position, other.position
                )
            });
        }
        ControlFlow::Continue(())
    });
}

/// What is told of the course of a panel; the order of its inputs shows in digests only.
fn course(deliver: &Deliver) -> Option<String> {
    let to = &deliver.to;
    if let Some(finding) = finding_of(deliver) {
        return Some(format!("{to} {:?}", Finding { decision: Digest([0; 32]), ..finding.clone() }));
    }
    if let Notification::Ask(ask) = &*deliver.told {
        return Some(format!("{to} {ask:?}"));
    }
    let Notification::Closed(closing) = &*deliver.told else { return None };
    Some(format!("{to} {:?} {:?}", closing.outcome, closing.detail))
}
