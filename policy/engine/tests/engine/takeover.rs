//! What happens to a lane whose owner is gone, or is not the owner any more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bus::Bus;
use policy_engine::EngineHandle;
use schemas::record::{EngineEvent, Entry, Qos};
use schemas::{Act, DeliveryId};
use tokio::time::Instant;

use crate::exchange::{
    LANE, Probe, agent, append, award_no, call, confirm, engine_events, message, negotiation, offer, open_bus, policy,
    start, ticks,
};
use crate::many::{claims, owners};
use crate::register::GatedRegister;

/// Time until an engine is dead, and a heartbeat.
const TAKEN_OVER_MAX: Duration = Duration::from_millis(1200);

#[tokio::test(start_paused = true)]
async fn a_lane_whose_owner_crashes_moves_and_what_is_unacknowledged_is_sent_again() {
    let bus = open_bus();
    let (owner, standby) = pair(&bus).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let calls = ["a", "b"].map(|own| call(own, policy("high"), &["bob"], Qos::AtLeastOnce));
    append(&bus, calls.to_vec()).await;
    let sent = bob.next_message().await;
    bob.ack(sent[0].envelope.msg_id).await;
    settle().await;
    owner.abort();
    let crashed_at = Instant::now();
    assert_eq!(bob.next_message().await, sent[1..], "heard by both, so the other is not sent again");
    assert!(crashed_at.elapsed() <= TAKEN_OVER_MAX, "{:?}", crashed_at.elapsed());
    assert_eq!(owners(&[&standby]), [0]);
    bob.ack(sent[1].envelope.msg_id).await;
    assert!(bob.is_quiet(Duration::from_secs(9)).await);
    let mut logged = delivered(&bus).await;
    logged.retain(|id| sent.iter().any(|delivery| delivery.envelope.msg_id == *id));
    assert_eq!(logged.len(), 2, "the acknowledgement the crashed owner had not logged, too");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passes_after_the_owner_crashed_is_kept_by_the_next() {
    let bus = open_bus();
    let (owner, _standby) = pair(&bus).await;
    let (mut alice, mut bob) = (Probe::connect(&bus, "alice").await, Probe::connect(&bus, "bob").await);
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    alice.until(Act::Ack).await;
    bob.until(Act::Cfp).await;
    owner.abort();
    alice.until(Act::Closed).await;
    assert_eq!(ticks(&bus).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_the_owner_did_not_get_answered_is_made_by_the_next_and_lets_the_accept_out() {
    let bus = open_bus();
    let (mut blocked, mut counted) = (bus.clone(), bus.clone());
    let (first, second) = (GatedRegister::install(&mut blocked, 0, 0), GatedRegister::install(&mut counted, 100, 0));
    let owner = start(&blocked, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    bob.until(Act::Ack).await;
    owner.abort();
    let _standby = start(&counted, "engine-2").await;
    bob.until(Act::Accept).await;
    assert_eq!((first.asked.load(Ordering::Relaxed), second.asked.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_the_owner_has_registered_is_not_written_again_by_the_next() {
    let bus = open_bus();
    let mut counted = bus.clone();
    let register = GatedRegister::install(&mut counted, 100, 0);
    let owner = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    let accept = bob.until(Act::Accept).await;
    append(&bus, vec![message("bob", "job", "b2", confirm(award_no(&accept)))]).await;
    bob.until(Act::Ack).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    owner.abort();
    let next = start(&counted, "engine-2").await;
    assert_eq!(next.status().lanes[0].register_pending, 0);
    assert!(bob.is_quiet(Duration::from_secs(1)).await);
    assert_eq!(register.asked.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failure_logged_under_an_older_epoch_gives_nothing_up() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    // The claim of an engine that is never heard: it counts as alive for two seconds.
    let claim = EngineEvent::Claim { engine: "engine-x".to_owned() };
    append(&bus, vec![Entry::Engine { epoch: 7, event: claim }]).await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    assert!(bob.is_quiet(Duration::from_millis(1900)).await, "the lane is the other's");
    let cfp = bob.next().await;
    assert_eq!(claims(&bus, LANE).await, ["engine-1", "engine-x", "engine-1"]);
    append(&bus, vec![failure(cfp.envelope.msg_id, 7)]).await;
    assert_eq!(bob.next().await, cfp, "it is still sent");
    append(&bus, vec![failure(cfp.envelope.msg_id, 8)]).await;
    let told = bob.drain(Duration::from_secs(5)).await;
    assert!(!told.contains(&cfp), "now it is given up: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_outbid_sends_what_came_before_the_claim_and_nothing_behind_it() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let claim = EngineEvent::Claim { engine: "engine-x".to_owned() };
    append(&bus, vec![call("before", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    append(&bus, vec![Entry::Engine { epoch: 2, event: claim }]).await;
    append(&bus, vec![call("behind", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let sent = bob.next_message().await;
    assert_eq!(sent.iter().map(|cfp| &cfp.envelope.negotiation).collect::<Vec<_>>(), [&negotiation("before")]);
    assert!(bob.is_quiet(Duration::from_millis(1900)).await, "not even repeats");
    assert!(engine.is_ready(), "it stands by");
}

/// An owner and an engine that stands by.
async fn pair(bus: &Bus) -> (EngineHandle, EngineHandle) {
    let (one, two) = tokio::join!(start(bus, "engine-1"), start(bus, "engine-2"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    if owners(&[&one, &two]) == [0] { (one, two) } else { (two, one) }
}

/// Lets everything that is ready happen.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn failure(id: DeliveryId, epoch: u64) -> Entry {
    let (negotiation, to) = (negotiation("job"), agent("bob"));
    Entry::Engine { epoch, event: EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 4, may_answer: false } }
}

async fn delivered(bus: &Bus) -> Vec<DeliveryId> {
    let events = engine_events(bus).await.into_iter();
    events
        .flat_map(|event| match event {
            EngineEvent::Delivered { ids, .. } => ids,
            EngineEvent::Claim { .. }
            | EngineEvent::DeliveryFailed { .. }
            | EngineEvent::Abort { .. }
            | EngineEvent::Rules { .. } => Vec::new(),
        })
        .collect()
}
