//! Answers and orders of any kind: whatever they hold, nothing that is not followed moves a count (docs/spec/panel.md#pn-12).

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use schemas::Act;
use schemas::record::PinnedPanel;
use serde_json::{Value, json};

use crate::board::{Board, SEATS, invitation};
use crate::script::agent;

const SEED: u64 = 20_261_124;
const CASES: u32 = 1_000;

/// Who is heard: a seat in the first round, the same in the second, and the ranker between them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    First,
    Ranking,
    Second,
}

#[test]
fn bad_answers_of_any_kind_move_no_count() {
    let config =
        Config { rng_seed: RngSeed::Fixed(SEED), cases: CASES, failure_persistence: None, ..Config::default() };
    let stages = select(vec![Stage::First, Stage::Ranking, Stage::Second]);
    let mut refused = 0_u32;
    let explored = TestRunner::new(config).run(&(kinds(), stages, vec(payload(), 1..8)), |(kind, stage, payloads)| {
        let mut board = staged(&kind, stage);
        let speaker = if stage == Stage::Ranking { "rex" } else { "ann" };
        for payload in payloads {
            let before = counts(&board);
            let texts = board.say(20, speaker, Act::Answer, payload.clone());
            if texts.contains(&format!("{speaker}<ack:ok")) {
                let moved = if stage == Stage::Ranking {
                    before["round"] != counts(&board)["round"]
                } else {
                    counts(&board)["panel"]["replied"]
                        == before["panel"]["replied"].as_u64().map_or(1, |replied| replied + 1)
                };
                prop_assert!(moved, "{payload}");
                return Ok(());
            }
            prop_assert_eq!(counts(&board), before, "{}: {:?}", payload, texts);
            prop_assert!(board.script.lane_state.evidence().is_empty());
        }
        board.script.assert_sound();
        Ok(())
    });
    explored.expect("no count moves");
    // The same again, counted: most are refused, and some are not.
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(SEED), ..Config::default() });
    let strategy = (kinds(), payload());
    for _ in 0..100 {
        let (kind, payload) = strategy.new_tree(&mut runner).expect("a case").current();
        let texts = staged(&kind, Stage::First).say(20, "ann", Act::Answer, payload);
        refused += u32::from(!texts.contains(&"ann<ack:ok".to_owned()));
    }
    assert!((10..=99).contains(&refused), "{refused} of 100 are refused");
}

/// What the initiator sees.
fn counts(board: &Board) -> Value {
    let view = board.script.lane_state.view(&board.script.negotiation, &agent("alice")).expect("it is the initiator");
    let view = serde_json::to_value(view).expect("a view");
    json!({"panel": view["panel"], "round": view["round"], "state": view["state"]})
}

fn staged(kind: &Value, stage: Stage) -> Board {
    let mut board = Board::empty();
    let select = json!({"after_round": 1, "keep": 2, "if_more_than": 1, "ranker": {"kind": "agent", "agent": "rex"}});
    let mut rules = json!({"answer": kind, "rounds": 2, "max_strikes": 100, "consensus_from": 0});
    if stage == Stage::Ranking {
        rules["select"] = select;
    }
    let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: Vec::new() };
    board.call_with(&SEATS[..4], rules, json!({}), json!({}), Some(roles));
    if stage != Stage::First {
        for (who, answer) in SEATS.into_iter().zip(["1", "2", "3", "4"]) {
            board.answer(10, who, 1, answer);
        }
    }
    board
}

fn kinds() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"kind": "exact"}),
        json!({"kind": "choice", "options": ["1", "2", "3", "4"]}),
        json!({"kind": "number"}),
        json!({"kind": "math"}),
        json!({"kind": "set", "of": "number"}),
        json!({"kind": "json"}),
        json!({"kind": "bleu"}),
    ])
}

fn payload() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        2 => select(vec!["1", "(2)", "1/0", "NaN", "-0", "1e65", "{\"a\":1,\"a\":1}", "[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", "0.5", ",,,", ""])
            .prop_map(str::to_owned),
        1 => "[0-9/.,eE+%-]{0,70}",
        1 => "[\\[\\]{}\":,a1 ]{0,40}",
        1 => "\\PC{0,40}",
        1 => select(vec!["9".repeat(65), "a ".repeat(2049), "1,".repeat(65), "[".repeat(4000), "\u{1}".repeat(2000)]),
    ];
    let number = prop_oneof![4 => 0_u32..7, 1 => any::<u32>()];
    let members = (option::weighted(0.8, option::weighted(0.9, text)), option::of(vec(number.clone(), 0..6)));
    let others = (option::weighted(0.3, vec(number, 0..6)), option::weighted(0.1, vec(option::of("[a-z]{0,4}"), 0..5)));
    (0_u32..4, members, others).prop_map(|(round, (answer, ratings), (order, reviews))| {
        let mut payload = json!({"round": round});
        answer.into_iter().for_each(|answer| payload["answer"] = json!(answer));
        ratings.into_iter().for_each(|ratings| payload["ratings"] = json!(ratings));
        order.into_iter().for_each(|order| payload["order"] = json!(order));
        reviews.into_iter().for_each(|reviews| payload["reviews"] = json!(reviews));
        payload
    })
}
