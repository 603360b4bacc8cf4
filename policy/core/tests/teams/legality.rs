//! Every act of every party in every state: what it is answered, and whether it changes the team
//! (docs/spec/team.md#what-is-legal).

use schemas::{Act, NegotiationId};
use serde_json::{Value, json};

use crate::gathering::{BEGIN_MS, Gathering};

/// The states, in the order of the cells of a row.
const STATES: [&str; 4] = ["forming", "discussing", "concluding", "voting"];

/// In what state a team is brought.
fn in_state(state: &str) -> Gathering {
    let mut gathering = Gathering::empty();
    let rules = json!({
        "turns": if state == "concluding" { 1 } else { 8 }, "members": {"max": 4},
        "vote": if state == "voting" { json!({"of": "all"}) } else { Value::Null },
    });
    gathering.call(&["bob", "carol", "dan", "erin"], rules, json!({}));
    if state == "forming" {
        gathering.say(BEGIN_MS, "bob", Act::Join, json!({}));
        return gathering;
    }
    for who in ["bob", "carol", "dan"] {
        gathering.say(BEGIN_MS, who, Act::Join, json!({}));
    }
    gathering.say(11, "dan", Act::End, json!({}));
    match state {
        "concluding" => drop(gathering.speak(12, "alice")),
        "voting" => drop(gathering.conclude(12, "alice")),
        _ => {}
    }
    gathering
}

/// Act, payload, sender, and what it is answered in each state.
const ROWS: &[(Act, &str, &str, [&str; 4])] = &[
    (Act::Say, r#"{"text": "x"}"#, "alice", ["out_of_turn", "ok", "out_of_turn", "out_of_turn"]),
    (Act::Say, r#"{"text": "x"}"#, "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Say, r#"{"text": "x"}"#, "dan", ["out_of_turn", "closed", "closed", "closed"]),
    (Act::Say, r#"{"text": "x"}"#, "erin", ["out_of_turn", "closed", "closed", "closed"]),
    (Act::Say, r#"{"text": "x"}"#, "mallory", ["unauthorized", "unauthorized", "unauthorized", "unauthorized"]),
    (Act::Say, r#"{"text": "x", "turn": 7}"#, "alice", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Conclude, r#"{"text": "x"}"#, "alice", ["out_of_turn", "ok", "ok", "out_of_turn"]),
    (Act::Conclude, r#"{"text": "x"}"#, "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Pause, r#"{"triggers": [1]}"#, "alice", ["out_of_turn", "malformed", "out_of_turn", "out_of_turn"]),
    (Act::Join, "{}", "alice", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Join, "{}", "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Join, "{}", "dan", ["ok", "closed", "closed", "closed"]),
    (Act::Join, "{}", "erin", ["ok", "late", "late", "late"]),
    (Act::Join, "{}", "mallory", ["unauthorized", "unauthorized", "unauthorized", "unauthorized"]),
    (Act::Refuse, "{}", "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "ok"]),
    (Act::Refuse, "{}", "erin", ["ok", "closed", "closed", "closed"]),
    (Act::NotUnderstood, "{}", "erin", ["ok", "closed", "closed", "closed"]),
    (Act::End, "{}", "bob", ["ok", "ok", "ok", "ok"]),
    (Act::Cancel, "{}", "alice", ["ok", "ok", "ok", "ok"]),
    (Act::Cancel, "{}", "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Offer, r#"{"terms": {}}"#, "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Confirm, r#"{"award_no": 1}"#, "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Inform, r#"{"kind": "done"}"#, "alice", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
    (Act::Withdraw, "{}", "bob", ["out_of_turn", "out_of_turn", "out_of_turn", "out_of_turn"]),
];

#[test]
fn every_act_is_legal_or_refused_as_its_row_says() {
    for (act, payload, who, answers) in ROWS {
        for (state, answer) in STATES.iter().zip(answers) {
            let mut gathering = in_state(state);
            let payload: Value = serde_json::from_str(payload).expect("a payload");
            let told = gathering.script.deliveries.len();
            let texts = gathering.say(20, who, *act, payload);
            assert_eq!(texts[0], format!("{who}<ack:{answer}"), "{act} of {who} while {state}: {texts:?}");
            if *answer != "ok" {
                let others = gathering.script.deliveries[told..].iter().filter(|deliver| deliver.to.as_str() != *who);
                assert_eq!(others.count(), 0, "{act} of {who} while {state}: others hear nothing");
            }
        }
    }
}

#[test]
fn an_earlier_turn_costs_no_strike_and_a_later_one_is_none_that_began() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({"max_strikes": 1}));
    gathering.speak(20, "alice");
    let say = |turn: u32| json!({"text": "x", "turn": turn});
    assert_eq!(gathering.say(21, "alice", Act::Say, say(1)), ["alice<ack:stale_round"]);
    assert_eq!(
        gathering.say(22, "alice", Act::Say, say(3)),
        ["alice<ack:out_of_turn", "alice<not_understood:bad_round"]
    );
    assert!(gathering.floor("alice").muted.is_empty());
    assert_eq!(gathering.say(23, "bob", Act::Say, say(2))[0], "bob<ack:ok");
}

#[test]
fn a_message_that_comes_again_is_a_duplicate_and_another_body_a_conflict() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    let id = json!({"msg_id": "once"});
    gathering.script.say_with(20, "alice", Act::Say, json!({"text": "x"}), id.clone());
    let again = gathering.script.say_with(21, "alice", Act::Say, json!({"text": "x"}), id.clone());
    assert_eq!(again, ["alice<ack:duplicate:ok"]);
    let other = gathering.script.say_with(22, "alice", Act::Say, json!({"text": "y"}), id);
    assert_eq!(other, ["alice<ack:conflict:ok"]);
    assert_eq!(gathering.floor("bob").step, 2);
}

#[test]
fn an_id_that_never_was_is_answered_like_a_strangers() {
    let mut gathering = Gathering::of(&["alice", "bob"], json!({}));
    for id in ["alice~job~t1", "alice~job~s1-1", "alice~other"] {
        gathering.script.negotiation = NegotiationId::try_new(id).expect("an id");
        assert_eq!(gathering.speak(20, "alice"), ["alice<ack:unauthorized"], "{id}");
    }
}
