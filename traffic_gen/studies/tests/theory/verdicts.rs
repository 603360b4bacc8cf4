//! H1 to H7 in worlds where each is true, where it is not, and where there are too few rounds.

use std::collections::BTreeMap;

use studies::figures::group::Group;
use studies::figures::hypotheses::{self, HypothesisVerdict, Judgement, bounds};
use studies::figures::tally::Tally;
use studies::plan::Hypothesis;
use studies::record::{CellRecord, PopulationRecord};

use crate::world::{World, groups, world};

fn verdict(id: &str, worlds: &[World]) -> HypothesisVerdict {
    let groups: Vec<Group> = groups(worlds);
    let verdicts = hypotheses::all(&groups);
    verdicts.into_iter().find(|verdict| verdict.id == id).unwrap()
}

fn judged(id: &str, worlds: &[World], expected: Judgement) {
    let verdict = verdict(id, worlds);
    assert_eq!(verdict.judgement, expected, "{verdict:#?}");
    match expected {
        Judgement::CannotBeSaid => {
            assert!(verdict.rounds_needed.unwrap() > worlds[0].seeds * worlds[0].rounds, "{verdict:#?}")
        }
        Judgement::Held | Judgement::Broken => assert!(!verdict.checks.is_empty()),
    }
}

/// Too few rounds for anything.
fn short(worlds: &[World]) -> Vec<World> {
    worlds.iter().map(|world| World { seeds: 6, rounds: 5, ..world.clone() }).collect()
}

#[test]
fn regret_is_held_to_the_first_k() {
    let fixed = [world("low@1", 12, 1), world("k3@1", 12, 3)];
    judged("H1", &fixed, Judgement::Held);
    let biased = World { bias: 3.0, ..world("k6@1", 12, 6) };
    judged("H1", &[biased], Judgement::Broken);
    judged("H1", &short(&fixed), Judgement::CannotBeSaid);
}

#[test]
fn regret_says_nothing_where_nobody_offers_after_the_close() {
    let silent = verdict("H1", &[World { is_late_offered: false, ..world("k3@1", 12, 3) }]);
    assert_eq!((silent.judgement, silent.rounds_needed), (Judgement::CannotBeSaid, None));
    assert!(silent.reason.contains("offer after the close"), "{}", silent.reason);
}

#[test]
fn time_to_decision_is_held_to_harmonic_numbers() {
    let worlds = [world("low@1", 12, 1), world("k6@1", 12, 6), world("high@1", 12, 12)];
    judged("H2", &worlds, Judgement::Held);
    let queued = World { overhead_us: 60_000, ..world("high@1", 12, 12) };
    judged("H2", &[worlds[0].clone(), worlds[1].clone(), queued], Judgement::Broken);
    judged("H2", &short(&worlds), Judgement::CannotBeSaid);
    let at_once = World { delay_us: 20.0, ..world("medium@1", 12, 12) };
    judged("H2", &[worlds.to_vec(), vec![at_once]].concat(), Judgement::Held);
    let alone = verdict("H2", &worlds[..1]);
    assert!(alone.reason.contains("at least two policies"), "{}", alone.reason);
}

#[test]
fn a_first_proposal_advantage_of_1_under_high_is_held_and_a_planted_one_of_1_3_is_found() {
    let fair = [World { rounds: 400, ..world("high@1", 12, 12) }];
    let verdict = verdict("H3", &fair);
    assert_eq!(verdict.judgement, Judgement::Held, "{verdict:#?}");
    assert!(verdict.checks[0].interval.unwrap().holds(1.0));
    judged("H3", &[World { bias: 1.3, ..fair[0].clone() }], Judgement::Broken);
    judged("H3", &short(&fair), Judgement::CannotBeSaid);
}

#[test]
fn message_counts_are_held_to_be_the_same_under_every_policy() {
    let same = [world("high@1", 5, 5), world("medium@1", 5, 5)];
    judged("H4", &same, Judgement::Held);
    judged("H4", &[same[0].clone(), World { extra_messages: 6, ..same[1].clone() }], Judgement::Broken);
    judged("H4", &same.map(|world| World { seeds: 3, rounds: 5, ..world }), Judgement::CannotBeSaid);
}

#[test]
fn completion_is_held_to_the_chance_that_all_answer() {
    let silent = |policy| World { answers: 0.9, ..world(policy, 5, 5) };
    let decides = silent("high@1");
    let strict = World { is_strict: true, ..silent("high-strict@1") };
    judged("H5", &[decides.clone(), strict.clone()], Judgement::Held);
    judged("H5", &[World { is_strict: true, ..decides.clone() }], Judgement::Broken);
    judged("H5", &short(&[decides, strict]), Judgement::CannotBeSaid);
    let reliable = verdict("H5", &[world("high@1", 5, 5)]);
    assert!(reliable.reason.contains("silent at times"), "{}", reliable.reason);
}

