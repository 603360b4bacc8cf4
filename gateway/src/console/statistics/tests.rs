use schemas::Timestamp;
use serde_json::{Value, json};

use super::*;

#[test]
fn a_pulse_counts_only_under_its_engines_own_subject_and_name() {
    let mut statistics = EngineStatistics::default();
    let good = sample("engine-1", 1, 0);
    for (on, payload) in [
        ("engine.engine-2.statistics", good.clone()),
        ("engine.engine-1.heartbeat", good.clone()),
        ("engine.engine-1.statistics", b"{}".to_vec()),
        ("engine.engine-1.statistics", b"\xff".to_vec()),
        ("engine.engine-1.statistics", vec![b' '; STATISTICS_BYTES_MAX + 1]),
        ("engine..statistics", sample("", 1, 0)),
        ("engine.<img onerror=x>.statistics", sample("<img onerror=x>", 1, 0)),
        ("engine.a.b.statistics", sample("a.b", 1, 0)),
    ] {
        assert!(!statistics.handle_statistics(on, &payload, at(0)), "{on}");
    }
    assert_eq!(statistics.engines.values().count(), 0);
    assert!(statistics.handle_statistics("engine.engine-1.statistics", &good, at(0)));
    assert_eq!(statistics.engines.values().count(), 1);
}

#[test]
fn a_silent_engine_is_forgotten_and_its_counts_with_it() {
    let mut statistics = EngineStatistics::default();
    hear(&mut statistics, "a", 10, 0);
    hear(&mut statistics, "b", 1, 4000);
    statistics.forget_silent(at(5000));
    assert_eq!(statistics.totals().ended, 11);
    assert!(!statistics.totals().lower_bound);
    statistics.forget_silent(at(5001));
    assert_eq!(statistics.totals().ended, 1);
    assert!(statistics.totals().lower_bound, "ten more have ended than are counted");
    statistics.handle_second(at(60_000));
    assert_eq!(statistics.engines.values().count(), 0);
    assert_eq!(statistics.totals(), Totals { lower_bound: true, ..Totals::default() });
}

#[test]
fn an_engine_that_counted_nothing_goes_without_a_loss() {
    let mut statistics = EngineStatistics::default();
    hear(&mut statistics, "a", 0, 0);
    statistics.forget_silent(at(60_000));
    assert!(!statistics.totals().lower_bound);
}

#[test]
fn quantiles_of_engines_that_tell_their_histograms_are_those_of_all_rounds() {
    let mut statistics = EngineStatistics::default();
    for (engine, durations) in [("a", json!({ "100": 90, "200": 5 })), ("b", json!({ "900": 5 }))] {
        let mut document: Value = serde_json::from_slice(&sample(engine, 5, 0)).unwrap();
        document["durations"] = durations;
        assert!(statistics.handle_statistics(&subject::statistics(engine), document.to_string().as_bytes(), at(0)));
    }
    assert_eq!(statistics.round(), Quantiles { count: 100, p50_us: 100, p95_us: 200, p99_us: 900 });
}

#[test]
fn what_ends_under_each_policy_is_counted_apart_and_noted_in_the_history() {
    let mut statistics = EngineStatistics::default();
    for (ms, low, high) in [(0, 0, 0), (1000, 10, 0), (2000, 20, 8)] {
        let mut document: Value = serde_json::from_slice(&sample("a", low + high, 0)).unwrap();
        let under =
            |id: &str, ended: u64| json!({ "policy": id, "ended": ended, "awards": 0, "offers": 0, "durations": {} });
        document["policies"] = json!([under("low@1", low), under("high@1", high)]);
        assert!(statistics.handle_statistics("engine.a.statistics", document.to_string().as_bytes(), at(ms)));
    }
    statistics.handle_second(at(2000));
    let noted = &statistics.history.iter().next_back().unwrap().ended_per_s_by_policy;
    assert_eq!((noted["low@1"], noted["high@1"]), (10.0, 4.0));
}

#[test]
fn rates_are_means_over_the_last_five_seconds() {
    let mut statistics = EngineStatistics::default();
    hear(&mut statistics, "a", 1000, 0);
    assert_eq!(statistics.rates(at(0)).ended, 0.0, "one sample says nothing of change");
    for second in 1..=20_u64 {
        let ended = 1000 + if second <= 10 { second * 100 } else { 1000 + (second - 10) * 10 };
        hear(&mut statistics, "a", ended, second * 1000);
        if second == 10 {
            assert_eq!(statistics.rates(at(10_000)).ended, 100.0);
        }
    }
    assert_eq!(statistics.rates(at(22_500)).ended, 10.0, "what was before the window no longer counts");
    assert_eq!(statistics.rates(at(22_501)).ended, 0.0, "another engine may do its work by now");
}

