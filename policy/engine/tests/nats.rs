//! The engine on a real nats-server, in real time: what a memory bus cannot show. Needs `scripts/nats-server`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "engine/exchange.rs"]
#[allow(dead_code, reason = "shared with the tests on the memory bus")]
mod exchange;

use std::time::Duration;

use bus::Bus;
use bus::nats::{self, NatsOptions};
use nats_server::{LocalServer, LocalServerOptions};
use policy_engine::{Engine, EngineHandle, LanePhase, Trim};
use schemas::delivery::{Notification, Outcome};
use schemas::record::{Entry, Qos};
use schemas::{Act, RegisterKey};
use tokio::time::timeout;

use crate::exchange::{Probe, append, award_no, call, confirm, done, message, negotiation, offer, policy, start};

/// A round takes milliseconds, a restart of the server about a second.
const TEST_MAX: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_runs_on_a_real_server_and_survives_its_restart() {
    timeout(TEST_MAX, run_a_round_over_a_restart()).await.expect("the round ends in time");
}

async fn run_a_round_over_a_restart() {
    let mut server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let bus = nats::open(NatsOptions { lanes: Some(1), ..NatsOptions::new(server.url()) }).await.unwrap();
    let engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let accept = open_and_offer(&bus, &mut bob).await;

    server.kill();
    server.resume().await.unwrap();
    until_appended(&bus, message("bob", "job", "b2", confirm(accept))).await;
    bob.until(Act::Ack).await;
    until_appended(&bus, message("bob", "job", "b3", done())).await;
    let closed = bob.until(Act::Closed).await;
    assert!(matches!(closed.payload, Notification::Closed(ref closing) if closing.outcome == Outcome::Completed));
    assert!(engine.is_ready());
    engine.shutdown().await;

    let keys: Vec<_> = bus.register.entries().await.unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), 3, "award, its end, the close: {keys:?}");
    assert!(keys.contains(&RegisterKey::Closed(negotiation("job"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_moves_between_engines_on_a_real_server_and_outlives_its_log() {
    timeout(TEST_MAX, run_a_round_over_a_take_over()).await.expect("the round ends in time");
}

async fn run_a_round_over_a_take_over() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let bus = nats::open(NatsOptions { lanes: Some(1), ..NatsOptions::new(server.url()) }).await.unwrap();
    let (one, two) = (start_checkpointing(&bus, "engine-1").await, start_checkpointing(&bus, "engine-2").await);
    let mut bob = Probe::connect(&bus, "bob").await;
    let accept = open_and_offer(&bus, &mut bob).await;
    until_trimmed(&bus).await;

    let is_first = one.status().lanes[0].phase == LanePhase::Owner;
    let (owner, standby) = if is_first { (one, two) } else { (two, one) };
    owner.abort();
    append(&bus, vec![message("bob", "job", "b2", confirm(accept))]).await;
    bob.until(Act::Ack).await;
    assert_eq!(standby.status().lanes[0].phase, LanePhase::Owner);
    standby.shutdown().await;

    let next = start_checkpointing(&bus, "engine-3").await;
    assert_eq!(next.status().lanes[0].open, 1, "called long before what the log still holds");
    append(&bus, vec![message("bob", "job", "b3", done())]).await;
    let closed = bob.until(Act::Closed).await;
    assert!(matches!(closed.payload, Notification::Closed(ref closing) if closing.outcome == Outcome::Completed));
    next.shutdown().await;
}

/// A checkpoint every few records, and nothing kept in the log that is in one.
async fn start_checkpointing(bus: &Bus, id: &str) -> EngineHandle {
    let mut config = exchange::config(id);
    config.checkpoint.every_records = 3;
    config.checkpoint.every_ms = 200;
    config.trim = Trim::AfterCheckpoint;
    Engine::start(bus.clone(), config, exchange::metrics(), None).await.unwrap()
}

async fn until_trimmed(bus: &Bus) {
    while bus.log.trimmed(exchange::LANE).await.unwrap() < 3 {
        append(bus, vec![Entry::Tick]).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn open_and_offer(bus: &Bus, bob: &mut Probe) -> schemas::AwardNo {
    append(bus, vec![call("job", policy("low"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    append(bus, vec![message("bob", "job", "b1", offer(10))]).await;
    award_no(&bob.until(Act::Accept).await)
}

/// Appends, again while the connection is being restored: a client retries with the same bytes.
async fn until_appended(bus: &Bus, entry: schemas::record::Entry) {
    let record = schemas::record::Record::new("gateway-test", vec![entry]).encode().unwrap();
    while bus.log.append(exchange::LANE, record.clone().into()).await.is_err() {
        tokio::task::yield_now().await;
    }
}