#[test]
fn a_threshold_beats_every_fixed_number_and_a_bad_one_does_not() {
    let fixed = || [1, 2, 3, 4, 6, 12].map(|first| world(&format!("k{first}@1"), 12, first));
    let with = |threshold: f64| -> Vec<World> {
        let mut worlds = fixed().to_vec();
        worlds.push(World { threshold: Some(threshold), ..world("threshold@1", 12, 12) });
        worlds
    };
    judged("H6", &with(35.0), Judgement::Held);
    // It takes the same costs as the first and then wastes the time of all.
    let mut late = fixed().to_vec();
    late.push(World { threshold: Some(100.0), overhead_us: 200_000, ..world("threshold@1", 12, 12) });
    judged("H6", &late, Judgement::Broken);
    judged("H6", &short(&with(35.0)), Judgement::CannotBeSaid);
}

#[test]
fn a_claim_about_models_needs_a_deciding_model() {
    let model = verdict("H7", &[world("high@1", 5, 5)]);
    assert_eq!((model.judgement, model.reason.as_str()), (Judgement::CannotBeSaid, "needs a deciding model"));
}

fn bound(test: &str, groups: &[Group]) -> HypothesisVerdict {
    let claim = Hypothesis { text: "It is soon".to_owned(), test: test.parse().unwrap() };
    let verdict = bounds::all(&[claim], groups).remove(0);
    assert_eq!((verdict.id.as_str(), verdict.claim.as_str()), ("B1", format!("It is soon ({test})").as_str()));
    verdict
}

#[test]
fn a_bound_is_held_where_every_interval_keeps_it_and_broken_where_one_is_beyond() {
    // Exponential delays of 40 ms: the last of 12 comes after 124 ms in the mean.
    let all = groups(&[world("high@1", 12, 12), world("low@1", 12, 1)]);
    for (test, expected) in [
        ("decision_mean_ms <= 140", Judgement::Held),
        ("decision_mean_ms <= 100", Judgement::Broken),
        ("decision_mean_ms >= 2", Judgement::Held),
        ("decision_mean_ms >= 50", Judgement::Broken),
        ("completion >= 1", Judgement::Held),
        ("award_rate <= 0.5", Judgement::Broken),
        ("offers_per_round >= 11.9", Judgement::Held),
        ("others_p99_ratio <= 1.2", Judgement::CannotBeSaid),
    ] {
        let verdict = bound(test, &all);
        assert_eq!(verdict.judgement, expected, "{verdict:#?}");
        assert_eq!(verdict.checks.len(), if test.starts_with("others") { 0 } else { 2 }, "{verdict:#?}");
    }
    let mean = bound("decision_mean_ms <= 140", &all).checks[0].value;
    let at_the_value = bound(&format!("decision_mean_ms <= {mean}"), &all);
    assert_eq!(at_the_value.judgement, Judgement::CannotBeSaid, "{at_the_value:#?}");
    assert!(at_the_value.rounds_needed.unwrap() > 20 * 150);
    let single = groups(&[World { seeds: 1, ..world("high@1", 12, 12) }]);
    let verdict = bound("decision_mean_ms <= 500", &single);
    assert_eq!(verdict.judgement, Judgement::CannotBeSaid, "one seed has no interval: {verdict:#?}");
}

/// Calm cells, and the same where what is awarded to the first contractor takes so much longer, and all else too.
fn griefed(own_us: u64, others_us: u64) -> Vec<Group> {
    let calm = world("high@1", 12, 12);
    let mut tallies = Vec::new();
    for (cell, rounds) in calm.cells() {
        let mut griefed = Tally::new(CellRecord {
            labels: BTreeMap::from([("populations".to_owned(), "1 griefer (ignore_award 1)".to_owned())]),
            populations: vec![PopulationRecord {
                name: "griefer".to_owned(),
                contractors: vec!["contractor-00".to_owned()],
                misconduct: BTreeMap::new(),
                model: None,
            }],
            ..cell.clone()
        });
        let mut tally = Tally::new(cell);
        for mut round in rounds {
            tally.add(&round);
            let is_own = round.awards.iter().any(|award| award.to == "contractor-00");
            round.decided_us = round.decided_us.map(|at| at + if is_own { own_us } else { others_us });
            griefed.add(&round);
        }
        tallies.extend([tally, griefed]);
    }
    Group::all(tallies)
}

#[test]
fn others_are_the_negotiations_that_award_nothing_to_those_who_misbehave() {
    let slow = griefed(10_000_000, 0);
    assert_eq!(bound("others_p99_ratio <= 1.2", &slow).judgement, Judgement::Held);
    assert_eq!(bound("others_completion >= 0.99", &slow).judgement, Judgement::Held);
    let group = slow.iter().find(|group| !group.cell().populations.is_empty()).unwrap();
    let figures = studies::figures::all(group, group.calm(&slow));
    let value = |key: &str| figures.iter().find(|figure| figure.key == key).and_then(|figure| figure.value).unwrap();
    assert!(value("P10d") > 10.0 && value("P9d") < 1.05, "{} {}", value("P10d"), value("P9d"));
    assert!((value("P8d.griefer.p99") - value("P9d") * calm_p99(&slow)).abs() < 1e-6);
    let all_slow = griefed(0, 200_000);
    assert_eq!(bound("others_p99_ratio <= 1.2", &all_slow).judgement, Judgement::Broken);
}

fn calm_p99(groups: &[Group]) -> f64 {
    let calm = groups.iter().find(|group| group.cell().populations.is_empty()).unwrap();
    calm.whole(|seeds| seeds.quantile("decision", 0.99)).unwrap() / 1e3
}
