use schemas::delivery::{
    Award, AwardReport, Cancellation, CloseReason, Closing, DeliveryEnvelope, EXCHANGE, Receipt, RejectReason,
    Rejection,
};
use schemas::{DocumentHash, Lane, Position, Timestamp, WireTime};
use serde_json::json;

use super::*;

#[test]
fn a_complete_round_violates_nothing() {
    let verdict = judged(&round());
    assert_eq!(verdict.violated(), 0, "{:?}", verdict.examples);
    for invariant in [Invariant::OneAward, Invariant::FinalNotice, Invariant::Terminates, Invariant::NoLateWinner] {
        assert!(verdict.by_name[&invariant].checked > 0, "{invariant:?} was never checked");
    }
}

#[test]
fn each_mutation_of_a_round_trips_its_invariant() {
    let drop_nth = |index: usize| {
        let mut script = round();
        script.remove(index);
        script
    };
    let plus = |agent: &str, number: u8, told: Notification| {
        let mut script = round();
        script.push(received(agent, number, told));
        script
    };
    let rejected = |reason| Notification::Reject(Rejection { offer_id: Some(offer(2)), reason, code: None });
    for (name, script, broken) in [
        ("no disposition", drop_nth(3), Invariant::NoLostAdmission),
        ("no reject", drop_nth(7), Invariant::FinalNotice),
        ("two rejects", plus("bob", 60, rejected(RejectReason::Outscored)), Invariant::FinalNotice),
        ("no end", drop_nth(9), Invariant::Terminates),
        ("two outcomes", plus("bob", 61, closed(Outcome::Cancelled)), Invariant::Absorbing),
        ("award to two", plus("bob", 62, accept(1, 1)), Invariant::OneAward),
        ("award of an unknown offer", plus("bob", 63, accept(2, 9)), Invariant::NoLateWinner),
        ("same id, other content", plus("bob", 8, closed(Outcome::Completed)), Invariant::Idempotent),
    ] {
        let verdict = judged(&script);
        assert!(verdict.by_name.get(&broken).is_some_and(|tally| tally.violated > 0), "{name}: {verdict:?}");
    }
}

#[test]
fn who_did_not_ask_is_owed_its_receipts_once_it_is_told_the_end_and_a_call_always() {
    let judged = |script: &[(AgentId, Observation)]| {
        let mut witness = Witness::default();
        for (agent, observation) in script {
            match observation {
                Observation::Accepted(msg_id) => witness.accepted(agent, msg_id, &negotiation()),
                Observation::Received(delivery) => witness.received(agent, delivery),
            }
        }
        witness.finish().by_name[&Invariant::NoLostAdmission].violated
    };
    let without = |index: usize| {
        let mut script = round();
        script.remove(index);
        script
    };
    assert_eq!(judged(&without(5)), 0, "nobody told bob how it ended");
    assert_eq!(judged(&without(3)), 1, "carl was told");
    let mut silent = round();
    silent.truncate(1);
    assert_eq!(judged(&silent), 1, "a call");
    let mut along = without(3);
    for (_, observation) in &mut along {
        if let Observation::Received(delivery) = observation
            && matches!(delivery.payload, Notification::Accept(_))
        {
            delivery.receipts = vec![Receipt { offer_id: Some(offer(1)), ..receipt("c1", Disposition::Ok) }];
        }
    }
    assert_eq!(judged(&along), 0, "it came along with the award");
}

#[test]
fn a_document_that_was_refused_asks_for_no_receipt_of_the_one_admitted_under_its_id() {
    let said = |receipt| json!({"envelope": {"msg_id": "r1", "receipt": receipt}}).to_string();
    for (documents, is_missed) in [
        (&[true][..], true),
        (&[true, true], true),
        (&[false], false),
        (&[false, true], false),
        (&[true, false], false),
    ] {
        let mut witness = Witness::default();
        for receipt in documents {
            witness.sent(&agent("bob"), &negotiation(), Act::Refuse, said(receipt).as_bytes());
        }
        witness.accepted(&agent("bob"), &MsgId::try_new("r1").unwrap(), &negotiation());
        let broken: Vec<Invariant> = witness.finish().violated_checks().collect();
        let expected = if is_missed { vec![Invariant::NoLostAdmission] } else { Vec::new() };
        assert_eq!(broken, expected, "{documents:?}");
    }
}

