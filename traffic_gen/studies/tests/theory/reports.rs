//! The report of a folder: recomputed, compared, and refused where a line is damaged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use studies::figures::Figure;
use studies::report::differences;
use studies::report::folder::FolderError;
use studies::report::{self, ExperimentReport, ReportError};
use tempfile::TempDir;

use crate::world::{World, world};

fn small(policy: &str, contractors: u32, first: u32) -> World {
    World { seeds: 6, rounds: 40, ..world(policy, contractors, first) }
}

fn experiment(worlds: &[World]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    worlds.iter().for_each(|world| world.write(folder.path()));
    folder
}

/// Every file outside of `cells`.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in [folder.to_owned(), folder.join("tables")] {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_report_computed_again_is_the_same_to_the_byte() {
    let folder = experiment(&[small("high@1", 5, 5), small("low@1", 5, 1)]);
    report::write(folder.path()).unwrap();
    let first = files(folder.path());
    report::write(folder.path()).unwrap();
    assert_eq!(first, files(folder.path()));
    let expected =
        ["figures.csv", "figures.json", "hypotheses.csv", "paper.csv", "policies.csv", "report.html", "report.md"];
    assert_eq!(first.keys().collect::<Vec<_>>(), expected);
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_every_figure_has_title_units_and_alternative() {
    let high = [5, 9, 12].map(|contractors| small("high@1", contractors, contractors));
    let first = [("low@1", 1), ("medium@1", 6)].map(|(policy, first)| small(policy, 12, first));
    // Where `scripts/check-report` finds it.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    let _ = fs::remove_dir_all(&folder);
    let at_once =
        [5, 9, 12].map(|contractors| World { delay_us: 20.0, ..small("paper41-high@1", contractors, contractors) });
    high.iter().chain(&first).chain(&at_once).for_each(|world| world.write(&folder));
    report::write(&folder).unwrap();
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    for banned in ["<script", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(banned), "the page has {banned}");
    }
    for title in [
        "Latency over time",
        "Offers per round",
        "Latency by contractor",
        "Message volume",
        "Policy trade-off",
        "Lorenz curve of awards",
    ] {
        assert!(page.contains(&format!("<title>{title}</title>")), "{title} is missing");
    }
    assert_eq!(page.matches("<desc>").count(), 6);
    for unit in ["median time to decision (ms)", "time of the run (min)", "regret (share of the cost range)"] {
        assert!(page.contains(unit), "{unit} is missing");
    }
    let text = fs::read_to_string(folder.join("report.md")).unwrap();
    assert!(text.lines().count() < 80 && text.contains("| H7 "), "{text}");
}

#[test]
fn messages_that_are_linear_in_contractors_have_a_straight_line() {
    let folder = experiment(&[5, 9, 12, 50].map(|contractors| small("high@1", contractors, contractors)));
    let report = report::compute(folder.path()).unwrap();
    let [volume] = &report.volume[..] else { panic!("{:?}", report.volume) };
    assert!(
        (volume.slope - 1.0).abs() < 1e-9 && (volume.intercept - 4.0).abs() < 1e-9 && volume.r_squared > 0.999_999,
        "{volume:?}"
    );
}

fn figure<'a>(report: &'a ExperimentReport, group: &str, key: &str) -> &'a Figure {
    let group = report.groups.iter().find(|found| found.name == group).unwrap();
    group.figures.iter().find(|figure| figure.key == key).unwrap()
}

#[test]
fn the_papers_runs_stand_beside_the_groups_that_repeat_them() {
    let at_once = |policy: &str, contractors| World { delay_us: 20.0, ..small(policy, contractors, contractors) };
    let scripted = small("high@1", 12, 12);
    let folder = experiment(&[at_once("paper41-high@1", 12), at_once("high@1", 7), scripted]);
    let report = report::compute(folder.path()).unwrap();
    let [run] = &report.paper[..] else { panic!("{:?}", report.paper) };
    assert_eq!((run.run.as_str(), run.measure, run.completion), ("high 2 min, 12 contractors", "decision", Some(1.0)));
    let p95_ms = figure(&report, &run.group, "M2d.p95").value.unwrap();
    assert_eq!(run.p95_ms, Some(p95_ms));
    assert!((run.factor.unwrap() - 8.3 / p95_ms).abs() < 1e-12 && run.is_met);
}

