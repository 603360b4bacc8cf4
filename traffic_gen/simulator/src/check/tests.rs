//! Each invariant is tripped by a run that breaks it, and by no other means: the run they all start from is flawless.

mod bargained;
mod fixture;
mod panelled;

use std::sync::Arc;

use bus::LogRecord;
use bytes::Bytes;
use schemas::delivery::{Delivery, Notification, ProgressReport};
use schemas::document::RoutineReport;
use schemas::record::{EngineEvent, Entry, Record};
use schemas::{Act, AgentId, DeliveryId, Digest, DocumentHash, Lane, MsgId, RegisterKey, Timestamp};

use super::check;
use crate::trace::{AckEvent, AckEventKind, AnnouncedDigest, Answer, Noted, QueueLoad, Trace};
use fixture::{agent, round, unfinished_round};
use traffic_gen::invariants::{Invariant, Verdict};

#[test]
fn a_flawless_run_violates_nothing_and_leaves_nothing_unchecked() {
    let verdict = check(&round());
    assert_eq!(verdict.violated(), 0, "{:#?}", verdict.examples);
    for invariant in Invariant::ALL.iter().copied().filter(|invariant| !invariant.needs_more_than_rounds()) {
        let checked = verdict.by_name.get(&invariant).map_or(0, |tally| tally.checked);
        assert!(checked > 0, "{} was never checked", invariant.as_str());
    }
}

#[test]
fn what_is_under_way_is_asked_for_only_at_rest() {
    let mut trace = unfinished_round();
    assert_eq!(check(&trace).violated(), 0, "{:#?}", check(&trace).examples);
    trace.is_liveness = true;
    assert!(is_broken(&check(&trace), Invariant::Terminates));
}

#[test]
fn every_invariant_is_tripped_by_a_run_that_breaks_it() {
    type Harm = fn(&mut Trace);
    let harms: [(&str, Harm, Invariant); 19] = [
        ("an ACCEPT reaches two contractors", second_winner, Invariant::OneAward),
        ("an ACCEPT without its entry in the register", unregister, Invariant::OneAward),
        ("an ACCEPT before its entry in the register", registered_late, Invariant::OneAward),
        ("the next award before the end of this one", next_award_early, Invariant::OneAward),
        ("202 for what is not in the log", never_logged, Invariant::NoLostAdmission),
        ("a disposition that never arrives", undelivered_receipt, Invariant::NoLostAdmission),
        ("acknowledged by nobody", invented_acknowledgement, Invariant::NoLostAdmission),
        ("another value in the register", other_entry, Invariant::Recomputable),
        ("another state than the log's", other_state, Invariant::Recomputable),
        ("a delivery nothing leads to", invented_delivery, Invariant::Recomputable),
        ("one id, two contents", other_content, Invariant::Idempotent),
        ("other terms than offered", other_terms, Invariant::NoLateWinner),
        ("another document than the first in common", other_document, Invariant::Pinned),
        ("a report under another document", other_report, Invariant::Pinned),
        ("a second REJECT", second_reject, Invariant::FinalNotice),
        ("another outcome", other_outcome, Invariant::Absorbing),
        ("an initiator never told the end", untold_end, Invariant::Terminates),
        ("a message its sender never sent", forged, Invariant::Authentic),
        ("a queue above its limit", overfull, Invariant::Bounded),
    ];
    for (name, harm, broken) in harms {
        let mut trace = round();
        harm(&mut trace);
        let verdict = check(&trace);
        assert!(is_broken(&verdict, broken), "{name}: {:#?}", verdict.examples);
    }
}

