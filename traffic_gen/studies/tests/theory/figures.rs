//! Each metric against the truth of its world.

use studies::figures::{self, Figure};

use crate::world::{World, world};

fn all(world: &World) -> Vec<Figure> {
    figures::all(&world.group(), None)
}

fn figure<'a>(figures: &'a [Figure], key: &str) -> &'a Figure {
    figures.iter().find(|figure| figure.key == key).unwrap_or_else(|| panic!("{key} is missing"))
}

fn value(figures: &[Figure], key: &str) -> f64 {
    figure(figures, key).value.unwrap_or_else(|| panic!("{key}: {:?}", figure(figures, key).missing))
}

fn is_about(figures: &[Figure], key: &str, expected: f64, tolerance: f64) {
    let value = value(figures, key);
    assert!((value - expected).abs() <= tolerance, "{key} is {value}, not {expected}");
}

#[test]
fn every_metric_of_a_contract_net_has_a_value_or_says_what_it_needs() {
    let figures = all(&world("high@1", 5, 5));
    for number in (1..=30).chain(37..=40) {
        let id = format!("M{number}");
        let figure = figure(&figures, &id);
        match (&figure.missing, figure.value) {
            (Some(missing), None) => assert!(missing.contains("cannot be said: "), "{id}: {missing}"),
            (None, Some(value)) => assert!(value.is_finite(), "{id}"),
            other => panic!("{id}: {other:?}"),
        }
        assert!(!figure.unit.is_empty() && figure.definition.len() > 20, "{id}");
    }
    for model in ["M25", "M30"] {
        assert_eq!(figure(&figures, model).missing.as_deref(), Some("cannot be said: needs a deciding model"));
    }
}

#[test]
fn quality_of_the_first_k_is_what_theory_says_within_the_interval() {
    for (policy, first) in [("low@1", 1), ("k3@1", 3), ("k6@1", 6)] {
        let figures = all(&world(policy, 12, first));
        for key in ["M14", "M16", "M17", "M21"] {
            let figure = figure(&figures, key);
            let (interval, theory) = (figure.interval.unwrap(), figure.theory.unwrap());
            assert!(interval.holds(theory), "{policy} {key}: {theory} is not in {interval:?}");
            assert!(interval.half_width() < 0.12 * theory, "{policy} {key}: {interval:?} says little of {theory}");
        }
    }
}

#[test]
fn the_first_to_offer_has_the_advantage_that_theory_says() {
    for (policy, first) in [("k3@1", 3), ("high@1", 12)] {
        let figures = all(&world(policy, 12, first));
        let advantage = figure(&figures, "M23");
        let expected = 11.0 / (f64::from(first) - 1.0);
        assert!((advantage.theory.unwrap() - expected).abs() < 1e-9, "{policy}: {advantage:?}");
        assert!(advantage.interval.unwrap().holds(expected), "{policy}: {advantage:?}");
    }
    let only_first = all(&world("low@1", 12, 1));
    assert!(figure(&only_first, "M23").missing.as_deref().unwrap().contains("waits for more than one"));
}

#[test]
fn a_world_is_measured_as_it_was_made() {
    let figures = all(&world("high@1", 12, 12));
    let slowest_ms = 40.0 * 3.1032 + 1.2;
    is_about(&figures, "M2", slowest_ms, 2.5);
    is_about(&figures, "M4", slowest_ms + 0.9, 2.5);
    is_about(&figures, "M4o", 40.5, 1.0);
    is_about(&figures, "M4l", 0.02, 1e-9);
    is_about(&figures, "M5", 16.0, 1e-9);
    is_about(&figures, "M5.offer", 12.0, 1e-9);
    is_about(&figures, "M8", 1.0, 1e-9);
    is_about(&figures, "M13", 10.0 + 90.0 / 13.0, 0.6);
    is_about(&figures, "M14", 0.0, 1e-9);
    is_about(&figures, "M17", 1.0, 1e-9);
    is_about(&figures, "M18", 0.0, 0.01);
    is_about(&figures, "M19", 2.0, 1e-9);
    is_about(&figures, "M20", 1.0, 0.02);
    is_about(&figures, "M22", 0.0, 1e-9);
    is_about(&figures, "M37", 0.0, 1e-9);
    is_about(&figures, "M39", 0.0, 2.5);
    // The 50th of 100 exponential maxima: -ln(1 - 0.5^(1/12)) means.
    is_about(&figures, "M2.p50", 40.0 * 2.8830 + 1.2, 3.0);
}

#[test]
fn contractors_that_are_silent_at_times_show_in_completeness_and_missed_deadlines() {
    let figures = all(&World { answers: 0.9, ..world("high@1", 5, 5) });
    is_about(&figures, "M10", 0.9, 0.01);
    let missed = figure(&figures, "M11");
    assert!(missed.interval.unwrap().holds(1.0 - 0.9_f64.powi(5)), "{missed:?}");
    assert!(missed.interval.unwrap().holds(missed.theory.unwrap()), "{missed:?}");
}

#[test]
fn jains_index_says_nothing_from_few_awards() {
    let few = all(&World { seeds: 3, rounds: 10, ..world("high@1", 12, 12) });
    assert!(figure(&few, "M20").missing.as_deref().unwrap().contains("800 of them"));
    let many = all(&world("high@1", 12, 12));
    assert!(value(&many, "M20") > value(&many, "M20n"));
}

#[test]
fn a_warm_up_and_refused_calls_are_no_rounds_of_the_figures() {
    use studies::figures::group::Group;
    use studies::figures::tally::Tally;
    use studies::record::RoundRecord;

    let group = world("high@1", 5, 5).group();
    let mut tally = Tally::new(group.cell().clone());
    let round = |member: &str| -> RoundRecord {
        let mut round = serde_json::json!({"round": 0, "negotiation": null, "intended_us": 0, "sent_us": 0, "stored_us": null,
            "is_warm_up": false, "invited": 5, "decided_us": null, "confirmed_us": null, "ended_us": null, "outcome": null,
            "refusal": null, "offers": [], "awards": [], "sent": {}, "delivered": {}, "retries": 0, "duplicates": 0,
            "dispositions": {}});
        round[member] = if member == "refusal" { "rate_limited".into() } else { true.into() };
        serde_json::from_value(round).unwrap()
    };
    tally.add(&round("is_warm_up"));
    assert!(tally.rounds == 0 && tally.means().is_empty());
    tally.add(&round("refusal"));
    let figures = figures::all(&Group::all(vec![tally]).remove(0), None);
    assert_eq!(figure(&figures, "M8").value, Some(0.0), "a refused call counts among all calls");
    assert_eq!(figure(&figures, "M9").value, None);
}

#[test]
fn one_seed_gives_values_without_intervals() {
    let figures = all(&World { seeds: 1, ..world("high@1", 5, 5) });
    assert!(figures.iter().any(|figure| figure.value.is_some()));
    assert!(figures.iter().all(|figure| figure.interval.is_none()));
}