#[test]
fn a_quantile_of_too_few_rounds_is_not_said_and_a_cold_group_stands_beside_the_papers_warm_up() {
    let few = |is_cold| World { delay_us: 20.0, rounds: 2, is_cold, ..small("low@1", 5, 5) };
    let folder = experiment(&[few(false), few(true)]);
    let report = report::compute(folder.path()).unwrap();
    let runs: Vec<_> = report.paper.iter().map(|run| (run.run.as_str(), run.group.as_str(), run.is_longest)).collect();
    let [warm, cold] = ["low@1, 5 contractors", "low@1, 5 contractors, warm_up none"];
    let expected = [("low 2 min, 5 contractors, warm-up", cold, true), ("low 2 min, 5 contractors", warm, true)];
    assert_eq!(runs, expected);
    let [_, _, _, counts, .., p95, _, _] = report.paper[1].cells();
    let rounds = report.paper[1].counts[0];
    assert!(rounds < 20 && counts.starts_with(&format!("{rounds}, ")), "{counts}");
    assert!(p95.ends_with(&format!("(longest of {rounds})")), "{p95}");
    let p95 = figure(&report, warm, "M2d.p95");
    assert_eq!((p95.value, p95.missing.as_deref()), (None, Some(format!("too few: {rounds} of 20").as_str())));
}

