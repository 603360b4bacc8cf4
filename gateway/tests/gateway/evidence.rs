//! Evidence of panels at the gateway: served to whom it concerns, and pinned as reputation in calls.

use std::time::Duration;

use bytes::Bytes;
use schemas::{Lane, subject};
use serde_json::{Value, json};

use crate::rig::{PATIENCE, Rig, cfp, code};

const PATH: &str = "/v1/domains/algebra/evidence";

#[tokio::test]
async fn evidence_is_served_to_whom_it_concerns_and_nobody_can_write_it() {
    let rig = Rig::start().await;
    let mine = [entry("ann", "alice", 12, 18), entry("ann", "bob", 3, 3), entry("cyd", "bob", 4, 4)];
    store(&rig, 0, 7, &mine).await;
    store(&rig, 1, 2, &[entry("ann", "alice", 1, 1)]).await;
    let seen = until(&rig, 3).await;
    assert_eq!((seen["domain"].as_str(), seen["complete"].as_bool()), (Some("algebra"), Some(true)));
    assert_eq!(told(&seen), [("ann", "alice", 13), ("ann", "bob", 3), ("cyd", "bob", 4)], "the lanes added up");
    assert_eq!((&seen["entries"][0]["role"], &seen["entries"][0]["total_e12"]), (&json!("panelist"), &json!(19)));
    for (who, expected) in [
        ("ann", vec![("ann", "alice", 13), ("ann", "bob", 3)]),
        ("bob", vec![("ann", "bob", 3), ("cyd", "bob", 4)]),
        ("cyd", vec![("cyd", "bob", 4)]),
        ("eve", vec![]),
    ] {
        let (status, body) = rig.call("GET", PATH, Some(&rig.token(who)), None).await;
        assert_eq!((status, told(&body)), (200, expected), "{who}");
    }
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let (status, body) = rig.call(method, PATH, Some(&rig.admin_token()), Some(&json!({}))).await;
        assert_eq!((status, code(&body)), (405, "method_not_allowed"), "{method}");
    }
    assert_eq!(rig.call("GET", PATH, None, None).await.0, 401);
    let (status, body) = rig.call("GET", "/v1/domains/a.b/evidence", Some(&rig.token("ann")), None).await;
    assert_eq!((status, code(&body)), (404, "not_found"));
    let (_, elsewhere) = rig.call("GET", "/v1/domains/zoology/evidence", Some(&rig.admin_token()), None).await;
    assert_eq!(told(&elsewhere), []);

    // What an engine stores later replaces it; an earlier one does not.
    store(&rig, 0, 9, &[entry("ann", "alice", 30, 30)]).await;
    let later = until(&rig, 1).await;
    assert_eq!(told(&later), [("ann", "alice", 31)]);
}

#[tokio::test]
async fn a_call_pins_the_reputation_of_each_of_the_invited_as_evidence_is_then() {
    let rig = weighing().await;
    let evidence =
        |ann: u64| [entry("ann", "alice", 10, ann), entry("bob", "alice", 9, 90), entry("cyd", "dora", 99, 9)];
    store(&rig, 0, 1, &evidence(20)).await;
    until(&rig, 3).await;
    let call = |own: &str, policy: &str| {
        let mut message = cfp("alice", own, &["agent://ann", "agent://bob", "agent://cyd"]);
        message["payload"]["policy"] = json!(policy);
        message
    };
    assert_eq!(rig.send("alice", &call("first", "trusting")).await.0, 202);
    assert_eq!(rig.send("alice", &call("plain", "medium")).await.0, 202);
    store(&rig, 0, 2, &evidence(0)).await;
    until_counted(&rig, "ann", 0).await;
    assert_eq!(rig.send("alice", &call("second", "trusting")).await.0, 202);

    let logged = rig.logged().await;
    let pinned = |own: &str| -> Vec<Option<u64>> {
        let call = logged.iter().find(|message| message.negotiation.as_str().ends_with(own)).expect("it is logged");
        call.pinned.as_ref().unwrap().invited.iter().map(|invitation| invitation.reputation).collect()
    };
    let average = Some(1_000_000);
    assert_eq!(pinned("first"), [Some(1_500_000), average, average], "bob below min_runs, cyd in panels of others");
    assert_eq!(pinned("second"), [Some(500_000), average, average]);
    assert_eq!(pinned("plain"), [None, None, None]);
}

