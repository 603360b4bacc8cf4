//! Cells on real exchanges: what they leave, and what of it a seed fixes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::Path;

use agents::ContractorConfig;
use agents::contractor::Distribution;
use studies::plan::{CellSpec, DomainFile, Misconduct, PopulationSpec};
use studies::record::{CellRecord, MisconductRecord, RoundRecord};
use studies::report::folder::read_lines;

use schemas::policy::Decider;
use studies::run::{CellBus, RunError, RunOptions, run_cell};
use tokio_util::sync::CancellationToken;

const IN_MEMORY: RunOptions = RunOptions { bus: CellBus::Memory, time_scale: 1.0, running: None };

fn spec(policy: &str, seed: u64) -> CellSpec {
    let attr = |name| schemas::ids::AttrName::try_new(name).unwrap();
    let price = Distribution::Uniform { lo: 50_000_000, hi: 150_000_000 };
    let contractor = ContractorConfig {
        terms: [(attr("price"), price), (attr("delivery_ms"), Distribution::Constant(1_000))].into(),
        reply_delay_ms: Distribution::Uniform { lo: 0, hi: 300 },
        offers_after_close: true,
        ..ContractorConfig::default()
    };
    CellSpec {
        id: format!("{policy}-{seed}"),
        contractors: 5,
        policy: match policy {
            "first" => first_of_three(),
            _ => policy_core::preset(policy).unwrap(),
        },
        rate: 10.0,
        load: traffic_gen::arrivals::Load::Poisson,
        duration_s: 2.0,
        seed,
        contractor,
        misconduct: Misconduct::default(),
        populations: Vec::new(),
        markup: 0.25,
        warm_up_rounds: 2,
        reply_within_ms: 2_000,
        strategies: Vec::new(),
        domains: Vec::new(),
        requests_per_s: None,
        labels: BTreeMap::from([("delay".to_owned(), "uniform".to_owned())]),
    }
}

/// The best of the first three, so that nobody waits for the others.
fn first_of_three() -> schemas::Policy {
    let mut policy = policy_core::preset("low").unwrap();
    policy.id = "first@1".to_owned();
    policy.close.k_valid = Some(3);
    // An agent that the limiter holds back may neither confirm nor report.
    (policy.timers_ms.confirm, policy.timers_ms.perform) = (1_000, 2_000);
    policy
}