#[test]
fn an_award_under_another_document_than_the_first_in_common_and_a_report_under_another_are_noticed() {
    let hash = |name: &str| DocumentHash::of_bytes(name.as_bytes());
    let judged = |pinned: Option<&str>, named: Option<&str>| {
        let mut witness = Witness::default();
        let offer_of_bob =
            json!({"envelope": {"msg_id": "b1"}, "payload": {"documents": [hash("second"), hash("first")]}});
        witness.sent(&agent("bob"), &negotiation(), Act::Offer, offer_of_bob.to_string().as_bytes());
        let call = json!({"act": "cfp", "round": 1, "reply_by": "2026-01-01T00:00:00Z", "ends_by": "2026-01-01T00:00:00Z",
            "policy": "p@1", "policy_digest": "ab".repeat(32), "lots": 1,
            "documents": {"hashes": [hash("first"), hash("second")]}});
        let report = json!({"act": "inform", "kind": "done", "contractor": "bob", "award_no": 1, "lot": 0,
            "routine": named.map(|named| json!({"kind": "native", "hash": hash(named)}))});
        let mut award = json!(accept(1, 1));
        award["document"] = json!(pinned.map(hash));
        let called = Receipt { invited: Some(1), ..receipt("call", Disposition::Ok) };
        let ok = Receipt { offer_id: Some(offer(1)), ..receipt("b1", Disposition::Ok) };
        let told = [
            ("alice", Notification::Ack(called)),
            ("bob", serde_json::from_value(call).unwrap()),
            ("bob", Notification::Ack(ok)),
            ("bob", serde_json::from_value(award).unwrap()),
            ("alice", serde_json::from_value(report).unwrap()),
        ];
        for (number, (to, told)) in (1..).zip(told) {
            let (to, Observation::Received(delivery)) = received(to, number, told) else { panic!("received") };
            witness.received(&to, &delivery);
        }
        let tally = witness.finish_early().by_name[&Invariant::Pinned];
        (tally.checked, tally.violated)
    };
    for (pinned, named, expected) in [
        (Some("first"), None, (1, 0)),
        (Some("first"), Some("first"), (2, 0)),
        (Some("second"), None, (1, 1)),
        (None, None, (1, 1)),
        (Some("first"), Some("second"), (2, 1)),
    ] {
        assert_eq!(judged(pinned, named), expected, "{pinned:?} {named:?}");
    }
}

#[test]
fn two_live_commitments_on_one_lot_are_two_awards() {
    let mut script = round();
    script.push(received("bob", 70, accept(2, 2)));
    script.push(received("bob", 71, committed(2)));
    assert!(judged(&script).by_name[&Invariant::OneAward].violated > 0);
    script.push(received(
        "carl",
        72,
        Notification::Cancel(Cancellation { award_no: AwardNo(1), reason: "perform_timeout".to_owned() }),
    ));
    assert_eq!(judged(&script).by_name[&Invariant::OneAward].violated, 0);
}

#[test]
fn what_is_under_way_is_missed_at_rest_only_and_never_where_it_was_given_up() {
    let mut witness = watched(&round()[..7]);
    assert_eq!(witness.clone().finish_early().violated(), 0);
    let broken: Vec<Invariant> = witness.clone().finish().violated_checks().collect();
    assert_eq!(broken, [Invariant::FinalNotice, Invariant::Terminates]);
    for name in ["alice", "bob", "carl"] {
        witness.unreached(&agent(name), &negotiation());
    }
    assert_eq!(witness.finish().violated(), 0);
}

#[test]
fn a_round_whose_award_an_agent_of_others_left_unperformed_need_not_have_ended() {
    let seen: Script = round().into_iter().filter(|(name, _)| name.as_str() != "carl").take(5).collect();
    for (awarded, watched, is_broken) in [
        (&["carl"][..], &["alice", "bob"][..], false),
        (&["carl"], &["alice", "bob", "carl"], true),
        // Taken back, and given to one of the run's own.
        (&["carl", "bob"], &["alice", "bob"], true),
    ] {
        let mut script = seen.clone();
        for (number, name) in (1..).zip(awarded) {
            script.push(received("alice", 80 + number, news(u32::from(number), name)));
        }
        let watched_agents = watched.iter().map(|name| agent(name)).collect();
        let verdict = self::watched(&script).among_others(watched_agents).finish();
        let broken: Vec<Invariant> = verdict.violated_checks().collect();
        let expected = if is_broken { vec![Invariant::Terminates] } else { Vec::new() };
        assert_eq!(broken, expected, "{awarded:?} {watched:?}: {:?}", verdict.examples);
    }
}

