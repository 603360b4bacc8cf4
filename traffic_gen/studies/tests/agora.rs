//! What protocol documents save: the network of a seed, the two agents, and the files that a run leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use agora::schedule::{Means, Thresholds};
use studies::agora::figures::{NetworkFigures, SeedSpread};
use studies::agora::network::{self, StubFaults};
use studies::agora::query::QueryRecord;
use studies::agora::weather::{self, BreakEven};
use studies::agora::workload::Workload;
use studies::agora::{AgoraPlan, live, report, run};
use studies::study::StudyError;

async fn played(seed: u64, thresholds: Thresholds, faults: StubFaults) -> Vec<QueryRecord> {
    network::play(Workload::drawn(seed), thresholds, faults, seed).await.unwrap()
}

#[tokio::test]
async fn a_thousand_queries_cost_a_quarter_or_less_with_documents_and_few_of_the_last_need_a_model() {
    let figures = NetworkFigures::of(1, &played(1, Thresholds::PAPER, StubFaults::Some).await, Thresholds::PAPER);
    assert!(figures.ratio >= 4.0, "{figures:?}");
    assert!(figures.share_last <= 0.25 && figures.share_first > figures.share_last, "{figures:?}");
    // What this seed comes to, exactly.
    assert_eq!((figures.queries, figures.in_language, figures.documents), (1000, 121, 7));
    assert_eq!((figures.negotiations, figures.checks, figures.routines, figures.routine_failures), (7, 16, 14, 1));
}

#[tokio::test]
async fn over_twenty_seeds_the_median_ratio_is_above_four_and_no_seed_needs_a_model_in_a_quarter_of_its_last_queries() {
    let mut networks = Vec::new();
    for seed in 1..=20 {
        let records = played(seed, Thresholds::PAPER, StubFaults::Some).await;
        networks.push(NetworkFigures::of(seed, &records, Thresholds::PAPER));
    }
    let spread = SeedSpread::of(&networks).unwrap();
    assert!(spread.ratio_median >= 4.0 && spread.share_last_high <= 0.25, "{spread:?}");
    // Where budgets are spread evenly, three calls in natural language with each counterpart are too much of them.
    assert_eq!((spread.seeds_at_four, spread.seeds_bound_at_four), (15, 20), "{spread:?}");
    assert!(spread.ratio_and_bound.is_some_and(|correlation| correlation > 0.85), "{spread:?}");
    assert!(spread.share_at_four.0 < 0.75 && spread.share_at_four.1 > 0.75, "{spread:?}");
}

#[tokio::test]
async fn the_first_calls_of_each_pair_bound_the_ratio() {
    let records = played(1, Thresholds::PAPER, StubFaults::Some).await;
    let figures = NetworkFigures::of(1, &records, Thresholds::PAPER);
    assert!(figures.ratio < figures.ratio_bound, "{figures:?}");
    // What each pair's first calls cost, counted the other way round: by walking from pair to pair.
    let mut by_pair: BTreeMap<(&str, &str), Vec<&QueryRecord>> = BTreeMap::new();
    for record in &records {
        by_pair.entry((&record.initiator, &record.responder)).or_default().push(record);
    }
    let early = by_pair.values().flat_map(|calls| calls.iter().take(3));
    let in_language = early.filter(|record| record.cost.language > 0 && !record.is_asked);
    assert_eq!(figures.opening_cost, in_language.map(|record| record.cost.language).sum::<u64>());
    let at_once = Thresholds { documents: 0, ..Thresholds::PAPER };
    assert_eq!(NetworkFigures::of(1, &records, at_once).opening_cost, 0, "a threshold of none bounds nothing");
}

#[tokio::test]
async fn every_query_keeps_the_papers_schedule() {
    let records = played(3, Thresholds::PAPER, StubFaults::None).await;
    let synchronised: usize = records.iter().map(|record| record.synchronised).sum();
    let documents = records.last().unwrap().documents;
    assert!(synchronised > 0 && synchronised <= 2 * documents, "{synchronised} copies of {documents} documents");
    assert!(records.iter().all(|record| record.synchronised == 0 || record.query % 10 == 0));
    let mut calls: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let (mut supported, mut under_document) = (BTreeSet::new(), BTreeSet::new());
    let mut in_language: BTreeMap<&str, u32> = BTreeMap::new();
    for record in &records {
        let number = calls.entry((&record.initiator, &record.responder)).or_default();
        *number += 1;
        let pair = (record.initiator.as_str(), record.responder.as_str());
        let has_document = under_document.contains(&pair);
        if *number <= 3 && !record.is_asked && !has_document {
            assert_eq!(record.document, None, "{record:?}");
        }
        if *number > 5 || record.is_asked || has_document || (*number > 3 && supported.contains(&record.responder)) {
            assert!(record.document.is_some(), "{record:?}");
        }
        if record.document.is_some() {
            supported.insert(&record.responder);
            under_document.insert(pair);
            assert_eq!((record.initiator_means, record.responder_means), (Means::Routine, Means::Routine));
            assert_eq!((record.cost.language, record.cost.messages), (0, 0), "{record:?}");
        } else {
            assert_eq!(record.cost.language, record.language_cost, "{record:?}");
        }
        let cost = &record.cost;
        for (work, paid) in [
            (record.checks, cost.checks),
            (record.negotiations, cost.negotiation),
            (record.routines + record.routine_failures, cost.implementing),
        ] {
            assert_eq!(work > 0, paid > 0, "what a model did is paid for: {record:?}");
        }
        let conversations = in_language.entry(&record.responder).or_default();
        assert!(*conversations < 10 || record.is_asked || record.document.is_some(), "{record:?}");
        match (record.document.is_some(), record.is_asked || record.negotiations > 0) {
            (_, true) => *conversations = 0,
            (false, false) => *conversations += 1,
            (true, false) => {}
        }
    }
}