#[test]
fn a_contractor_that_hears_of_the_award_before_the_close_breaks_the_seal() {
    let mut trace = unfinished_round();
    let rejected = received(&round(), "bob", |told| matches!(told, Notification::Reject(_)));
    let call = received(&trace, "bob", |told| matches!(told, Notification::Cfp(_)));
    // A rejection for being outscored under the id of what was caused while offers were collected.
    let id = received(&trace, "bob", |told| matches!(told, Notification::Ack(_))).envelope.msg_id;
    let mut early = Delivery::clone(&rejected);
    early.envelope.msg_id = id;
    early.envelope.ts = call.envelope.ts;
    for entry in trace.journals.get_mut(&agent("bob")).expect("bob is here") {
        if let Noted::Received { id: received, delivery, .. } = &mut entry.kind
            && *received == id
        {
            *delivery = Arc::new(early.clone());
        }
    }
    assert!(is_broken(&check(&trace), Invariant::Sealed));
}

#[test]
fn acknowledgements_are_followed_through_gateways_and_take_overs() {
    let (bob, eve) = (agent("bob"), agent("eve"));
    let [one, two] = [1, 2].map(|number| DeliveryId::new(Lane(0), [number; 16]));
    let verdict = |events: &[(u64, &str, AckEventKind)]| {
        let at = |ms: u64| Timestamp::from_ms(1000).plus_ms(ms);
        let event = |(ms, process, kind): &(u64, &str, AckEventKind)| AckEvent {
            at: at(*ms),
            process: (*process).to_owned(),
            kind: kind.clone(),
        };
        let acks = events.iter().map(event).collect();
        check(&Trace { acks, ended_at: at(60_000), is_liveness: false, ..round() })
    };
    let taken = |ids: &[DeliveryId]| AckEventKind::Taken((bob.clone(), ids.to_vec()));
    let passed = |to: &AgentId, ids: &[DeliveryId]| AckEventKind::Passed(vec![(to.clone(), ids.to_vec())]);
    let heard = || AckEventKind::Heard((bob.clone(), vec![one]));
    let sent = |ids: &[DeliveryId]| AckEventKind::Sent((bob.clone(), ids.to_vec()));
    let (gateway, engine) = ("gateway-0-1", "engine-0-1");
    let late = |resumed: bool| {
        let resumed = resumed.then_some((0, gateway, AckEventKind::Resumed));
        let passes =
            [(13, gateway, taken(&[two])), (13, gateway, passed(&bob, &[two])), (14, gateway, passed(&bob, &[one]))];
        [(0, gateway, taken(&[one]))].into_iter().chain(resumed).chain(passes).collect::<Vec<_>>()
    };
    let rows: [(&str, Vec<_>, bool); 10] = [
        ("late", late(false), true),
        ("as late, taken as it goes on", late(true), false),
        ("whole", vec![(0, gateway, taken(&[one, two])), (10, gateway, passed(&bob, &[one, two]))], false),
        ("half", vec![(0, gateway, taken(&[one, two])), (10, gateway, passed(&bob, &[one]))], true),
        ("nothing", vec![(0, gateway, taken(&[one]))], true),
        ("nothing, dead", vec![(0, gateway, taken(&[one])), (5, gateway, AckEventKind::Died)], false),
        ("for another", vec![(0, gateway, taken(&[one])), (10, gateway, passed(&eve, &[one]))], true),
        ("sent again", vec![(0, engine, heard()), (900, engine, sent(&[two, one]))], true),
        ("sent by another", vec![(0, engine, heard()), (900, "engine-1-1", sent(&[one]))], false),
        (
            "folded anew",
            vec![(0, engine, heard()), (5, engine, AckEventKind::Read(Lane(0))), (900, engine, sent(&[one]))],
            false,
        ),
    ];
    for (name, events, is_harmed) in rows {
        let verdict = verdict(&events);
        assert_eq!(is_broken(&verdict, Invariant::Acknowledged), is_harmed, "{name}: {:#?}", verdict.examples);
    }
}

