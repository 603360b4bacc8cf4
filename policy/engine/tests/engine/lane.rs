//! Lanes: start, restart, take-over, views, records that cannot be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::LogRecord;
use bytes::Bytes;
use policy_core::Event;
use policy_engine::{Engine, EngineConfig, EngineError, EngineMetrics, FoldObserver, MembershipConfig, StopReason};
use prometheus::Registry;
use schemas::admission::LaneQueue;
use schemas::record::{Qos, Record};
use schemas::{Act, Lane, subject};

use crate::exchange::{
    LANE, Probe, append, call, config, message, metrics, negotiation, offer, open_bus, policy, sample, start,
};

#[tokio::test(start_paused = true)]
async fn a_restart_sends_again_only_what_was_not_acknowledged() {
    let bus = open_bus();
    let first = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let calls = ["a", "b", "c"].map(|own| call(own, policy("high"), &["bob"], Qos::AtLeastOnce));
    append(&bus, calls.to_vec()).await;
    let sent = bob.next_message().await;
    bob.ack(sent[0].envelope.msg_id).await;
    bob.ack(sent[2].envelope.msg_id).await;
    first.shutdown().await;

    let _second = start(&bus, "engine-2").await;
    assert_eq!(bob.next_message().await, sent[1..2], "the same document under the same id");
    bob.ack(sent[1].envelope.msg_id).await;
    assert!(bob.is_quiet(Duration::from_secs(9)).await);
}

#[tokio::test(start_paused = true)]
async fn what_was_logged_while_no_engine_ran_is_acted_on_at_the_next_start() {
    let bus = open_bus();
    append(&bus, vec![call("job", policy("low"), &["bob", "carol"], Qos::BestEffort)]).await;
    append(&bus, vec![message("bob", "job", "b1", offer(10))]).await;
    let mut bob = Probe::connect(&bus, "bob").await;
    let _engine = start(&bus, "engine-1").await;
    let told: Vec<_> = bob.next_message().await.iter().map(|delivery| delivery.payload.act()).collect();
    assert_eq!(told, [Act::Cfp, Act::Ack, Act::Accept], "best effort too: no engine can have sent it before");
}

