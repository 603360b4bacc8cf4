use serde_json::{Value, json};

use super::*;

/// Published runs of the DyLAN paper's code on MMLU (SALT-NLP/DyLAN, MIT licence), a sample of them.
const PUBLISHED: &str = include_str!("../../../tests/data/dylan.jsonl");
/// Runs in the file; a shorter one must not pass for a whole one.
const RUNS: usize = 49;

#[test]
fn published_runs_come_out_as_they_were_published() {
    let mut scored = 0;
    for (number, line) in PUBLISHED.lines().enumerate() {
        let published: Value = serde_json::from_str(line).unwrap();
        let score = score(&serde_json::from_str(line).unwrap(), ReadingMode::Reference).unwrap();
        assert_eq!(
            (json!(score.result), json!(score.calls)),
            (published["result"].clone(), published["calls"].clone()),
            "{number}"
        );
        assert_eq!(score.fault, None, "{number}");
        let importance = score.importance_e12();
        assert_eq!(importance.len(), published["importance"].as_array().unwrap().len(), "{number}");
        for (place, e12) in importance.iter().enumerate() {
            let float = published["importance"][place].as_f64().unwrap();
            assert!((*e12 as f64 / 1e12 - float).abs() <= 1e-9, "{number}, {place}: {e12} is not {float}");
        }
        scored += 1;
    }
    assert_eq!(scored, RUNS);
}

#[test]
fn a_panel_ends_with_more_than_two_thirds_of_its_members() {
    let votes = |answers: &[Option<&str>]| {
        let acts: Vec<Value> =
            answers.iter().enumerate().map(|(agent, answer)| act(0, agent, &[], None, *answer)).collect();
        let panel = panel(4, 3, acts);
        [ReadingMode::Reference, ReadingMode::Panel].map(|mode| {
            let score = score(&panel, mode).unwrap();
            (score.stop, score.result, score.fault.map(|fault| fault.to_string()))
        })
    };
    let consensus = |answer: Option<&str>| (StoppedBy::Consensus, answer.map(str::to_owned), None);
    let early = |answer: Option<&str>, last: usize| {
        let fault = format!("/acts/{last}: ended without a consensus before its rounds were over");
        (StoppedBy::Rounds, answer.map(str::to_owned), Some(fault))
    };
    let a = Some("A");
    assert_eq!(votes(&[a, a, a]), [consensus(a), consensus(a)]);
    assert_eq!(votes(&[a, a]), [early(a, 1), early(a, 1)]);
    assert_eq!(votes(&[None, None, None]), [consensus(None), early(None, 2)]);
    let after = (StoppedBy::Consensus, Some("A".to_owned()), Some("/acts/3: asked after a consensus".to_owned()));
    assert_eq!(votes(&[a, a, a, Some("B")]), [after.clone(), after]);
}

#[test]
fn acts_against_the_stopping_rule_are_named() {
    let told =
        |acts: Vec<Value>| score(&panel(4, 3, acts), ReadingMode::Panel).unwrap().fault.map(|fault| fault.to_string());
    let round = |layer: usize, agents: &[usize], answers: [&str; 4]| -> Vec<Value> {
        let shown: &[usize] = if layer == 0 { &[] } else { &[0, 1] };
        agents.iter().map(|agent| act(layer, *agent, shown, None, Some(answers[*agent]))).collect()
    };
    let split = ["A", "B", "C", "D"];
    let two = || [round(0, &[0, 1, 2, 3], split), round(1, &[0, 1, 2, 3], split)].concat();
    assert_eq!(told([two(), round(2, &[0, 1], split)].concat()), None);
    assert_eq!(told([two(), round(2, &[1], split)].concat()), None, "the ranker named it twice");
    assert_eq!(told(two()).unwrap(), "/acts/7: ended without a consensus before its rounds were over");
    let begun = [round(0, &[0, 1, 2], split), round(1, &[0], split)].concat();
    assert_eq!(told(begun).unwrap(), "/acts/3: its layer begins before all of the last have acted");
    let many = [two(), round(2, &[0, 1, 2], split)].concat();
    assert_eq!(told(many).unwrap(), "/acts/10: only 2 act in its layer");
}