#[test]
fn a_message_judged_twice_is_not_idempotent() {
    let mut trace = round();
    // What a fold without memory for repeats would tell: the same receipt once more, under another id.
    let receipt = received(&trace, "bob", |told| matches!(told, Notification::Ack(_)));
    let mut again = Delivery::clone(&receipt);
    again.envelope.msg_id = DeliveryId::new(Lane(0), [9; 16]);
    receive(&mut trace, "bob", again);
    assert!(is_broken(&check(&trace), Invariant::Idempotent));
}

fn is_broken(verdict: &Verdict, invariant: Invariant) -> bool {
    verdict.violated_checks().any(|broken| broken == invariant)
}

fn second_winner(trace: &mut Trace) {
    let accept = received(trace, "carl", |told| matches!(told, Notification::Accept(_)));
    receive(trace, "bob", Delivery::clone(&accept));
}

fn unregister(trace: &mut Trace) {
    trace.register.retain(|(key, _)| !matches!(key, RegisterKey::Award(..)));
    trace.registered_at.retain(|key, _| !matches!(key, RegisterKey::Award(..)));
}

fn registered_late(trace: &mut Trace) {
    for at in trace.registered_at.values_mut() {
        *at = at.plus_ms(1);
    }
}

fn next_award_early(trace: &mut Trace) {
    let position = trace.register.iter().position(|(key, _)| matches!(key, RegisterKey::AwardEnd(..)));
    let ended = trace.register.remove(position.expect("carl confirms"));
    let Some((RegisterKey::Award(negotiation, lot, _), value)) = trace.register.first().cloned() else { return };
    trace.register.push((RegisterKey::Award(negotiation, lot, schemas::AwardNo(2)), value));
    trace.register.push(ended);
}

fn never_logged(trace: &mut Trace) {
    for entry in trace.journals.values_mut().flatten() {
        if let Noted::Answered { answer: Answer::Accepted { seq, .. }, .. } = &mut entry.kind {
            *seq += 1;
        }
    }
}

fn undelivered_receipt(trace: &mut Trace) {
    let journal = trace.journals.get_mut(&agent("bob")).expect("bob is here");
    journal.retain(|entry| !is_receipt_of(&entry.kind, |told| matches!(told, Notification::Ack(_))));
}

fn invented_acknowledgement(trace: &mut Trace) {
    for journal in trace.journals.values_mut() {
        journal.retain(|entry| !matches!(entry.kind, Noted::Acknowledged { .. }));
    }
    let ids = vec![received(trace, "bob", |told| matches!(told, Notification::Ack(_))).envelope.msg_id];
    append(trace, Entry::Engine { epoch: 1, event: EngineEvent::Delivered { ids, registered: 0 } });
}

fn other_entry(trace: &mut Trace) {
    trace.register[0].1 = Bytes::from_static(b"{}");
}

fn other_state(trace: &mut Trace) {
    let digest = Digest([7; 32]).to_string();
    trace.digests.push(AnnouncedDigest { engine: "engine-2".to_owned(), lane: Lane(0), position: 2, digest });
}

fn invented_delivery(trace: &mut Trace) {
    let mut invented = Delivery::clone(&received(trace, "bob", |told| matches!(told, Notification::Reject(_))));
    invented.envelope.msg_id = DeliveryId::new(Lane(0), [3; 16]);
    receive(trace, "bob", invented);
}

fn other_content(trace: &mut Trace) {
    let again = received(trace, "bob", |told| matches!(told, Notification::Reject(_)));
    receive(trace, "bob", Delivery::clone(&again));
    let journal = trace.journals.get_mut(&agent("bob")).expect("bob is here");
    if let Some(Noted::Received { digest, .. }) = journal.last_mut().map(|entry| &mut entry.kind) {
        *digest = Digest([1; 32]);
    }
}

fn other_terms(trace: &mut Trace) {
    for entry in trace.journals.values_mut().flatten() {
        if let Noted::Received { delivery, .. } = &mut entry.kind
            && matches!(delivery.payload, Notification::Accept(_))
            && let Notification::Accept(award) = &mut Arc::make_mut(delivery).payload
        {
            award.terms.clear();
        }
    }
}