#[tokio::test]
async fn a_call_that_chooses_its_seats_pins_what_evidence_says_of_each_of_them_then() {
    let rig = weighing().await;
    let evidence = [entry("ann", "alice", 10, 20), entry("bob", "alice", 9, 90), entry("cyd", "dora", 99, 9)];
    store(&rig, 0, 1, &evidence).await;
    until(&rig, 3).await;
    let call = |own: &str, rules: Value| {
        let mut message = cfp("alice", own, &["agent://ann", "agent://bob", "agent://cyd"]);
        message["payload"] = json!({ "act": "cfp", "task": "Which is prime?", "panel": rules });
        message
    };
    for (own, rules) in [
        ("own", json!({ "domain": "algebra", "choose": { "keep": 1 } })),
        (
            "doras",
            json!({ "domain": "algebra", "choose": { "keep": 1, "from": { "agents": ["dora"] }, "min_runs": 99 } }),
        ),
        ("fewer", json!({ "domain": "algebra", "choose": { "keep": 1, "min_runs": 9 } })),
        ("elsewhere", json!({ "domain": "zoology", "choose": { "keep": 1 } })),
        ("general", json!({ "choose": { "keep": 1 } })),
        ("all", json!({ "domain": "algebra" })),
    ] {
        let (status, body) = rig.send("alice", &call(own, rules)).await;
        assert_eq!(status, 202, "{own}: {body}");
    }
    // One of them has a seat at most, so two are too many to ask for.
    let picky = json!({ "domain": "algebra", "choose": { "keep": 1, "newcomers": 0 }, "min_seats": 2 });
    let (status, body) = rig.send("alice", &call("picky", picky)).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "no_recipient", Some("/envelope/to")), "{body}");

    let logged = rig.logged().await;
    let pinned = |own: &str| -> Vec<Option<u64>> {
        let id = format!("alice~{own}");
        let call = logged.iter().find(|message| message.negotiation.as_str() == id).expect("it is logged");
        call.pinned.as_ref().unwrap().invited.iter().map(|invitation| invitation.reputation).collect()
    };
    assert_eq!(pinned("own"), [Some(1_500_000), None, None], "bob below min_runs, cyd in panels of others");
    assert_eq!(pinned("doras"), [None, None, Some(174_311)], "(9 · 99 + 10 · 99) / (99 · 109)");
    assert_eq!(pinned("fewer"), [Some(1_500_000), Some(5_263_157), None]);
    for own in ["elsewhere", "general", "all"] {
        assert_eq!(pinned(own), [None, None, None], "{own}");
    }
}

#[tokio::test]
async fn policies_that_weigh_reputation_are_whole_and_decide_no_tasks() {
    let rig = weighing().await;
    let faulty = [
        (json!({}), "missing_field", "/reputation/domain"),
        (json!({ "domain": "algebra", "min_runs": 0 }), "out_of_range", "/reputation/min_runs"),
        (json!({ "domain": "algebra", "prior_runs": 1_000_001 }), "out_of_range", "/reputation/prior_runs"),
        (json!({ "domain": "algebra", "from": { "agents": [] } }), "out_of_range", "/reputation/from/agents"),
        (json!({ "domain": "a.b" }), "bad_format", "/reputation/domain"),
        (json!({ "domain": "algebra", "since": 5 }), "unknown_field", "/reputation/since"),
    ];
    for (rule, expected, pointer) in faulty {
        let mut policy = serde_json::to_value(crate::rig::policy("faulty@1")).unwrap();
        policy["reputation"] = rule.clone();
        let (status, body) = rig.call("PUT", "/v1/policies/faulty@1", Some(&rig.admin_token()), Some(&policy)).await;
        assert_eq!((status, code(&body), body["pointer"].as_str()), (422, expected, Some(pointer)), "{rule}: {body}");
    }
    let mut team = cfp("alice", "paper", &["agent://ann"]);
    team["payload"]["team"] = json!({ "task_policy": "trusting" });
    let (status, body) = rig.send("alice", &team).await;
    let pointer = Some("/payload/team/task_policy");
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "not_allowed", pointer), "{body}");
}

/// A gateway with the policy `trusting`, which weighs reputation, and three that consent.
async fn weighing() -> Rig {
    let mut trusting = serde_json::to_value(crate::rig::policy("trusting@1")).unwrap();
    trusting["reputation"] = json!({ "domain": "algebra" });
    let trusting = serde_json::from_value(trusting).unwrap();
    let rig = Rig::with(|config| {
        config.policies.extend(policy_core::presets().into_iter().filter(|policy| policy.name().starts_with("team")));
        config.policies.push(trusting);
    })
    .await;
    for name in ["alice", "ann", "bob", "cyd"] {
        rig.register(name).await;
    }
    rig
}

/// What an engine stores of a lane, and tells.
async fn store(rig: &Rig, lane: u8, position: u64, entries: &[Value]) {
    let document = json!({ "position": position, "entries": entries }).to_string();
    let name = subject::evidence_document(Lane(lane));
    assert!(rig.bus.blobs.put(name, position, Bytes::from(document)).await.unwrap());
    let notice = Bytes::from(position.to_string());
    rig.bus.pub_sub.publish(subject::evidence(Lane(lane)), notice).await.unwrap();
}

/// What an administrator is shown once there are so many entries.
async fn until(rig: &Rig, entries: usize) -> Value {
    until_shown(rig, |seen| seen["entries"].as_array().is_some_and(|found| found.len() == entries)).await
}

async fn until_counted(rig: &Rig, agent: &str, total: u64) {
    until_shown(rig, |seen| seen["entries"][0]["agent"] == agent && seen["entries"][0]["total_e12"] == total).await;
}

async fn until_shown(rig: &Rig, is_there: impl Fn(&Value) -> bool) -> Value {
    let shown = async {
        loop {
            let (status, seen) = rig.call("GET", PATH, Some(&rig.admin_token()), None).await;
            assert_eq!(status, 200, "{seen}");
            if is_there(&seen) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.expect("the gateway follows what engines store")
}

fn told(seen: &Value) -> Vec<(&str, &str, u64)> {
    let entries = seen["entries"].as_array().expect("entries").iter();
    entries
        .map(|one| (one["agent"].as_str().unwrap(), one["initiator"].as_str().unwrap(), one["runs"].as_u64().unwrap()))
        .collect()
}

/// An agent in so many panels of an initiator, with so much importance where a fair share is one each.
fn entry(agent: &str, initiator: &str, runs: u64, total: u64) -> Value {
    json!({ "domain": "algebra", "agent": agent, "role": "panelist", "initiator": initiator, "runs": runs, "asked": runs,
        "replied": runs, "agreed": runs, "layers": runs, "total_e12": total, "fair_e12": runs,
        "usage": { "calls": 0, "prompt_tokens": 0, "completion_tokens": 0 } })
}
