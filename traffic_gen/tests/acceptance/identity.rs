//! Who said what, once and in which order: duplicates, conflicts, `seq`, ids, and ties.

use std::collections::BTreeSet;

use archive::audit;
use schemas::delivery::{Disposition, Outcome, RejectReason};
use schemas::{Digest, Position};
use serde_json::{Value, json};

use crate::party::{UNIT, offer};
use crate::rig::{Rig, policy};

const COURIERS: &[&str] = &["agent://bob", "agent://carol"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_with_another_body_gets_conflict_and_the_first_stands() {
    let rig = Rig::start().await;
    let (gateway, other_url) = rig.second_gateway().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high" })).await;
    let first = bob.document(&negotiation, offer(70));
    let msg_id = bob.send(&first).await;
    assert_eq!(bob.receipt(&msg_id).await.disposition, Disposition::Ok);

    let mut other = first.clone();
    other["payload"]["terms"]["price"] = json!(1);
    let (status, body) = bob.post(&other).await;
    assert_eq!((status, body["code"].as_str().unwrap()), (409, "conflict"), "a gateway that remembers says it at once");
    // Another gateway does not remember: it admits the message, and the fold tells the two apart.
    bob.url.clone_from(&other_url);
    bob.send(&other).await;
    let receipt = bob.nth_receipt(&msg_id, 1).await;
    assert_eq!((receipt.disposition, receipt.first), (Disposition::Conflict, Some(Disposition::Ok)));

    carol.offer(&negotiation, 80).await;
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!(awarded.contractor.as_str(), "bob");
    assert_eq!(serde_json::to_value(&awarded.terms).unwrap()["price"], 70 * UNIT, "the first stands");
    gateway.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_message_id_of_two_agents_is_two_messages() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high" })).await;
    for (party, price) in [(&mut bob, 70), (&mut carol, 60)] {
        let mut document = party.document(&negotiation, offer(price));
        document["envelope"]["msg_id"] = json!("mine");
        party.send(&document).await;
        assert_eq!(party.receipt("mine").await.disposition, Disposition::Ok);
    }
    assert_eq!(alice.awarded(&negotiation).await.offers, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_id_an_initiator_chooses_cannot_collide_with_anothers() {
    let rig = Rig::start().await;
    let (mut alice, mut mallory) = (rig.join("alice").await, rig.join("mallory").await);
    let mut bob = rig.join("bob").await;
    let theirs = mallory.call("job", &["agent://bob"], &json!({ "policy": "high" })).await;
    let ours = alice.call("job", &["agent://bob"], &json!({ "policy": "high" })).await;
    assert_eq!((ours.as_str(), theirs.as_str()), ("alice~job", "mallory~job"));
    // Not even by spelling the whole id.
    let squat = mallory.call_document("alice~other", &["agent://bob"], &json!({}));
    let (status, body) = mallory.post(&squat).await;
    assert_eq!((status, body["code"].as_str().unwrap()), (422, "bad_format"));
    // Nor does a second call under one's own id open, or change, anything.
    let mut again = alice.call_document("job", &["agent://bob"], &json!({ "policy": "low" }));
    again["envelope"]["seq"] = json!(9);
    let msg_id = alice.send(&again).await;
    assert_eq!(alice.receipt(&msg_id).await.disposition, Disposition::OutOfTurn);

    bob.offer(&theirs, 40).await;
    bob.offer(&ours, 60).await;
    assert_eq!(serde_json::to_value(alice.awarded(&ours).await.terms).unwrap()["price"], 60 * UNIT);
    assert_eq!(serde_json::to_value(mallory.awarded(&theirs).await.terms).unwrap()["price"], 40 * UNIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_arrives_after_its_senders_withdrawal_with_a_lower_seq_is_never_applied() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "high" })).await;
    let withdraw = json!({ "act": "withdraw" });
    let mut dispositions = Vec::new();
    // 2 was overtaken by 3 on the way.
    for (seq, payload) in [(1, offer(50)), (3, withdraw), (2, offer(10))] {
        let mut document = bob.document(&negotiation, payload);
        document["envelope"]["seq"] = json!(seq);
        let msg_id = bob.send(&document).await;
        dispositions.push(bob.receipt(&msg_id).await.disposition);
    }
    assert_eq!(dispositions, [Disposition::Ok, Disposition::Ok, Disposition::StaleSeq]);
    assert_eq!(bob.reject(&negotiation).await.reason, RejectReason::Withdrawn);
    carol.offer(&negotiation, 90).await;
    let awarded = alice.awarded(&negotiation).await;
    assert_eq!((awarded.contractor.as_str(), awarded.offers), ("carol", 1));
    carol.perform(&negotiation).await;
    assert_eq!(alice.closed(&negotiation).await.outcome, Outcome::Completed);
}

/// Rounds with a tie: enough that a preference for the reviser would show, few enough to be quick.
const TIES: u32 = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contractor_that_revises_its_offer_cannot_improve_its_place_in_a_tie() {
    let rig = Rig::start().await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let mut winners = BTreeSet::new();
    for round in 0..TIES {
        let negotiation = alice.call(&format!("tie-{round}"), COURIERS, &json!({ "policy": "high" })).await;
        for _ in 0..=round % 4 {
            bob.offer(&negotiation, 50).await;
        }
        carol.offer(&negotiation, 50).await;
        winners.insert(alice.awarded(&negotiation).await.contractor);
    }
    assert_eq!(winners.len(), 2, "in {TIES} ties each wins now and then");
    // The order is that of SHA-256(negotiation, contractor, closing position): nothing in it is the reviser's.
    let report = audit::verify(&audit::read_bus(&rig.exchange.bus).await.unwrap(), None);
    assert_eq!(report.decisions, u64::from(TIES));
    for decision in &report.recomputed {
        let decision: Value = serde_json::from_str(decision).unwrap();
        let closing: Position = serde_json::from_value(decision["position"].clone()).unwrap();
        let negotiation = decision["negotiation"].as_str().unwrap();
        let key = |contractor: &str| {
            Digest::of_parts(&[negotiation.as_bytes(), contractor.as_bytes(), closing.to_string().as_bytes()])
        };
        let ranked = [0, 1].map(|rank| decision["offers"][rank]["contractor"].as_str().unwrap());
        assert!(key(ranked[0]) < key(ranked[1]), "{decision}");
        assert_eq!(decision["offers"][0]["score"], decision["offers"][1]["score"], "it was a tie");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_first_offer_stands_a_revision_is_out_of_turn() {
    let refuse = policy("once@1", |policy| policy.offer_revision = schemas::policy::OfferRevision::Refuse);
    let rig = Rig::with_policies(vec![refuse]).await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);
    let negotiation = alice.call("job", COURIERS, &json!({ "policy": "once" })).await;
    assert_eq!(bob.offer(&negotiation, 50).await.disposition, Disposition::Ok);
    assert_eq!(bob.offer(&negotiation, 10).await.disposition, Disposition::OutOfTurn);
    carol.offer(&negotiation, 40).await;
    assert_eq!(alice.awarded(&negotiation).await.contractor.as_str(), "carol");
}
