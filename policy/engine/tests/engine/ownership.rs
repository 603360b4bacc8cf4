//! Many engines on one bus: who owns what, and that nothing is done twice.

use std::time::Duration;

use policy_engine::EngineError;
use schemas::Lane;
use tokio::time::Instant;

use crate::exchange::{open_bus, open_lanes, records_of, start};
use crate::many::{Agents, claims, open, open_steadily, owners, without_heartbeats};

#[tokio::test(start_paused = true)]
async fn engines_that_start_together_share_the_lanes_with_one_claim_each() {
    let bus = open_lanes(8);
    let (one, two, three) = tokio::join!(start(&bus, "engine-1"), start(&bus, "engine-2"), start(&bus, "engine-3"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let owners = owners(&[&one, &two, &three]);
    for lane in (0..8).map(Lane) {
        let owner = format!("engine-{}", owners[usize::from(lane.0)] + 1);
        assert_eq!(claims(&bus, lane).await, [owner], "{lane:?}");
    }
    assert!((0..3).all(|engine| owners.contains(&engine)), "{owners:?}");
    assert!(one.is_ready() && two.is_ready() && three.is_ready());
}

#[tokio::test(start_paused = true)]
async fn several_engines_send_and_tick_no_more_than_one() {
    let (mut sent, mut ticked) = (Vec::new(), Vec::new());
    for engines in [&["engine-1"][..], &["engine-1", "engine-2", "engine-3"]] {
        let bus = open_lanes(4);
        let agents = Agents::connect(&bus).await;
        let mut handles = Vec::new();
        for id in engines {
            handles.push(start(&bus, id).await);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        for number in 0..40 {
            open(&bus, &format!("job-{number}")).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let times = agents.times_sent();
        assert!(times.values().all(|times| *times == 1), "{times:?}");
        sent.push(times.len());
        let mut ticks = 0;
        for lane in (0..4).map(Lane) {
            let records = records_of(&bus, lane).await;
            let entries = records.iter().flat_map(|(_, record)| &record.entries);
            ticks += entries.filter(|entry| matches!(entry, schemas::record::Entry::Tick)).count();
        }
        ticked.push(ticks);
    }
    assert_eq!(sent[0], sent[1]);
    assert!(sent[0] >= 40 * 3, "calls, receipts, closings: {sent:?}");
    assert_eq!(ticked[0], ticked[1]);
    assert!(ticked[0] >= 4, "{ticked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_joins_takes_its_lanes_over_and_nothing_is_sent_twice() {
    let bus = open_lanes(8);
    let agents = Agents::connect(&bus).await;
    let one = start(&bus, "engine-1").await;
    let joining = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        start(&bus, "engine-2").await
    };
    let (two, longest) = tokio::join!(joining, open_steadily(&bus, &agents, "job", 200));
    let owners = owners(&[&one, &two]);
    assert!(owners.contains(&0) && owners.contains(&1), "{owners:?}");
    let times = agents.times_sent();
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    assert!(longest <= Duration::from_millis(400), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_leaves_hands_over_at_once_and_nothing_is_sent_twice() {
    let bus = open_lanes(2);
    let agents = Agents::connect(&bus).await;
    let (one, two) = tokio::join!(start(&bus, "engine-1"), start(&bus, "engine-2"));
    let leaving = async {
        tokio::time::sleep(Duration::from_millis(333)).await;
        let before = Instant::now();
        one.shutdown().await;
        before.elapsed()
    };
    let (left_after, longest) = tokio::join!(leaving, open_steadily(&bus, &agents, "job", 200));
    assert_eq!(owners(&[&two]), [0, 0]);
    let times = agents.times_sent();
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    assert!(longest <= Duration::from_millis(400), "a gap of two heartbeats at most: {longest:?}");
    assert!(left_after <= Duration::from_millis(400), "{left_after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_engine_leaves_without_waiting_for_anybody() {
    let bus = open_bus();
    let engine = start(&bus, "engine-1").await;
    let before = Instant::now();
    engine.shutdown().await;
    assert!(before.elapsed() < Duration::from_millis(50), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_ready_within_two_beats() {
    let bus = open_bus();
    start(&bus, "engine-1").await.abort();
    let before = Instant::now();
    let engine = start(&bus, "engine-1").await;
    assert!(engine.is_ready());
    assert!(before.elapsed() <= Duration::from_millis(400), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn engines_that_cannot_hear_each_other_soon_leave_each_other_alone() {
    let bus = open_bus();
    let ingress_cancel = without_heartbeats(&bus);
    let (_one, _two) = tokio::join!(start(&ingress_cancel, "engine-1"), start(&ingress_cancel, "engine-2"));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let claims = claims(&bus, Lane(0)).await;
    assert!((2..=24).contains(&claims.len()), "{} claims in ten minutes", claims.len());
}

#[tokio::test(start_paused = true)]
async fn a_second_engine_of_one_id_is_refused_and_the_first_keeps_its_lanes_whatever_their_clocks_say() {
    let bus = open_lanes(4);
    let one = start(&bus, "engine-1").await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    for its_clock_ms in [7, u64::MAX / 2] {
        let mut config = crate::exchange::config("engine-1");
        config.clock.now = std::sync::Arc::new(move || schemas::Timestamp(its_clock_ms));
        let began = Instant::now();
        let starting = policy_engine::Engine::start(bus.clone(), config, crate::exchange::metrics(), None);
        let (two, status) = tokio::join!(starting, async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            one.status()
        });
        assert!(matches!(two, Err(EngineError::IdInUse(id)) if id == "engine-1"));
        assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
        assert!(status.faults.iter().any(|fault| fault.contains("same id")), "{:?}", status.faults);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(one.is_ready(), "{:?}", one.status().faults);
    }
    assert_eq!(owners(&[&one]), [0; 4]);
    for lane in (0..4).map(Lane) {
        assert_eq!(claims(&bus, lane).await, ["engine-1"], "{lane:?}: nobody else claimed it");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_was_killed_starts_again_under_its_id_as_soon_as_any_other() {
    let mut took = Vec::new();
    for next in ["engine-2", "engine-1"] {
        let bus = open_bus();
        let first = start(&bus, "engine-1").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        first.abort();
        let began = Instant::now();
        let next = start(&bus, next).await;
        while !next.status().lanes.iter().all(|lane| lane.phase == policy_engine::LanePhase::Owner) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        took.push(began.elapsed());
    }
    assert!(took[1] <= took[0], "another one, the same one: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_waits_for_one_of_its_id_that_is_leaving() {
    let bus = open_bus();
    let first = start(&bus, "engine-1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ((), next) = tokio::join!(first.shutdown(), start(&bus, "engine-1"));
    assert_eq!(owners(&[&next]), [0]);
    assert!(next.is_ready() || next.status().faults.iter().all(|fault| fault.contains("same id")));
}
