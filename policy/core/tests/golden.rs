//! Every log of every rules version folds today as it did when it was recorded: decisions, register values and
//! state digests, bit for bit. How logs are recorded: `golden/README.md`.

#![allow(clippy::disallowed_methods, reason = "a test reads the golden files")]

#[path = "properties/coverage.rs"]
mod coverage;
#[path = "support/golden.rs"]
mod golden;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use policy_core::lane::{RULES_FIRST, RULES_VERSION, SNAPSHOT_FORMAT};
use policy_core::{Effect, Event, LaneState, Phase, Protocol};
use schemas::delivery::{Notification, Outcome};
use schemas::validate::{Kind, check_document, published};
use strum::VariantArray as _;

use coverage::Reached;
use golden::GoldenLog;

#[test]
fn every_rules_version_folds_its_logs_as_it_did() {
    for version in RULES_FIRST..=RULES_VERSION {
        for (name, text) in logs(version) {
            let log = GoldenLog::read(&text);
            let again = log.transcript();
            let differs = text.lines().zip(again.lines()).position(|(golden, found)| golden != found);
            if let Some(line) = differs {
                let (golden, found) = (text.lines().nth(line), again.lines().nth(line));
                panic!("{name}, line {}:\n golden {golden:?}\n  found {found:?}", line + 1);
            }
            assert_eq!(text.len(), again.len(), "{name} goes on longer, or ends sooner");
            let mut lane_state = log.lane_state();
            log.records.iter().for_each(|logged| drop(logged.fold(&mut lane_state)));
            assert_eq!(lane_state.rules(), version, "{name} was recorded under other rules");
        }
    }
}

#[test]
fn the_logs_of_each_rules_version_reach_everything_there_is() {
    for version in RULES_FIRST..=RULES_VERSION {
        let mut reached = Reached::default();
        for (_, text) in logs(version) {
            let log = GoldenLog::read(&text);
            let mut lane_state = log.lane_state();
            for logged in &log.records {
                reached.note(&logged.record, &logged.fold(&mut lane_state));
            }
        }
        assert_eq!(reached.missing(), [""; 0], "rules {version}");
    }
}

#[test]
fn every_view_of_every_party_after_every_record_is_as_its_schema_says() {
    let mut seen = BTreeSet::new();
    for (name, text) in logs(RULES_VERSION) {
        let log = GoldenLog::read(&text);
        let mut lane_state = log.lane_state();
        let (mut negotiations, mut agents) = (BTreeSet::new(), BTreeSet::new());
        for logged in &log.records {
            for effect in logged.fold(&mut lane_state) {
                let Effect::Deliver(deliver) = effect else { continue };
                negotiations.insert(deliver.negotiation);
                agents.insert(deliver.to);
            }
            for (negotiation, agent) in negotiations.iter().flat_map(|one| agents.iter().map(move |agent| (one, agent)))
            {
                let Some(view) = lane_state.view(negotiation, agent) else { continue };
                let mut shown = serde_json::to_value(&view).expect("a view is JSON");
                for offer in shown["offers"].as_array_mut().into_iter().flatten() {
                    // Of these logs some hold prices that no gateway takes.
                    if offer["terms"]["price"].is_string() {
                        offer["terms"]["price"] = 1.into();
                    }
                }
                let bytes = shown.to_string().into_bytes();
                let verdict = check_document(Kind::View, &bytes);
                assert_eq!(verdict, Ok(()), "{name}, record {}: {}", logged.seq, String::from_utf8_lossy(&bytes));
                seen.insert(word(view.role));
                seen.insert(word(view.state));
                seen.extend(view.outcome.map(word));
            }
        }
    }
    // Every word that the schema knows of these, but for states that no record ends in.
    let (_, schema) = published().iter().find(|(name, _)| *name == "view").expect("it is published");
    let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
    let words = |pointer: &str| schema.pointer(pointer).and_then(|words| words.as_array().cloned()).expect("words");
    let known = [words("/properties/role/enum"), words("/properties/state/enum")].concat();
    let unseen: Vec<_> = known.iter().filter_map(|one| one.as_str()).filter(|one| !seen.contains(*one)).collect();
    assert_eq!(unseen, [""; 0]);
    let outcomes = Outcome::VARIANTS.iter().map(|outcome| word(*outcome)).filter(|outcome| !seen.contains(outcome));
    assert_eq!(outcomes.collect::<Vec<_>>(), [""; 0]);
}

