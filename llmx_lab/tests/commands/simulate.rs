//! `llmx-lab simulate` as scripts rely on it.

use std::process::{Command, Output};

use serde_json::Value;

use crate::program::program;

#[test]
fn a_simulation_checks_every_invariant_and_a_single_seed_is_told_as_a_story() {
    let report = one_document(&llmx_lab(&["simulate", "--seeds", "20", "--liveness", "5", "--seed", "100", "--json"]));
    assert_eq!((&report["safety"], &report["liveness"]), (&20.into(), &5.into()));
    assert_eq!(report["violations"], serde_json::json!([]));
    assert!(report["invariants"].as_object().unwrap().len() >= 33, "{report}");

    let told = llmx_lab(&["simulate", "--seed", "100"]);
    assert_eq!(told.status.code(), Some(0), "{}", stderr(&told));
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("*** engine-0-1 starts") && told.contains("1 safety and 0 liveness runs"), "{told}");

    let again = llmx_lab(&["simulate", "--seed", "100"]);
    assert_eq!(told, String::from_utf8_lossy(&again.stdout), "how long it took is not on stdout");
    assert!(stderr(&again).contains(" runs/s"), "{}", stderr(&again));
    let [one, other] = [(); 2].map(|()| llmx_lab(&["simulate", "--seed", "100", "--json"]).stdout);
    assert_eq!(String::from_utf8_lossy(&one), String::from_utf8_lossy(&other));

    let nothing = llmx_lab(&["simulate", "--seeds", "0"]);
    assert_eq!(nothing.status.code(), Some(2), "{}", stderr(&nothing));
}

fn llmx_lab(args: &[&str]) -> Output {
    Command::new(program(args)).args(args).output().unwrap()
}

fn one_document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
