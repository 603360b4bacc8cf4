//! Tournaments: what is played, broken off and gone on with, and what its folder says.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::bargain::StrategyKind;
use agents::model::ModelAgentConfig;
use agents::model::stub::{StubBehaviour, StubModel};
use serde_json::{Value, json};
use studies::model::blocking::{BlockingConsultant, VirtualStub};
use studies::run::files::HoldError;
use studies::study::StudyError;
use studies::tournament::competitor::{Competitor, Player};
use studies::tournament::negmas::NegmasProcess;
use studies::tournament::report::TournamentReport;
use studies::tournament::{TournamentDomain, TournamentPlan, generated, report, run};

fn competitors(kinds: &[StrategyKind]) -> Vec<Competitor> {
    let of = |kind: StrategyKind| (kind.to_string(), kind.to_string(), Player::Strategy(kind));
    kinds.iter().map(|&kind| of(kind)).map(|(name, made_of, player)| Competitor { name, made_of, player }).collect()
}

fn domains(count: u64) -> Vec<TournamentDomain> {
    (1..=count).map(|number| TournamentDomain::read(&generated::document(1, number)).unwrap()).collect()
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Every file below a folder, by its path in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_tournament_that_was_broken_off_goes_on_where_it_was_and_leaves_the_files_of_one_that_was_not() {
    use StrategyKind::{Boulware, Conceder, Random};
    let (players, domains) = (competitors(&[Conceder, Random, Boulware]), domains(7));
    let plan = TournamentPlan::new(&players, &domains, (1, 2));
    let [whole, broken] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    assert!(run(&plan, &domains, &players, whole.path(), &go_on).unwrap());
    // The third domain is broken off in the middle: 18 bargains each.
    let until =
        |most: u64| move |played| if played < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    assert!(!run(&plan, &domains, &players, broken.path(), &until(40)).unwrap());
    let partly = report::write(broken.path()).unwrap();
    assert_eq!((partly.domains.len(), partly.ranks.len()), (2, 3));
    assert!(partly.text().contains("5 are missing") && partly.text().contains("Too few domains"), "{}", partly.text());
    let first = Cell::new(None);
    let told = |played| {
        first.set(first.get().or(Some(played)));
        ControlFlow::Continue(())
    };
    assert!(run(&plan, &domains, &players, broken.path(), &told).unwrap());
    assert_eq!(first.get(), Some(36), "two domains are not played again");
    let TournamentReport { ranks, irrational, failed_turns, .. } = report::write(broken.path()).unwrap();
    let report = report::write(whole.path()).unwrap();
    assert_eq!((irrational, failed_turns, &ranks), (0, 0, &report.ranks));
    assert_eq!(files(whole.path()), files(broken.path()));
    println!("{}", report.text());
    assert!(ranks.iter().all(|rank| rank.bargains == 7 * 2 * 6 && rank.utility.interval.is_some()));
    assert_eq!(ranks[0].competitor, "boulware", "who concedes late gets more from who concedes early");
    for name in ["report.md", "figures.json", "domain-1.svg", "domain-7.svg", "cells/domain-7/domain.json"] {
        assert!(files(whole.path()).contains_key(Path::new(name)), "{name}");
    }
}

/// A competitor whose model is a stub that does the same at every turn.
fn model(behaviour: StubBehaviour, settings: &Value) -> Competitor {
    let config = json!({"model": settings, "party": {"instructions": "Get much."}});
    let config: Arc<ModelAgentConfig> = Arc::new(serde_json::from_value(config).unwrap());
    let stub = VirtualStub::new(StubModel::always(behaviour, 1), config.model.clone());
    let consultant = Arc::new(BlockingConsultant::Stub(Box::new(stub)));
    Competitor { name: "model".to_owned(), made_of: "stub".to_owned(), player: Player::Model(config, consultant) }
}

#[test]
fn a_model_plays_every_bargain_and_turns_it_fails_are_counted_and_played_by_its_script() {
    let (scripted, domains) = ([StrategyKind::Boulware, StrategyKind::Linear], domains(6));
    let played = |model: Competitor| {
        let folder = tempfile::tempdir().unwrap();
        let players: Vec<Competitor> = competitors(&scripted).into_iter().chain([model]).collect();
        let plan = TournamentPlan::new(&players, &domains, (1, 1));
        assert!(run(&plan, &domains, &players, folder.path(), &go_on).unwrap());
        report::write(folder.path()).unwrap()
    };
    let utility = |report: &TournamentReport, name: &str| {
        report.ranks.iter().find(|rank| rank.competitor == name).unwrap().utility.value
    };
    let drawing = played(model(StubBehaviour::Good, &json!({})));
    assert_eq!((drawing.irrational, drawing.ranks.len()), (0, 3));
    assert!(drawing.ranks.iter().all(|rank| rank.bargains == 6 * 6), "both parties of each ordered pair");
    let silent = played(model(StubBehaviour::Junk, &json!({"fallback": "scripted"})));
    assert!(drawing.failed_turns < silent.failed_turns / 4, "{} of {}", drawing.failed_turns, silent.failed_turns);
    let beside = utility(&silent, "model") - utility(&silent, "boulware");
    assert!(beside.abs() < 1e-9, "its script is the strategy of that name: {beside}");
    let leaving = played(model(StubBehaviour::Junk, &json!({})));
    assert!(leaving.failed_turns > 0 && utility(&leaving, "model") < utility(&silent, "model"));
}

#[test]
fn a_folder_of_another_tournament_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (players, drawn) = (competitors(&[StrategyKind::Linear]), domains(1));
    let plan = TournamentPlan::new(&players, &drawn, (1, 1));
    run(&plan, &drawn, &players, folder.path(), &go_on).unwrap();
    // The same names, another document.
    let altered = generated::document(1, 1).replace("\"rounds\":50", "\"rounds\":49");
    let altered = vec![TournamentDomain::read(&altered).unwrap()];
    let other = TournamentPlan::new(&players, &altered, (1, 1));
    assert_eq!(other.domains, plan.domains);
    let refused = run(&other, &altered, &players, folder.path(), &go_on);
    assert!(matches!(refused, Err(StudyError::OtherExperiment(_))), "{refused:?}");
}

