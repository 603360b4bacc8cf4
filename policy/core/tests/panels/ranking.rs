//! Selections (docs/spec/panel.md#selection): who ranks, who goes on, who is asked no more.

use policy_core::SelectedBy;
use schemas::Act;
use schemas::delivery::{Outcome, Stopped};
use schemas::record::PinnedPanel;
use serde_json::{Value, json};

use crate::board::{ANSWER_MS, Board, SEATS, invitation, merge};

const RANK_MS: u64 = 500;

#[test]
fn the_order_of_an_agent_decides_who_goes_on() {
    let mut board = ranked_by("rex", json!({}));
    assert_eq!(answer_all(&mut board, 1), ["dan<ack:ok", "rex<ask:1:rank"]);
    let shown = board.shown("rex");
    assert_eq!(shown.len(), 4);
    assert_eq!(board.ask("rex").rank.map(|rank| rank.keep), Some(2));
    let texts = board.say(30, "rex", Act::Answer, json!({"round": 1, "order": [3, 1]}));
    assert_eq!((texts.len(), texts[0].as_str()), (3, "rex<ack:ok"));
    let (round, mut wave) = board.wave();
    let mut kept = vec![shown[2].clone(), shown[0].clone()];
    wave.sort();
    kept.sort();
    assert_eq!((round, &wave), (2, &kept));
    for who in &kept {
        assert_eq!(board.shown(who).len(), 1, "only the kept see each other");
        assert!(kept.contains(&board.shown(who)[0]));
    }
    for who in &kept {
        board.answer(40, who, 2, who);
    }
    for who in &kept {
        board.answer(50, who, 3, "z");
    }
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.agreed, finding.of), (Outcome::Consensus, 2, 2));
    assert_eq!((finding.calls.answers, finding.calls.ranks, finding.calls.answered), (8, 1, 9));
    let dropped = finding.panelists.iter().filter(|one| !kept.contains(&one.agent.to_string()));
    let of_dropped: Vec<Vec<u64>> = dropped.map(|one| one.importance_e12.clone()).collect();
    assert_eq!(of_dropped, [vec![0, 0, 0], vec![0, 0, 0]]);
    assert_eq!(board.decision().selection.as_ref().map(|one| one.by), Some(SelectedBy::Agent));
    assert_eq!(board.asks(shown[1].as_str()), 1, "who is dropped is asked no more");
}

#[test]
fn what_an_order_leaves_out_is_filled_by_support() {
    let mut board = ranked_by("rex", json!({"recheck": false}));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b"), ("dan", "d")] {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": answer, "text": format!("by {who}")}));
    }
    let of_dan = board.shown("rex").iter().position(|who| who == "dan").unwrap() + 1;
    board.say(30, "rex", Act::Answer, json!({"round": 1, "order": [of_dan]}));
    let (_, kept) = board.wave();
    assert!(kept.contains(&"dan".to_owned()));
    assert!(kept.contains(&"bob".to_owned()) || kept.contains(&"cyd".to_owned()), "{kept:?}");
}

#[test]
fn orders_that_name_nobody_somebody_twice_or_too_many_may_be_corrected() {
    let mut board = ranked_by("rex", json!({}));
    answer_all(&mut board, 1);
    for (order, pointer) in [(json!([5]), 0), (json!([1, 1]), 1), (json!([0]), 0), (json!([1, 2, 3]), 2)] {
        let texts = board.say(30, "rex", Act::Answer, json!({"round": 1, "order": order}));
        let refused =
            ["rex<ack:malformed".to_owned(), format!("rex<not_understood:bad_order:/payload/order/{pointer}")];
        assert_eq!(texts, refused);
    }
    let texts = board.say(31, "rex", Act::Answer, json!({"round": 1, "order": []}));
    assert_eq!(texts[1], "rex<not_understood:bad_order:/payload/order");
    assert_eq!(board.say(32, "rex", Act::Answer, json!({"round": 1, "order": [2, 1]}))[0], "rex<ack:ok");
}

#[test]
fn a_ranker_that_is_silent_refuses_or_is_unreachable_leaves_it_to_support() {
    let fallbacks: [fn(&mut Board); 4] = [
        |board| drop(board.script.tick(20 + RANK_MS + 1)),
        |board| drop(board.say(30, "rex", Act::Refuse, json!({}))),
        |board| {
            let lost = board.script.last("rex", Act::Ask).id;
            board.script.undelivered(30, lost, "rex");
        },
        |board| {
            for _ in 0..3 {
                board.say(30, "rex", Act::Answer, json!({"round": 1, "answer": "me"}));
            }
        },
    ];
    let mut kept = Vec::new();
    for fall_back in fallbacks {
        let mut board = ranked_by("rex", json!({"recheck": false}));
        for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b"), ("dan", "d")] {
            board.answer(20, who, 1, answer);
        }
        fall_back(&mut board);
        let (round, mut wave) = board.wave();
        wave.sort();
        assert_eq!((round, wave.clone()), (2, vec!["bob".to_owned(), "cyd".to_owned()]));
        kept.push(wave);
        assert_eq!(board.say(600, "rex", Act::Answer, json!({"round": 1, "order": [1]}))[0], "rex<ack:stale_round");
    }
}

