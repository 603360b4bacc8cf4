//! `llmx-lab report` as scripts rely on it: exit codes, one document on stdout, nothing half written.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::program::program;

fn llmx(args: &[&str]) -> Output {
    assert_cmd::Command::new(program(args)).args(args).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Cells of one contractor each, whose decisions take this long.
fn experiment(folder: &Path, taken_us: u64) {
    for seed in 1..=7 {
        let cell = folder.join("cells").join(format!("seed-{seed}"));
        fs::create_dir_all(&cell).unwrap();
        let rounds = (0..10).map(|round| {
            let jitter = (seed * 31 + round * 17) % 50;
            let bid = json!({"from": "bob", "position": null, "cost": 10.0, "own_cost": 9.0, "delay_us": 5, "sent_us": round * 1000 + 5,
                "stored_us": round * 1000 + 9, "disposition": "ok"});
            json!({"round": round, "negotiation": "alice~1", "intended_us": round * 1000, "sent_us": round * 1000, "stored_us": null,
                "is_warm_up": false, "invited": 1, "decided_us": round * 1000 + taken_us + jitter, "confirmed_us": null, "ended_us": null,
                "outcome": "completed", "refusal": null, "offers": [bid], "awards": [{"to": "bob", "at_us": 50, "is_bound": true}],
                "sent": {"cfp": {"messages": 1, "bytes": 10}}, "delivered": {}, "retries": 0, "duplicates": 0, "dispositions": {}})
        });
        let lines: Vec<String> = rounds.map(|round| round.to_string() + "\n").collect();
        fs::write(cell.join("rounds.jsonl"), lines.concat()).unwrap();
        let record = json!({"id": format!("seed-{seed}"), "protocol": "contract-net", "contractors": 1, "policy": "high@1", "rate": 1.0,
            "duration_s": 10.0, "time_scale": 1.0, "seed": seed, "bus": "memory", "deciders": "scripted", "labels": {}, "rounds": 10,
            "elapsed_s": 10.0, "violations": {}, "is_interrupted": false});
        fs::write(cell.join("cell.json"), record.to_string()).unwrap();
    }
}

#[test]
fn a_report_is_written_printed_as_one_document_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (folder.path().join("after"), folder.path().join("before"));
    experiment(&own, 900);
    experiment(&other, 300);
    let output = llmx(&["report", text(&own), "--compare", text(&other), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let written: Value = serde_json::from_str(&fs::read_to_string(own.join("figures.json")).unwrap()).unwrap();
    assert_eq!(printed, written);
    let found = printed["differences"]["beyond_noise"].as_array().unwrap();
    assert!(found.iter().any(|found| found["key"] == "M2"), "{found:?}");
    assert!(!found.iter().any(|found| found["key"] == "M4o"), "offers took as long: {found:?}");
    for file in ["report.html", "report.md", "tables/figures.csv"] {
        assert!(own.join(file).exists(), "{file}");
    }
    assert!(!other.join("report.html").exists(), "what is compared with stays as it is");
    let shown = llmx(&["report", text(&own)]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("needs a deciding model") && shown.contains("report.html"), "{shown}");
}

#[test]
fn a_damaged_line_fails_and_names_file_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    experiment(folder.path(), 900);
    let rounds = folder.path().join("cells/seed-4/rounds.jsonl");
    let damaged = fs::read_to_string(&rounds).unwrap().replacen("\"round\":", "\"roun", 1);
    fs::write(&rounds, damaged).unwrap();
    let output = llmx(&["report", text(folder.path())]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{told}");
    assert!(told.contains("seed-4/rounds.jsonl:1: ") && told.contains("run the experiment again"), "{told}");
    assert!(!folder.path().join("report.html").exists() && !folder.path().join("tables").exists());
}

#[test]
fn a_folder_that_is_no_experiment_is_bad_usage() {
    let folder = tempfile::tempdir().unwrap();
    let output = llmx(&["report", text(folder.path())]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("holds no complete cell"), "{told}");
}