#[test]
fn domains_that_cannot_be_played_are_refused_with_the_place() {
    let three = include_str!("../../../domains/three_party.json");
    assert_eq!(TournamentDomain::read(three).unwrap_err(), "/parties: three_party has 3; a tournament takes two");
    let timed = generated::document(1, 1).replace("\"rounds\":50", "\"deadline_ms\":5000");
    let refused = TournamentDomain::read(&timed).unwrap_err();
    assert_eq!(refused, "/rules/rounds: generated-1-1 has none; a tournament has no clock");
    assert!(TournamentDomain::read("{}").is_err());
}

#[test]
fn a_damaged_line_is_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (players, drawn) = (competitors(&[StrategyKind::Linear]), domains(1));
    let plan = TournamentPlan::new(&players, &drawn, (1, 2));
    run(&plan, &drawn, &players, folder.path(), &go_on).unwrap();
    let path = folder.path().join("cells/domain-1/bargains.jsonl");
    let lines = std::fs::read_to_string(&path).unwrap();
    let [one, other] = lines.lines().collect::<Vec<_>>()[..] else { panic!("{lines}") };
    let changed = |member: &str, value: Value| {
        let mut record: Value = serde_json::from_str(other).unwrap();
        *record.pointer_mut(member).unwrap() = value;
        format!("{one}\n{record}\n")
    };
    let table = [
        (format!("{one}\n{}\n", &other[1..]), '2'),
        (format!("{one}\n{}\n", other.replace("\"utilities\":[", "\"utilities\":[0.5,")), '2'),
        (changed("/outcome", json!(1_000_000)), '2'),
        (changed("/seed", json!(9)), '2'),
        (changed("/second", json!("boulware")), '2'),
        (changed("/bargain/utilities", json!([5.0, 0.5])), '2'),
        (format!("{one}\n{one}\n"), '2'),
        (format!("{one}\n"), '2'),
        (format!("{lines}{other}\n"), '3'),
    ];
    for (damaged, line) in table {
        std::fs::write(&path, &damaged).unwrap();
        let fault = report::write(folder.path()).unwrap_err().to_string();
        assert!(fault.contains("bargains.jsonl") && fault.contains(line), "{damaged}: {fault}");
        assert!(!folder.path().join("report.md").exists());
    }
    std::fs::write(&path, lines).unwrap();
    let document = folder.path().join("cells/domain-1/domain.json");
    let text = std::fs::read_to_string(&document).unwrap();
    std::fs::write(&document, format!("{text} ")).unwrap();
    let fault = report::write(folder.path()).unwrap_err().to_string();
    assert!(fault.contains("domain.json") && fault.contains("another domain"), "{fault}");
    // Without it the domain is played again.
    std::fs::remove_file(&document).unwrap();
    assert!(run(&plan, &drawn, &players, folder.path(), &go_on).unwrap());
    report::write(folder.path()).unwrap();
}

