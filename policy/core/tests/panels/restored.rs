//! A panel goes on from a snapshot as it would have gone on without (docs/spec/log.md#lg-24).

use policy_core::{LaneState, Limits};
use schemas::delivery::Stopped;
use schemas::record::PinnedPanel;
use schemas::{Act, Lane};
use serde_json::json;

use crate::board::{Board, SEATS, invitation};
use crate::choosing::chosen_and_on_trial;

#[test]
fn the_same_records_give_the_same_effects_from_any_snapshot_on() {
    let [chosen, on_trial] = chosen_and_on_trial();
    let played = [played(json!({"kind": "exact"})), played(json!({"kind": "bleu"})), played_with_reviews()];
    for board in played.into_iter().chain([selected_by_agreement(), chosen, on_trial]) {
        let log = board.script.log();
        for cut in 0..=log.len() {
            let mut steady = LaneState::new(Lane(0), Limits::default());
            for (seq, time, record) in &log[..cut] {
                steady.handle_record(*seq, *time, record);
                while steady.poll_effect().is_some() {}
            }
            let bytes = steady.snapshot();
            let mut restored = LaneState::restore(&bytes, Lane(0), Limits::default()).expect("a snapshot");
            assert!(restored.snapshot() == bytes, "after {cut} records");
            for (seq, time, record) in &log[cut..] {
                let mut effects = [Vec::new(), Vec::new()];
                for (state, effects) in [&mut steady, &mut restored].into_iter().zip(&mut effects) {
                    state.handle_record(*seq, *time, record);
                    effects.extend(std::iter::from_fn(|| state.poll_effect()).map(|effect| format!("{effect:?}")));
                }
                assert_eq!(effects[0], effects[1], "record {seq} after {cut}");
                assert_eq!(steady.digest(), restored.digest());
            }
            assert_eq!(steady.state_digest_full(), restored.state_digest_full());
        }
    }
}

/// A panel that goes through everything: silence, a refused answer, a ranker, one that leaves.
pub(crate) fn played(kind: serde_json::Value) -> Board {
    let mut board = Board::empty();
    let select = json!({"after_round": 1, "keep": 2, "recheck": false, "ranker": {"kind": "agent", "agent": "rex"}});
    let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: Vec::new() };
    board.call_with(&SEATS[..5], json!({"answer": kind, "select": select}), json!({}), json!({}), Some(roles));
    for who in &SEATS[..4] {
        let answer = format!("the answer of {who} is its own and no other one");
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": answer, "usage": {"calls": 1}}));
    }
    board.answer(11, "ann", 1, "again");
    board.say(12, "eve", Act::Refuse, json!({}));
    board.say(20, "rex", Act::Answer, json!({"round": 1, "order": [2, 4]}));
    let (round, kept) = board.wave();
    board.answer(30, &kept[0], round, "we all agree on this one answer");
    board.script.tick(5_000);
    let (round, kept) = board.wave();
    for who in kept {
        board.answer(5_100, &who, round, "we all agree on this one answer");
    }
    assert_eq!(board.finding().agreed, 2);
    board
}

/// A panel that ends with the selection: two of five texts are alike, and the deadline closes the round.
pub(crate) fn selected_by_agreement() -> Board {
    let mut board = Board::empty();
    let select = json!({"after_round": 1, "keep": 2, "ranker": {"kind": "support"}});
    let rules = json!({"answer": {"kind": "bleu", "at_least_permille": 850}, "select": select});
    board.call_with(&SEATS[..5], rules, json!({}), json!({}), None);
    let alike = "seats say almost the same thing at some length so that one word more or less hardly counts here";
    for (who, answer) in SEATS.iter().zip(["something else", alike, &format!("{alike} now"), "another thing"]) {
        board.answer(10, who, 1, answer);
    }
    board.script.tick(5_000);
    let finding = board.finding();
    assert_eq!((finding.stopped, finding.agreed, finding.of), (Stopped::Selection, 2, 2));
    board
}

/// A panel whose answers are reviewed twice: by two, and by the one that is left.
pub(crate) fn played_with_reviews() -> Board {
    let mut board = Board::empty();
    let roles = PinnedPanel { ranker: None, reviewers: ["rex", "roy"].map(invitation).to_vec() };
    let rules = json!({"review": {"by": ["roy", "rex"]}});
    board.call_with(&SEATS[..3], rules, json!({}), json!({}), Some(roles));
    for round in 1..=3 {
        for who in &SEATS[..3] {
            let mut payload = json!({"round": round, "answer": who, "text": format!("by {who}")});
            if round > 1 {
                // Two have reviewed the first round, one the second.
                payload["ratings"] = json!(vec![4; 4 - round]);
            }
            board.say(10, who, Act::Answer, payload);
        }
        let reviews = json!({"round": round, "reviews": ["good", null, "bad"], "ratings": [5, 2, 1]});
        board.say(20, "rex", Act::Answer, reviews.clone());
        if round == 1 {
            board.say(20, "roy", Act::Answer, reviews);
            board.say(21, "roy", Act::Refuse, json!({}));
        }
    }
    assert_eq!(board.finding().calls.reviews, 3);
    board
}