async fn run(spec: &CellSpec, options: &RunOptions, folder: &Path) -> (CellRecord, Vec<RoundRecord>) {
    let record = run_cell(spec, options, folder, &CancellationToken::new(), &|_| {}).await.unwrap();
    let text = std::fs::read_to_string(folder.join("cell.json")).unwrap();
    assert_eq!(serde_json::from_str::<CellRecord>(&text).unwrap(), record);
    let mut rounds: Vec<RoundRecord> = Vec::new();
    read_lines(&folder.join("rounds.jsonl"), |round| rounds.push(round)).unwrap();
    rounds.sort_by_key(|round| round.round);
    (record, rounds)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_leaves_every_round_with_its_offers_award_and_messages() {
    let folder = tempfile::tempdir().unwrap();
    let (record, rounds) = run(&spec("high", 3), &IN_MEMORY, folder.path()).await;
    assert_eq!((record.rounds, record.violations.len(), record.is_interrupted), (rounds.len() as u64, 0, false));
    assert!(rounds.len() > 10, "{}", rounds.len());
    assert_eq!(rounds.iter().filter(|round| round.is_warm_up).count(), 2);
    for round in &rounds {
        assert_eq!((round.invited, round.offers.len(), round.awards.len()), (5, 5, 1), "{round:?}");
        assert_eq!((round.outcome.as_deref(), round.refusal.as_deref()), (Some("completed"), None));
        let times = [
            Some(round.intended_us),
            Some(round.sent_us),
            round.stored_us,
            round.decided_us,
            round.confirmed_us,
            round.ended_us,
        ];
        assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{round:?}");
        let lowest = round.offers.iter().min_by(|one, other| one.cost.total_cmp(&other.cost)).unwrap();
        assert!(round.awards[0].to == lowest.from && round.awards[0].is_bound, "{round:?}");
        for offer in &round.offers {
            let markup = offer.cost / offer.own_cost.unwrap();
            assert!((50.0..=150.0).contains(&offer.cost) && (markup - 1.25).abs() < 1e-9, "{offer:?}");
            let waited_us = offer.sent_us - round.sent_us;
            assert!(offer.delay_us.unwrap() <= 300_000 && waited_us >= offer.delay_us.unwrap(), "{offer:?}");
            assert_eq!(offer.disposition, "ok");
        }
        assert_eq!(
            (round.sent["cfp"].messages, round.sent["offer"].messages, round.sent["confirm"].messages),
            (1, 5, 1)
        );
        assert_eq!((round.delivered["cfp"].messages, round.delivered["accept"].messages), (5, 1));
        assert!(round.delivered["cfp"].bytes > 5 * 100 && round.sent["offer"].bytes > 5 * 100);
    }
    let table = std::fs::read_to_string(folder.path().join("rounds.csv")).unwrap();
    let begins = format!("{},{},{},", record.id, record.seed, record.policy);
    assert!(
        table.starts_with("cell,seed,policy,round,") && table.lines().nth(1).unwrap().starts_with(&begins),
        "{table}"
    );
    let lines = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap().lines().count();
    assert_eq!((lines("rounds.csv"), lines("offers.csv")), (rounds.len() + 1, rounds.len() * 5 + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn populations_behave_each_in_its_own_way_and_are_told_apart_in_the_record_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let usual = spec("high", 3);
    let declining = ContractorConfig { decline: 1.0, ..usual.contractor.clone() };
    let refusing = ContractorConfig { refuse: 1.0, ..usual.contractor.clone() };
    let population = |name: &str, contractor| PopulationSpec {
        name: name.to_owned(),
        count: 1,
        contractor,
        misconduct: Misconduct::default(),
        markup: 0.0,
        model: None,
    };
    let populations = vec![population("declining", declining), population("refusing", refusing)];
    let asked = CellSpec { populations, ..usual };
    let (record, rounds) = run(&asked, &IN_MEMORY, &folder.path().join("cells").join(&asked.id)).await;
    assert_eq!(record.violations, BTreeMap::new());
    let members: Vec<_> = record.populations.iter().map(|part| (part.name.as_str(), part.contractors.len())).collect();
    assert_eq!(members, [("declining", 1), ("refusing", 1), ("rest", 3)]);
    assert_eq!(record.populations[1].contractors, ["contractor-1"]);
    for round in &rounds {
        assert_eq!(round.refusals["contractor-1"], 1, "{round:?}");
        assert!(round.offers.len() == 4 && round.offers.iter().all(|offer| offer.from != "contractor-1"), "{round:?}");
        let (last, earlier) = round.awards.split_last().unwrap();
        assert!(last.is_bound && last.to != "contractor-0", "{round:?}");
        assert!(earlier.iter().all(|award| !award.is_bound && award.to == "contractor-0"), "{round:?}");
        for offer in round.offers.iter().filter(|offer| offer.from == "contractor-0") {
            assert_eq!(offer.own_cost, Some(offer.cost), "a markup of its own");
        }
    }
    let declined = rounds.iter().filter(|round| !round.is_warm_up && round.awards.len() > 1).count();
    assert!(declined > 0, "the declining contractor was never the best");
    let report = studies::report::write(folder.path()).unwrap();
    let group = &report.groups[0];
    let value = |key: &str| group.figures.iter().find(|figure| figure.key == key).unwrap().value;
    let measured = group.rounds as f64;
    assert_eq!([value("P1.declining"), value("P1.refusing"), value("P1.rest")], [Some(1.0), Some(0.0), Some(1.0)]);
    assert_eq!([value("P5.declining"), value("P5.rest")], [Some(0.0), Some(1.0)]);
    assert_eq!([value("P6.refusing"), value("P6.rest")], [Some(1.0), Some(0.0)]);
    assert!((value("P4.declining").unwrap() - declined as f64 / measured).abs() < 1e-9);
    assert_eq!(value("P7.declining"), Some(1.0));
    let markdown = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
    assert!(markdown.contains("| 1 refusing | 0 |") && markdown.contains("| 3 rest | 1 |"), "{markdown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn offers_have_their_positions_where_the_initiator_is_shown_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = CellSpec { duration_s: 1.0, ..spec("high", 3) };
    (asked.policy.id, asked.policy.decider, asked.policy.decide_ms) = ("shown@1".to_owned(), Decider::Initiator, 300);
    let (record, rounds) = run(&asked, &IN_MEMORY, folder.path()).await;
    assert_eq!(record.violations, BTreeMap::new());
    for round in &rounds {
        let mut positions: Vec<_> = round.offers.iter().map(|offer| offer.position).collect();
        positions.sort_unstable();
        assert_eq!(positions, [Some(0), Some(1), Some(2), Some(3), Some(4)], "{round:?}");
    }
    let order = |round: &RoundRecord| round.offers.iter().map(|offer| offer.position).collect::<Vec<_>>();
    assert!(rounds.iter().any(|round| !order(round).is_sorted()), "the list is in no order of time");
}

/// Awards by round.
fn awards(rounds: &[RoundRecord]) -> Vec<Vec<(String, bool)>> {
    let of = |round: &RoundRecord| round.awards.iter().map(|award| (award.to.clone(), award.is_bound)).collect();
    rounds.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn envelopes_that_are_all_sent_twice_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_, calm) = run(&spec("high", 3), &IN_MEMORY, &folder.path().join("calm")).await;
    let asked = CellSpec { misconduct: Misconduct { duplicate: 1.0, ..Misconduct::default() }, ..spec("high", 3) };
    let (record, rounds) = run(&asked, &IN_MEMORY, &folder.path().join("twice")).await;
    assert_eq!(record.violations, BTreeMap::new());
    assert_eq!(awards(&rounds), awards(&calm));
    assert!(rounds.iter().all(|round| round.outcome.as_deref() == Some("completed")));
    let twice = &record.populations[0].misconduct["duplicate"];
    // Of every round five offers, a confirmation and a report.
    assert!(twice.sent >= 7 * rounds.len() as u64, "{twice:?}");
    assert_eq!(twice.answers, BTreeMap::from([("accepted".to_owned(), twice.sent)]));
    assert!(twice.dispositions.keys().eq(["duplicate"]), "{twice:?}");
}

/// A contractor besides four that behave, and what became of what it sent.
async fn beside_four(
    misconduct: Misconduct,
    limit: Option<u32>,
) -> (Vec<RoundRecord>, BTreeMap<String, MisconductRecord>) {
    let folder = tempfile::tempdir().unwrap();
    let usual = spec("first", 3);
    let odd = PopulationSpec {
        name: "odd".to_owned(),
        count: 1,
        contractor: usual.contractor.clone(),
        misconduct,
        markup: 0.25,
        model: None,
    };
    let asked = CellSpec { populations: vec![odd], requests_per_s: limit, ..usual };
    let (mut record, rounds) = run(&asked, &IN_MEMORY, &folder.path().join("cells").join(&asked.id)).await;
    assert_eq!(record.violations, BTreeMap::new());
    assert!(record.populations[1].misconduct.is_empty(), "{record:?}");
    let others = rounds.iter().filter(|round| round.awards.iter().all(|award| award.to != "contractor-0"));
    assert!(others.clone().count() > 3, "{rounds:?}");
    assert!(others.clone().all(|round| round.outcome.as_deref() == Some("completed")), "{rounds:?}");
    studies::report::write(folder.path()).unwrap();
    let markdown = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
    let sent = record.populations.swap_remove(0).misconduct;
    for (kind, MisconductRecord { sent, .. }) in &sent {
        assert!(markdown.contains(&format!("| odd | {kind} | {sent} | ")), "{markdown}");
    }
    (rounds, sent)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_malformed_envelope_is_counted_with_how_it_was_refused() {
    let (_, sent) = Box::pin(beside_four(Misconduct { malformed: 1.0, ..Misconduct::default() }, None)).await;
    let only = |counts: &BTreeMap<String, u64>| counts.keys().cloned().collect::<Vec<_>>();
    for (kind, answer, disposition) in [
        ("not_json", "malformed_json", None),
        ("wrong_schema", "unknown_field", None),
        ("unknown_negotiation", "accepted", Some("unauthorized")),
        ("wrong_act", "not_allowed", None),
    ] {
        let record = &sent[kind];
        assert!(record.sent > 2, "{kind}: {record:?}");
        assert_eq!(record.answers.values().sum::<u64>(), record.sent, "{kind}: {record:?}");
        assert_eq!(only(&record.answers), [answer], "{kind}");
        let expected: Vec<_> = disposition.map(str::to_owned).into_iter().collect();
        assert_eq!(only(&record.dispositions), expected, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limiter_holds_an_agent_that_sends_a_hundred_times_as_much() {
    let flood = Misconduct { rate_factor: 100.0, ..Misconduct::default() };
    let (rounds, sent) = Box::pin(beside_four(flood, Some(100))).await;
    let record = &sent["flood"];
    let warm_up = rounds.iter().filter(|round| round.is_warm_up);
    assert!(warm_up.clone().all(|round| round.outcome.as_deref() == Some("completed")), "it is not flooded");
    let span_s = (rounds.iter().filter_map(|round| round.ended_us).max().unwrap() - rounds[0].sent_us) as f64 / 1e6;
    assert!(record.sent as f64 > 100.0 * 10.0, "{record:?}");
    assert!(record.answers["rate_limited"] > record.sent / 2, "{record:?}");
    // A hundred a second, and two hundred at once in the beginning; the agents end a little behind the last round.
    assert!((record.answers["accepted"] as f64) < 200.0 + 100.0 * (span_s + 4.0), "{record:?}");
}

/// Offers whose delays lie closer than this may change places from run to run.
const APART_US: u64 = 40_000;

/// Whether the first offer comes clearly before the second.
fn is_clear(round: &RoundRecord) -> bool {
    let mut delays: Vec<u64> = round.offers.iter().filter_map(|offer| offer.delay_us).collect();
    delays.sort_unstable();
    delays.len() > 1 && delays[1] - delays[0] > APART_US
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_fixes_arrivals_costs_delays_and_decisions() {
    let folder = tempfile::tempdir().unwrap();
    for policy in ["high", "low"] {
        let mut seen = Vec::new();
        for (name, seed) in [("once", 1), ("again", 1), ("other", 2)] {
            let (_, rounds) = run(&spec(policy, seed), &IN_MEMORY, &folder.path().join(name)).await;
            let rounds: Vec<_> = rounds.into_iter().filter(|round| !round.is_warm_up).collect();
            let gaps: Vec<_> = rounds.windows(2).map(|pair| pair[1].intended_us - pair[0].intended_us).collect();
            let offers = |round: &RoundRecord| -> BTreeMap<String, (u64, Option<u64>)> {
                let of = |offer: &studies::record::BidRecord| (offer.cost.to_bits(), offer.delay_us);
                round.offers.iter().map(|offer| (offer.from.clone(), of(offer))).collect()
            };
            let offers: Vec<_> = rounds.iter().map(offers).collect();
            let decisions: Vec<_> = rounds
                .iter()
                .filter(|round| policy == "high" || is_clear(round))
                .map(|round| (round.round, round.awards[0].to.clone()))
                .collect();
            assert!(decisions.len() > 3, "{policy}: {decisions:?}");
            seen.push((gaps, offers, decisions));
        }
        let gap_differences = seen[0].0.iter().zip(&seen[1].0).map(|(one, other)| one.abs_diff(*other));
        assert!(gap_differences.max() <= Some(1) && seen[0].0.len() == seen[1].0.len(), "arrivals differ");
        assert_eq!(seen[0].1, seen[1].1, "costs and delays");
        assert_eq!(seen[0].2, seen[1].2, "decisions");
        assert!(seen[0].0 != seen[2].0 && seen[0].1 != seen[2].1, "another seed is another run");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_that_is_scaled_has_as_many_rounds_in_less_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let asked = CellSpec { rate: 0.5, duration_s: 40.0, ..spec("high", 3) };
    let options = RunOptions { time_scale: 20.0, ..IN_MEMORY };
    let (record, rounds) = run(&asked, &options, folder.path()).await;
    let (_, unscaled) = run(&spec("high", 3), &IN_MEMORY, folder.path()).await;
    assert_eq!(rounds.len(), unscaled.len());
    assert_eq!((record.rate, record.duration_s, record.time_scale), (0.5, 40.0, 20.0));
    assert!(record.elapsed_s < 10.0, "{record:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_is_asked_to_end_keeps_what_it_measured() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = CancellationToken::new();
    let asked = CellSpec { duration_s: 600.0, ..spec("low", 1) };
    let show = |standing: studies::run::cell::CellStanding| {
        if standing.ended > 3 {
            cancel.cancel();
        }
    };
    let record = run_cell(&asked, &IN_MEMORY, folder.path(), &cancel, &show).await.unwrap();
    assert!(record.is_interrupted && record.rounds > 3, "{record:?}");
    assert_eq!(record.violations, BTreeMap::new());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_cell_and_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("offers.csv")).unwrap();
    let asked = CellSpec { duration_s: 600.0, ..spec("low", 1) };
    let error = run_cell(&asked, &IN_MEMORY, folder.path(), &CancellationToken::new(), &|_| {}).await.unwrap_err();
    let RunError::File(file) = error else { panic!("{error}") };
    assert!(file.path.ends_with("offers.csv"), "{file}");
    assert!(file.to_string().contains("No space left on device"), "{file}");
    let kept = std::fs::read_to_string(folder.path().join("rounds.jsonl")).unwrap();
    assert!(kept.lines().count() > 0, "what was measured is kept");
    assert!(!folder.path().join("cell.json").exists(), "and the cell is not complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_runs_on_a_nats_server_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions { bus: CellBus::Nats, ..IN_MEMORY };
    let (record, rounds) = run(&spec("high", 3), &options, folder.path()).await;
    assert_eq!((record.bus.as_str(), record.violations.len()), ("nats", 0));
    assert!(rounds.len() > 10 && rounds.iter().all(|round| round.offers.len() == 5), "{record:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bargains_are_about_the_files_of_the_cell_and_none_that_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("domain.json");
    let shipped = include_str!("../../../domains/scheduling.json");
    std::fs::write(&path, shipped.replacen("\"name\": \"", "\"name\": \"own-", 1)).unwrap();
    let file = DomainFile::read(&path.to_string_lossy()).unwrap();
    let strategies = vec!["conceder".to_owned()];
    let usual = spec("bargain-low", 3);
    let asked = CellSpec { strategies, domains: vec![file], rate: 20.0, duration_s: 0.5, warm_up_rounds: 0, ..usual };
    let (record, rounds) = run(&asked, &IN_MEMORY, &folder.path().join("cells/one")).await;
    assert!(record.violations.is_empty() && rounds.len() > 2, "{record:?}");
    let about = |round: &RoundRecord| round.bargain.as_ref().unwrap().domain.starts_with("own-");
    assert!(rounds.iter().all(about), "{rounds:?}");
    std::fs::write(&path, shipped).unwrap();
    let two = folder.path().join("cells/two");
    let refused = run_cell(&asked, &IN_MEMORY, &two, &CancellationToken::new(), &|_| {}).await.unwrap_err();
    assert!(refused.to_string().ends_with("has changed since the plan was read; put it back"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_of_bargains_leaves_what_each_is_worth_and_the_report_says_what_they_come_to() {
    let folder = tempfile::tempdir().unwrap();
    let strategies = ["conceder", "random"].map(str::to_owned).to_vec();
    let asked = CellSpec { strategies, rate: 20.0, warm_up_rounds: 0, ..spec("bargain-medium", 3) };
    let (record, rounds) = run(&asked, &IN_MEMORY, &folder.path().join("cells/one")).await;
    assert_eq!((record.protocol.as_str(), record.violations.len()), ("alternating", 0));
    assert!(rounds.len() > 15, "{}", rounds.len());
    for round in &rounds {
        let bargain = round.bargain.as_ref().unwrap_or_else(|| panic!("{round:?}"));
        assert_eq!(bargain.agreement.is_some(), round.outcome.as_deref() == Some("agreement"), "{round:?}");
        assert!(bargain.utilities.len() >= 2 && bargain.steps > 0 && round.ended_us.is_some(), "{round:?}");
        if let Some(agreement) = &bargain.agreement {
            assert!((agreement.welfare - bargain.utilities.iter().sum::<f64>()).abs() < 1e-9, "{bargain:?}");
            assert!(!agreement.is_irrational && bargain.advantages.iter().all(|more| *more >= 0.0), "{bargain:?}");
        }
    }
    std::fs::write(folder.path().join("experiment.json"), r#"{"name": "bargains"}"#).unwrap();
    let report = studies::report::write(folder.path()).unwrap();
    let figure = |key: &str| report.groups[0].figures.iter().find(|figure| figure.key == key).unwrap().value;
    let agreed = rounds.iter().filter(|round| round.outcome.as_deref() == Some("agreement")).count();
    assert!(agreed > 3, "{agreed}");
    assert!((figure("M31").unwrap() - agreed as f64 / rounds.len() as f64).abs() < 1e-9);
    for key in [
        "M32",
        "M32.rounds",
        "M32.time",
        "M33.party 1",
        "M33.advantage.party 2",
        "M33.welfare",
        "M34.pareto",
        "M34.nash",
    ] {
        assert!(figure(key).is_some_and(f64::is_finite), "{key}");
    }
    assert!(figure("M35").is_some() && figure("M36") == Some(0.0));
}