#[test]
fn a_folder_that_another_run_writes_to_or_that_holds_other_files_is_refused() {
    let (players, drawn) = (competitors(&[StrategyKind::Linear]), domains(1));
    let plan = TournamentPlan::new(&players, &drawn, (1, 1));
    let folder = tempfile::tempdir().unwrap();
    let again = Cell::new(None);
    let beside = |_| {
        let refused = run(&plan, &drawn, &players, folder.path(), &go_on);
        again.set(Some(matches!(refused, Err(StudyError::Held(HoldError::Busy(_))))));
        ControlFlow::Continue(())
    };
    assert!(run(&plan, &drawn, &players, folder.path(), &beside).unwrap());
    assert_eq!(again.get(), Some(true));
    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("report.md"), "mine").unwrap();
    let refused = run(&plan, &drawn, &players, foreign.path(), &go_on);
    assert!(matches!(refused, Err(StudyError::Held(HoldError::Foreign(_)))), "{refused:?}");
    assert_eq!(std::fs::read_to_string(foreign.path().join("report.md")).unwrap(), "mine");
}

/// A program in place of Python, which says `first` and then answers each document and each turn with a line.
fn stand_in(folder: &Path, first: &str, document: &str, turn: &str) -> PathBuf {
    let path = folder.join("python");
    let answers = format!("case \"$line\" in *document*) echo '{document}';; *) echo '{turn}';; esac");
    let text = format!("#!/bin/sh\necho '{first}'\nwhile read -r line; do {answers}; done\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn what_a_process_of_negmas_answers_is_a_move_a_failed_turn_or_a_fault() {
    const READY: &str = r#"{"ready":"negmas 0"}"#;
    let (drawn, folder) = (domains(1), tempfile::tempdir().unwrap());
    let played = |first: &str, document: &str, turn: &str| {
        let process = NegmasProcess::start(&stand_in(folder.path(), first, document, turn), "X", &drawn)?;
        let made_of = process.made_of.clone();
        let players = [Competitor { name: "x".to_owned(), made_of, player: Player::Negmas(Arc::new(process)) }];
        let out = tempfile::tempdir().unwrap();
        let plan = TournamentPlan::new(&players, &drawn, (1, 1));
        run(&plan, &drawn, &players, out.path(), &go_on).map_err(|error| error.to_string())?;
        report::write(out.path()).map_err(|error| error.to_string())
    };
    let report = played(READY, READY, r#"{"end":true}"#).unwrap();
    assert_eq!((report.plan.made_of[0].as_str(), report.ranks[0].agreements.value), ("negmas 0", 0.0));
    assert_eq!(report.failed_turns, 0);
    assert_eq!(played(READY, READY, r#"{"failed":"ValueError: no"}"#).unwrap().failed_turns, 1);
    for (first, document, turn, fault) in [
        (r#"{"failed":"no class"}"#, READY, READY, "no class"),
        (READY, r#"{"failed":"keep two"}"#, READY, "domain generated-1-1: keep two"),
        ("Traceback", READY, READY, "python does not run it: install the Python package"),
        (READY, READY, READY, "it makes no move in its turn"),
        (READY, READY, r#"{"offer":{"issue1":77}}"#, "it offers no outcome"),
        (READY, READY, "", "x and x over generated-1-1, seed 1: it answers \"\""),
    ] {
        let told = played(first, document, turn).unwrap_err();
        assert!(told.contains(fault), "{told}");
    }
    let missing = NegmasProcess::start(&folder.path().join("nowhere"), "X", &drawn).err().unwrap();
    assert!(missing.contains("cannot be run"), "{missing}");
}