#[tokio::test]
async fn two_agents_have_paid_for_their_document_from_the_third_use_on() {
    let queries = weather::play(1).await.unwrap();
    let measured = BreakEven::measured(&queries);
    assert_eq!((measured.uses, BreakEven::paper().uses), (3, 3), "{measured:?}");
    assert!(queries[0].cost.negotiation > 0 && queries[0].cost.implementing > 0 && queries[0].cost.checks > 0);
    assert!(queries[1..].iter().all(|query| !query.needs_model()), "routines cost nothing: {queries:?}");
    let spent = |uses: usize| queries[..uses].iter().map(|query| query.cost.total()).sum::<u64>();
    let language = |uses: usize| queries[..uses].iter().map(|query| query.language_cost).sum::<u64>();
    assert!(spent(2) > language(2) && spent(3) < language(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_queries_come_to_the_same_as_real_calls_and_each_award_pins_its_document() {
    let mut workload = Workload::drawn(1);
    workload.queries.truncate(100);
    let records = network::play(workload.clone(), Thresholds::PAPER, StubFaults::Some, 1).await.unwrap();
    let by_document = records.iter().filter(|record| record.document.is_some()).count();
    let figures = live::play(&workload, &records).await.unwrap();
    assert_eq!((figures.calls, figures.differences), (100, 0), "{figures:?}");
    assert!(by_document > 20, "{by_document}");
    assert_eq!((figures.by_routine, figures.in_language), (by_document, 100 - by_document));
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

const FILES: [&str; 10] = [
    "experiment.json",
    "cells/network-5/queries.jsonl",
    "cells/network-6/queries.csv",
    "cells/weather/queries.jsonl",
    "figures.json",
    "report.html",
    "report.md",
    "figure-5a.svg",
    "figure-5b.svg",
    "weather.svg",
];

#[tokio::test]
async fn the_same_seeds_leave_the_same_files_and_every_figure_is_computed_from_the_queries_alone() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let plan = AgoraPlan::new(5, 2, Thresholds::PAPER);
    for folder in [&one, &other] {
        run(&plan, folder.path(), &|_| {}).await.unwrap();
        report::write(folder.path()).unwrap();
    }
    for file in FILES {
        assert!(!read(one.path(), file).is_empty(), "{file}");
        assert_eq!(read(one.path(), file), read(other.path(), file), "{file}");
    }
    let negotiation = |folder: &Path| {
        let figures: serde_json::Value = serde_json::from_str(&read(folder, "figures.json")).unwrap();
        figures["networks"][0]["cost"]["negotiation"].as_u64().unwrap()
    };
    let (before, page) = (negotiation(one.path()), read(one.path(), "report.html"));
    assert_eq!(read(one.path(), "cells/network-5/queries.csv").lines().count(), 1001);
    // A query that cost more is a report that says more.
    let path = "cells/network-5/queries.jsonl";
    let dearer = read(one.path(), path).replacen("\"negotiation\":0}", "\"negotiation\":99000000000}", 1);
    fs::write(one.path().join(path), dearer).unwrap();
    report::write(one.path()).unwrap();
    assert_eq!(negotiation(one.path()), before + 99_000_000_000);
    assert_ne!(read(one.path(), "report.html"), page);
}

#[tokio::test]
async fn a_folder_of_another_run_and_a_damaged_line_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    run(&AgoraPlan::new(5, 1, Thresholds::PAPER), folder.path(), &|_| {}).await.unwrap();
    let other = run(&AgoraPlan::new(6, 1, Thresholds::PAPER), folder.path(), &|_| {}).await;
    assert!(matches!(other, Err(StudyError::OtherExperiment(_))), "{other:?}");
    let path = folder.path().join("cells/network-5/queries.jsonl");
    let damaged = fs::read_to_string(&path).unwrap().replacen("\"query\":7,", "\"query\":", 1);
    fs::write(&path, damaged).unwrap();
    let refused = report::write(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("network-5/queries.jsonl:7: "), "{refused}");
    assert!(!folder.path().join("report.html").exists());
}
