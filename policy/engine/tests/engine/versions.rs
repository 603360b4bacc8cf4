//! Rules versions, state digests, and clocks: what makes an engine give a lane up, or refuse readiness.

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bytes::Bytes;
use policy_core::lane::RULES_VERSION;
use policy_engine::{Engine, EngineHandle, LanePhase, StopReason};
use schemas::record::{EngineEvent, Entry, Qos};
use schemas::{Act, Timestamp, subject};
use serde_json::{Value, json};

use crate::exchange::{Probe, append, call, config, engine_events, metrics, open_bus, open_lanes, policy, start};

#[tokio::test(start_paused = true)]
async fn a_lane_gets_the_rules_that_every_live_engine_folds_by_one_record() {
    let bus = open_bus();
    append(&bus, vec![rules(0)]).await;
    let (one, two) = tokio::join!(start(&bus, "engine-1"), start(&bus, "engine-2"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rules_logged(&bus).await, [0, RULES_VERSION]);
    assert_eq!((one.status().lanes[0].rules, two.status().lanes[0].rules), (RULES_VERSION, RULES_VERSION));
}

#[tokio::test(start_paused = true)]
async fn an_older_engine_holds_the_rules_back_until_it_is_gone() {
    let bus = open_bus();
    append(&bus, vec![rules(0)]).await;
    let older = start_older(&bus, "engine-1").await;
    let newer = start(&bus, "engine-2").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rules_logged(&bus).await, [0]);
    assert!(older.is_ready() && newer.is_ready());
    older.shutdown().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rules_logged(&bus).await, [0, RULES_VERSION]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_meets_newer_rules_gives_that_lane_up_and_goes_on_with_the_others() {
    let bus = open_lanes(2);
    append(&bus, vec![rules(0)]).await;
    crate::exchange::append_to(&bus, schemas::Lane(1), vec![rules(0)]).await;
    let older = start_older(&bus, "engine-1").await;
    append(&bus, vec![rules(1)]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let status = older.status();
    assert!(matches!(status.lanes[0].phase, LanePhase::Stopped(StopReason::NewerVersion(_))), "{status:?}");
    assert_eq!(status.lanes[1].phase, LanePhase::Owner);
    assert!(!status.is_ready());
    assert!(status.faults.iter().any(|fault| fault.contains("newer engine")), "{:?}", status.faults);
    let newer = start(&bus, "engine-2").await;
    assert_eq!(newer.status().lanes[0].phase, LanePhase::Owner, "another engine serves it");
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_another_state_after_the_same_records_stops_the_emission() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    for _ in 0..1100 {
        append(&bus, vec![Entry::Tick]).await;
    }
    let mut heartbeats = bus.pub_sub.subscribe(subject::ALL_HEARTBEATS.to_owned(), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut heartbeat: Value = Value::Null;
    while heartbeat["lanes"][0]["digests"].as_array().is_none_or(Vec::is_empty) {
        let received = futures_util::StreamExt::next(&mut heartbeats).await.unwrap();
        heartbeat = serde_json::from_slice(&received.payload).unwrap();
    }
    heartbeat["engine"] = json!("engine-x");
    publish_heartbeat(&bus, &heartbeat).await;
    assert!(engine.is_ready(), "the same digest");
    let another = "0".repeat(64);
    heartbeat["lanes"][0]["digests"][0]["digest"] = json!(another);
    publish_heartbeat(&bus, &heartbeat).await;
    let status = engine.status();
    let LanePhase::Stopped(StopReason::DigestMismatch { engine: other, position, theirs, .. }) = &status.lanes[0].phase
    else {
        panic!("{status:?}")
    };
    assert_eq!((other.as_str(), *position, theirs), ("engine-x", 1024, &another));
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    assert!(bob.is_quiet(Duration::from_secs(60)).await);
}

#[tokio::test(start_paused = true)]
async fn a_log_whose_clock_is_far_off_refuses_readiness_and_says_how_to_mend_it() {
    let bus = open_bus();
    let mut config = config("engine-1");
    let right = Arc::clone(&config.clock.now);
    config.clock.now = Arc::new(move || Timestamp(right().0 + 6_000_000));
    let engine = Engine::start(bus.clone(), config, metrics(), None).await.unwrap();
    let mut bob = Probe::connect(&bus, "bob").await;
    for own in ["a", "b", "c"] {
        append(&bus, vec![call(own, policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
        bob.until(Act::Cfp).await;
        // Meanwhile the engine logs what was acknowledged.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let status = engine.status();
    assert!(!status.is_ready(), "{status:?}");
    assert!(status.faults[0].contains("6000 ms behind") && status.faults[0].contains("NTP"), "{:?}", status.faults);
    assert_eq!(status.lanes[0].phase, LanePhase::Owner, "it serves on");
}

fn rules(version: u32) -> Entry {
    Entry::Engine { epoch: 9, event: EngineEvent::Rules { version } }
}

async fn rules_logged(bus: &Bus) -> Vec<u32> {
    let events = engine_events(bus).await.into_iter();
    events
        .filter_map(|event| match event {
            EngineEvent::Rules { version } => Some(version),
            EngineEvent::Claim { .. }
            | EngineEvent::Delivered { .. }
            | EngineEvent::DeliveryFailed { .. }
            | EngineEvent::Abort { .. } => None,
        })
        .collect()
}

/// An engine that folds no rules but version 0.
async fn start_older(bus: &Bus, id: &str) -> EngineHandle {
    let mut config = config(id);
    config.rules_newest = 0;
    Engine::start(bus.clone(), config, metrics(), None).await.unwrap()
}

async fn publish_heartbeat(bus: &Bus, heartbeat: &Value) {
    let payload = Bytes::from(serde_json::to_vec(heartbeat).unwrap());
    bus.pub_sub.publish(subject::heartbeat("engine-x"), payload).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
}