#[tokio::test(start_paused = true)]
async fn best_effort_is_not_sent_again_by_the_next_engine() {
    let bus = open_bus();
    let first = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::BestEffort)]).await;
    assert_eq!(bob.next().await.payload.act(), Act::Cfp);
    first.shutdown().await;
    let _second = start(&bus, "engine-2").await;
    assert!(bob.is_quiet(Duration::from_secs(9)).await);
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_holds_the_log_back_and_silence_empties_it() {
    let bus = open_bus();
    let mut config = config("engine-1");
    config.outbox.in_flight_max = 3;
    let engine = Engine::start(bus.clone(), config, metrics(), None).await.unwrap();
    for number in 0..6 {
        append(&bus, vec![call(&format!("job-{number}"), policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    }
    let end = bus.log.last_seq(LANE).await.unwrap();
    let mut bob = Probe::connect(&bus, "bob").await;
    assert!(!bob.is_quiet(Duration::from_secs(1)).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = engine.status();
    assert!(status.lanes[0].position < end, "the lane waits for room");
    let told = status.lanes[0].admission.unwrap();
    assert!(told.wait_ms >= 500 && told.queue == Some(LaneQueue::Records), "and says so: {told:?}");
    // Nobody acknowledges anything: every delivery is given up in turn.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let status = engine.status();
    assert!(status.is_ready());
    let lane = &status.lanes[0];
    assert_eq!((lane.position, lane.outbox), (bus.log.last_seq(LANE).await.unwrap(), 0));
    assert!(lane.admission.unwrap().queue.is_none(), "{lane:?}");
}

#[tokio::test(start_paused = true)]
async fn a_tap_hears_every_record_and_event_the_catch_up_included() {
    let bus = open_bus();
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let heard = Arc::new(Heard::default());
    let observer = Arc::clone(&heard) as Arc<dyn FoldObserver>;
    let _engine = Engine::start(bus.clone(), config("engine-1"), metrics(), Some(observer)).await.unwrap();
    append(&bus, vec![call("another", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    Probe::connect(&bus, "bob").await.until(Act::Cfp).await;
    assert_eq!(heard.records.load(Ordering::Relaxed), 3, "two calls and a claim");
    assert_eq!(heard.started.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn gauges_tell_the_state_and_counters_what_nobody_else_has_counted() {
    let bus = open_bus();
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let registry = Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
    let engine = Engine::start(bus.clone(), config("engine-1"), metrics, None).await.unwrap();
    let open = || sample(&registry, "exchange_negotiations_open", "collecting");
    let started = || sample(&registry, "exchange_negotiations_started_total", "contract_net");
    assert_eq!((open(), started()), (1.0, 1.0), "called while no engine ran");

    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("another", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    assert_eq!((open(), started()), (2.0, 2.0));
    bob.drain(Duration::from_secs(60)).await;
    let ended = sample(&registry, "exchange_negotiations_closed_total", "no_offers");
    assert_eq!((open(), ended), (0.0, 2.0), "both ran into their deadline");
    assert_eq!(sample(&registry, "exchange_deadline_misses_total", "collecting"), 2.0);
    assert_eq!(sample(&registry, "exchange_deadline_misses_total", "awarding"), 0.0);

    append(&bus, vec![call("third", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    assert_eq!(open(), 1.0);
    engine.shutdown().await;
    assert_eq!(open(), 0.0, "an engine that has stopped claims nothing");
}

#[tokio::test(start_paused = true)]
async fn a_view_is_answered_to_parties_only() {
    let bus = open_bus();
    let _engine = start(&bus, "engine-1").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    for (viewer, is_found) in [("alice", true), ("bob", true), ("mallory", false)] {
        let request = serde_json::json!({"negotiation": negotiation("job"), "viewer": viewer});
        let answer = ask(&bus, serde_json::to_vec(&request).unwrap()).await;
        assert_eq!(answer.get("found").is_some(), is_found, "{viewer}: {answer}");
        assert_eq!(answer.get("not_found").is_some(), !is_found, "{viewer}: {answer}");
    }
    assert_eq!(ask(&bus, b"nonsense".to_vec()).await, serde_json::json!({"not_found": true}));
}

#[tokio::test(start_paused = true)]
async fn a_record_nobody_can_read_is_skipped() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    bus.log.append(LANE, Bytes::from_static(b"\xff not a record")).await.unwrap();
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    bob.until(Act::Cfp).await;
    assert!(engine.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_lane_written_by_a_newer_version_is_given_up() {
    let bus = open_bus();
    let newer = Record { v: 99, ..Record::new("gateway-test", Vec::new()) }.encode().unwrap();
    bus.log.append(LANE, Bytes::from(newer)).await.unwrap();
    let refused = Engine::start(bus.clone(), EngineConfig::new("engine-1"), metrics(), None).await;
    assert!(
        matches!(refused, Err(EngineError::LaneStopped { lane: LANE, reason: StopReason::NewerVersion(_) })),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_work_is_refused() {
    let bus = open_bus();
    let with_lanes = |lanes: &[u8]| EngineConfig {
        lanes: Some(lanes.iter().copied().map(Lane).collect()),
        ..EngineConfig::new("engine-1")
    };
    let refused = Engine::start(bus.clone(), with_lanes(&[0, 7]), metrics(), None).await;
    assert!(matches!(refused, Err(EngineError::NoSuchLane { lane: Lane(7), lanes: 1 })), "{refused:?}");
    let ingress_cancel = EngineConfig {
        membership: MembershipConfig { heartbeat_ms: 600, dead_after_ms: 1000 },
        ..EngineConfig::new("engine-1")
    };
    let newer = EngineConfig { rules_newest: 99, ..EngineConfig::new("engine-1") };
    for config in [with_lanes(&[]), EngineConfig::new(""), EngineConfig::new("engine.1"), ingress_cancel, newer] {
        let refused = Engine::start(bus.clone(), config, metrics(), None).await;
        assert!(matches!(refused, Err(EngineError::Config(_))), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_after_a_shutdown() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let mut bob = Probe::connect(&bus, "bob").await;
    engine.shutdown().await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    assert!(bob.is_quiet(Duration::from_secs(600)).await);
}

#[derive(Default)]
struct Heard {
    records: AtomicUsize,
    started: AtomicUsize,
}

impl FoldObserver for Heard {
    fn on_record(&self, _: &LogRecord) {
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    fn on_event(&self, _: Lane, event: &Event) {
        self.started.fetch_add(usize::from(matches!(event, Event::Started { .. })), Ordering::Relaxed);
    }
}

async fn ask(bus: &bus::Bus, request: Vec<u8>) -> serde_json::Value {
    let timeout = Duration::from_secs(1);
    let answer = bus.pub_sub.request(subject::view(LANE), None, Bytes::from(request), timeout).await.unwrap();
    serde_json::from_slice(&answer).unwrap()
}
