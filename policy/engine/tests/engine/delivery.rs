//! Deliveries: repeats, acknowledgements, bundles, hellos.

use std::time::Duration;

use bytes::Bytes;
use schemas::delivery::{Notification, Outcome};
use schemas::payload::Reasoned;
use schemas::record::{EngineEvent, Qos};
use schemas::{Act, AwardNo, Payload, subject};
use tokio::time::Instant;

use crate::exchange::{
    Probe, agent, append, award_no, call, call_the_present, engine_events, message, negotiation, offer, open_bus,
    policy, start,
};

#[tokio::test(start_paused = true)]
async fn unacknowledged_deliveries_are_repeated_at_growing_gaps_and_then_logged_and_folded_as_failed() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    let called_at = Instant::now();
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;

    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let call = bob.next().await;
        assert_eq!(call.payload.act(), Act::Cfp);
        ids.push(call.envelope.msg_id);
        times.push(Instant::now());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "the receiver sees one id");
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] >= Duration::from_millis(100) && gaps.windows(2).all(|pair| pair[1] > pair[0]), "{gaps:?}");

    // Nobody else was called: the failure is the last response, so collection closes before its deadline.
    let closed = alice.until(Act::Closed).await;
    assert!(matches!(closed.payload, Notification::Closed(ref closing) if closing.outcome == Outcome::NoOffers));
    assert!(called_at.elapsed() < Duration::from_secs(3));
    let failed = EngineEvent::DeliveryFailed {
        id: ids[0],
        negotiation: negotiation("job"),
        to: agent("bob"),
        attempts: 4,
        may_answer: false,
    };
    assert_eq!(engine_events(&bus).await.into_iter().filter(|event| *event == failed).count(), 1);
    alice.drain(Duration::from_secs(600)).await;
    assert_eq!(engine.status().lanes[0].outbox, 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_three_attempts_did_not_deliver_counts_as_an_answer_and_an_offer_that_comes_later_is_taken() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let (mut bob, mut carol) = (Probe::connect(&bus, "bob").await, Probe::connect(&bus, "carol").await);
    append(&bus, vec![call_the_present("job", policy("high"), &["bob", "carol"])]).await;
    bob.until(Act::Cfp).await;
    let failed =
        |event: &EngineEvent| matches!(event, EngineEvent::DeliveryFailed { attempts: 3, may_answer: true, .. });
    let mut events = engine_events(&bus).await;
    let called_at = Instant::now();
    while !events.iter().any(failed) {
        assert!(called_at.elapsed() < Duration::from_secs(10), "three attempts take less: {events:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        events = engine_events(&bus).await;
    }
    assert_eq!(events.iter().filter(|event| failed(event)).count(), 1, "carol's: {events:?}");
    append(&bus, vec![message("carol", "job", "c1", offer(3))]).await;
    append(&bus, vec![message("bob", "job", "b1", offer(500))]).await;
    let offered_at = Instant::now();
    // A draw says who is first. Nobody confirms, so the other one is the runner-up: carol is one of
    // both, though her call had been given up before she offered.
    let (first, is_bob) = tokio::select! {
        biased;
        award = bob.until(Act::Accept) => (award, true),
        award = carol.until(Act::Accept) => (award, false),
    };
    assert!(offered_at.elapsed() < Duration::from_secs(1), "everybody has answered: {:?}", offered_at.elapsed());
    let second = if is_bob { carol.until(Act::Accept).await } else { bob.until(Act::Accept).await };
    assert_eq!((award_no(&first), award_no(&second)), (AwardNo(1), AwardNo(2)));
}

#[tokio::test(start_paused = true)]
async fn dropped_acknowledgements_cost_one_repeat_each_and_nothing_more() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let first = bob.next().await;
    for _ in 0..2 {
        assert_eq!(bob.next().await, first);
    }
    bob.ack(first.envelope.msg_id).await;
    assert!(bob.is_quiet(Duration::from_secs(9)).await);
    let events = engine_events(&bus).await;
    assert!(events.contains(&EngineEvent::Delivered { ids: vec![first.envelope.msg_id], registered: 0 }), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, EngineEvent::DeliveryFailed { to, .. } if *to == agent("bob"))));
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_of_another_agent_does_not_count() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let (mut bob, mallory) = (Probe::connect(&bus, "bob").await, Probe::connect(&bus, "mallory").await);
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let first = bob.next().await;
    mallory.ack(first.envelope.msg_id).await;
    assert_eq!(bob.next().await, first);
}