type Script = Vec<(AgentId, Observation)>;

#[derive(Clone)]
enum Observation {
    Accepted(MsgId),
    Received(Box<Delivery>),
}

/// alice calls; carl (offer 1) wins and commits, bob (offer 2) is outscored; all is well.
fn round() -> Script {
    vec![
        accepted("alice", "call"),
        received("alice", 1, Notification::Ack(Receipt { invited: Some(2), ..receipt("call", Disposition::Ok) })),
        accepted("carl", "c1"),
        received("carl", 3, Notification::Ack(Receipt { offer_id: Some(offer(1)), ..receipt("c1", Disposition::Ok) })),
        accepted("bob", "b1"),
        received("bob", 4, Notification::Ack(Receipt { offer_id: Some(offer(2)), ..receipt("b1", Disposition::Ok) })),
        received("carl", 5, accept(1, 1)),
        received(
            "bob",
            8,
            Notification::Reject(Rejection { offer_id: Some(offer(2)), reason: RejectReason::Outscored, code: None }),
        ),
        received("carl", 6, committed(1)),
        received("alice", 7, closed(Outcome::Completed)),
        received("carl", 9, closed(Outcome::Completed)),
    ]
}

fn judged(script: &Script) -> Verdict {
    watched(script).finish()
}

fn watched(script: &[(AgentId, Observation)]) -> Witness {
    let mut witness = Witness::default();
    for (agent, observation) in script {
        match observation {
            Observation::Accepted(msg_id) => {
                witness.accepted(agent, msg_id, &negotiation());
                witness.asked(agent, msg_id, &negotiation());
            }
            Observation::Received(delivery) => witness.received(agent, delivery),
        }
    }
    witness
}

fn negotiation() -> NegotiationId {
    NegotiationId::try_new("alice~job").unwrap()
}

fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

fn offer(number: u64) -> OfferId {
    OfferId(Position { seq: number, index: 0 })
}

fn receipt(msg_id: &str, disposition: Disposition) -> Receipt {
    Receipt::new(MsgId::try_new(msg_id).unwrap(), disposition)
}

fn committed(award_no: u32) -> Notification {
    Notification::Ack(Receipt { award_no: Some(AwardNo(award_no)), ..receipt("confirm", Disposition::Committed) })
}

fn closed(outcome: Outcome) -> Notification {
    Notification::Closed(Closing {
        outcome,
        digest: Digest([0; 32]),
        detail: None,
        agreement: None,
        conclusion: None,
        tasks: Vec::new(),
    })
}

fn accept(award_no: u32, number: u64) -> Notification {
    Notification::Accept(Award {
        offer_id: offer(number),
        lot: Lot(0),
        award_no: AwardNo(award_no),
        terms: schemas::payload::Terms::new(),
        terms_digest: Digest([0; 32]),
        payment: None,
        document: None,
        confirm_by: WireTime(Timestamp(0)),
        brief: None,
    })
}

/// What alice is told of an award.
fn news(award_no: u32, contractor: &str) -> Notification {
    Notification::Inform(ProgressReport::Awarded(AwardReport {
        offer_id: offer(1),
        contractor: agent(contractor),
        lot: Lot(0),
        award_no: AwardNo(award_no),
        terms: schemas::payload::Terms::new(),
        payment: None,
        score: 1,
        reason: CloseReason::AllResponded,
        complete: true,
        offers: 2,
        decision: Digest([0; 32]),
        document: None,
    }))
}

fn accepted(name: &str, msg_id: &str) -> (AgentId, Observation) {
    (agent(name), Observation::Accepted(MsgId::try_new(msg_id).unwrap()))
}

fn received(name: &str, number: u8, payload: Notification) -> (AgentId, Observation) {
    let envelope = DeliveryEnvelope {
        msg_id: DeliveryId::new(Lane(0), [number; 16]),
        ts: WireTime(Timestamp(0)),
        from: EXCHANGE.to_owned(),
        to: [format!("agent://{name}")],
        negotiation: negotiation(),
        in_reply_to: None,
        traceparent: None,
    };
    (agent(name), Observation::Received(Box::new(Delivery { envelope, payload, receipts: Vec::new() })))
}
