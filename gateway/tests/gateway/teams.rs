//! Calls to teams on their way in: what is refused, and what is pinned.

use schemas::Act;
use serde_json::{Value, json};

use crate::rig::{Rig, cfp, code};

#[tokio::test]
async fn calls_to_teams_that_cannot_be_are_refused_where_the_fault_is_and_never_logged() {
    let rig = start().await;
    let rules = json!({ "issues": [{ "name": "price", "min": 0, "max": 9 }], "rounds": 3 });
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/payload/bargain", rules, "not_allowed"),
        ("/payload/mandate", json!({}), "not_allowed"),
        ("/payload/team/members/min", json!(1), "out_of_range"),
        ("/payload/team/members/max", json!(65), "out_of_range"),
        ("/payload/team/members/min", json!(9), "out_of_range"),
        ("/payload/team/turns", json!(0), "out_of_range"),
        ("/payload/team/turns", json!(1001), "out_of_range"),
        ("/payload/team/speak_ms", json!(99), "out_of_range"),
        ("/payload/team/ends_within_ms", json!(0), "out_of_range"),
        ("/payload/team/ends_within_ms", json!(86_400_001), "out_of_range"),
        ("/payload/team/ends_within_ms", json!(119_999), "out_of_range"),
        ("/payload/team/depth", json!(5), "out_of_range"),
        ("/payload/team/tasks", json!(65), "out_of_range"),
        ("/payload/team/vote/attempts", json!(6), "out_of_range"),
        ("/payload/team/leader", json!("bob"), "unknown_field"),
        ("/payload/team/vote/quorum", json!(1), "unknown_field"),
        ("/payload/policy", json!("unheard-of"), "unknown_policy"),
        ("/payload/policy", json!("bargain-low"), "not_allowed"),
        ("/payload/team/task_policy", json!("unheard-of"), "unknown_policy"),
        ("/payload/team/task_policy", json!("bargain-low"), "not_allowed"),
        ("/payload/team/task_policy", json!("two"), "not_allowed"),
    ];
    for (pointer, value, expected) in cases {
        let mut message = call();
        set(&mut message, pointer, value);
        let (status, body) = rig.send("alice", &message).await;
        assert_eq!((status, code(&body), body["pointer"].as_str()), (422, expected, Some(pointer)), "{body}");
    }
    assert!(rig.logged().await.is_empty());
}

#[tokio::test]
async fn a_team_reaches_those_that_are_there_and_consent_and_at_most_so_many() {
    let rig = start().await;
    let to = |addresses: Value| {
        let mut message = call();
        message["envelope"]["to"] = addresses;
        message
    };
    let (status, body) = rig.send("alice", &to(json!(["agent://nobody"]))).await;
    assert_eq!((status, code(&body)), (422, "no_recipient"), "{body}");
    let (status, body) = rig.send("alice", &to(json!(["agent://shy"]))).await;
    assert_eq!((status, code(&body)), (403, "no_consent"), "{body}");
    let names: Vec<String> = (0..=schemas::team::INVITED_MAX).map(|number| format!("p{number}")).collect();
    for name in &names {
        rig.register(name).await;
    }
    let addresses: Vec<String> = names.iter().map(|name| format!("agent://{name}")).collect();
    let (status, body) = rig.send("alice", &to(json!(addresses))).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "out_of_range", Some("/envelope/to")), "{body}");
}

#[tokio::test]
async fn a_sub_team_chooses_no_id_and_gets_the_one_of_its_award() {
    let rig = start().await;
    let mut message = call();
    message["payload"]["team"]["of"] = json!({ "task": "alice~paper~t2", "award_no": 1 });
    let (status, body) = rig.send("alice", &message).await;
    let pointer = Some("/envelope/negotiation");
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "not_allowed", pointer), "{body}");
    message["envelope"].as_object_mut().unwrap().remove("negotiation");
    let (status, body) = rig.send("alice", &message).await;
    assert_eq!((status, body["negotiation"].as_str()), (202, Some("alice~paper~s2-1")), "{body}");
    message["payload"]["team"]["of"]["task"] = json!("a~b~s1-1~s1-1~s1-1~s1-1~t1");
    let (status, body) = rig.send("alice", &message).await;
    assert_eq!(
        (status, code(&body), body["pointer"].as_str()),
        (422, "bad_format", Some("/payload/team/of")),
        "{body}"
    );
}

