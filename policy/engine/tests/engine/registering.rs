//! The second wall: what waits for the register, and what happens when it disagrees.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bus::Bus;
use bytes::Bytes;
use schemas::delivery::{Notification, Outcome};
use schemas::record::{EngineEvent, Qos};
use schemas::{Act, AwardNo, Lot, RegisterKey};
use tokio::time::Instant;

use crate::exchange::{Probe, append, award_no, call, confirm, engine_events, message, negotiation, offer, open_bus};
use crate::exchange::{policy, start};
use crate::register::GatedRegister;

#[tokio::test(start_paused = true)]
async fn no_accept_and_no_award_news_leave_before_the_register_has_answered() {
    let mut bus = open_bus();
    let register = GatedRegister::install(&mut bus, 0, 0);
    let _engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = open_round(&bus).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    let told = bob.drain(Duration::from_secs(5)).await;
    assert!(told.iter().all(|delivery| delivery.payload.act() == Act::Ack), "{told:?}");
    let news = alice.drain(Duration::from_millis(1)).await;
    assert!(news.iter().all(|delivery| delivery.payload.act() == Act::Ack), "{news:?}");
    assert_eq!(register.asked.load(Ordering::Relaxed), 1);

    register.gate.add_permits(1);
    let accept = bob.until(Act::Accept).await;
    alice.until(Act::Inform).await;
    append(&bus, vec![message("bob", "job", "b2", confirm(award_no(&accept)))]).await;
    assert!(bob.is_quiet(Duration::from_secs(1)).await, "`committed` waits for the award's end");
    register.gate.add_permits(1);
    bob.until(Act::Ack).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_register_lets_out_at_once_shares_a_message_with_what_was_ready_before() {
    let mut bus = open_bus();
    let register = GatedRegister::install(&mut bus, 0, 0);
    let _engine = start(&bus, "engine-1").await;
    let (_alice, mut bob) = open_round(&bus).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    register.until_asked().await;
    register.gate.add_permits(1);
    let told: Vec<_> = bob.next_message().await.iter().map(|delivery| delivery.payload.act()).collect();
    assert_eq!(told, [Act::Ack, Act::Accept]);
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_waits_no_longer_than_a_moment_for_a_register_that_does_not_answer() {
    let mut bus = open_bus();
    let register = GatedRegister::install(&mut bus, 0, 0);
    let _engine = start(&bus, "engine-1").await;
    let (_alice, mut bob) = open_round(&bus).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    register.until_asked().await;
    let asked_at = Instant::now();
    let told: Vec<_> = bob.next_message().await.iter().map(|delivery| delivery.payload.act()).collect();
    assert_eq!(told, [Act::Ack]);
    assert!(asked_at.elapsed() <= Duration::from_millis(2), "{:?}", asked_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_register_that_does_not_answer_is_asked_again_and_holds_the_accept_back() {
    let mut bus = open_bus();
    let register = GatedRegister::install(&mut bus, 100, 3);
    let _engine = start(&bus, "engine-1").await;
    let (_alice, mut bob) = open_round(&bus).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    bob.until(Act::Ack).await;
    // Gaps of 100, 200 and 400 ms.
    assert!(bob.is_quiet(Duration::from_millis(690)).await);
    bob.until(Act::Accept).await;
    assert_eq!(register.asked.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn another_value_in_the_register_aborts_the_negotiation_and_no_accept_ever_leaves() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let (mut alice, mut bob) = open_round(&bus).await;
    let foreign = Bytes::from_static(b"{\"another\":\"history\"}");
    bus.register.write(award(), foreign.clone()).await.unwrap();
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;

    let told = bob.drain(Duration::from_secs(600)).await;
    assert!(!told.iter().any(|delivery| delivery.payload.act() == Act::Accept), "{told:?}");
    let is_aborted =
        |told: &Notification| matches!(told, Notification::Closed(closing) if closing.outcome == Outcome::Aborted);
    assert!(told.iter().any(|delivery| is_aborted(&delivery.payload)), "{told:?}");
    let news = alice.drain(Duration::from_secs(600)).await;
    assert!(!news.iter().any(|delivery| delivery.payload.act() == Act::Inform), "{news:?}");
    assert!(news.iter().any(|delivery| is_aborted(&delivery.payload)), "{news:?}");
    assert_eq!(aborts(&bus).await, 1);
    assert_eq!(bus.register.value(award()).await.unwrap(), Some(foreign), "the first value stays");
    assert_eq!(engine.status().lanes[0].outbox, 0, "what could not leave is given up");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_found_while_catching_up_aborts_once_and_stays_aborted_after_a_restart() {
    let bus = open_bus();
    bus.register.write(award(), Bytes::from_static(b"{}")).await.unwrap();
    append(&bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    for id in ["engine-1", "engine-2"] {
        let engine = start(&bus, id).await;
        let told = bob.drain(Duration::from_secs(600)).await;
        assert!(!told.iter().any(|delivery| delivery.payload.act() == Act::Accept), "{told:?}");
        engine.shutdown().await;
        assert_eq!(aborts(&bus).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_write_again_what_the_register_holds() {
    let mut bus = open_bus();
    let register = GatedRegister::install(&mut bus, 100, 0);
    let engine = start(&bus, "engine-1").await;
    let (_alice, mut bob) = open_round(&bus).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    bob.until(Act::Accept).await;
    engine.shutdown().await;
    let asked = register.asked.load(Ordering::Relaxed);
    let _engine = start(&bus, "engine-2").await;
    assert!(bob.is_quiet(Duration::from_secs(1)).await);
    assert_eq!(register.asked.load(Ordering::Relaxed), asked);
}

/// A call of alice to bob under `low`, received by bob.
async fn open_round(bus: &Bus) -> (Probe, Probe) {
    let (alice, mut bob) = (Probe::connect(bus, "alice").await, Probe::connect(bus, "bob").await);
    append(bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    (alice, bob)
}

fn award() -> RegisterKey {
    RegisterKey::Award(negotiation("job"), Lot(0), AwardNo(1))
}

async fn aborts(bus: &Bus) -> usize {
    let events = engine_events(bus).await;
    let is_abort =
        |event: &&EngineEvent| matches!(event, EngineEvent::Abort { code, .. } if code == "register_conflict");
    events.iter().filter(is_abort).count()
}