#[tokio::test(start_paused = true)]
async fn one_acknowledgement_message_may_settle_many_deliveries() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let calls = ["a", "b", "c"].map(|own| call(own, policy("high"), &["bob"], Qos::AtLeastOnce));
    append(&bus, calls.to_vec()).await;
    let ids: Vec<_> = bob.next_message().await.iter().map(|delivery| delivery.envelope.msg_id).collect();
    let body = Bytes::from(serde_json::to_vec(&ids[1..]).unwrap());
    bus.pub_sub.publish(subject::ack(&agent("bob"), ids[0]), body).await.unwrap();
    assert!(bob.is_quiet(Duration::from_secs(9)).await);
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_one_record_to_one_agent_share_an_inbox_message() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let (mut bob, mut carol) = (Probe::connect(&bus, "bob").await, Probe::connect(&bus, "carol").await);
    let calls = ["a", "b", "c"].map(|own| call(own, policy("high"), &["bob", "carol"], Qos::AtLeastOnce));
    append(&bus, calls.to_vec()).await;
    for probe in [&mut bob, &mut carol] {
        let told: Vec<_> =
            probe.next_message().await.into_iter().map(|delivery| delivery.envelope.negotiation).collect();
        assert_eq!(told, ["a", "b", "c"].map(negotiation));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hello_brings_what_is_unacknowledged_at_once() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let calls = ["a", "b"].map(|own| call(own, policy("high"), &["bob"], Qos::AtLeastOnce));
    append(&bus, calls.to_vec()).await;
    tokio::time::sleep(Duration::from_millis(150)).await;

    let mut bob = Probe::connect(&bus, "bob").await;
    let before = Instant::now();
    bob.hello().await;
    let missed = bob.next_message().await;
    assert_eq!(missed.len(), 2);
    assert_eq!(before.elapsed(), Duration::ZERO, "no backoff is waited for");
    bob.ack(missed[0].envelope.msg_id).await;
    bob.hello().await;
    assert_eq!(bob.next_message().await, missed[1..]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_answers_each_rejection_after_the_end_by_an_offer_is_rejected_once() {
    let bus = open_bus();
    let first = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    append(&bus, vec![message("alice", "job", "a1", Payload::Cancel(Reasoned::default()))]).await;
    bob.drain(Duration::from_secs(2)).await;
    append(&bus, vec![message("bob", "job", "b0", offer(1))]).await;
    let mut acts = Vec::new();
    for number in 1..10 {
        let heard = bob.drain(Duration::from_secs(2)).await;
        acts.extend(heard.iter().map(|delivery| delivery.payload.act()));
        for _ in heard.iter().filter(|delivery| delivery.payload.act() == Act::Reject) {
            append(&bus, vec![message("bob", "job", &format!("b{number}"), offer(number))]).await;
        }
    }
    assert_eq!(acts, [Act::Ack, Act::Reject, Act::Ack]);
    first.abort();
    let second = start(&bus, "engine-2").await;
    assert!(bob.is_quiet(Duration::from_secs(10)).await, "nor does the next owner send what was not");
    assert_eq!(second.status().lanes[0].outbox, 0);
}

#[tokio::test(start_paused = true)]
async fn a_best_effort_call_is_sent_once() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::BestEffort)]).await;
    assert_eq!(bob.next().await.payload.act(), Act::Cfp);
    assert!(bob.is_quiet(Duration::from_secs(9)).await);
}
