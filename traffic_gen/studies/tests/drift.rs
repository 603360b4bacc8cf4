//! Planted drifts are found, and runs without one are left alone: on series made from a seed, as the samples of a run.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, LogNormal, Normal};
use studies::soak::drift::{Drift, SeriesVerdict, judge, stretches};
use studies::soak::sample::{Begin, SampleLine, SoakLine};
use studies::soak::{Place, SoakFaults, SoakPlan};

const MIB: f64 = 1024.0 * 1024.0;
/// Seeds of each kind of run.
const SEEDS: u64 = 200;

/// What a made-up run does beside its noise; the second argument goes from 0 at its start to 1 at its end, the third is
/// seconds.
type Plant = fn(values: &mut BTreeMap<String, f64>, f64, f64);

fn plan(duration_s: f64, sample_s: f64) -> SoakPlan {
    SoakPlan {
        place: Place::Embedded,
        agents: 12,
        policy: "high@1".to_owned(),
        rate: 5.0,
        faults: SoakFaults::None,
        sample_s,
        seed: 1,
        metrics: Vec::new(),
        duration_s,
    }
}

/// A run of so many samples: latencies scatter and remember a little, memory wanders around its level, the log is trimmed
/// every minute.
fn run(seed: u64, plan: &SoakPlan, plant: Plant) -> Vec<SoakLine> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let scatter = LogNormal::new(0.0, 0.05).expect("a constant");
    let step = Normal::new(0.0, 0.2 * MIB).expect("a constant");
    let mut lines = vec![SoakLine::Begin(Begin {
        part: 1,
        at: jiff::Timestamp::UNIX_EPOCH,
        offset_s: 0.0,
        warm_up_s: plan.warm_up_s(),
        plan: plan.clone(),
        version: "0".to_owned(),
    })];
    let (mut memory, mut level) = (0.0, 1.0);
    let count = (plan.duration_s / plan.sample_s).round() as u32;
    for number in 1..=count {
        let elapsed_s = f64::from(number) * plan.sample_s;
        memory = 0.6 * memory + step.sample(&mut random);
        level = 0.3 * level + 0.7 * scatter.sample(&mut random);
        let mut values = BTreeMap::from(
            [
                ("exchange/decision_p50", 2.0 * level),
                ("exchange/decision_p95", 4.0 * level * scatter.sample(&mut random)),
                ("exchange/decision_p99", 8.0 * level * scatter.sample(&mut random) * scatter.sample(&mut random)),
                ("exchange/rounds", 5.0 + random.random_range(-1.0..1.0)),
                ("exchange/open", f64::from(random.random_range(0..4))),
                ("llmx/memory", 80.0 * MIB + memory),
                ("llmx/handles", f64::from(40 + random.random_range(0..3))),
                ("llmx/threads", 9.0),
                ("llmx/tasks", f64::from(120 + random.random_range(0..6))),
                ("llmx/cpu", 0.2 * scatter.sample(&mut random)),
                ("log/log_span", 100.0 * (elapsed_s % 60.0) + random.random_range(0.0..50.0)),
                ("register/entries", 5_000.0 + 10.0 * (elapsed_s % 30.0)),
            ]
            .map(|(series, value)| (series.to_owned(), value)),
        );
        plant(&mut values, f64::from(number) / f64::from(count), elapsed_s);
        let started = BTreeMap::from([("llmx".to_owned(), 1000.0)]);
        lines.push(SoakLine::Sample(SampleLine { elapsed_s, values, started, ..SampleLine::default() }));
    }
    lines
}

fn add(values: &mut BTreeMap<String, f64>, series: &str, more: f64) {
    *values.get_mut(series).expect("a series of the run") += more;
}

fn scale(values: &mut BTreeMap<String, f64>, series: &str, factor: f64) {
    *values.get_mut(series).expect("a series of the run") *= factor;
}

fn verdicts(lines: &[SoakLine]) -> Vec<SeriesVerdict> {
    judge(&stretches(lines))
}

fn drifting(verdicts: &[SeriesVerdict]) -> Vec<&str> {
    verdicts.iter().filter(|verdict| verdict.drift == Drift::Drifting).map(|verdict| verdict.series.as_str()).collect()
}

/// In how many of the seeds a series drifts, and in how many any other does.
fn found(plan: &SoakPlan, plant: Plant, planted: &str) -> (u64, u64) {
    let (mut right, mut wrong) = (0, 0);
    for seed in 0..SEEDS {
        let verdicts = verdicts(&run(seed, plan, plant));
        let drifting = drifting(&verdicts);
        right += u64::from(drifting.contains(&planted));
        wrong += u64::from(drifting.iter().any(|series| *series != planted));
    }
    (right, wrong)
}