#[test]
fn importance_follows_the_mode() {
    let worked = || {
        let first =
            ["B", "C", "B", "A"].iter().enumerate().map(|(agent, answer)| act(0, agent, &[], None, Some(answer)));
        // Each rates itself 5.
        let ratings = ["5, 2, 5, 1", "5, 5, 5, 1", "4, 1, 5, 1"];
        let second = (0..3).map(|agent| act(1, agent, &[0, 1, 2, 3], Some(ratings[agent]), Some("B")));
        panel(4, 3, first.chain(second).collect())
    };
    let score = |mode| score(&worked(), mode).unwrap();
    let ours = score(ReadingMode::Panel);
    assert_eq!(ours.importance_exact()[..4], ["4/11", "3/16", "373/1056", "101/1056"]);
    assert_eq!(ours.importance_exact()[4..], ["1/3", "1/3", "1/3", "0", "0", "0", "0", "0"]);
    assert_eq!(ours.total_e12()[0], 696_969_696_970);
    assert_eq!((ours.calls, ours.layer, ours.result.as_deref()), (7, 1, Some("B")));
    let theirs = score(ReadingMode::Reference).importance_exact();
    assert_eq!(theirs[0], "809/2288", "(5/13 + 5/16 + 4/11) / 3");
}

#[test]
fn records_that_are_none_of_a_panel_are_refused_where_they_are_wrong() {
    let one = || act(0, 0, &[], None, Some("A"));
    let cases: [(Value, &str); 12] = [
        (json!({"n": 0, "rounds": 3, "acts": [one()]}), "/n"),
        (json!({"n": 33, "rounds": 3, "acts": [one()]}), "/n"),
        (json!({"n": 2, "rounds": 0, "acts": [one()]}), "/rounds"),
        (json!({"n": 2, "rounds": 9, "acts": [one()]}), "/rounds"),
        (json!({"n": 2, "rounds": 3, "acts": []}), "/acts"),
        (json!({"n": 2, "rounds": 3, "acts": [one(), act(0, 2, &[], None, None)]}), "/acts/1/agent"),
        (json!({"n": 2, "rounds": 3, "acts": [one(), one()]}), "/acts/1/agent"),
        (json!({"n": 2, "rounds": 3, "acts": [act(1, 0, &[0], None, None)]}), "/acts/0/layer"),
        (json!({"n": 2, "rounds": 1, "acts": [one(), act(1, 0, &[0], None, None)]}), "/acts/1/layer"),
        (json!({"n": 2, "rounds": 3, "acts": [one(), act(1, 0, &[0, 1], None, None)]}), "/acts/1/shown/1"),
        (json!({"n": 2, "rounds": 3, "acts": [one(), act(1, 0, &[0, 0], None, None)]}), "/acts/1/shown/1"),
        (json!({"n": 2, "rounds": 3, "acts": [one(), act(1, 0, &[], None, None)]}), "/acts/1/shown"),
    ];
    for (record, pointer) in cases {
        let panel: RecordedPanel = serde_json::from_value(record.clone()).unwrap();
        assert_eq!(score(&panel, ReadingMode::Panel).unwrap_err().pointer, pointer, "{record}");
    }
}

fn panel(n: usize, rounds: usize, acts: Vec<Value>) -> RecordedPanel {
    serde_json::from_value(json!({"n": n, "rounds": rounds, "acts": acts})).unwrap()
}

fn act(layer: usize, agent: usize, shown: &[usize], scores_text: Option<&str>, answer: Option<&str>) -> Value {
    json!({"layer": layer, "agent": agent, "shown": shown, "scores_text": scores_text, "answer": answer})
}
