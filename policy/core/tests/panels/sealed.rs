//! Nothing of a running round reaches anybody (docs/spec/panel.md#pn-21).

use schemas::{Act, AgentId};
use serde_json::json;

use crate::board::{Board, SEATS};

const CANARY: &str = "canary-4711";

#[test]
fn nothing_of_a_running_round_is_told_or_seen() {
    let mut board = Board::of(4, json!({"asking": "all"}));
    board.say(10, "ann", Act::Answer, json!({"round": 1, "answer": CANARY, "text": CANARY}));
    for who in ["alice", "ann", "bob", "cyd", "dan"] {
        let viewer = AgentId::try_new(who).unwrap();
        let view = board.script.lane_state.view(&board.script.negotiation, &viewer).expect("a member");
        assert!(!serde_json::to_string(&view).unwrap().contains(CANARY), "{who}");
    }
    assert!(!shown(&board).contains(CANARY));
    for who in ["bob", "cyd", "dan"] {
        board.answer(20, who, 1, who);
    }
    assert!(shown(&board).contains(CANARY), "once the round is over it is shown");
}

#[test]
fn another_answer_of_somebody_else_changes_nothing_told_before_the_round_ends() {
    let told = |answer: &str| {
        let mut board = Board::of(4, json!({"asking": "quorum_first"}));
        let (_, wave) = board.wave();
        board.answer(10, &wave[0], 1, answer);
        board.answer(11, &wave[1], 1, "b");
        shown(&board)
    };
    assert_eq!(told("a"), told("b"));
}

#[test]
fn peers_are_shown_without_names_in_an_order_of_the_recipients_own() {
    let mut board = Board::of(12, json!({}));
    for who in SEATS {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": who, "text": format!("by {who}")}));
    }
    let orders: std::collections::BTreeSet<Vec<String>> = SEATS
        .iter()
        .map(|who| {
            let shown = board.shown(who);
            assert!(shown.len() == 11 && !shown.contains(&(*who).to_owned()));
            let ask = board.ask(who);
            assert_eq!(ask.own.and_then(|own| own.answer).as_deref(), Some(*who));
            shown.into_iter().filter(|one| one != "ann" && one != "bob").collect()
        })
        .collect();
    assert!(orders.len() > 6, "few see the others in the same order: {}", orders.len());
}

#[test]
fn the_initiator_sees_counts_and_a_seat_its_own_messages() {
    let mut board = Board::of(4, json!({}));
    board.answer(10, "ann", 1, "a");
    let view = |board: &Board, who: &str| {
        let viewer = AgentId::try_new(who).unwrap();
        serde_json::to_value(board.script.lane_state.view(&board.script.negotiation, &viewer).unwrap()).unwrap()
    };
    let of_alice = view(&board, "alice");
    assert_eq!(of_alice["panel"], json!({"rounds": 3, "asked": 4, "replied": 1}));
    assert_eq!(
        (&of_alice["role"], &of_alice["state"], &of_alice["invited"]),
        (&json!("initiator"), &json!("asking"), &json!(4))
    );
    let of_ann = view(&board, "ann");
    assert_eq!(
        (&of_ann["role"], &of_ann["panel"], &of_ann["round"]),
        (&json!("panelist"), &json!({"rounds": 3}), &json!(1))
    );
    assert_eq!(of_ann["messages"].as_array().map(Vec::len), Some(1));
    assert_eq!(view(&board, "bob")["messages"], json!([]));
    assert!(board.script.lane_state.view(&board.script.negotiation, &AgentId::try_new("zoe").unwrap()).is_none());
    board.say(20, "alice", Act::Cancel, json!({}));
    let ended = view(&board, "bob");
    assert_eq!((&ended["role"], &ended["outcome"]), (&json!("panelist"), &json!("cancelled")));
}

/// Everything delivered, but the times.
fn shown(board: &Board) -> String {
    let told = board.script.deliveries.iter().map(|one| (one.to.to_string(), one.told.clone(), one.receipts.clone()));
    format!("{:?}", told.filter(|(_, told, _)| told.act() == Act::Ask || told.act() == Act::Inform).collect::<Vec<_>>())
}
