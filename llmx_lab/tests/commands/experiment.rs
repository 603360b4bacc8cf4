//! `llmx-lab experiment` as scripts rely on it: what it refuses, what it leaves, how it goes on.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::program;

const PLAN: &str = r#"name = "small"
text = "Two policies, for a second"
seeds = 2
[[grid]]
contractors = [3]
policy = ["low", "high"]
rate = [20]
duration = ["1s"]
warm_up = 1
"#;

fn llmx(args: &[&str], folder: &Path) -> Output {
    Command::new(program(args)).args(args).current_dir(folder).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn plan(folder: &Path, text: &str) {
    fs::write(folder.join("plan.toml"), text).unwrap();
}

#[test]
fn plans_that_come_along_are_listed_and_shown_and_a_plan_with_faults_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let listed = llmx(&["experiment", "list", "--json"], folder.path());
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    for plan in listed.as_array().unwrap() {
        let shown = llmx(&["experiment", "show", plan["name"].as_str().unwrap()], folder.path());
        assert!(String::from_utf8_lossy(&shown.stdout).contains("[[grid]]"), "{plan}");
    }
    plan(folder.path(), &PLAN.replace("\"high\"", "\"hihg\"").replace("\"1s\"", "\"40d\""));
    let refused = llmx(&["experiment", "run", "plan.toml"], folder.path());
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("plan.toml:6:18: policy `hihg` cannot be; did you mean `high`?"), "{said}");
    assert!(said.contains("plan.toml:8:13: duration `40d` cannot be; give a length"), "{said}");
    assert!(!folder.path().join("run").exists(), "nothing runs");
    let scale = llmx(&["experiment", "paper", "--time-scale", "0"], folder.path());
    assert_eq!(scale.status.code(), Some(2), "{}", stderr(&scale));
    let missing = llmx(&["experiment", "run", "nothing.toml"], folder.path());
    assert!(missing.status.code() == Some(2) && stderr(&missing).contains("name a file"), "{}", stderr(&missing));
}

#[test]
fn a_run_leaves_its_cells_and_report_and_goes_on_where_it_was_but_not_with_another_plan() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), PLAN);
    let run = |args: &[&str]| {
        let common = ["experiment", "run", "plan.toml", "--out", "kept", "--json"];
        llmx(&[&common[..], args].concat(), folder.path())
    };
    let first = run(&[]);
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let summary: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(
        (&summary["cells"], &summary["cells_complete"], &summary["cells_found"]),
        (&4.into(), &4.into(), &0.into())
    );
    assert!(summary["rounds"].as_u64().unwrap() > 20 && summary["violations"] == 0, "{summary}");
    let kept = folder.path().join("kept");
    for file in
        ["experiment.json", "report.md", "report.html", "cells/low-n3-s1/rounds.jsonl", "cells/high-n3-s2/offers.csv"]
    {
        assert!(kept.join(file).metadata().unwrap().len() > 0, "{file}");
    }
    // A cell without its record is run again, the others are not.
    fs::remove_file(kept.join("cells/high-n3-s1/cell.json")).unwrap();
    let untouched = fs::metadata(kept.join("cells/low-n3-s1/rounds.jsonl")).unwrap().modified().unwrap();
    let second: Value = serde_json::from_slice(&run(&[]).stdout).unwrap();
    assert_eq!((&second["cells_found"], &second["cells_complete"]), (&3.into(), &4.into()));
    assert_eq!(fs::metadata(kept.join("cells/low-n3-s1/rounds.jsonl")).unwrap().modified().unwrap(), untouched);
    let other = run(&["--seeds", "1"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(
        stderr(&other).contains("holds another experiment") && stderr(&other).contains("--out"),
        "{}",
        stderr(&other)
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_fails_with_the_name_of_the_file_and_keeps_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), PLAN);
    let cell = folder.path().join("kept/cells/low-n3-s2");
    fs::create_dir_all(&cell).unwrap();
    std::os::unix::fs::symlink("/dev/full", cell.join("rounds.csv")).unwrap();
    let run = llmx(&["experiment", "run", "plan.toml", "--out", "kept"], folder.path());
    let said = stderr(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("cell low-n3-s2: cannot write") && said.contains("rounds.csv"), "{said}");
    assert!(said.contains("what was measured until then is kept"), "{said}");
    assert!(folder.path().join("kept/cells/high-n3-s1/cell.json").exists(), "cells before it are complete");
    assert!(fs::read_to_string(cell.join("rounds.jsonl")).unwrap().lines().count() > 0);
}

/// Files may have 32 KiB, no more: each of them is as on a disk that is full, and the bus in memory is not concerned.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fills_up_stops_the_run_with_whole_lines_kept_and_the_run_goes_on_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), &PLAN.replace("seeds = 2", "seeds = 1").replace("\"low\", ", "").replace("\"1s\"", "\"3s\""));
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" experiment run plan.toml --out kept";
    let run = Command::new("sh")
        .args(["-c", limited, &program(&["experiment"])])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = stderr(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("cell high-n3-s1: cannot write") && said.contains("rounds.jsonl"), "{said}");
    assert!(said.contains("File too large") && said.contains("what was measured until then is kept"), "{said}");
    let cell = folder.path().join("kept/cells/high-n3-s1");
    let kept = fs::read_to_string(cell.join("rounds.jsonl")).unwrap();
    let rounds = kept.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert!(rounds > 3 && kept.len() <= 32 * 1024, "{rounds} rounds in {} bytes", kept.len());
    assert!(!cell.join("cell.json").exists(), "the cell is not complete");
    let again = llmx(&["experiment", "run", "plan.toml", "--out", "kept", "--json"], folder.path());
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let summary: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&summary["cells_found"], &summary["cells_complete"]), (&0.into(), &1.into()));
}