#[test]
fn a_restarted_engine_begins_anew_instead_of_falling() {
    let mut statistics = EngineStatistics::default();
    hear(&mut statistics, "a", 5000, 0);
    hear(&mut statistics, "a", 5100, 1000);
    hear(&mut statistics, "a", 3, 2000);
    assert!(statistics.totals().lower_bound, "what it had counted before is gone");
    assert_eq!(statistics.rates(at(2000)).ended, 0.0);
    hear(&mut statistics, "a", 10, 3000);
    assert_eq!(statistics.rates(at(3000)).ended, 7.0);
}

#[test]
fn quantiles_of_several_engines_are_the_largest_and_silent_ones_say_nothing() {
    let mut statistics = EngineStatistics::default();
    hear(&mut statistics, "a", 2, 0);
    hear(&mut statistics, "b", 3, 0);
    hear(&mut statistics, "idle", 0, 0);
    assert_eq!(statistics.round(), Quantiles { count: 5, p50_us: 300, p95_us: 600, p99_us: 900 });
}

#[test]
fn engines_names_marks_and_history_stay_within_their_bounds() {
    let mut statistics = EngineStatistics::default();
    for number in 0..ENGINES_MAX + 10 {
        hear(&mut statistics, &format!("e{number}"), 1, 0);
    }
    assert_eq!(statistics.engines.values().count(), ENGINES_MAX);
    assert!(!statistics.handle_statistics("engine.late.statistics", &sample("late", 1, 0), at(0)));
    assert!(
        statistics.handle_statistics("engine.e1.statistics", &sample("e1", 2, NAMED_MAX + 9), at(0)),
        "a known one is heard on"
    );
    assert!(statistics.engines.values().all(|heard| heard.latest.newest.len() <= NAMED_MAX));
    for millisecond in 0..10_000 {
        hear(&mut statistics, "e1", millisecond, millisecond);
    }
    assert!(statistics.engines.values().all(|heard| heard.marks.len() <= 12));
    assert!((900.0..=1100.0).contains(&statistics.rates(at(10_000)).ended));
    for second in 0..HISTORY_MAX as u64 + 50 {
        statistics.handle_second(at(second * 1000));
    }
    assert_eq!(statistics.history.len(), HISTORY_MAX);
}

#[test]
fn counts_at_the_end_of_their_range_do_not_wrap() {
    let mut statistics = EngineStatistics::default();
    hear(&mut statistics, "a", u64::MAX, 0);
    hear(&mut statistics, "b", u64::MAX, 0);
    assert_eq!(statistics.totals().ended, u64::MAX);
}

#[test]
fn outcomes_beyond_the_protocols_are_counted_without_growing_the_document() {
    let mut statistics = EngineStatistics::default();
    let mut document: Value = serde_json::from_slice(&sample("a", 1, 0)).unwrap();
    for number in 0..100 {
        document["ended"][format!("made-up-{number}")] = 1.into();
    }
    statistics.handle_statistics("engine.a.statistics", document.to_string().as_bytes(), at(0));
    let totals = statistics.totals();
    assert_eq!((totals.ended, totals.ended_by_outcome.len()), (101, OUTCOMES_MAX));
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn hear(statistics: &mut EngineStatistics, engine: &str, ended: u64, ms: u64) {
    statistics.handle_statistics(&subject::statistics(engine), &sample(engine, ended, 0), at(ms));
}

/// Statistics with so many ended negotiations, their times in steps of a hundred microseconds, and so many named.
fn sample(engine: &str, ended: u64, named: usize) -> Vec<u8> {
    let newest = (0..named).map(|number| {
        json!({ "negotiation": format!("alice~{number}"), "protocol": "contract_net", "phase": "collecting",
            "policy": "medium@1", "called_at": Timestamp(number as u64), "invited": 3, "offers": 0 })
    });
    let spread = ended.min(1000) * 100;
    json!({
        "engine": engine, "at": 0, "owned": [0], "open": 0, "started": ended, "ended": { "completed": ended },
        "awards": 0, "offers": 0, "unacknowledged": 0,
        "round": { "count": ended.min(1000), "p50_us": spread, "p95_us": spread * 2, "p99_us": spread * 3 },
        "newest": newest.collect::<Vec<_>>(), "latest": []
    })
    .to_string()
    .into_bytes()
}
