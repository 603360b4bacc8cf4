//! Panels on their way in: who is pinned, and those that cannot be, each refused where its fault is and never logged.

use schemas::panel::{BLEU_SEATS_MAX, SEATS_MAX};
use serde_json::{Value, json};

use crate::rig::{Rig, cfp, code};

/// Name, message, status, code, pointer.
type Row = (&'static str, Value, u16, &'static str, &'static str);

const RANKER: &str = "/payload/panel/select/ranker/agent";
/// Where a call names its reviewers.
const REVIEWERS: [&str; 2] = ["/payload/panel/review/by/0", "/payload/panel/review/by/1"];

#[tokio::test]
async fn panels_that_cannot_be_are_refused_where_the_fault_is_and_never_logged() {
    let rig = start().await;
    for (name, message, status, expected, pointer) in
        calls().into_iter().chain(choosing_calls()).chain(reviewed_calls())
    {
        let (found, body) = rig.send("alice", &message).await;
        assert_eq!((found, code(&body)), (status, expected), "{name}: {body}");
        assert_eq!(body["pointer"].as_str(), Some(pointer), "{name}: {body}");
    }
    assert!(rig.logged().await.is_empty());
}

fn calls() -> Vec<Row> {
    let rules = |name: &'static str, rules: Value, status: u16, code: &'static str, pointer: &'static str| {
        (name, call(rules), status, code, pointer)
    };
    let select = |change: Value| {
        let mut select = json!({ "after_round": 2, "keep": 2 });
        merge(&mut select, change);
        json!({ "select": select })
    };
    let ranker = |agent: &str| select(json!({ "ranker": { "kind": "agent", "agent": agent } }));
    let beside = |name: &'static str, member: &'static str, value: Value, pointer| {
        let mut message = call(json!({}));
        message["payload"][member] = value;
        (name, message, 422_u16, "not_allowed", pointer)
    };
    let bargain = json!({ "issues": [{ "name": "price", "min": 0, "max": 9 }], "rounds": 1 });
    vec![
        beside("1 a bargain", "bargain", bargain, "/payload/bargain"),
        beside("1 a policy", "policy", json!("medium"), "/payload/policy"),
        beside("1 a team", "team", json!({}), "/payload/panel"),
        rules("2 no round", json!({ "rounds": 0 }), 422, "out_of_range", "/payload/panel/rounds"),
        rules("2 nine rounds", json!({ "rounds": 9 }), 422, "out_of_range", "/payload/panel/rounds"),
        rules("2 seventeen kept", select(json!({ "keep": 17 })), 422, "out_of_range", "/payload/panel/select/keep"),
        rules("2 a day and more", json!({ "answer_ms": 86_400_001 }), 422, "out_of_range", "/payload/panel/answer_ms"),
        rules(
            "3 after the last round",
            select(json!({ "after_round": 3 })),
            422,
            "not_allowed",
            "/payload/panel/select/after_round",
        ),
        rules(
            "3 consensus too late",
            json!({ "consensus_from": 4 }),
            422,
            "not_allowed",
            "/payload/panel/consensus_from",
        ),
        rules("5 too few seats", json!({ "min_seats": 3 }), 422, "no_recipient", "/envelope/to"),
        rules(
            "6 an unknown kind",
            json!({ "answer": { "kind": "poem" } }),
            422,
            "not_allowed",
            "/payload/panel/answer/kind",
        ),
        rules(
            "6 options alike",
            json!({ "answer": { "kind": "choice", "options": ["a", "A"] } }),
            422,
            "not_allowed",
            "/payload/panel/answer/options/1",
        ),
        rules(
            "7 a low bound",
            json!({ "answer": { "kind": "bleu", "at_least_permille": 849 } }),
            422,
            "out_of_range",
            "/payload/panel/answer/at_least_permille",
        ),
        rules("8 no name", select(json!({ "ranker": { "kind": "agent" } })), 422, "missing_field", RANKER),
        rules("8 nobody", ranker("nobody"), 422, "no_recipient", RANKER),
        rules("8 no consent", ranker("deaf"), 403, "no_consent", RANKER),
        rules("8 a seat", ranker("bob"), 422, "not_allowed", RANKER),
        rules("10 a dot", json!({ "domain": "a.b" }), 422, "bad_format", "/payload/panel/domain"),
    ]
}