fn other_document(trace: &mut Trace) {
    for entry in trace.journals.values_mut().flatten() {
        if let Noted::Received { delivery, .. } = &mut entry.kind
            && matches!(delivery.payload, Notification::Accept(_))
            && let Notification::Accept(award) = &mut Arc::make_mut(delivery).payload
        {
            award.document = Some(DocumentHash::of_bytes(b"second"));
        }
    }
}

fn other_report(trace: &mut Trace) {
    for entry in trace.journals.values_mut().flatten() {
        if let Noted::Received { delivery, .. } = &mut entry.kind
            && matches!(delivery.payload, Notification::Inform(ProgressReport::Done(_)))
            && let Notification::Inform(ProgressReport::Done(report)) = &mut Arc::make_mut(delivery).payload
        {
            let hash = Some(DocumentHash::of_bytes(b"second"));
            report.routine = report.routine.map(|routine| RoutineReport { hash, ..routine });
        }
    }
}

fn second_reject(trace: &mut Trace) {
    let mut again = Delivery::clone(&received(trace, "bob", |told| matches!(told, Notification::Reject(_))));
    again.envelope.msg_id = DeliveryId::new(Lane(0), [4; 16]);
    receive(trace, "bob", again);
}

fn other_outcome(trace: &mut Trace) {
    let closed = received(trace, "carl", |told| matches!(told, Notification::Closed(_)));
    let mut other = Delivery::clone(&closed);
    other.envelope.msg_id = DeliveryId::new(Lane(0), [5; 16]);
    if let Notification::Closed(closing) = &mut other.payload {
        closing.outcome = schemas::delivery::Outcome::Cancelled;
    }
    receive(trace, "carl", other);
}

fn untold_end(trace: &mut Trace) {
    let journal = trace.journals.get_mut(&agent("alice")).expect("alice is here");
    journal.retain(|entry| !is_receipt_of(&entry.kind, |told| matches!(told, Notification::Closed(_))));
}

fn forged(trace: &mut Trace) {
    for entry in trace.journals.values_mut().flatten() {
        if let Noted::Sent { token_of, act: Act::Offer, .. } = &mut entry.kind {
            *token_of = agent("mallory");
        }
    }
}

fn overfull(trace: &mut Trace) {
    trace
        .loads
        .insert("engine-1 outbox".to_owned(), QueueLoad { seen_max: 11, limit: 10, is_asked_between_records: false });
}

/// The first delivery of a kind that an agent received.
fn received(trace: &Trace, name: &str, is_wanted: impl Fn(&Notification) -> bool) -> Arc<Delivery> {
    let mut journal = trace.journals[&agent(name)].iter();
    let found = journal.find_map(|entry| {
        let Noted::Received { delivery, .. } = &entry.kind else { return None };
        is_wanted(&delivery.payload).then(|| Arc::clone(delivery))
    });
    found.expect("the round tells it")
}

fn is_receipt_of(noted: &Noted, is_wanted: impl Fn(&Notification) -> bool) -> bool {
    matches!(noted, Noted::Received { delivery, .. } if is_wanted(&delivery.payload))
}

fn receive(trace: &mut Trace, name: &str, delivery: Delivery) {
    let entry = fixture::receipt(trace.ended_at, delivery);
    trace.journals.get_mut(&agent(name)).expect("known").push(entry);
}

fn append(trace: &mut Trace, entry: Entry) {
    let last = trace.records.last().expect("a round has records").clone();
    let bytes = Record::new("engine-1", vec![entry]).encode().expect("a record").into();
    trace.records.push(LogRecord { seq: last.seq + 1, bytes, ..last });
}

/// The id of the n-th message of a round.
fn msg_id(number: usize) -> MsgId {
    MsgId::try_new(&format!("m{number}")).expect("an id")
}