/// A word as it stands in a document.
fn word(one: impl serde::Serialize) -> String {
    serde_json::to_value(one).ok().and_then(|one| one.as_str().map(str::to_owned)).expect("a word")
}

#[test]
fn the_bargains_of_the_rules_that_know_them_come_to_every_end_and_every_refusal() {
    let mut words = BTreeSet::new();
    for (name, text) in logs(RULES_VERSION).into_iter().filter(|(name, _)| name.contains("bargain-")) {
        let log = GoldenLog::read(&text);
        let mut lane_state = log.lane_state();
        for effect in log.records.iter().flat_map(|logged| logged.fold(&mut lane_state)) {
            let Effect::Deliver(deliver) = effect else { continue };
            match &*deliver.told {
                Notification::Closed(closing) => {
                    words.extend([format!("{:?}", closing.outcome)].into_iter().chain(closing.detail.clone()))
                }
                Notification::NotUnderstood(misunderstanding) => words.extend([misunderstanding.reason.clone()]),
                Notification::Ack(receipt) => words.extend([receipt.disposition.as_str().to_owned()]),
                Notification::Accept(_) => words.extend(["to be confirmed".to_owned()]),
                Notification::Cfp(_)
                | Notification::Reject(_)
                | Notification::Cancel(_)
                | Notification::Inform(_)
                | Notification::Failure(_)
                | Notification::Turn(_)
                | Notification::Ask(_)
                | Notification::Floor(_) => {}
            }
        }
        assert_eq!(lane_state.rules(), RULES_VERSION, "{name}");
    }
    let missing: Vec<_> = BARGAIN_WORDS.into_iter().filter(|word| !words.contains(*word)).collect();
    assert_eq!(missing, [""; 0]);
}

const BARGAIN_WORDS: [&str; 35] = [
    "Agreement",
    "NoAgreement",
    "Ended",
    "Cancelled",
    "Aborted",
    "to be confirmed",
    "rounds",
    "deadline",
    "step_timeout",
    "unconfirmed",
    "not_joined",
    "bad_round",
    "bad_deadline",
    "no_recipient",
    "invalid_bargain",
    "invalid_mandate",
    "invalid_policy",
    "out_of_space",
    "validity",
    "condition",
    "repeated",
    "standing",
    "not_yet_valid",
    "terms_digest",
    "ok",
    "duplicate",
    "expired",
    "stale_round",
    "out_of_turn",
    "malformed",
    "conflict",
    "stale_seq",
    "closed",
    "policy_reject",
    "mandate_violation",
];

#[test]
fn a_snapshot_of_the_format_is_still_read_and_still_written() {
    let format = SNAPSHOT_FORMAT;
    let bytes = fs::read(golden::snapshot_file(format)).expect("a snapshot of the format");
    let text = fs::read_to_string(golden::folder().join("rules-1/bargain-01.jsonl")).expect("the log it was taken of");
    let log = GoldenLog::read(&text);
    let mut restored = LaneState::restore(&bytes, log.lane, log.limits.clone()).expect("a golden snapshot is whole");
    let mut steady = log.lane_state();
    for logged in &log.records {
        let is_old = logged.seq <= restored.position();
        let expected = logged.fold(&mut steady);
        if logged.seq == restored.position() {
            assert!(steady.snapshot() == bytes, "the format changed: raise SNAPSHOT_FORMAT, and read this one still");
        }
        let found = logged.fold(&mut restored);
        assert!(is_old || format!("{found:?}") == format!("{expected:?}"), "format {format}, record {}", logged.seq);
    }
    assert_eq!(restored.state_digest_full(), steady.state_digest_full());
}