fn choosing_calls() -> Vec<Row> {
    let row = |name: &'static str, rules: Value, status: u16, code: &'static str, pointer: &'static str| {
        (name, call(rules), status, code, pointer)
    };
    vec![
        row("nobody kept", json!({ "choose": { "keep": 0 } }), 422, "out_of_range", "/payload/panel/choose/keep"),
        row("too many kept", json!({ "choose": { "keep": 33 } }), 422, "out_of_range", "/payload/panel/choose/keep"),
        row(
            "no panels needed",
            json!({ "choose": { "keep": 2, "min_runs": 0 } }),
            422,
            "out_of_range",
            "/payload/panel/choose/min_runs",
        ),
        row(
            "nobody's panels",
            json!({ "choose": { "keep": 2, "from": { "agents": [] } } }),
            422,
            "out_of_range",
            "/payload/panel/choose/from/agents",
        ),
        row("none named", json!({ "choose": {} }), 422, "missing_field", "/payload/panel/choose/keep"),
        row(
            "5 a trial too small",
            json!({ "choose": { "keep": 4 }, "min_seats": 3 }),
            422,
            "no_recipient",
            "/envelope/to",
        ),
    ]
}

fn reviewed_calls() -> Vec<Row> {
    let row = |name: &'static str, rules: Value, status: u16, code: &'static str, pointer: &'static str| {
        (name, call(rules), status, code, pointer)
    };
    let mut once = reviewed_by(&["rex"]);
    once["rounds"] = json!(1);
    vec![
        row("9 a reviewer with a seat", reviewed_by(&["rex", "bob"]), 422, "not_allowed", REVIEWERS[1]),
        row("9 a reviewer that calls", reviewed_by(&["alice"]), 422, "not_allowed", REVIEWERS[0]),
        row("9 a reviewer that ranks", ranked_and_reviewed("rex", &["rex"]), 422, "not_allowed", REVIEWERS[0]),
        row("9 a reviewer named twice", reviewed_by(&["rex", "rex"]), 422, "not_allowed", REVIEWERS[1]),
        row("9 an unknown reviewer", reviewed_by(&["nobody"]), 422, "no_recipient", REVIEWERS[0]),
        row("9 a reviewer without consent", reviewed_by(&["deaf"]), 403, "no_consent", REVIEWERS[0]),
        row("9 nothing to review", once, 422, "not_allowed", "/payload/panel/review"),
        row("9 nobody reviews", reviewed_by(&[]), 422, "out_of_range", "/payload/panel/review/by"),
    ]
}

#[tokio::test]
async fn answers_that_cannot_be_are_refused_where_the_fault_is_and_never_logged() {
    let rig = start().await;
    let long = "\u{1}".repeat(1400);
    for (name, answer, expected, pointer) in [
        ("19 no round", json!({ "answer": "a" }), "missing_field", "/payload/round"),
        ("19 nothing", json!({ "round": 1 }), "missing_field", "/payload/answer"),
        ("19 two", json!({ "round": 1, "answer": "a", "order": [1] }), "not_allowed", "/payload/order"),
        (
            "21 too long",
            json!({ "round": 1, "answer": "a", "text": "x".repeat(8190) }),
            "out_of_range",
            "/payload/text",
        ),
        ("21 escaped", json!({ "round": 1, "answer": "a", "text": long }), "out_of_range", "/payload/text"),
        (
            "23 a rating of 6",
            json!({ "round": 2, "answer": "a", "ratings": [6] }),
            "out_of_range",
            "/payload/ratings/0",
        ),
        (
            "23 half a rating",
            json!({ "round": 2, "answer": "a", "ratings": [3.5] }),
            "wrong_type",
            "/payload/ratings/0",
        ),
        ("24 place 0", json!({ "round": 2, "order": [0] }), "out_of_range", "/payload/order/0"),
        ("19 order and reviews", json!({ "round": 1, "order": [1], "reviews": [] }), "not_allowed", "/payload/reviews"),
        (
            "21 a long review",
            json!({ "round": 1, "reviews": ["x".repeat(4100), "y".repeat(4100)] }),
            "out_of_range",
            "/payload/reviews",
        ),
        (
            "23 a reviewer's rating of 0",
            json!({ "round": 1, "reviews": ["a"], "ratings": [0] }),
            "out_of_range",
            "/payload/ratings/0",
        ),
        (
            "28 a use below 0",
            json!({ "round": 1, "answer": "a", "usage": { "calls": -1 } }),
            "out_of_range",
            "/payload/usage/calls",
        ),
        (
            "28 another use",
            json!({ "round": 1, "answer": "a", "usage": { "cost": 1 } }),
            "unknown_field",
            "/payload/usage/cost",
        ),
    ] {
        let (found, body) = rig.send("bob", &said(answer)).await;
        assert_eq!((found, code(&body)), (422, expected), "{name}: {body}");
        assert_eq!(body["pointer"].as_str(), Some(pointer), "{name}: {body}");
    }
    assert!(rig.logged().await.is_empty());
    let (status, body) = rig.send("bob", &said(json!({ "round": 1, "answer": "a", "text": "x".repeat(8100) }))).await;
    assert_eq!(status, 202, "{body}");
}