#[test]
fn a_damaged_line_is_named_with_its_remedy_and_nothing_is_written() {
    let folder = experiment(&[small("high@1", 5, 5)]);
    let cell = folder.path().join("cells").join("high-1-5-memory-3");
    let path = cell.join("rounds.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = whole.lines().collect();
    lines[16] = "{\"round\": 16,";
    for (text, line, reason) in [
        (lines.join("\n"), 17, "EOF"),
        (whole.lines().take(39).collect::<Vec<_>>().join("\n"), 39, "ends after 39 rounds, where cell.json says 40"),
        (whole.replacen("\"retries\"", "\"tries\"", 1), 1, "unknown field `tries`"),
    ] {
        fs::write(&path, text).unwrap();
        let error = report::write(folder.path()).unwrap_err();
        let ReportError::Folder(FolderError::Damaged { path: named, line: found, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!((named, *found), (&path, line), "{error}");
        let told = error.to_string();
        assert!(told.contains(reason) && told.contains("run the experiment again"), "{told}");
        assert!(files(folder.path()).is_empty() && !folder.path().join("tables").exists());
    }
}

#[test]
fn a_cell_that_did_not_end_is_left_out_and_said() {
    let folder = experiment(&[small("high@1", 5, 5)]);
    fs::remove_file(folder.path().join("cells/high-1-5-memory-2/cell.json")).unwrap();
    let report = report::write(folder.path()).unwrap();
    assert_eq!((report.cells, &report.unfinished[..]), (5, &["high-1-5-memory-2".to_owned()][..]));
    assert!(files(folder.path())["report.md"].contains("did not end: high-1-5-memory-2"));
}

#[test]
fn a_folder_without_cells_is_no_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let error = report::write(folder.path()).unwrap_err();
    assert!(matches!(error, ReportError::Folder(FolderError::NoCells(_))), "{error}");
}

#[test]
fn an_experiment_does_not_differ_from_its_like_beyond_noise_and_does_from_a_slower_one() {
    let own = World { seeds: 10, ..small("high@1", 5, 5) };
    let report = |world: &World| report::compute(experiment(std::slice::from_ref(world)).path()).unwrap();
    let (here, like) = (report(&own), report(&World { bus: "memory", ..own.clone() }));
    let same = differences::compare(&here, &like);
    assert!(same.beyond_noise.is_empty() && same.compared > 20, "{same:?}");
    let slower = differences::compare(&here, &report(&World { delay_us: own.delay_us * 1.5, ..own.clone() }));
    let keys: Vec<&str> = slower.beyond_noise.iter().map(|found| found.key.as_str()).collect();
    assert!(keys.contains(&"M2") && keys.contains(&"M4o"), "{keys:?}");
    assert!(!keys.contains(&"M5") && !keys.contains(&"M14"), "{keys:?}");
    assert!(slower.beyond_noise.iter().all(|found| !found.interval.holds(0.0)));
    let elsewhere = differences::compare(&here, &report(&World { bus: "nats", ..own.clone() }));
    assert_eq!((elsewhere.compared, elsewhere.unmatched.len()), (0, 2), "{elsewhere:?}");
}

#[test]
fn policies_are_compared_pair_by_pair_in_cells_that_are_otherwise_alike() {
    let worlds = [small("high@1", 5, 5), small("k2@1", 5, 2), small("also-high@1", 5, 5), small("high@1", 9, 9)];
    let folder = experiment(&worlds);
    let policies = report::write(folder.path()).unwrap().policies;
    assert!(policies.unmatched.is_empty() && policies.single.is_empty(), "{policies:?}");
    let of = |group: &str, key: &str| {
        policies.all.iter().find(|found| found.group == group && found.key == key).unwrap_or_else(|| panic!("{group}"))
    };
    let slower = of("high@1, 5 contractors - k2@1", "M2d");
    assert!(slower.value > slower.other && slower.interval.low > 0.0 && slower.is_beyond_noise(), "{slower:?}");
    let same = of("also-high@1, 5 contractors - high@1", "M2d");
    assert_eq!((same.value, same.interval.low, same.interval.high), (same.other, 0.0, 0.0), "the same seeds: no noise");
    assert!(!same.is_beyond_noise());
    assert!(policies.all.iter().all(|found| found.group.contains(", 5 contractors")), "9 contractors stand alone");
    let few = [World { seeds: 3, ..small("high@1", 7, 7) }, World { seeds: 3, ..small("k2@1", 7, 2) }];
    let other = [small("high@1", 5, 5), World { seeds: 7, ..small("k2@1", 5, 2) }];
    for (worlds, unmatched, single) in [(few, 0, 1), (other, 1, 0)] {
        let policies = report::compute(experiment(&worlds).path()).unwrap().policies;
        assert_eq!((policies.compared, policies.unmatched.len(), policies.single.len()), (0, unmatched, single));
    }
    let written = files(folder.path());
    assert_eq!(written["policies.csv"].lines().count(), policies.compared + 1);
    let told = format!("{} of {} figures differ beyond noise", policies.beyond_noise.len(), policies.compared);
    assert!(["report.md", "report.html"].iter().all(|name| written[*name].contains(&told)), "{told}");
}

#[test]
fn other_seeds_of_the_same_world_are_rarely_beyond_noise() {
    let own = World { seeds: 10, ..small("k3@1", 6, 3) };
    let of = |first_seed: u64| {
        let world = World { first_seed, ..own.clone() };
        report::compute(experiment(std::slice::from_ref(&world)).path()).unwrap()
    };
    let base = of(1);
    let flagged = (1..=8).filter(|run| !differences::compare(&base, &of(run * 100)).beyond_noise.is_empty()).count();
    assert!(flagged <= 2, "{flagged} of 8 runs of the same world differ");
}

#[test]
fn the_bounds_of_the_plan_are_judged_beside_the_hypotheses_of_the_literature() {
    let folder = experiment(&[small("high@1", 5, 5)]);
    let plan = r#"{"name": "soon", "hypotheses": [
        {"text": "Regret", "test": "H1"}, {"text": "It is soon", "test": "decision_p95_ms <= 1000"},
        {"text": "It is very soon", "test": "decision_p50_ms <= 1"}]}"#;
    fs::write(folder.path().join("experiment.json"), plan).unwrap();
    let report = report::write(folder.path()).unwrap();
    let verdicts: Vec<_> =
        report.hypotheses.iter().map(|verdict| (verdict.id.as_str(), verdict.judgement.as_str())).collect();
    assert_eq!(verdicts[6..], [("H7", "cannot be said"), ("B1", "held"), ("B2", "broken")]);
    let written = files(folder.path());
    for name in ["report.md", "report.html", "figures.json", "hypotheses.csv"] {
        let claim = "It is very soon (decision_p50_ms <= 1)";
        let text = &written[name];
        assert!(text.contains(claim) || text.contains(&claim.replace('<', "&lt;")), "{name}");
    }
}
