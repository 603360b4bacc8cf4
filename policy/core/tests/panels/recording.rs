//! The golden logs of panels: a few plays that together say every word there is.

#![allow(clippy::disallowed_methods, reason = "golden files are written here")]

use std::fs;

use policy_core::Limits;
use policy_core::lane::RULES_VERSION;
use schemas::record::{EngineEvent, PinnedPanel};
use schemas::{Act, Lane};
use serde_json::{Value, json};

use crate::board::{ANSWER_MS, Board, SEATS, invitation};
use crate::choosing::chosen_and_on_trial;
use crate::golden::{self, GoldenLog, Logged};
use crate::legality::{ROWS, choosing};
use crate::restored::{played, played_with_reviews};
use crate::reviewing::{REVIEW_ROWS, reviewed};

#[test]
#[ignore = "records the golden logs of panels: see golden/README.md"]
fn golden_panels_are_recorded() {
    let folder = golden::rules_folder(RULES_VERSION);
    for (number, board) in (1..).zip(plays()) {
        let file = folder.join(format!("panel-{number:02}.jsonl"));
        if !file.exists() {
            fs::write(file, log(&board).transcript()).expect("a file");
        }
    }
}

fn log(board: &Board) -> GoldenLog {
    let records = board.script.log().iter();
    let records =
        records.map(|(seq, time, record)| Logged { seq: *seq, time: *time, record: record.clone() }).collect();
    GoldenLog { lane: Lane(0), limits: Limits::default(), records }
}

fn plays() -> Vec<Board> {
    let kinds = [
        json!({"kind": "exact", "ignore_case": true}),
        json!({"kind": "choice", "options": ["A", "B"]}),
        json!({"kind": "number"}),
        json!({"kind": "math"}),
        json!({"kind": "set", "of": "number"}),
        json!({"kind": "json"}),
        json!({"kind": "bleu"}),
    ];
    let mut plays: Vec<Board> = ROWS
        .iter()
        .map(|row| {
            let mut board = choosing();
            (row.play)(&mut board);
            board.script.tick(60_000);
            board
        })
        .collect();
    plays.extend(kinds.into_iter().map(answered));
    plays.push(played(json!({"kind": "exact"})));
    plays.extend(["support", "rating", "hash"].map(selected));
    plays.push(silent());
    plays.push(timed_out());
    plays.push(fallen_back());
    plays.push(recalled());
    plays.push(aborted());
    plays.extend(REVIEW_ROWS.iter().map(|row| {
        let mut board = reviewed();
        (row.play)(&mut board);
        board.script.tick(60_000);
        board
    }));
    plays.push(played_with_reviews());
    plays.extend(chosen_and_on_trial());
    plays
}

/// Twelve seats agree in the second round, wave by wave.
fn answered(kind: Value) -> Board {
    let mut board = Board::of(12, json!({"asking": "quorum_first", "answer": kind}));
    for number in 0.. {
        let (round, wave) = board.wave();
        if round > 1 || number > 12 {
            break;
        }
        for (index, who) in wave.iter().enumerate() {
            board.answer(10, who, round, ["A", "B", "1", "2"][(number + index) % 4]);
        }
        board.script.tick((number as u64 + 1) * (ANSWER_MS + 1));
    }
    let (round, wave) = board.wave();
    for who in wave {
        let ratings = board.ask(&who).peers.map_or(0, |peers| peers.len());
        let payload = json!({"round": round, "answer": "1", "ratings": vec![4; ratings], "usage": {"calls": 1}});
        board.say(20_000, &who, Act::Answer, payload);
    }
    board.script.tick(90_000);
    board
}

fn selected(kind: &str) -> Board {
    let mut board = Board::of(4, json!({"select": {"after_round": 1, "keep": 2, "ranker": {"kind": kind}}}));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b"), ("dan", "d")] {
        board.answer(10, who, 1, answer);
    }
    board.script.tick(60_000);
    board
}

fn silent() -> Board {
    let mut board = Board::of(3, json!({}));
    board.script.tick(60_000);
    board
}

fn timed_out() -> Board {
    let mut board = Board::empty();
    board.call_with(&SEATS[..3], json!({}), json!({"reply_within_ms": 500}), json!({}), None);
    board.answer(10, "ann", 1, "a");
    board.script.tick(60_000);
    board
}

fn fallen_back() -> Board {
    let mut board = Board::empty();
    let select = json!({"after_round": 1, "keep": 2, "ranker": {"kind": "agent", "agent": "rex"}});
    let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: Vec::new() };
    board.call_with(&SEATS[..4], json!({"select": select}), json!({}), json!({}), Some(roles));
    for who in &SEATS[..4] {
        board.answer(10, who, 1, who);
    }
    board.say(11, "rex", Act::Answer, json!({"round": 1, "order": [9]}));
    board.say(12, "rex", Act::Refuse, json!({}));
    board.script.tick(60_000);
    board
}

/// Calls that open nothing.
fn recalled() -> Board {
    let mut board = Board::empty();
    board.call(&SEATS[..4], json!({"rounds": 9}));
    board.call(&[], json!({}));
    board
}

fn aborted() -> Board {
    let mut board = Board::of(3, json!({}));
    let negotiation = board.script.negotiation.clone();
    board.script.engine(10, 0, EngineEvent::Abort { negotiation, code: "internal".to_owned() });
    board
}
