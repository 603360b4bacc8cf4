use std::io::Write;

use super::*;

fn times(load: &str, rate: f64, duration_s: u64, seed: u64) -> Vec<f64> {
    let until = Duration::from_secs(duration_s);
    let load: Load = load.parse().unwrap();
    let arrivals = load.arrivals(rate, until, seed).unwrap();
    arrivals.take_while(|time| *time < until).map(|time| time.as_secs_f64()).collect()
}

/// Arrivals in each of so many equal parts of the time.
fn counts(times: &[f64], duration_s: u64, parts: usize) -> Vec<f64> {
    let mut counts = vec![0.0; parts];
    for time in times {
        counts[((time / duration_s as f64) * parts as f64) as usize] += 1.0;
    }
    counts
}

#[test]
fn poisson_arrivals_of_twenty_seeds_have_the_variance_of_poisson_and_pass_chi_square() {
    const PARTS: usize = 400;
    let mut failed = 0;
    for seed in 1..=20 {
        let counts = counts(&times("poisson", 50.0, 80, seed), 80, PARTS);
        let mean = counts.iter().sum::<f64>() / PARTS as f64;
        let squares = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
        // (n-1) times the index of dispersion is chi-square with n-1 degrees of freedom: mean 399, deviation 28.2.
        let chi_square = squares / mean;
        let dispersion = chi_square / (PARTS as f64 - 1.0);
        assert!((0.75..1.3).contains(&dispersion), "seed {seed}: variance/mean {dispersion}");
        // The 2.5 % and 97.5 % quantiles.
        failed += usize::from(!(345.6..456.2).contains(&chi_square));
        assert!((mean - 10.0).abs() < 4.0 * (10.0 / PARTS as f64).sqrt(), "seed {seed}: {mean} in a part");
    }
    // One of twenty is expected outside; five or more happen in 0.3 % of all cases.
    assert!(failed <= 4, "{failed} of 20 seeds fail chi-square");
}

#[test]
fn uniform_bursts_and_replays_come_when_they_are_due() {
    assert_eq!(times("uniform", 4.0, 1, 1), [0.0, 0.25, 0.5, 0.75]);
    assert_eq!(times("burst:3", 6.0, 1, 1), [0.0, 0.0, 0.0, 0.5, 0.5, 0.5]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, r#"{{"intended_us": 5, "is_warm_up": true}}"#).unwrap();
    writeln!(file, r#"{{"intended_us": 2500000}}"#).unwrap();
    writeln!(file, r#"{{"event": "sent", "act": "cfp", "attempt": 1, "t_us": 1500000}}"#).unwrap();
    writeln!(file, r#"{{"event": "sent", "act": "cfp", "attempt": 2, "t_us": 1600000}}"#).unwrap();
    writeln!(file, r#"{{"event": "received", "t_us": 1700000}}"#).unwrap();
    file.flush().unwrap();
    assert_eq!(times(&format!("replay:{}", file.path().display()), 1.0, 10, 1), [0.0, 1.0]);
}

#[test]
fn a_ramp_rises_and_a_day_swings_around_its_rate() {
    let ramp = counts(&times("ramp:300", 100.0, 100, 3), 100, 4);
    for (count, expected) in ramp.iter().zip([3125.0, 4375.0, 5625.0, 6875.0]) {
        let expected: f64 = expected;
        assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{ramp:?}");
    }
    // Over half a period the mean of a sine is 2/pi.
    let day = counts(&times("diurnal:100:0.5", 100.0, 100, 3), 100, 2);
    let swing = std::f64::consts::FRAC_1_PI;
    for (count, expected) in day.iter().zip([5000.0 * (1.0 + swing), 5000.0 * (1.0 - swing)]) {
        let expected: f64 = expected;
        assert!((count - expected).abs() < 4.0 * expected.sqrt(), "{day:?}");
    }
    assert_eq!(times("ramp:0", 100.0, 10, 1).last().map(|last| *last < 10.0), Some(true));
}

#[test]
fn every_seeded_load_repeats_and_differs_from_seed_to_seed() {
    for load in ["poisson", "ramp:90", "diurnal:5"] {
        assert_eq!(times(load, 30.0, 10, 7), times(load, 30.0, 10, 7), "{load}");
        assert_ne!(times(load, 30.0, 10, 7), times(load, 30.0, 10, 8), "{load}");
        assert!(times(load, 30.0, 10, 7).is_sorted(), "{load}");
    }
}

#[test]
fn a_faster_time_has_the_same_arrivals_in_less_of_it() {
    for text in ["poisson", "uniform", "burst:5", "ramp:90", "diurnal:5"] {
        let load: Load = text.parse().unwrap();
        let (slow_until, fast_until) = (Duration::from_secs(60), Duration::from_secs(6));
        let slow = load.arrivals(30.0, slow_until, 7).unwrap().take_while(|time| *time < slow_until);
        let fast = load.clone().scaled(10.0).arrivals(300.0, fast_until, 7).unwrap();
        let fast: Vec<_> = fast.take_while(|time| *time < fast_until).collect();
        let slow: Vec<_> = slow.collect();
        assert_eq!(slow.len(), fast.len(), "{text}");
        for (slow, fast) in slow.iter().zip(&fast) {
            assert!((slow.as_secs_f64() - 10.0 * fast.as_secs_f64()).abs() < 1e-6, "{text}");
        }
    }
}

#[test]
fn a_load_survives_its_text_and_what_is_none_is_refused() {
    for text in ["poisson", "uniform", "burst:20", "ramp:5.5", "diurnal:60:0.8", "closed:8:0.5", "replay:a/b.jsonl"] {
        assert_eq!(text.parse::<Load>().unwrap().to_string(), text);
    }
    assert_eq!("closed:8".parse::<Load>().unwrap(), Load::Closed { calls: 8, think_s: 0.0 });
    let bad = [
        "",
        "poison",
        "poisson:3",
        "uniform:1",
        "burst",
        "burst:0",
        "burst:1.5",
        "burst:100001",
        "ramp",
        "ramp:-1",
        "ramp:NaN",
        "diurnal",
        "diurnal:0",
        "diurnal:60:1.5",
        "closed",
        "closed:0",
        "closed:3:-1",
        "replay",
        "replay:",
    ];
    for text in bad {
        let error = text.parse::<Load>().unwrap_err().to_string();
        assert!(error.contains("give poisson, uniform"), "{error}");
    }
    for (text, rate) in [("poisson", 0.0), ("uniform", -1.0), ("burst:2", f64::NAN), ("ramp:1", 2.0 * RATE_MAX)] {
        assert!(text.parse::<Load>().unwrap().arrivals(rate, Duration::from_secs(1), 1).is_err(), "{text} {rate}");
    }
    let missing = "replay:/nowhere/at-all".parse::<Load>().unwrap().arrivals(1.0, Duration::from_secs(1), 1);
    assert!(matches!(missing, Err(LoadError::Trace { .. })));
}
