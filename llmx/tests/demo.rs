//! `llmx demo` of each protocol as scripts rely on it, and the files it writes.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

#[test]
fn a_demo_makes_the_folders_of_the_files_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join("run").join(name).join("file");
    let (trace, csv, export) = (file("trace"), file("csv"), file("export"));
    let files = ["--trace", text(&trace), "--csv", text(&csv), "--export", text(&export)];
    let output = llmx(&[&["demo", "--agents", "2", "--duration", "0.5"][..], &files].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for path in [&trace, &csv, &export] {
        assert!(std::fs::metadata(path).unwrap().len() > 0, "{}", path.display());
    }
}

#[test]
fn a_demo_of_bargains_as_json_prints_one_document_with_the_keys_scripts_rely_on() {
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("run.jsonl");
    let asked = ["demo", "--protocol", "alternating", "--json", "--duration", "2", "--agents", "6", "--seed", "7"];
    let summary = document(&[&asked[..], &["--export", text(&export)]].concat());
    assert_eq!((&summary["protocol"], &summary["bus"]), (&json!("alternating"), &json!("memory")));
    assert_eq!(summary["figures"]["bargains"], summary["cfps"], "every bargain ended: {summary}");
    assert!(summary["cfps"].as_u64().unwrap() > 0 && summary["steps"].as_u64().unwrap() > 0, "{summary}");
    assert!(summary["figures"]["agreement_rate"].as_f64().unwrap() > 0.0, "{summary}");
    for sample in ["rounds", "relative_time", "welfare", "pareto_distance"] {
        assert!(summary["figures"][sample]["mean"].is_f64(), "{sample} in {summary}");
    }
    for latency in ["step", "bargain"] {
        let quantiles = ["p50", "p95", "p99", "max"].map(|name| summary["latency_ms"][latency][name].as_f64().unwrap());
        assert!(quantiles.is_sorted() && quantiles[0] > 0.0, "{latency}: {quantiles:?}");
    }
    let violations = &summary["invariant_violations"];
    assert_eq!(violations["total"], 0, "{violations}");
    assert!(violations["by_name"]["turn_order"]["checked"].as_u64().unwrap() > 0, "{violations}");
    assert_eq!((&summary["moves_refused"], &summary["rejected"]), (&json!(0), &json!({})));
    let replayed = document(&["replay", "--json", text(&export)]);
    assert!(replayed["first_difference"].is_null() && replayed["register_entries"].as_u64().unwrap() > 0, "{replayed}");
}

#[test]
fn a_demo_of_panels_violates_nothing_and_checks_what_only_panels_can_show() {
    let summary = document(&["demo", "--protocol", "panel", "--duration", "2", "--rate", "10", "--json"]);
    let (violations, tally) = (&summary["invariant_violations"], &summary["tally"]);
    assert_eq!((&violations["total"], &tally["miscounted"]), (&json!(0), &json!(0)), "{summary}");
    for invariant in
        ["one_finding", "quorum", "round_sealed", "no_stale_answer", "calls_bounded", "importance_conserved"]
    {
        assert!(violations["by_name"][invariant]["checked"].as_u64().unwrap() > 0, "{invariant}: {violations}");
    }
    assert!(tally["panels"].as_u64().unwrap() > 5 && tally["right"].as_u64().unwrap() > 0, "{tally}");
}

#[test]
fn options_of_a_demo_that_do_not_fit_its_protocol_exit_2_and_say_which() {
    for (args, said) in [
        (&["--protocol", "alternating", "--agents", "2"][..], "--agents 2"),
        (&["--protocol", "alternating", "--policy", "high"], "does not bargain"),
        (&["--policy", "bargain-low"], "--protocol alternating"),
        (&["--protocol", "panel", "--agents", "3"], "--agents"),
        (&["--protocol", "panel", "--policy", "high"], "--policy"),
    ] {
        let output = llmx(&[&["demo"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_demo_with_a_model_gives_it_time_unless_told_otherwise_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.toml");
    let terms = "[contractor.terms.price]\nabout = \"units\"\n[initiator.terms.price]\nabout = \"units\"\n";
    std::fs::write(&file, format!("[model]\nurl = \"http://127.0.0.1:1/v1\"\nname = \"gemma\"\n{terms}")).unwrap();
    let contractors = ["--contractor-model", text(&file)];
    let both = [&contractors[..], &["--initiator-model", text(&file)]].concat();
    let needs_time = "a model needs time: policy patient";
    for (args, policy, is_told) in [
        (&contractors[..], "policy patient@1 on memory, 2 contractors, 0.1 calls/s", true),
        (&both, "policy patient-chosen@1 on memory, 2 contractors, 0.1 calls/s", true),
        (&[&contractors[..], &["--rate", "5"]].concat(), "policy patient@1 on memory, 2 contractors, 5 calls/s", true),
        (
            &[&contractors[..], &["--policy", "high"]].concat(),
            "policy high@1 on memory, 2 contractors, 10 calls/s",
            false,
        ),
        (&[], "policy medium@1 on memory, 2 contractors, 10 calls/s", false),
    ] {
        let output = llmx(&[&["demo", "--agents", "2", "--duration", "0.5"], args].concat());
        let summary = String::from_utf8_lossy(&output.stdout);
        assert!(summary.contains(policy), "{args:?}: {summary}{}", stderr(&output));
        assert_eq!(stderr(&output).contains(needs_time), is_told, "{args:?}: {}", stderr(&output));
        assert!(args.is_empty() || summary.contains("model gemma (no answer), 2 agents"), "{summary}");
    }
}

fn document(args: &[&str]) -> Value {
    let output = llmx(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs the program; it must end by itself.
fn llmx(args: &[&str]) -> Output {
    assert_cmd::Command::new(env!("CARGO_BIN_EXE_llmx")).args(args).timeout(Duration::from_secs(120)).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
