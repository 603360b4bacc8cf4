//! `llmx-lab experiment agora` and its report.

use std::path::Path;

use tokio::process::Command;

use crate::program::program;
use crate::rig::Ran;

async fn llmx_lab(args: &[&str]) -> Ran {
    Ran::of(Command::new(program(args)).args(args).env_remove("LLMX_LOG").kill_on_drop(true).output()).await
}

#[tokio::test]
async fn a_demo_of_agora_prints_both_costs_leaves_every_query_and_is_reported_again_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("agora");
    let demo = ["experiment", "agora", "--seed", "1", "--seeds", "1", "--out", out.to_str().unwrap()];
    let first = llmx_lab(&[&demo[..], &["--json"]].concat()).await;
    assert_eq!(first.code, Some(0), "{first:?}");
    let network = &first.document()["networks"][0];
    assert!(network["ratio"].as_f64().unwrap() >= 4.0 && network["share_last"].as_f64().unwrap() <= 0.25, "{network}");
    assert_eq!(first.document()["weather"]["uses"], 3);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(read("cells/network-1/queries.jsonl").lines().count(), 1000);
    let files = ["report.html", "report.md", "figures.json", "figure-5a.svg", "figure-5b.svg"];
    let before = files.map(read);
    for file in files {
        std::fs::remove_file(out.join(file)).unwrap();
    }
    let report = llmx_lab(&["report", out.to_str().unwrap()]).await;
    assert!(report.code == Some(0) && report.stdout.contains("natural language"), "{report:?}");
    assert_eq!(files.map(read), before);
    let again = llmx_lab(&demo).await;
    assert!(again.code == Some(0) && again.stdout.contains(report.stdout.trim()), "{again:?}");
    assert_eq!(files.map(read), before);
}

#[tokio::test]
async fn what_no_run_of_agora_can_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for (args, says) in [
        (["--thresholds", "papers"], "paper, pypi, or five numbers"),
        (["--thresholds", "3,5,0,1"], "3,5,0,1,10"),
        (["--seeds", "0"], "--seeds"),
    ] {
        let ran = llmx_lab(&[&["experiment", "agora", "--out", out], &args[..]].concat()).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {ran:?}");
    }
    let demo = |seed| ["experiment", "agora", "--seeds", "1", "--json", "--out", out, "--seed", seed];
    assert_eq!(llmx_lab(&demo("4")).await.code, Some(0));
    let other = llmx_lab(&demo("5")).await;
    assert!(other.code == Some(2) && other.stderr.contains("holds another experiment"), "{other:?}");
    let compared = llmx_lab(&["report", out, "--compare", out]).await;
    assert!(compared.code == Some(2) && compared.stderr.contains("--compare"), "{compared:?}");
    std::fs::write(Path::new(out).join("cells/network-4/queries.jsonl"), "{}\n").unwrap();
    let damaged = llmx_lab(&["report", out]).await;
    assert!(damaged.code == Some(1) && damaged.stderr.contains("queries.jsonl:1: "), "{damaged:?}");
}