#[test]
fn a_ranker_that_has_left_before_is_not_asked() {
    let mut board = ranked_by("rex", json!({}));
    board.say(5, "rex", Act::Refuse, json!({}));
    answer_all(&mut board, 1);
    assert_eq!((board.wave().0, board.asks("rex")), (2, 0));
}

#[test]
fn a_ranker_is_asked_for_an_order_and_for_nothing_else() {
    let mut board = ranked_by("rex", json!({}));
    let early = board.say(5, "rex", Act::Answer, json!({"round": 1, "order": [1]}));
    assert_eq!(early, ["rex<ack:out_of_turn", "rex<not_understood:not_asked"]);
    let answer = board.answer(6, "rex", 1, "a");
    assert_eq!(answer, ["rex<ack:out_of_turn", "rex<not_understood:out_of_turn"]);
}

#[test]
fn the_initiator_may_rank() {
    let mut board = ranked_by("alice", json!({}));
    assert_eq!(answer_all(&mut board, 1), ["dan<ack:ok", "alice<ask:1:rank"]);
    let texts = board.say(30, "alice", Act::Answer, json!({"round": 1, "order": [1, 2]}));
    assert_eq!((texts.len(), texts[0].as_str()), (3, "alice<ack:ok"));
    board.say(40, "alice", Act::Cancel, json!({}));
    assert_eq!(board.script.lane_state.open_count(), 0);
}

#[test]
fn each_ranker_of_the_exchange_decides_at_once() {
    for (kind, by) in [("support", SelectedBy::Support), ("rating", SelectedBy::Rating), ("hash", SelectedBy::Hash)] {
        let mut board = Board::of(4, selecting(json!({"kind": kind}), json!({})));
        answer_all(&mut board, 1);
        assert_eq!((board.wave().0, board.wave().1.len()), (2, 2), "{kind}");
        for _ in 0..2 {
            let (round, wave) = board.wave();
            for who in wave {
                board.answer(40, &who, round, "z");
            }
            if board.script.lane_state.open_count() == 0 {
                break;
            }
        }
        assert_eq!(board.decision().selection.as_ref().map(|one| one.by), Some(by));
    }
}

#[test]
fn ratings_given_in_the_round_rank_whom_they_rate() {
    let rules = json!({"select": {"after_round": 2, "keep": 2, "recheck": false, "ranker": {"kind": "rating"}}});
    let mut board = Board::of(4, rules);
    answer_all(&mut board, 1);
    let given = [("ann", 1), ("bob", 5), ("cyd", 1), ("dan", 5)];
    for who in &SEATS[..4] {
        board.rate(20, who, 2, who, &given);
    }
    let (round, mut kept) = board.wave();
    kept.sort();
    assert_eq!((round, kept), (3, vec!["bob".to_owned(), "dan".to_owned()]));
}

#[test]
fn a_consensus_among_the_kept_ends_the_panel_if_it_is_looked_for() {
    for (recheck, stopped) in [(true, Stopped::Selection), (false, Stopped::Answers)] {
        let mut board = Board::of(4, selecting(json!({"kind": "support"}), json!({"recheck": recheck})));
        for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b"), ("dan", "d")] {
            board.answer(10, who, 1, answer);
        }
        if !recheck {
            for who in ["bob", "cyd"] {
                board.answer(20, who, 2, "b");
            }
        }
        let finding = board.finding();
        assert_eq!((finding.stopped, finding.agreed, finding.of, &*finding.answer), (stopped, 2, 2, "b"));
        let shares: Vec<u64> = finding.panelists.iter().map(|one| one.importance_e12[0]).collect();
        assert_eq!(shares, [0, 500_000_000_000, 500_000_000_000, 0], "none of the dropped has any");
    }
}

