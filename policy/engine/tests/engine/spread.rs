//! Engines that fold only the lanes they own and stand by for: who folds what, and how lanes are taken up and let go.

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use policy_engine::{Engine, EngineHandle, EngineMetrics, LanePhase};
use prometheus::Registry;
use schemas::Lane;
use schemas::record::Qos;
use tokio::time::Instant;

use crate::exchange::{LANE, Probe, append, call, config, metrics, open_bus, open_lanes, policy};
use crate::many::{Agents, claims, open, open_steadily, owners};
use crate::switched::SwitchedLog;

/// Longer than a lane is kept that need not be folded any more.
const LET_GO: Duration = Duration::from_secs(7);

#[tokio::test(start_paused = true)]
async fn of_four_engines_each_folds_half_of_the_records_of_eight_lanes() {
    let bus = open_lanes(8);
    let _agents = Agents::connect(&bus).await;
    let registries = [(); 4].map(|()| Registry::new());
    let mut engines = Vec::new();
    for (number, registry) in registries.iter().enumerate() {
        let metrics = Arc::new(EngineMetrics::new(registry).unwrap());
        engines.push(Engine::start(bus.clone(), config(&format!("engine-{number}")), metrics, None).await.unwrap());
    }
    tokio::time::sleep(LET_GO).await;
    let before = folded(&registries);
    for number in 0..400 {
        open(&bus, &format!("job-{number}")).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let after = folded(&registries);
    let folded: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    // Every record is folded twice: by its lane's owner and by the engine that stands by.
    let records = folded.iter().sum::<f64>() / 2.0;
    assert!(records >= 400.0, "{folded:?}");
    assert!(folded.iter().all(|of_engine| *of_engine <= 0.6 * records), "{folded:?} of {records}");
    for engine in &engines {
        assert_eq!(count(engine, &LanePhase::Owner), 2);
        assert_eq!(count(engine, &LanePhase::Standby), 2);
        assert_eq!(count(engine, &LanePhase::Elsewhere), 4);
        assert!(engine.is_ready());
        let elsewhere = engine.status().lanes.into_iter().filter(|lane| lane.phase == LanePhase::Elsewhere);
        assert!(elsewhere.into_iter().all(|lane| (lane.position, lane.open, lane.outbox) == (0, 0, 0)));
    }
    let positions = registries.iter().map(|registry| series(registry, "exchange_lane_position"));
    assert_eq!(positions.collect::<Vec<_>>(), [4; 4], "a lane folded elsewhere shows no position");
}

#[tokio::test(start_paused = true)]
async fn one_engine_folds_every_lane_whatever_stands_by() {
    for standbys in [0, 1, 3] {
        let bus = open_lanes(4);
        let engine = start(&bus, "engine-1", standbys).await;
        assert_eq!(count(&engine, &LanePhase::Owner), 4, "{standbys}");
    }
}

#[tokio::test(start_paused = true)]
async fn as_many_engines_stand_by_as_the_setting_says() {
    for standbys in 0..=3 {
        let bus = open_lanes(4);
        let mut engines = Vec::new();
        for number in 0..5 {
            engines.push(start(&bus, &format!("engine-{number}"), standbys).await);
        }
        tokio::time::sleep(2 * LET_GO).await;
        for lane in 0..4 {
            let in_phase =
                |phase: &LanePhase| engines.iter().filter(|engine| engine.status().lanes[lane].phase == *phase).count();
            assert_eq!((in_phase(&LanePhase::Owner), in_phase(&LanePhase::Standby)), (1, standbys), "lane {lane}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_nobody_else_folds_is_taken_up_when_its_owner_crashes_and_nothing_is_lost() {
    let bus = open_lanes(4);
    let agents = Agents::connect(&bus).await;
    let one = start(&bus, "engine-1", 0).await;
    let two = start(&bus, "engine-2", 0).await;
    tokio::time::sleep(LET_GO).await;
    assert_eq!((count(&one, &LanePhase::Owner), count(&one, &LanePhase::Elsewhere)), (2, 2));
    assert_eq!((count(&two, &LanePhase::Owner), count(&two, &LanePhase::Elsewhere)), (2, 2));
    open_steadily(&bus, &agents, "before", 40).await;
    one.abort();
    let longest = open_steadily(&bus, &agents, "behind", 40).await;
    assert!(longest <= Duration::from_millis(1400), "{longest:?}");
    assert_eq!(owners(&[&two]), [0; 4]);
    for lane in (0..4).map(Lane) {
        assert!(claims(&bus, lane).await.len() <= 3, "{lane:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_not_acknowledged_is_sent_again_by_an_engine_that_did_not_fold_the_lane() {
    let bus = open_bus();
    let (one, two) = (start(&bus, "engine-1", 0).await, start(&bus, "engine-2", 0).await);
    tokio::time::sleep(LET_GO).await;
    let is_first = one.status().lanes[0].phase == LanePhase::Owner;
    let (owner, other) = if is_first { (one, two) } else { (two, one) };
    assert_eq!(other.status().lanes[0].phase, LanePhase::Elsewhere);
    let mut bob = Probe::connect(&bus, "bob").await;
    append(&bus, vec![call("job", policy("high"), &["bob"], Qos::AtLeastOnce)]).await;
    let sent = bob.next_message().await;
    owner.abort();
    assert_eq!(bob.next_message().await, sent);
    assert_eq!(other.status().lanes[0].phase, LanePhase::Owner);
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_claimed_only_once_what_the_log_held_is_folded() {
    let bus = open_bus();
    start(&bus, "engine-1", 0).await.abort();
    for number in 0..200 {
        open(&bus, &format!("job-{number}")).await;
    }
    let mut slow = bus.clone();
    SwitchedLog::install_slow(&mut slow, Duration::from_millis(10));
    let began = Instant::now();
    let watching = async {
        while claims(&bus, LANE).await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    };
    let (engine, claimed_after) = tokio::join!(start(&slow, "engine-2", 0), watching);
    assert!(claimed_after >= Duration::from_secs(2), "{claimed_after:?}: two hundred records take two seconds");
    assert!(began.elapsed() <= Duration::from_millis(2500), "{:?}", began.elapsed());
    assert_eq!(engine.status().lanes[0].open, 200);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_leaves_waits_until_a_cold_engine_has_taken_its_lanes_up() {
    let bus = open_lanes(4);
    let agents = Agents::connect(&bus).await;
    let (one, two) = (start(&bus, "engine-1", 0).await, start(&bus, "engine-2", 0).await);
    tokio::time::sleep(LET_GO).await;
    let (longest, ()) = tokio::join!(open_steadily(&bus, &agents, "job", 60), one.shutdown());
    assert!(longest < Duration::from_millis(300), "{longest:?}");
    assert_eq!(owners(&[&two]), [0; 4]);
    assert!(agents.times_sent().values().all(|times| *times == 1));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_back_within_moments_makes_nobody_let_go_of_a_lane() {
    let bus = open_lanes(4);
    let one = start(&bus, "engine-1", 1).await;
    let two = start(&bus, "engine-2", 1).await;
    let three = start(&bus, "engine-3", 1).await;
    tokio::time::sleep(LET_GO).await;
    three.abort();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for engine in [&one, &two] {
        assert_eq!(count(engine, &LanePhase::Elsewhere), 0, "each stands by for the other");
    }
    let three = start(&bus, "engine-3", 1).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    for engine in [&one, &two] {
        assert_eq!(count(engine, &LanePhase::Elsewhere), 0, "kept for a while");
    }
    tokio::time::sleep(LET_GO).await;
    let elsewhere = [&one, &two, &three].map(|engine| count(engine, &LanePhase::Elsewhere));
    assert_eq!(elsewhere.iter().sum::<usize>(), 4, "{elsewhere:?}");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_joins_is_given_a_lane_only_once_it_has_caught_up_with_it() {
    let bus = open_bus();
    let agents = Agents::connect(&bus).await;
    let mut engines = vec![start(&bus, "engine-0", 0).await];
    // Whoever joins becomes the first of them sooner or later.
    for number in 1..6 {
        let (id, name) = (format!("engine-{number}"), format!("job-{number}"));
        let (joined, longest) = tokio::join!(start(&bus, &id, 0), open_steadily(&bus, &agents, &name, 30));
        assert!(longest < Duration::from_millis(300), "the lane is always owned: {longest:?}");
        engines.push(joined);
    }
    assert!(agents.times_sent().values().all(|times| *times == 1));
    let began = Instant::now();
    while engines.iter().filter(|engine| engine.status().lanes[0].phase == LanePhase::Elsewhere).count() < 5 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(began.elapsed() <= LET_GO, "the others let it go");
    }
    assert!(claims(&bus, LANE).await.len() >= 2, "it moved");
}

async fn start(bus: &Bus, id: &str, standbys: usize) -> EngineHandle {
    let mut config = config(id);
    config.standbys = standbys;
    Engine::start(bus.clone(), config, metrics(), None).await.unwrap()
}

fn count(engine: &EngineHandle, phase: &LanePhase) -> usize {
    engine.status().lanes.iter().filter(|lane| lane.phase == *phase).count()
}

fn folded(registries: &[Registry]) -> Vec<f64> {
    let sample = |registry: &Registry| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == "exchange_records_folded_total").unwrap();
        family.get_metric()[0].get_counter().get_value()
    };
    registries.iter().map(sample).collect()
}

fn series(registry: &Registry, name: &str) -> usize {
    let families = registry.gather();
    families.iter().find(|family| family.name() == name).map_or(0, |family| family.get_metric().len())
}