#[tokio::test]
async fn ids_that_no_family_has_are_refused() {
    let rig = start().await;
    for id in ["a~b~t0", "a~b~t01", "a~b~t65", "a~b~x1", "a~b~t1~t2", "a~b~s1", "a~b~s1-0"] {
        let message = said("bob", "m1", id, json!({ "act": "say", "text": "x" }));
        let (status, body) = rig.send("bob", &message).await;
        let refused = (status, code(&body), body["pointer"].as_str());
        assert_eq!(refused, (422, "bad_format", Some("/envelope/negotiation")), "{id}: {body}");
    }
}

#[tokio::test]
async fn what_a_team_runs_under_and_what_its_members_can_do_is_pinned() {
    let rig = start().await;
    assert_eq!(rig.send("alice", &call()).await.0, 202);
    let join = said("bob", "j1", "alice~paper", json!({ "act": "join", "terms": { "fit": 5 } }));
    assert_eq!(rig.send("bob", &join).await.0, 202);
    let task = json!({ "title": "figures", "text": "draw them" });
    let assign = json!({ "act": "assign", "mode": "async", "policy": "team-task", "tasks": [task] });
    assert_eq!(rig.send("alice", &said("alice", "a1", "alice~paper", assign)).await.0, 202);
    let logged = rig.logged().await;
    let (called, joined, assigned) = (&logged[0], &logged[1], &logged[2]);
    let pinned = called.pinned.as_ref().expect("a call pins");
    let task_policy = pinned.task_policy.as_ref().expect("a policy of tasks");
    assert_eq!((task_policy.policy.id.as_str(), pinned.invited.len()), ("team-task@1", 2));
    assert_eq!((joined.act, joined.capabilities[0].as_str(), &joined.pinned), (Act::Join, "haul", &None));
    assert_eq!(assigned.pinned.as_ref().map(|pinned| pinned.policy.id.as_str()), Some("team-task@1"));
}

async fn start() -> Rig {
    let mut two = policy_core::preset("team-task").unwrap();
    (two.id, two.awards) = ("two@1".to_owned(), 2);
    let rig = Rig::with(|config| {
        config.policies.extend(policy_core::presets().into_iter().filter(|policy| policy.name() != "medium"));
        config.policies.push(two);
    })
    .await;
    rig.register("alice").await;
    for name in ["bob", "carol"] {
        rig.register_as(name, &json!({ "capabilities": ["haul"], "consent": open() })).await;
    }
    rig.register_as("shy", &json!({ "capabilities": ["haul"], "consent": { "default": "deny" } })).await;
    rig
}

fn open() -> Value {
    json!({ "default": "allow" })
}

/// Alice's call to a team with bob and carol.
fn call() -> Value {
    let mut message = cfp("alice", "paper", &["agent://bob", "agent://carol"]);
    let team = json!({ "vote": { "of": "all" } });
    message["payload"] = json!({ "act": "cfp", "task": "write", "reply_within_ms": 1000, "team": team });
    message["envelope"]["negotiation"] = json!("paper");
    message
}

fn said(from: &str, msg_id: &str, negotiation: &str, payload: Value) -> Value {
    let mut message = cfp(from, msg_id, &[]);
    message["envelope"]["negotiation"] = json!(negotiation);
    message["payload"] = payload;
    message
}

/// Sets a member, and the objects on the way to it.
fn set(message: &mut Value, pointer: &str, value: Value) {
    let mut at = message;
    for name in pointer.split('/').skip(1) {
        at = &mut at[name];
    }
    *at = value;
}
