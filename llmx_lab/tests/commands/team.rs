//! `llmx-lab team play`: whole teams, from a file to their conclusion.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::program::program;

const TEAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../domains/teams");
/// A nats-server of its own where the tests have one.
const WAYS: [&[&str]; 3] = [&[], &["--websocket"], &["--nats-local"]];

#[test]
fn a_flat_team_votes_a_conclusion_down_and_then_concludes_alike_on_every_way() {
    let mut digests = Vec::new();
    for way in WAYS {
        let report = document(&[&["team", "play", &scenario("evening"), "--json"], way].concat());
        let root = &report["teams"][0];
        assert_eq!(root["members"], json!(["alice", "bob", "carol"]));
        assert_eq!(
            (&root["outcome"], &root["concluded_by"], &root["votes"]),
            (&json!("concluded"), &json!("alice"), &json!([2, 0]))
        );
        assert!(root["conclusion"].as_str().unwrap().starts_with("The museum of the port"), "{root}");
        let acts: Vec<&str> = root["acts"].as_array().unwrap().iter().map(|act| act["act"].as_str().unwrap()).collect();
        assert_eq!(acts.iter().filter(|act| **act == "said").count(), 7, "{acts:?}");
        assert_eq!(acts.iter().filter(|act| **act == "proposed").count(), 2, "{acts:?}");
        let violations = &report["invariant_violations"];
        assert_eq!(violations["total"], 0, "{violations}");
        for invariant in ["one_floor", "turn_limit", "members_only", "same_story", "seated"] {
            assert!(violations["by_name"][invariant]["checked"].as_u64().unwrap() > 0, "{invariant}: {violations}");
        }
        digests.push(report["digest"].clone());
    }
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
}

#[test]
fn what_a_sub_team_concludes_is_the_result_of_the_task_above_it_over_two_levels_on_every_way() {
    let camera = "a camera of 1.8 kg behind quartz glass";
    let probe = format!("A probe of 19 kg, with {camera}.");
    let mut digests = Vec::new();
    for way in WAYS {
        let report = document(&[&["team", "play", &scenario("mission"), "--json"], way].concat());
        let teams = report["teams"].as_array().unwrap();
        let place = |team: &Value| (team["place"].clone(), team["members"].clone());
        let places: Vec<(Value, Value)> = teams.iter().map(place).collect();
        assert_eq!(
            places,
            [
                (json!(""), json!(["director", "engineer", "pilot", "student"])),
                (json!("~s1-1"), json!(["engineer", "optician"])),
                (json!("~s1-1~s1-1"), json!(["optician", "glazier"])),
            ]
        );
        let result =
            |team: usize| (teams[team]["tasks"]["1"]["status"].clone(), teams[team]["tasks"]["1"]["result"].clone());
        assert_eq!((&teams[2]["conclusion"], result(1)), (&json!(camera), (json!("done"), json!(camera))));
        assert_eq!((&teams[1]["conclusion"], result(0)), (&json!(probe), (json!("done"), json!(probe))));
        let concluded = teams[0]["conclusion"].as_str().unwrap();
        assert_eq!(concluded, format!("{probe} Trajectory: launch on the 3rd of May, 210 days of flight."));
        assert_eq!(report["invariant_violations"]["total"], 0, "{report}");
        digests.push(report["digest"].clone());
    }
    assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
}

#[test]
fn the_owner_of_a_task_finds_a_specialist_and_works_in_a_sub_team_with_it() {
    let report = document(&["team", "play", &scenario("survey"), "--json"]);
    let (root, sub_team) = (&report["teams"][0], &report["teams"][1]);
    assert_eq!(root["members"], json!(["assistant", "librarian", "writer"]));
    assert_eq!(root["declined"], json!([]), "whoever was outscored has declined nothing");
    assert_eq!((&sub_team["place"], &sub_team["members"]), (&json!("~s1-1"), &json!(["librarian", "bibliometrician"])));
    let papers = "30 papers in three groups: discovery (9), teams (14), markets (7).";
    assert_eq!((&sub_team["conclusion"], &root["tasks"]["1"]["result"]), (&json!(papers), &json!(papers)));
    assert!(root["conclusion"].as_str().unwrap().ends_with(&format!("Sources: {papers}")), "{root}");
}

#[test]
fn what_is_printed_names_members_says_and_the_conclusion_and_a_trace_holds_every_message() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run/evening.jsonl");
    let output = llmx(&["team", "play", &scenario("evening"), "--trace", text(&trace)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    for line in [
        "team alice~play: alice, bob, carol",
        "alice: Eight guests, one evening, 60 euros each. What do you propose?",
        "alice proposes: Concert in the old town hall, then dinner at the river.",
        "concluded by alice, 2 to 0: The museum of the port",
        "invariants: 0 violations",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    let trace = std::fs::read_to_string(&trace).unwrap();
    assert!(trace.lines().count() > 50 && trace.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
}

#[test]
fn a_team_without_a_conclusion_exits_1_and_says_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refused.json");
    let mut document = read("evening");
    document["team"]["members"]["bob"] = json!({"refuses": "no time"});
    std::fs::write(&file, document.to_string()).unwrap();
    let output = llmx(&["team", "play", text(&file)]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("not_formed"), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("bob declined") && printed.contains("not_formed"), "{printed}");
}

#[test]
fn bad_scenarios_exit_2_and_name_the_file_and_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let written = |name: &str, change: fn(&mut Value)| {
        let mut document = read("evening");
        change(&mut document);
        let path = folder.path().join(name);
        std::fs::write(&path, document.to_string()).unwrap();
        path
    };
    let unknown_rule = written("rule.json", |document| document["team"]["rules"]["rounds"] = json!(3));
    let no_agent = written("agent.json", |document| document["team"]["invites"][1] = json!("mallory"));
    let no_policy = written("policy.json", |document| document["team"]["policy"] = json!("no-such"));
    for (args, said) in [
        (vec!["team", "play"], "SCENARIO.json"),
        (vec!["team", "play", "nowhere.json"], "nowhere.json"),
        (vec!["team", "play", text(&unknown_rule)], "/team/rules: unknown rule `rounds`"),
        (vec!["team", "play", text(&no_agent)], "/team/invites/1: there is no agent `mallory`"),
        (vec!["team", "play", text(&no_policy)], "unknown_policy"),
    ] {
        let output = llmx(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

fn scenario(name: &str) -> String {
    format!("{TEAMS}/{name}.json")
}

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(scenario(name)).unwrap()).unwrap()
}

fn document(args: &[&str]) -> Value {
    let output = llmx(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn llmx(args: &[&str]) -> Output {
    Command::new(program(args)).args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