#[test]
fn as_many_candidates_as_are_kept_or_fewer_all_go_on() {
    let mut board = Board::of(4, selecting(json!({"kind": "support"}), json!({})));
    for (who, answer) in [("ann", json!("a")), ("bob", json!("b")), ("cyd", json!(null)), ("dan", json!(null))] {
        board.say(10, who, Act::Answer, json!({"round": 1, "answer": answer}));
    }
    assert_eq!((board.wave().0, board.wave().1.len()), (2, 4));
    let mut few = Board::of(3, selecting(json!({"kind": "support"}), json!({})));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "c")] {
        few.answer(10, who, 1, answer);
    }
    assert_eq!(few.wave().1.len(), 3, "only panels of more than three seats drop any");
}

#[test]
fn a_dropped_seat_is_heard_no_more_but_told_the_end() {
    let mut board = Board::of(4, selecting(json!({"kind": "support"}), json!({"recheck": false})));
    for (who, answer) in [("ann", "a"), ("bob", "b"), ("cyd", "b"), ("dan", "d")] {
        board.answer(10, who, 1, answer);
    }
    for (act, payload) in [(Act::Answer, json!({"round": 2, "answer": "b"})), (Act::Refuse, json!({}))] {
        let texts = board.say(20, "ann", act, payload);
        assert_eq!(texts, ["ann<ack:out_of_turn", "ann<not_understood:not_asked"], "{act}");
    }
    board.answer(21, "bob", 2, "b");
    let texts = board.answer(22, "cyd", 2, "b");
    assert!(texts.contains(&"ann<closed:consensus:answers@closed".to_owned()), "{texts:?}");
    assert_eq!((board.asks("ann"), board.asks("dan")), (1, 1));
    for (who, other) in [("bob", "cyd"), ("cyd", "bob")] {
        let shown = board.ask(who).peers.unwrap_or_default();
        assert_eq!(shown.len(), 1, "{who} is shown {other} alone: {shown:?}");
    }
    for dropped in board.finding().panelists.iter().filter(|seat| ["ann", "dan"].contains(&seat.agent.as_str())) {
        assert_eq!((&dropped.importance_e12[..], dropped.agreed), (&[0, 0][..], false), "{}", dropped.agent);
    }
}

#[test]
fn at_the_hard_deadline_nobody_ranks_any_more() {
    let mut board = ranked_by("rex", json!({}));
    answer_all(&mut board, 1);
    board.script.tick(3 * ANSWER_MS + RANK_MS + 1);
    board.script.tick(9 * ANSWER_MS);
    let finding = board.finding();
    assert_eq!((finding.outcome, finding.round), (Outcome::Plurality, 1));
}

#[test]
fn panels_that_never_agree_ask_as_often_as_the_rules_bound() {
    for (seats, asks) in [(3, 9), (4, 11), (7, 17), (12, 27)] {
        let mut board = Board::empty();
        let mut rules =
            selecting(json!({"kind": "agent", "agent": "rex"}), json!({"after_round": 2, "recheck": false}));
        merge(&mut rules, json!({"asking": "quorum_first"}));
        let roles = PinnedPanel { ranker: Some(invitation("rex")), reviewers: Vec::new() };
        board.call_with(&SEATS[..seats], rules, json!({}), json!({}), Some(roles));
        let mut at_ms = 10;
        while board.script.lane_state.open_count() > 0 {
            let (round, wave) = board.wave();
            at_ms += 1;
            for who in wave {
                let payload = if who == "rex" { json!({"order": [1, 2]}) } else { json!({"answer": who}) };
                let mut payload: Value = payload;
                payload["round"] = json!(round);
                board.say(at_ms, &who, Act::Answer, payload);
            }
        }
        let heard: usize = SEATS.iter().chain(&["rex"]).map(|who| board.asks(who)).sum();
        let calls = board.finding().calls;
        assert_eq!((heard, calls.answers + calls.ranks), (asks, asks as u32), "{seats} seats");
    }
}

/// After the first round two go on, as an agent orders.
fn ranked_by(ranker: &str, change: Value) -> Board {
    let mut board = Board::empty();
    let rules = selecting(json!({"kind": "agent", "agent": ranker, "rank_ms": RANK_MS}), change);
    let roles = (ranker != "alice").then(|| PinnedPanel { ranker: Some(invitation(ranker)), reviewers: Vec::new() });
    board.call_with(&SEATS[..4], rules, json!({}), json!({}), roles);
    board
}

fn selecting(ranker: Value, change: Value) -> Value {
    let mut select = json!({"after_round": 1, "keep": 2, "ranker": ranker});
    merge(&mut select, change);
    json!({ "select": select })
}

/// Four seats answer a round with their names.
fn answer_all(board: &mut Board, round: u32) -> Vec<String> {
    let mut last = Vec::new();
    for who in &SEATS[..4] {
        last = board.say(10, who, Act::Answer, json!({"round": round, "answer": who, "text": format!("by {who}")}));
    }
    last
}
