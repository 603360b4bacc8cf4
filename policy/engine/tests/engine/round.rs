//! Whole rounds.

use std::time::Duration;

use schemas::delivery::{Disposition, Notification, Outcome};
use schemas::record::{EngineEvent, Qos};
use schemas::{Act, RegisterKey};

use crate::exchange::{
    Probe, append, award_no, call, confirm, done, engine_events, message, negotiation, offer, open_bus, policy, start,
    ticks,
};

#[tokio::test(start_paused = true)]
async fn a_round_runs_from_the_call_to_the_last_acknowledgement() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);

    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    let accept = bob.until(Act::Accept).await;
    append(&bus, vec![message("bob", "job", "b2", confirm(award_no(&accept)))]).await;
    let committed = bob.until(Act::Ack).await;
    assert!(
        matches!(committed.payload, Notification::Ack(ref receipt) if receipt.disposition == Disposition::Committed)
    );
    append(&bus, vec![message("bob", "job", "b3", done())]).await;
    let closed = bob.until(Act::Closed).await;
    assert!(matches!(closed.payload, Notification::Closed(ref closing) if closing.outcome == Outcome::Completed));
    let told: Vec<_> =
        alice.drain(Duration::from_millis(50)).await.iter().map(|delivery| delivery.payload.act()).collect();
    assert!(told.contains(&Act::Ack) && told.contains(&Act::Inform) && told.contains(&Act::Closed), "{told:?}");

    bob.drain(Duration::from_secs(5)).await;
    let status = engine.status();
    assert!(status.is_ready());
    assert_eq!((status.lanes[0].open, status.lanes[0].outbox, status.lanes[0].register_pending), (0, 0, 0));
    let keys: Vec<_> = bus.register.entries().await.unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), 3, "award, its end, the close: {keys:?}");
    assert!(keys.contains(&RegisterKey::Closed(negotiation("job"))));
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_exchange_appends_nothing() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    bob.drain(Duration::from_secs(3600)).await;
    alice.drain(Duration::from_secs(3600)).await;
    let end = bus.log.last_seq(crate::exchange::LANE).await.unwrap();
    tokio::time::advance(Duration::from_secs(86_400)).await;
    assert!(alice.is_quiet(Duration::from_secs(86_400)).await);
    assert_eq!(bus.log.last_seq(crate::exchange::LANE).await.unwrap(), end);
    assert!(engine.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_appended_only_when_a_deadline_has_passed_and_no_record_has() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    alice.until(Act::Ack).await;
    assert!(alice.is_quiet(Duration::from_millis(9_990)).await);
    assert_eq!(ticks(&bus).await, 0);
    let closed = alice.until(Act::Closed).await;
    assert!(matches!(closed.payload, Notification::Closed(ref closing) if closing.outcome == Outcome::NoOffers));
    assert_eq!(ticks(&bus).await, 1);
}

#[tokio::test(start_paused = true)]
async fn acknowledged_deliveries_are_logged_in_batches() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let calls = (0..300).map(|number| call(&format!("job-{number}"), policy("high"), &["bob"], Qos::AtLeastOnce));
    let calls: Vec<_> = calls.collect();
    for calls in calls.chunks(100) {
        append(&bus, calls.to_vec()).await;
    }
    let deliveries = bob.drain(Duration::from_millis(1)).await;
    assert_eq!(deliveries.len(), 300);
    assert!(bob.is_quiet(Duration::from_secs(3)).await);
    let batches: Vec<usize> = engine_events(&bus)
        .await
        .into_iter()
        .filter_map(|event| match event {
            EngineEvent::Delivered { ids, .. } => Some(ids.len()),
            EngineEvent::Claim { .. }
            | EngineEvent::DeliveryFailed { .. }
            | EngineEvent::Abort { .. }
            | EngineEvent::Rules { .. } => None,
        })
        .collect();
    assert_eq!(batches.iter().sum::<usize>(), 300);
    assert!(batches.len() <= 3, "{batches:?}");
}