#[tokio::test]
async fn a_call_to_a_panel_pins_its_seats_and_the_agents_that_rank_and_review() {
    let rig = start().await;
    for (ranker, pinned, reviewers) in [("rex", Some("rex"), &["zoe", "kay"][..]), ("alice", None, &["rex"])] {
        let mut message = call(ranked_and_reviewed(ranker, reviewers));
        message["envelope"]["msg_id"] = json!(format!("by-{ranker}"));
        let (status, body) = rig.send("alice", &message).await;
        assert_eq!(status, 202, "{body}");
        assert!(body.get("policy").is_none(), "a panel has no acceptance policy: {body}");
        let logged = rig.logged().await;
        let last = logged.last().and_then(|one| one.pinned.clone()).unwrap();
        let seats: Vec<&str> = last.invited.iter().map(|one| one.agent.as_str()).collect();
        assert_eq!(seats, ["bob", "carol"]);
        let roles = last.panel.as_deref().unwrap();
        assert_eq!(roles.ranker.as_ref().map(|one| one.agent.as_str()), pinned);
        let found: Vec<&str> = roles.reviewers.iter().map(|one| one.agent.as_str()).collect();
        assert_eq!(found, reviewers, "in the order of the call");
    }
}

#[tokio::test]
async fn a_panel_holds_so_many_seats_and_no_more() {
    let rig = start().await;
    let names: Vec<String> = (0..=SEATS_MAX).map(|number| format!("s{number}")).collect();
    for name in &names {
        rig.register(name).await;
    }
    let addresses: Vec<String> = names.iter().map(|name| format!("agent://{name}")).collect();
    let of_kind = |kind: &str| json!({ "answer": { "kind": kind } });
    for (name, rules, max) in [
        ("exact", of_kind("exact"), SEATS_MAX),
        ("bleu", of_kind("bleu"), BLEU_SEATS_MAX),
        // Nobody has a reputation, so everybody has a seat.
        ("trial", json!({ "choose": { "keep": 1 } }), SEATS_MAX),
    ] {
        for (count, status) in [(max + 1, 422), (max, 202)] {
            let mut message = call(rules.clone());
            message["envelope"]["to"] = json!(addresses[..count]);
            message["envelope"]["msg_id"] = json!(format!("{name}-{count}"));
            let (found, body) = rig.send("alice", &message).await;
            assert_eq!(found, status, "{name} {count}: {body}");
            if status == 422 {
                assert_eq!((code(&body), body["pointer"].as_str()), ("out_of_range", Some("/envelope/to")));
            }
        }
    }
}

fn reviewed_by(agents: &[&str]) -> Value {
    json!({ "review": { "by": agents } })
}

fn ranked_and_reviewed(ranker: &str, reviewers: &[&str]) -> Value {
    let select = json!({ "after_round": 1, "keep": 1, "ranker": { "kind": "agent", "agent": ranker } });
    json!({ "select": select, "review": { "by": reviewers } })
}

/// Bob and carol take every call, and so do rex, kay and zoe; deaf takes none.
async fn start() -> Rig {
    let rig = Rig::start().await;
    for name in ["alice", "bob", "carol", "rex", "kay", "zoe"] {
        rig.register(name).await;
    }
    let deaf = json!({ "capabilities": ["haul"], "topics": [], "consent": { "default": "deny" } });
    rig.register_as("deaf", &deaf).await;
    rig
}

fn call(rules: Value) -> Value {
    let mut message = cfp("alice", "call", &["agent://bob", "agent://carol"]);
    message["payload"] = json!({ "act": "cfp", "task": "Which is prime?", "panel": rules });
    message
}

fn said(answer: Value) -> Value {
    let mut payload = json!({ "act": "answer" });
    merge(&mut payload, answer);
    json!({
        "envelope": {
            "msg_id": "a1", "ts": "2026-11-20T20:00:00.000Z", "from": "agent://bob", "negotiation": "alice~call"
        },
        "payload": payload
    })
}

fn merge(document: &mut Value, change: Value) {
    let Value::Object(change) = change else { panic!("members to merge") };
    for (name, value) in change {
        document[name] = value;
    }
}