#[test]
fn flat_runs_are_flagged_in_at_most_one_of_twenty() {
    for plan in [plan(180.0, 2.0), plan(12.0 * 3600.0, 600.0)] {
        let (none, flagged) = found(&plan, |_, _, _| {}, "");
        assert!(none == 0 && flagged <= SEEDS / 20, "{flagged} of {SEEDS} at {} s", plan.duration_s);
    }
}

#[test]
fn a_leak_of_one_mib_a_minute_is_found_and_its_size_is_told() {
    let leak: Plant = |values, _, elapsed_s| add(values, "llmx/memory", elapsed_s / 60.0 * MIB);
    let plan = plan(180.0, 2.0);
    let (right, wrong) = found(&plan, leak, "llmx/memory");
    assert!(right >= SEEDS * 99 / 100 && wrong <= SEEDS / 20, "found {right}, wrong {wrong} of {SEEDS}");
    let verdicts = verdicts(&run(1, &plan, leak));
    let memory = verdicts.iter().find(|verdict| verdict.series == "llmx/memory").expect("a constant");
    let (lower, upper) = (memory.slope_lower.expect("a constant"), memory.slope_upper.expect("a constant"));
    assert!(lower < 60.0 * MIB && 60.0 * MIB < upper && memory.unit == "bytes", "{memory:?}");
}

#[test]
fn a_latency_that_grows_by_a_tenth_is_found() {
    let slower: Plant = |values, part, _| {
        for quantile in ["exchange/decision_p50", "exchange/decision_p95", "exchange/decision_p99"] {
            scale(values, quantile, 1.0 + 0.1 * part);
        }
    };
    for plan in [plan(1_800.0, 10.0), plan(12.0 * 3600.0, 300.0)] {
        let (right, _) = found(&plan, slower, "exchange/decision_p50");
        assert!(right >= SEEDS * 95 / 100, "{right} of {SEEDS} at {} s", plan.duration_s);
    }
}

#[test]
fn a_register_that_grows_is_found() {
    let growing: Plant = |values, _, elapsed_s| add(values, "register/entries", 15.0 * elapsed_s);
    let (right, wrong) = found(&plan(180.0, 2.0), growing, "register/entries");
    assert!(right >= SEEDS * 99 / 100 && wrong <= SEEDS / 20, "found {right}, wrong {wrong} of {SEEDS}");
}

#[test]
fn a_register_that_grows_with_every_round_is_found() {
    for seed in 0..SEEDS / 4 {
        let plan = plan(180.0, 2.0);
        let mut lines = run(seed, &plan, |_, _, _| {});
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let mut entries = 0.0;
        for line in &mut lines {
            if let SoakLine::Sample(sample) = line {
                entries += f64::from(random.random_range(5..30));
                sample.values.insert("register/entries".to_owned(), entries);
            }
        }
        assert!(drifting(&verdicts(&lines)).contains(&"register/entries"), "seed {seed}");
    }
}

#[test]
fn a_noisy_start_does_not_count() {
    let noisy: Plant = |values, part, _| {
        if part < 0.2 {
            add(values, "llmx/memory", -60.0 * MIB * (1.0 - part));
            scale(values, "exchange/decision_p50", 50.0);
            scale(values, "llmx/cpu", 4.0);
        }
    };
    let (none, flagged) = found(&plan(180.0, 2.0), noisy, "");
    assert!(none == 0 && flagged <= SEEDS / 20, "{flagged} of {SEEDS}");
}

#[test]
fn what_gets_better_is_no_drift() {
    let better: Plant = |values, part, _| {
        add(values, "llmx/memory", -40.0 * MIB * part);
        scale(values, "exchange/rounds", 1.0 + part);
    };
    assert_eq!(drifting(&verdicts(&run(1, &plan(180.0, 2.0), better))), Vec::<&str>::new());
}

#[test]
fn throughput_that_falls_is_found() {
    let falling: Plant = |values, part, _| scale(values, "exchange/rounds", 1.0 - 0.5 * part);
    assert_eq!(drifting(&verdicts(&run(1, &plan(180.0, 2.0), falling))), ["exchange/rounds"]);
}

#[test]
fn too_few_samples_say_nothing() {
    let leak: Plant = |values, _, elapsed_s| add(values, "llmx/memory", elapsed_s * MIB);
    let verdicts = verdicts(&run(1, &plan(40.0, 2.0), leak));
    assert!(verdicts.iter().all(|verdict| verdict.drift == Drift::TooFew && verdict.p.is_none()), "{verdicts:?}");
}

#[test]
fn a_process_that_began_anew_at_a_higher_level_is_no_drift() {
    let mut lines = run(5, &plan(180.0, 2.0), |_, _, _| {});
    for line in &mut lines {
        if let SoakLine::Sample(sample) = line
            && sample.elapsed_s > 90.0
        {
            sample.started.insert("llmx".to_owned(), 1090.0);
            add(&mut sample.values, "llmx/memory", 50.0 * MIB);
        }
    }
    assert_eq!(drifting(&verdicts(&lines)), Vec::<&str>::new());
}
