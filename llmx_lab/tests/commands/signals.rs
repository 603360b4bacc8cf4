//! What computes, or has started processes, ends on a signal.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::program;
use crate::signalled::{PATIENCE, Process, heeding_every_signal};

#[tokio::test]
async fn an_interrupted_simulation_says_what_its_runs_showed_and_that_they_are_not_all() {
    for signal in ["INT", "TERM"] {
        let mut process = Process::start(&["simulate", "--seeds", "1000000", "--threads", "1", "--json"]);
        process.complains(" of 1000000 runs").await;
        process.signal(signal).await;
        let (code, said, complained) = process.end_by_itself().await;
        assert_eq!(code, Some(1), "{complained}");
        assert!(complained.contains("before it was done"), "{complained}");
        let report: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&report["interrupted"], &report["asked"]), (&true.into(), &1_000_000.into()), "{report}");
        let made = report["safety"].as_u64().unwrap();
        assert!((1..1_000_000).contains(&made), "{report}");
    }
    let mut process = Process::start(&["simulate", "--seeds", "1000000", "--threads", "1"]);
    process.complains(" of 1000000 runs").await;
    process.signal("INT").await;
    let (code, said, _) = process.end_by_itself().await;
    assert!(code == Some(1) && said.starts_with("INTERRUPTED after "), "{said}");
}

#[tokio::test]
async fn an_interrupted_check_of_mandates_says_what_its_runs_showed_and_that_they_are_not_all() {
    let domain = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains/car_purchase.json");
    for (args, unit) in
        [(&["--check", "--runs", "100000000"][..], " runs"), (&[domain, "--repeat", "1000000"], " bargains")]
    {
        for signal in ["INT", "TERM"] {
            let mut process = Process::start(&[&["bargain"], args].concat());
            // The first line of progress is from before the first one.
            process.complains(unit).await;
            process.complains(unit).await;
            process.signal(signal).await;
            let (code, said, complained) = process.end_by_itself().await;
            assert_eq!(code, Some(1), "{complained}");
            assert!(said.starts_with("INTERRUPTED after ") && said.contains(unit), "{said}");
        }
    }
}

#[tokio::test]
async fn a_benchmark_that_only_computes_ends_on_a_signal() {
    for signal in ["INT", "TERM"] {
        let mut process = Process::start(&["bench", "--only", "core"]);
        process.says("core.message.open_100").await;
        let (code, complained) = process.ended_by(signal).await;
        assert_eq!(code, Some(1), "{complained}");
        assert!(complained.contains("before it was done"), "{complained}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_benchmark_of_processes_that_is_ended_leaves_none_of_them() {
    for (signal, is_told) in [("INT", true), ("KILL", false)] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["bench", "--processes", "--quick", "--paced-only", "--rate", "20", "--transport", "http"];
        let mut command = heeding_every_signal(&program(&arguments));
        // Its children work in folders below this one.
        command.args(arguments).env("TMPDIR", folder.path());
        let mut process = Process::run(command);
        until(|| commands_below(folder.path()).iter().any(|command| command.contains("gateway"))).await;
        if is_told {
            let (code, complained) = process.ended_by(signal).await;
            assert_eq!(code, Some(1), "{complained}");
            assert!(complained.contains("before it was done"), "{complained}");
        } else {
            process.signal(signal).await;
        }
        until(|| commands_below(folder.path()).is_empty()).await;
        until(|| std::fs::read_dir(folder.path()).unwrap().next().is_none()).await;
    }
}

/// Command lines of the processes whose working folder, or whose configuration, is below this one.
#[cfg(target_os = "linux")]
fn commands_below(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let commands = processes.filter_map(|process| {
        let command = std::fs::read_to_string(process.join("cmdline")).ok()?;
        let is_below = std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        (is_below || command.contains(folder.to_str().unwrap())).then_some(command)
    });
    commands.collect()
}

#[cfg(target_os = "linux")]
async fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not come to that");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