#[test]
fn a_trace_that_changes_under_its_name_is_another_experiment() {
    let folder = tempfile::tempdir().unwrap();
    let line = |round: u64, at: u64| {
        format!(
            r#"{{"round":{round},"negotiation":"alice~{round}","intended_us":{at},"sent_us":{at},"stored_us":null,"is_warm_up":false,"invited":3,"decided_us":null,"confirmed_us":null,"ended_us":null,"outcome":null,"refusal":null,"offers":[],"awards":[],"sent":{{}},"delivered":{{}},"retries":0,"duplicates":0,"dispositions":{{}}}}"#
        ) + "\n"
    };
    let trace = folder.path().join("trace.jsonl");
    fs::write(&trace, line(0, 0) + &line(1, 200_000)).unwrap();
    let load = format!("duration = [\"1s\"]\nload = [\"replay:{}\"]", trace.display());
    plan(folder.path(), &PLAN.replace("seeds = 2", "seeds = 1").replace("duration = [\"1s\"]", &load));
    let run = || llmx(&["experiment", "run", "plan.toml", "--out", "kept", "--json"], folder.path());
    let first = run();
    assert_eq!(first.status.code(), Some(0), "{}", stderr(&first));
    let resolved: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("kept/experiment.json")).unwrap()).unwrap();
    let digest = resolved["traces"][trace.to_str().unwrap()].as_str().unwrap();
    assert!(digest.len() >= 64, "{digest}");
    assert_eq!(run().status.code(), Some(0), "the same trace goes on");
    fs::write(&trace, line(0, 0) + &line(1, 300_000)).unwrap();
    let other = run();
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert!(
        stderr(&other).contains("replayed another trace") && stderr(&other).contains("--out"),
        "{}",
        stderr(&other)
    );
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_keeps_its_rounds_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    plan(folder.path(), &PLAN.replace("\"1s\"", "\"600s\""));
    let mut command = Command::new(program(&["experiment"]));
    command.args(["experiment", "run", "plan.toml", "--out", "kept", "--json"]).current_dir(folder.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let rounds = folder.path().join("kept/cells/low-n3-s1/rounds.jsonl");
    let began = Instant::now();
    while fs::metadata(&rounds).map_or(0, |metadata| metadata.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "it was not done");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["is_interrupted"], &summary["cells_complete"]), (&true.into(), &0.into()));
    let record = fs::read_to_string(folder.path().join("kept/cells/low-n3-s1/cell.json")).unwrap();
    assert!(serde_json::from_str::<Value>(&record).unwrap()["is_interrupted"] == true);
}

#[test]
fn panels_of_scripted_agents_give_the_same_bytes_for_the_same_seed_and_their_verdicts_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["experiment", "dylan", "--only", "replay,planted,gaming", "--seeds", "2", "--json", "--out", "dylan"];
    let [one, other] = [(); 2].map(|()| llmx(&args, folder.path()));
    assert!(one.stdout == other.stdout && !one.stdout.is_empty(), "{}", stderr(&one));
    let report: serde_json::Value = serde_json::from_slice(&one.stdout).unwrap();
    let verdicts = report["verdicts"].as_array().unwrap();
    let failed = verdicts.iter().filter(|verdict| verdict["holds"] == false).count();
    assert_eq!(one.status.code(), Some(i32::from(failed > 0)), "{}", stderr(&one));
    assert_eq!((report["theory"].is_null(), &report["replay"][2]["calls"]), (true, &serde_json::json!(12_312)));
    let kept = std::fs::read_to_string(folder.path().join("dylan/verdicts.csv")).unwrap();
    assert_eq!((kept.lines().count(), kept.lines().next()), (verdicts.len() + 1, Some("id,value,bound,holds")));
    let refused = llmx(&["experiment", "dylan", "--only", "everything"], folder.path());
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("theory, shapley, planted, choose, gaming, replay"), "{}", stderr(&refused));
}

#[test]
fn what_a_quick_run_cannot_show_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let quick = llmx(
        &["experiment", "dylan", "--quick", "--seed", "3", "--only", "shapley,choose,replay", "--json"],
        folder.path(),
    );
    assert_eq!(quick.status.code(), Some(0), "{}", stderr(&quick));
    let report: serde_json::Value = serde_json::from_slice(&quick.stdout).unwrap();
    let ids: Vec<&str> =
        report["verdicts"].as_array().unwrap().iter().map(|verdict| verdict["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["S1 exact values", "D9 n=2", "D9 n=3", "D9 n=4", "D9 of full debate"]);
    assert_eq!(report["unjudged"], 13);
}
