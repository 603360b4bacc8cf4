//! Cases 87 to 98: replays, order, duplication, and foreign hands in the log.
//!
//! Elsewhere: 88 and 89 in `identity`, 94 in `lost_acks`. Of 98 the half that can be reached from outside is here (what
//! cannot be read, and what no gateway would have written); a panic inside the fold needs a fault of ours and is the
//! engine's own test.

use bytes::Bytes;
use policy_engine::LanePhase;
use schemas::delivery::{CloseReason, Disposition, Outcome};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Record};
use schemas::{Act, Digest, Lane, NegotiationId};
use serde_json::json;

use crate::party::{Party, offer};
use crate::rig::{Rig, agent, policy, until};

const COURIERS: &[&str] = &["agent://bob", "agent://carol"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_message_at_two_gateways_at_once_counts_once() {
    let rig = Rig::start().await;
    let (gateway, other_url) = rig.second_gateway().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let mut bob_elsewhere = rig.join("bob").await;
    bob_elsewhere.url.clone_from(&other_url);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high" })).await;
    let document = bob.document(&negotiation, offer(50));
    let (here, there) = tokio::join!(bob.post(&document), bob_elsewhere.post(&document));
    assert_eq!((here.0, there.0), (202, 202), "87: both are in the log");
    let msg_id = document["envelope"]["msg_id"].as_str().unwrap();
    assert_eq!(bob.receipt(msg_id).await.disposition, Disposition::Ok);
    let receipt = bob.nth_receipt(msg_id, 1).await;
    assert_eq!((receipt.disposition, receipt.first), (Disposition::Duplicate, Some(Disposition::Ok)));
    // A call, too, opens one negotiation however often it comes.
    let call = alice.call_document("twice", COURIERS, &json!({ "policy": "high" }));
    let msg_id = alice.send(&call).await;
    alice.url.clone_from(&other_url);
    alice.send(&call).await;
    assert_eq!(alice.nth_receipt(&msg_id, 1).await.disposition, Disposition::Duplicate);
    carol.offer(&negotiation, 60).await;
    carol.offer("alice~twice", 60).await;
    assert_eq!(alice.awarded(&negotiation).await.offers, 2);
    assert_eq!(carol.count(Act::Cfp), 2, "one call for each negotiation");
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_after_the_gateway_has_forgotten_after_the_end_and_elsewhere_change_nothing() {
    let rig = Rig::start().await;
    // A gateway that was not there has nothing to forget: for it every message is new.
    let (gateway, other_url) = rig.second_gateway().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", &["agent://bob"], &json!({ "policy": "high" })).await;
    let document = bob.document(&negotiation, offer(50));
    let msg_id = bob.send(&document).await;
    let award = bob.accept(&negotiation).await;
    bob.url.clone_from(&other_url);
    bob.send(&document).await;
    assert_eq!(bob.nth_receipt(&msg_id, 1).await.disposition, Disposition::Duplicate, "90");
    let confirm = bob.document(&negotiation, json!({ "act": "confirm", "award_no": award.award_no }));
    let confirm_id = bob.send(&confirm).await;
    assert_eq!(bob.receipt(&confirm_id).await.disposition, Disposition::Committed);
    bob.say(&negotiation, json!({ "act": "inform", "kind": "done" })).await;
    assert_eq!(alice.closed(&negotiation).await.outcome, Outcome::Completed);

    bob.send(&document).await;
    let receipt = bob.nth_receipt(&msg_id, 2).await;
    assert_eq!((receipt.disposition, receipt.first), (Disposition::Duplicate, Some(Disposition::Ok)), "91 an offer");
    bob.send(&confirm).await;
    let receipt = bob.nth_receipt(&confirm_id, 1).await;
    let expected = (Disposition::Duplicate, Some(Disposition::Committed), Some(award.award_no));
    assert_eq!((receipt.disposition, receipt.first, receipt.award_no), expected, "91 a confirmation");

    // 92: the token binds the sender; the negotiation stands in the message.
    let (status, body) = carol.post(&document).await;
    assert_eq!((status, body["code"].as_str().unwrap()), (403, "unauthorized"), "92 by another agent");
    let elsewhere = alice.call("elsewhere", &["agent://carol"], &json!({ "policy": "high" })).await;
    let mut moved = document.clone();
    moved["envelope"]["negotiation"] = json!(elsewhere);
    bob.send(&moved).await;
    let disposition = bob
        .hear("the answer in the other negotiation", |delivery| {
            let schemas::delivery::Notification::Ack(receipt) = &delivery.payload else { return None };
            (delivery.envelope.negotiation.as_str() == elsewhere).then_some(receipt.disposition)
        })
        .await;
    assert_eq!(disposition, Disposition::Unauthorized, "92 in another negotiation");
    assert_eq!(bob.count(Act::Accept), 1);
    carol.offer(&elsewhere, 60).await;
    assert_eq!(alice.awarded(&elsewhere).await.offers, 1);
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_and_interleaved_messages_are_answered_by_their_place() {
    let rounds = policy("rounds@1", |policy| policy.max_rounds = 2);
    let rig = Rig::with_policies(vec![rounds]).await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "rounds" })).await;
    let too_much = json!({ "act": "offer", "terms": { "price": 2_000_000_000 }, "round": 1 });
    assert_eq!(bob.say(&negotiation, too_much.clone()).await.disposition, Disposition::PolicyReject);
    assert_eq!(carol.say(&negotiation, too_much.clone()).await.disposition, Disposition::PolicyReject);
    let second_call = |told: &schemas::delivery::Notification| {
        if let schemas::delivery::Notification::Cfp(call) = told { (call.round == 2).then_some(()) } else { None }
    };
    carol.told(&negotiation, "the second call", second_call).await;
    // 93: a message of the round before, and one of a round to come.
    let in_round = |round: u32| json!({ "act": "offer", "terms": { "price": 50 }, "round": round });
    assert_eq!(bob.say(&negotiation, in_round(1)).await.disposition, Disposition::StaleRound);
    assert_eq!(bob.say(&negotiation, in_round(3)).await.disposition, Disposition::OutOfTurn);
    let mut dispositions = Vec::new();
    for seq in [3, 1, 2, 4] {
        let mut document = bob.document(&negotiation, in_round(2));
        document["payload"]["terms"]["price"] = json!(seq);
        document["envelope"]["seq"] = json!(seq);
        let msg_id = bob.send(&document).await;
        dispositions.push(bob.receipt(&msg_id).await.disposition);
    }
    let expected = [Disposition::Ok, Disposition::StaleSeq, Disposition::StaleSeq, Disposition::Ok];
    assert_eq!(dispositions, expected, "93 reversed order");
    carol.say(&negotiation, json!({ "act": "refuse" })).await;
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!(serde_json::to_value(&awarded.terms).unwrap()["price"], 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_engines_late_records_and_ticks_of_any_number_decide_nothing() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high", "reply_within_ms": 10_000 })).await;
    let id = NegotiationId::try_new(&negotiation).unwrap();
    bob.offer(&negotiation, 50).await;
    let call = carol.hear("the call", |delivery| Some(delivery.envelope.msg_id)).await;
    let of_an_older_epoch = [
        EngineEvent::Abort { negotiation: id.clone(), code: "internal".to_owned() },
        EngineEvent::DeliveryFailed {
            id: call,
            negotiation: id.clone(),
            to: agent("carol"),
            attempts: 8,
            may_answer: false,
        },
        EngineEvent::Rules { version: 99 },
    ];
    for event in of_an_older_epoch {
        append(&rig, &id, vec![Entry::Engine { epoch: 0, event }]).await;
    }
    // 96, 97: a tick has no authority; time has not come, whatever round a timer was armed for.
    append(&rig, &id, vec![Entry::Tick, Entry::Tick]).await;
    append(&rig, &id, vec![Entry::Tick]).await;

    // 95: carol has not failed, and nothing is aborted.
    assert_eq!(carol.offer(&negotiation, 40).await.disposition, Disposition::Ok);
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!((awarded.contractor.as_str(), awarded.offers), ("carol", 2));
    assert_eq!(awarded.reason, CloseReason::AllResponded, "not the deadline");
    carol.perform(&negotiation).await;
    append(&rig, &id, vec![Entry::Tick]).await;
    assert_eq!(alice.closed(&negotiation).await.outcome, Outcome::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_gateway_would_have_written_is_skipped_and_the_lane_goes_on() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high" })).await;
    let id = NegotiationId::try_new(&negotiation).unwrap();
    for garbage in ["", "{", "[]", r#"{"v":1,"by":"x","entries":["huh"]}"#] {
        let lane = lane_of(&rig, &id);
        rig.exchange.bus.log.append(lane, Bytes::from_static(garbage.as_bytes())).await.unwrap();
    }
    append(&rig, &id, vec![foreign(&mut bob, &id, json!({ "act": "offer", "terms": 7 }))]).await;
    let other_sender = carol.document(&negotiation, offer(1)).to_string();
    append(&rig, &id, vec![message("bob", Act::Offer, &id, &other_sender)]).await;
    append(&rig, &id, vec![message("bob", Act::Offer, &id, "{}")]).await;
    assert_eq!(bob.receipt("bob-1").await.disposition, Disposition::Malformed, "98 a message that cannot be read");
    assert_eq!(
        bob.receipt("carol-1").await.disposition,
        Disposition::Unauthorized,
        "98 a sender that is not the token's"
    );

    bob.offer(&negotiation, 50).await;
    carol.offer(&negotiation, 60).await;
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!((awarded.contractor.as_str(), awarded.offers), ("bob", 2));
    assert!(rig.exchange.engine().is_ready(), "every lane is still served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_a_later_version_makes_the_engine_give_its_lane_up_and_no_other() {
    let rig = Rig::start().await;
    let (mut alice, mut bob) = (rig.join("alice").await, rig.join("bob").await);
    let id = NegotiationId::try_new("alice~first").unwrap();
    let record = Bytes::from_static(br#"{"v":99,"by":"later","entries":[]}"#);
    let lost = lane_of(&rig, &id);
    rig.exchange.bus.log.append(lost, record).await.unwrap();
    until("the lane is given up", async || (!rig.exchange.engine().is_ready()).then_some(())).await;
    let status = rig.exchange.engine().status();
    let stopped: Vec<Lane> =
        status.lanes.iter().filter(|lane| matches!(lane.phase, LanePhase::Stopped(_))).map(|lane| lane.lane).collect();
    assert_eq!(stopped, [lost], "to guess would be to decide otherwise than engines that understand it");
    let elsewhere = (0..)
        .map(|number| format!("job-{number}"))
        .find(|own_id| NegotiationId::form(&agent("alice"), own_id).unwrap().lane(rig.exchange.bus.log.lanes()) != lost)
        .unwrap();
    let negotiation = alice.call(&elsewhere, &["agent://bob"], &json!({ "policy": "high" })).await;
    bob.offer(&negotiation, 50).await;
    bob.perform(&negotiation).await;
    assert_eq!(alice.closed(&negotiation).await.outcome, Outcome::Completed);
}

fn lane_of(rig: &Rig, negotiation: &NegotiationId) -> Lane {
    negotiation.lane(rig.exchange.bus.log.lanes())
}

/// Appends a record past every gateway.
async fn append(rig: &Rig, negotiation: &NegotiationId, entries: Vec<Entry>) {
    let record = Record::new("foreign", entries).encode().unwrap();
    rig.exchange.bus.log.append(lane_of(rig, negotiation), record.into()).await.unwrap();
}

/// A document no schema would let through.
fn foreign(party: &mut Party, negotiation: &NegotiationId, payload: serde_json::Value) -> Entry {
    let document = party.document(negotiation.as_str(), payload).to_string();
    message(party.name(), Act::Offer, negotiation, &document)
}

fn message(from: &str, act: Act, negotiation: &NegotiationId, body: &str) -> Entry {
    Entry::Message(AdmittedMessage {
        from: agent(from),
        negotiation: negotiation.clone(),
        act,
        digest: Digest::of_bytes(body.as_bytes()),
        body: serde_json::value::RawValue::from_string(body.to_owned()).unwrap().into(),
        pinned: None,
        receipts_all: true,
        capabilities: Vec::new(),
    })
}