#[test]
fn the_golden_panels_come_to_the_evidence_they_came_to() {
    let text = fs::read_to_string(golden::evidence_file(RULES_VERSION)).expect("the evidence of the version");
    assert_eq!(evidence(), text);
    assert!(text.lines().count() > 10, "many of the logs count as evidence");
}

#[test]
#[ignore = "records what golden panels come to: see golden/README.md"]
fn golden_evidence_is_recorded() {
    let file = golden::evidence_file(RULES_VERSION);
    if !file.exists() {
        fs::write(file, evidence()).expect("a file");
    }
}

/// What every log of panels leaves in the ledger: a line each.
fn evidence() -> String {
    let mut lines = String::new();
    for (path, text) in logs(RULES_VERSION).into_iter().filter(|(name, _)| name.contains("panel-")) {
        let log = GoldenLog::read(&text);
        let mut lane_state = log.lane_state();
        log.records.iter().for_each(|logged| drop(logged.fold(&mut lane_state)));
        let name = Path::new(&path).file_stem().expect("a file").to_string_lossy();
        let shown = lane_state.evidence().published(lane_state.position());
        if !shown.entries.is_empty() {
            lines.push_str(&format!("{}\n", serde_json::json!({"log": name, "evidence": shown})));
        }
    }
    lines
}

#[test]
fn a_protocol_has_its_page_its_folders_its_ends_and_its_golden_logs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut played = BTreeSet::new();
    for (_, text) in logs(RULES_VERSION) {
        let log = GoldenLog::read(&text);
        let mut lane_state = log.lane_state();
        for effect in log.records.iter().flat_map(|logged| logged.fold(&mut lane_state)) {
            if let Effect::Event(Event::Started { protocol, .. }) = effect {
                played.insert(protocol);
            }
        }
    }
    let names: Vec<&str> = Protocol::VARIANTS.iter().map(|protocol| protocol.as_str()).collect();
    let first = ["contract_net", "alternating_offers", "panel", "team"];
    assert_eq!(names[..4], first, "timers that are due together fire in this order");
    for protocol in Protocol::VARIANTS {
        let name = protocol.as_str();
        for path in [
            format!("docs/spec/{}.md", name.replace('_', "-")),
            format!("policy/core/src/negotiation/{}.rs", place(name)),
            format!("policy/reference/src/{}.rs", place(name)),
        ] {
            assert!(root.join(&path).is_file(), "{path} is missing");
        }
        assert!(played.contains(protocol), "no golden log plays {name}");
    }
    for phase in Phase::VARIANTS {
        let owners = Protocol::VARIANTS.iter().filter(|protocol| protocol.phases().contains(phase)).count();
        assert_eq!(owners > 0, *phase != Phase::Ended, "{phase:?} is of a protocol");
    }
    for outcome in Outcome::VARIANTS {
        let is_known = Protocol::VARIANTS.iter().any(|protocol| protocol.outcomes().contains(outcome));
        assert!(is_known, "{outcome:?} ends no protocol");
    }
}

/// Where a protocol stands among the modules of protocols: an auction is a contract net that collects in another way.
fn place(name: &str) -> String {
    if name == "english_auction" { format!("contract_net/{name}") } else { name.to_owned() }
}

/// The golden logs of a version, in the order of their names.
fn logs(version: u32) -> Vec<(String, String)> {
    let folder = golden::rules_folder(version);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut logs: Vec<(String, String)> = files
        .map(|file| {
            let path = file.expect("a file").path();
            (path.display().to_string(), fs::read_to_string(&path).expect("a text"))
        })
        .collect();
    logs.sort();
    assert!(!logs.is_empty(), "{} holds no logs", folder.display());
    logs
}
