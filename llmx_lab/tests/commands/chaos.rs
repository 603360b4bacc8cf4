//! `llmx-lab chaos` as a user runs it, on real processes. Needs `scripts/nats-server`.

#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::program;

/// A run of six seconds, and half a minute for everything to end on a busy machine; four times that.
const PATIENCE: Duration = Duration::from_secs(150);

#[test]
fn killed_engines_violate_nothing_and_the_report_says_so() {
    let output = chaos(&["--kill", "engines", "--duration", "6", "--agents", "17", "--open", "20", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{progress}{}", String::from_utf8_lossy(&output.stdout));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &document["report"];
    assert!(report["faults"]["engine kill"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["rounds"]["completed"], report["rounds"]["willing"], "{report}");
    assert_eq!(report["invariant_violations"]["total"], 0, "{report}");
    assert!(report["checks"]["by_name"]["told_as_registered"]["checked"].as_u64().unwrap() > 0, "{report}");
    assert!(document["output"].is_null(), "nothing went wrong, so nothing is kept");
    assert!(progress.lines().count() > 6, "a line of progress every second");
}

#[test]
fn bargains_teams_and_panels_go_on_while_gateways_are_killed() {
    for (protocol, shown) in [("alternating", "turn_order"), ("team", "same_story"), ("panel", "one_finding")] {
        let run = [
            "--protocol",
            protocol,
            "--kill",
            "gateways",
            "--duration",
            "6",
            "--agents",
            "12",
            "--open",
            "20",
            "--json",
        ];
        let output = chaos(&run).output().unwrap();
        assert!(output.status.success(), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let report = &document["report"];
        assert_eq!(report["protocol"], protocol);
        assert!(report["faults"]["gateway kill"].as_u64().unwrap() > 0, "{report}");
        assert!(report["invariant_violations"]["by_name"][shown]["checked"].as_u64().unwrap() > 0, "{report}");
        // Bargains are told no hard end.
        if protocol != "alternating" {
            let in_time = &report["checks"]["by_name"]["ended_in_time"];
            assert_eq!(
                (in_time["checked"].as_u64(), in_time["violated"].as_u64()),
                (report["rounds"]["opened"].as_u64(), Some(0))
            );
        }
    }
}

#[test]
fn agents_are_killed_and_what_they_acknowledged_still_counts() {
    for (protocol, shown) in [("team", "same_story"), ("panel", "calls_bounded")] {
        let run =
            ["--protocol", protocol, "--kill", "agents", "--duration", "6", "--agents", "12", "--open", "20", "--json"];
        let output = chaos(&run).output().unwrap();
        assert!(output.status.success(), "{protocol}: {}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let report = &document["report"];
        assert!(report["faults"]["agents kill"].as_u64().unwrap() > 0, "{report}");
        assert!(report["invariant_violations"]["by_name"][shown]["checked"].as_u64().unwrap() > 0, "{report}");
        let in_time = &report["checks"]["by_name"]["ended_in_time"];
        assert!(in_time["checked"].as_u64().unwrap() > 0, "{report}");
        assert_eq!(in_time["violated"], 0, "{report}");
        assert_eq!(report["checks"]["by_name"]["ended_when_asked"]["checked"], 3 + 2 + 4, "four processes of agents");
    }
}

#[test]
fn agents_that_no_process_of_their_own_runs_cannot_be_killed() {
    for (arguments, told) in [
        (&["--kill", "agents"][..], "--kill agents needs --protocol alternating, team or panel"),
        (&["--host", "/nonexistent", "--json"], "cannot be used with"),
    ] {
        let output = chaos(arguments).output().unwrap();
        let refused = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{refused}");
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn an_interrupted_run_leaves_no_process_behind() {
    let mut run = Ended(
        chaos(&["--kill", "nobody", "--duration", "600", "--agents", "17", "--open", "20"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    // nats-server and the shell that ends it, three engines, two gateways.
    let started = until(|| Some(children(run.0.id())).filter(|children| children.len() == 7));
    signal(run.0.id(), "INT");
    let status = until(|| run.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(1), "interrupted, so there is no verdict");
    let left: Vec<_> = started.into_iter().filter(|process| parent(*process).is_some()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Killed when the test ends early.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn chaos(arguments: &[&str]) -> Command {
    let mut command = Command::new(program(&["chaos"]));
    command.arg("chaos").args(arguments).stdin(Stdio::null());
    command
}

fn signal(process: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status().unwrap();
    assert!(status.success());
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come to that");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn children(of: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|process| parent(*process) == Some(of)).collect()
}

/// The parent in `/proc/<process>/stat`: the second field after the name in parentheses.
fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let after_name = stat.rsplit(')').next()?;
    let mut fields = after_name.split_whitespace();
    // A process that has ended and waits to be collected is no process that runs.
    if fields.next()? == "Z" { None } else { fields.next()?.parse().ok() }
}

#[test]
fn what_cannot_be_run_or_written_is_refused_before_anything_starts() {
    for (arguments, says) in [
        (["--duration", "1.5e19"], "--duration: at most 31536000 seconds"),
        (["--trace", "/dev/null/run/trace"], "cannot write /dev/null/run/trace"),
    ] {
        let refused = chaos(&arguments).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && told.contains(says), "{arguments:?}: {told}");
    }
    let nowhere = chaos(&["--duration", "1"]).env("LLMX_BIN", "/nonexistent").output().unwrap();
    let told = String::from_utf8_lossy(&nowhere.stderr);
    assert!(nowhere.status.code() == Some(2) && told.contains("llmx-lab: /nonexistent is no file"), "{told}");
}
