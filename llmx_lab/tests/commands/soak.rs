//! `llmx-lab soak` as a user runs it: short, killed, resumed, on a full disk, asked for what cannot be.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::program;

/// Longest wait for the first samples on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn soak(out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program(&["soak"]));
    command.args(["soak", "--agents", "3", "--rate", "20", "--sample", "500ms", "--out"]).arg(out).args(arguments);
    command.stdin(Stdio::null());
    command
}

fn report(out: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(out.join("soak.json")).unwrap()).unwrap()
}

fn samples(out: &Path) -> usize {
    std::fs::read_to_string(out.join("samples.jsonl")).map_or(0, |text| text.matches("{\"sample\"").count())
}

fn succeeded(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
}

#[test]
fn a_soak_that_is_killed_goes_on_and_leaves_one_report_with_its_gap() {
    let folder = tempfile::tempdir().unwrap();
    let mut first =
        soak(folder.path(), &["--duration", "18s"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while samples(folder.path()) < 3 {
        assert!(Instant::now() < deadline && first.try_wait().unwrap().is_none(), "no samples");
        std::thread::sleep(Duration::from_millis(50));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let second = soak(folder.path(), &["--duration", "18s", "--json"]).output().unwrap();
    succeeded(&second);
    let report = report(folder.path());
    assert_eq!(serde_json::from_slice::<Value>(&second.stdout).unwrap(), report);
    let parts = report["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 2, "{report}");
    assert!(parts[1]["gap_s"].as_f64().unwrap() > 0.0 && parts[1]["ended"] == "done", "{report}");
    assert!((report["measured_s"].as_f64().unwrap() - 18.0).abs() < 1.0 && report["is_complete"] == true, "{report}");
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("after a gap of") && page.contains("<svg") && !page.contains("<script"), "{page}");
    for series in ["exchange/decision_p50", "llmx/memory", "llmx/handles", "log/log_span", "log/unarchived"] {
        let found = report["series"].as_array().unwrap().iter().any(|found| found["series"] == series);
        assert!(found, "{series} is missing: {report}");
    }
    let third = soak(folder.path(), &["--duration", "18s"]).output().unwrap();
    succeeded(&third);
    assert_eq!(report["parts"].as_array().unwrap().len(), 2, "nothing is left to be measured");
    let other = soak(folder.path(), &["--duration", "18s", "--seed", "9"]).output().unwrap();
    assert_eq!(other.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other.stderr).contains("--seed"), "{other:?}");
}

#[test]
fn an_interrupted_soak_writes_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let run = soak(folder.path(), &["--duration", "60s", "--faults", "light"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let run = run.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while samples(folder.path()) < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let asked = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    assert!(asked.success());
    assert_eq!(run.wait_with_output().unwrap().status.code(), Some(1), "it was not done");
    let report = report(folder.path());
    assert_eq!(
        (&report["parts"][0]["ended"], &report["is_complete"]),
        (&"interrupted".into(), &false.into()),
        "{report}"
    );
}

#[test]
fn a_full_disk_ends_a_soak_and_what_was_measured_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    // Files of this process end at 8 KiB; the signal that comes with it is ignored, as on a disk that is full.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let limited = Command::new("bash")
        .args([
            "-c",
            script,
            "bash",
            &program(&["soak"]),
            "soak",
            "--agents",
            "3",
            "--sample",
            "500ms",
            "--duration",
            "40s",
            "--out",
        ])
        .arg(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&limited.stderr);
    assert_eq!(limited.status.code(), Some(1), "{told}");
    assert!(told.contains("what was measured is kept") && told.contains("samples.jsonl"), "{told}");
    let text = std::fs::read_to_string(folder.path().join("samples.jsonl")).unwrap();
    let whole = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count();
    assert!(whole > 3 && whole == text.lines().count(), "{whole} whole lines of {}", text.lines().count());
}

#[test]
fn what_cannot_be_soaked_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, named) in [
        (&["--duration", "soon"][..], "12h"),
        (&["--duration", "1s", "--sample", "2s"], "--sample"),
        (&["--sample", "100ms"], "--sample"),
        (
            &["--duration", "2m"],
            "20 samples behind the warm-up (24 s), and --duration 2 min with --sample 1 min leaves 1;",
        ),
        (&["--metrics", "http://127.0.0.1:1", "--duration", "3m", "--sample", "1s"], "leaves 0;"),
        (&["--rate", "0"], "rate"),
        (&["--policy", "none-such"], "none-such"),
        (&["--faults", "kills", "--metrics", "http://127.0.0.1:1"], "--metrics"),
        (&["--faults", "kills", "--nats-local"], "--nats-local"),
        (&["--metrics", "127.0.0.1:1"], "http://"),
        (&["--agents", "0"], "--agents"),
    ] {
        let mut command = Command::new(program(&["soak"]));
        let refused = command.args(["soak", "--out"]).arg(folder.path().join("new")).args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(named), "{arguments:?}: {told}");
    }
    assert!(!folder.path().join("new").exists(), "nothing was begun");
}
