//! The same for bargains.

use std::sync::Arc;

use bytes::Bytes;
use schemas::Act;
use schemas::delivery::{Delivery, Notification};
use schemas::ids::AttrName;
use schemas::payload::AttrValue;

use super::fixture::{agent, bargain};
use super::{check, is_broken};
use crate::trace::{JournalEntry, Noted, Trace};
use traffic_gen::invariants::Invariant;

#[test]
fn a_flawless_bargain_violates_nothing_and_shows_its_order() {
    let verdict = check(&bargain());
    assert_eq!(verdict.violated(), 0, "{:#?}", verdict.examples);
    for invariant in [Invariant::TurnOrder, Invariant::NoLateWinner, Invariant::OneAward, Invariant::Sealed] {
        let checked = verdict.by_name.get(&invariant).map_or(0, |tally| tally.checked);
        assert!(checked > 0, "{} was never checked", invariant.as_str());
    }
}

#[test]
fn every_way_to_break_a_bargain_is_noticed() {
    type Harm = fn(&mut Trace);
    let harms: [(&str, Harm, Invariant); 8] = [
        ("the turn of another party", other_turn, Invariant::TurnOrder),
        ("an offer out of turn", offer_out_of_turn, Invariant::TurnOrder),
        ("an offer accepted by who made it", accepted_by_its_proposer, Invariant::TurnOrder),
        ("an agreement outside a mandate", outside_a_mandate, Invariant::TurnOrder),
        ("an agreement on another offer", other_agreement, Invariant::TurnOrder),
        ("other terms agreed on for one of them", other_terms, Invariant::OneAward),
        ("an agreement that is not registered", unregistered, Invariant::OneAward),
        ("a notice that tells of a mandate", told_mandate, Invariant::Sealed),
    ];
    for (name, harm, broken) in harms {
        let mut trace = bargain();
        harm(&mut trace);
        let verdict = check(&trace);
        assert!(is_broken(&verdict, broken), "{name}: {:#?}", verdict.examples);
    }
}

/// Changes what one agent was told, or all of them.
fn retell(trace: &mut Trace, name: Option<&str>, change: impl Fn(&mut Notification)) {
    let wanted = name.map(agent);
    for (agent, journal) in &mut trace.journals {
        if wanted.as_ref().is_some_and(|wanted| wanted != agent) {
            continue;
        }
        for entry in journal {
            if let Noted::Received { delivery, .. } = &mut entry.kind {
                change(&mut Arc::<Delivery>::make_mut(delivery).payload);
            }
        }
    }
}

fn other_turn(trace: &mut Trace) {
    retell(trace, None, |told| {
        if let Notification::Turn(turn) = told {
            turn.party = agent("carl");
        }
    });
}

fn offer_out_of_turn(trace: &mut Trace) {
    retell(trace, None, |told| {
        if let Notification::Turn(turn) = told
            && let Some(standing) = &mut turn.standing
        {
            standing.by = agent("bob");
        }
    });
}

fn accepted_by_its_proposer(trace: &mut Trace) {
    retell(trace, None, |told| {
        if let Notification::Turn(turn) = told
            && let Some(standing) = &mut turn.standing
        {
            standing.accepted_by = vec![agent("alice")];
        }
    });
}

fn outside_a_mandate(trace: &mut Trace) {
    for entry in trace.journals.get_mut(&agent("bob")).expect("bob is here") {
        if let Noted::Sent { act: Act::Join, document, .. } = &mut entry.kind {
            let text = String::from_utf8_lossy(document).replace("\"value\":5", "\"value\":4");
            *document = Bytes::from(text);
        }
    }
}

fn other_agreement(trace: &mut Trace) {
    retell(trace, None, |told| {
        if let Notification::Closed(closing) = told
            && let Some(agreement) = &mut closing.agreement
        {
            agreement.offer_id.0.seq += 1;
        }
    });
}

fn other_terms(trace: &mut Trace) {
    retell(trace, Some("carl"), |told| {
        if let Notification::Closed(closing) = told
            && let Some(agreement) = &mut closing.agreement
        {
            agreement.terms.insert(AttrName::try_new("price").expect("a name"), AttrValue::Int(9));
        }
    });
}

fn unregistered(trace: &mut Trace) {
    trace.register.remove(0);
}

fn told_mandate(trace: &mut Trace) {
    trace.journals.values_mut().flatten().for_each(mark);
    let notice =
        Noted::Notice { subject: "topic.courier".to_owned(), payload: Bytes::from("{\"of\": \"sealed-of-bob\"}") };
    let at = trace.ended_at;
    trace.journals.get_mut(&agent("carl")).expect("carl is here").push(JournalEntry { at, kind: notice });
}

/// Every mandate of a run carries a mark.
fn mark(entry: &mut JournalEntry) {
    if let Noted::Sent { act: Act::Join, document, .. } = &mut entry.kind {
        *document = Bytes::from(
            String::from_utf8_lossy(document).replace("\"le\"", "\"ne\"").replace(":5}", ":\"sealed-of-bob\"}"),
        );
    }
}
