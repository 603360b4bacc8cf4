//! `llmx-lab panel` as scripts rely on it (docs/panels.md): published runs come out as published, faults are named by file, line
//! and place, and everything else is still read.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::program::program;

const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traffic_gen/scripted/tests/data/dylan.jsonl");

#[test]
fn published_runs_are_checked_and_an_altered_digit_is_named() {
    let checked = panel(&["score", PUBLISHED, "--mode", "reference", "--check"], "");
    assert_eq!((checked.status.code(), text(&checked.stderr)), (Some(0), String::new()));
    let lines = documents(&checked);
    assert_eq!(lines.len(), 50);
    assert_eq!(lines[49], json!({"cases": 49, "failed": 0}));
    assert_eq!((&lines[0]["line"], &lines[0]["src"]), (&json!(1), &json!("abstract_algebra_test_23")));
    assert!(lines[..49].iter().all(|line| line["consistent"] == true && line.get("importance").is_none()));

    let published = std::fs::read_to_string(PUBLISHED).unwrap();
    for (digit, altered, says) in [
        ("0.4693877551020409", "0.4693877561020409", "-:4: /importance/0: "),
        ("\"calls\": 2", "\"calls\": 3", "-:1: /calls: 3 is recorded, 2 comes out"),
        ("\"result\": \"C\"", "\"result\": \"D\"", "-:1: /result: \"D\" is recorded, \"C\" comes out"),
    ] {
        let checked = panel(&["score", "-", "--mode", "reference", "--check"], &published.replacen(digit, altered, 1));
        assert_eq!(checked.status.code(), Some(1));
        assert!(text(&checked.stderr).starts_with(says), "{}", text(&checked.stderr));
        assert_eq!(documents(&checked)[49], json!({"cases": 49, "failed": 1}));
    }
}

#[test]
fn faults_of_records_name_line_and_place_and_the_rest_is_scored() {
    let first = json!({"layer": 0, "agent": 0, "shown": [], "scores_text": null, "answer": "A"});
    let record = |n: usize, acts: Vec<Value>| json!({"n": n, "rounds": 3, "acts": acts}).to_string();
    let with = |member: &str, value: Value| {
        let mut act = first.clone();
        act[member] = value;
        act
    };
    let input = [
        record(1, vec![first.clone()]),
        "{\"n\":1,".to_owned(),
        record(1, vec![with("agent", json!(1))]),
        record(1, vec![with("layer", json!(1))]),
        String::new(),
        record(2, vec![with("agent", json!(1)), with("shown", json!([1]))]),
        record(2, vec![first.clone(), first.clone()]),
        record(1, vec![with("agent", json!("x"))]),
        "x".repeat((1 << 20) + 1),
        record(1, vec![first.clone()]),
    ]
    .join("\n");
    let scored = panel(&["score", "-", "--exact"], &input);
    assert_eq!(scored.status.code(), Some(1));
    let lines = documents(&scored);
    assert_eq!(lines.iter().map(|line| line["line"].clone()).collect::<Vec<_>>(), [1, 10]);
    assert_eq!(lines[0]["importance"], json!(["1", "0", "0"]));
    let told = text(&scored.stderr);
    let places = [
        "-:2: ",
        "-:3: /acts/0/agent: ",
        "-:4: /acts/0/layer: ",
        "-:6: /acts/1/shown: ",
        "-:7: /acts/1/agent: ",
        "-:8: /acts/0/agent: ",
        "-:9: ",
    ];
    for place in places {
        assert!(told.lines().any(|line| line.starts_with(place)), "{place} is not in {told}");
    }
    assert!(told.ends_with("7 of 9 lines are at fault\n"), "{told}");
}

#[test]
fn texts_are_parsed_in_both_modes() {
    let ratings = |text: &str, of: usize| json!({"kind": "ratings", "text": text, "of": of}).to_string();
    let choice = json!({"kind": "choice", "options": ["A", "B"]});
    let input = [
        ratings("[[5, 1]]", 3),
        ratings("[[0, 7]]", 2),
        ratings("[[5,\n3]]", 2),
        json!({"kind": "rank", "text": "[2, 2, 9, 1]", "of": 4, "keep": 2}).to_string(),
        json!({"kind": "rank", "text": "none", "of": 4, "keep": 2}).to_string(),
        json!({"kind": "answer", "answer": choice, "text": "so (b)"}).to_string(),
        json!({"kind": "answer", "answer": choice, "text": "perhaps"}).to_string(),
        json!({"kind": "equal", "answer": {"kind": "number"}, "a": "1/2", "b": "0.5"}).to_string(),
        json!({"kind": "equal", "answer": {"kind": "exact"}, "a": null, "b": null}).to_string(),
    ]
    .join("\n");
    let same = |from: &[Value]| {
        [
            from,
            &[
                json!({"order": [2, 1]}),
                json!({"order": null}),
                json!({"answer": "B", "key": "B"}),
                json!({"answer": null, "key": null}),
                json!({"equal": true}),
            ],
        ]
        .concat()
    };
    let reference = [
        same(&[json!({"ratings": [0, 0, 0]}), json!({"ratings": [0, 5]}), json!({"ratings": [0, 0]})]),
        vec![json!({"equal": true})],
    ]
    .concat();
    let ours = [
        same(&[json!({"ratings": null}), json!({"ratings": [1, 5]}), json!({"ratings": null})]),
        vec![json!({"equal": false})],
    ]
    .concat();
    assert_eq!(documents(&panel(&["parse", "-", "--mode", "reference"], &input)), reference);
    assert_eq!(documents(&panel(&["parse", "-"], &input)), ours);
}

#[test]
fn faults_of_texts_name_line_and_place_and_the_rest_is_parsed() {
    let input = [
        "{\"kind\":\"ratings\",\"text\":\"[[1]]\",\"of\":1}",
        "{\"kind\":\"ratings\",\"text\":\"[[1]]\"}",
        "{\"kind\":\"ratings\",\"text\":\"[[1]]\",\"of\":1000000000000}",
        "{\"kind\":\"rank\",\"text\":\"[1]\",\"of\":2,\"keep\":0}",
        "{\"kind\":\"answer\",\"text\":\"1\"}",
        "{\"kind\":\"answer\",\"answer\":{\"kind\":\"number\"}}",
        "{\"kind\":\"poem\"}",
        "{\"kind\":\"equal\",\"answer\":{\"kind\":\"poem\"},\"a\":\"1\",\"b\":\"1\"}",
        "[]",
    ]
    .join("\n");
    let parsed = panel(&["parse", "-"], &input);
    assert_eq!((parsed.status.code(), documents(&parsed)), (Some(1), vec![json!({"ratings": [1]})]));
    let told = text(&parsed.stderr);
    let places = [
        "-:2: /of: ",
        "-:3: /of: ",
        "-:4: /keep: ",
        "-:5: /answer: ",
        "-:6: /text: ",
        "-:7: /kind: ",
        "-:8: /answer",
        "-:9: ",
    ];
    for place in places {
        assert!(told.lines().any(|line| line.starts_with(place)), "{place} is not in {told}");
    }
    let absent = panel(&["parse", "/nowhere/lines"], "");
    assert_eq!((absent.status.code(), absent.stdout.len()), (Some(2), 0));
    assert!(text(&absent.stderr).contains("cannot read /nowhere/lines"), "{}", text(&absent.stderr));
}

fn panel(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(program(&["panel", "score"]));
    let command = command.arg("panel").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // What does not read stdin closes it.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().unwrap()
    })
}

fn documents(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
