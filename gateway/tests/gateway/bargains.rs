//! Bargains on their way in: what is pinned to calls and joinings, and how many take part.

use schemas::bargain::PARTIES_MAX;
use schemas::{Act, Policy};
use serde_json::{Value, json};

use crate::rig::{Rig, cfp, code};

#[tokio::test]
async fn a_call_to_a_bargain_pins_its_parties_and_the_policy_of_its_mandate() {
    let rig = start().await;
    let (status, body) = rig.send("alice", &call(|m| m["payload"]["mandate"] = mandate("bargain-low"))).await;
    assert_eq!(status, 202, "{body}");
    let (status, body) = rig.send("alice", &renamed(call(|_| {}), "own-hand")).await;
    assert_eq!(status, 202, "{body}");

    let pinned = pinned(&rig).await;
    let expected = [
        (Act::Cfp, Some(("bargain-low@1".to_owned(), vec!["bob".to_owned(), "carol".to_owned()]))),
        (Act::Cfp, Some(("medium@1".to_owned(), vec!["bob".to_owned(), "carol".to_owned()]))),
    ];
    assert_eq!(pinned, expected, "without a mandate the default stands there");
}

#[tokio::test]
async fn a_joining_pins_the_policy_of_its_mandate_and_nothing_without_one() {
    let rig = start().await;
    for (msg_id, payload) in [
        ("j1", json!({ "act": "join", "mandate": mandate("bargain-low@1") })),
        ("j2", json!({ "act": "join", "mandate": { "limits": [] } })),
        ("j3", json!({ "act": "join" })),
        ("e1", json!({ "act": "end" })),
    ] {
        let (status, body) = rig.send("bob", &said("bob", msg_id, payload)).await;
        assert_eq!(status, 202, "{body}");
    }
    let pinned = pinned(&rig).await;
    let expected = [
        (Act::Join, Some(("bargain-low@1".to_owned(), Vec::new()))),
        (Act::Join, None),
        (Act::Join, None),
        (Act::End, None),
    ];
    assert_eq!(pinned, expected);
}

#[tokio::test]
async fn a_bargain_holds_so_many_parties_and_no_more() {
    let rig = start().await;
    let names: Vec<String> = (0..PARTIES_MAX).map(|number| format!("p{number}")).collect();
    for name in &names {
        rig.register(name).await;
    }
    let addresses: Vec<String> = names.iter().map(|name| format!("agent://{name}")).collect();
    let to = |count: usize| call(|m| m["envelope"]["to"] = json!(addresses[..count]));
    let (status, body) = rig.send("alice", &to(PARTIES_MAX)).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "out_of_range", Some("/envelope/to")));
    assert_eq!(body["expected"], "at most 63 agents");
    assert_eq!(rig.send("alice", &to(PARTIES_MAX - 1)).await.0, 202);
}

#[tokio::test]
async fn a_policy_for_bargains_only_cannot_become_what_calls_get() {
    let rig = start().await;
    let admin = rig.admin_token();
    let switch = json!({ "policy": "bargain-low" });
    let (status, body) = rig.call("PUT", "/v1/policies/default", Some(&admin), Some(&switch)).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "not_allowed", Some("/policy")), "{body}");
    let (_, body) = rig.call("GET", "/v1/policies/default", Some(&admin), None).await;
    assert_eq!(body["policy"], "medium");
}

#[tokio::test]
async fn an_agent_that_joins_gets_the_version_that_is_current_then() {
    let rig = start().await;
    let admin = rig.admin_token();
    let second = json!({ "id": "bargain-low@2", "bargain": { "next": { "any_from_round": 2 } } });
    assert_eq!(rig.send("bob", &said("bob", "j1", join(mandate("bargain-low")))).await.0, 202);
    let (status, body) = rig.call("PUT", "/v1/policies/bargain-low@2", Some(&admin), Some(&second)).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(rig.send("carol", &said("carol", "j1", join(mandate("bargain-low")))).await.0, 202);
    let ids: Vec<_> = pinned(&rig).await.into_iter().map(|(_, pinned)| pinned.unwrap().0).collect();
    assert_eq!(ids, ["bargain-low@1", "bargain-low@2"]);
}

/// A gateway with a policy for bargains, and bob and carol, who take every call.
pub(crate) async fn start() -> Rig {
    let low: Policy = serde_json::from_value(json!({ "id": "bargain-low@1", "bargain": "any" })).unwrap();
    let rig = Rig::with(|config| config.policies.push(low)).await;
    rig.register("bob").await;
    rig.register("carol").await;
    rig.register_as("deaf", &json!({ "capabilities": ["haul"] })).await;
    rig
}

pub(crate) fn price() -> Value {
    json!({ "name": "price", "min": 0, "max": 100 })
}

/// Alice's call to a bargain with bob and carol, changed.
pub(crate) fn call(change: impl FnOnce(&mut Value)) -> Value {
    let mut message = cfp("alice", "deal", &["agent://bob", "agent://carol"]);
    message["payload"]["bargain"] = json!({ "issues": [price()], "rounds": 10 });
    change(&mut message);
    message
}

fn renamed(mut message: Value, msg_id: &str) -> Value {
    message["envelope"]["msg_id"] = json!(msg_id);
    message
}

/// A mandate that likes low prices, and the policy that accepts under it.
pub(crate) fn mandate(policy: &str) -> Value {
    let worth = json!([{ "issue": "price", "weight": 1000, "at_min": 1_000_000, "at_max": 0 }]);
    json!({ "policy": policy, "utility": { "linear": worth }, "reservation": 250_000 })
}

/// A joining under a mandate.
pub(crate) fn join(mandate: Value) -> Value {
    json!({ "act": "join", "mandate": mandate })
}

/// A message in alice's bargain.
pub(crate) fn said(from: &str, msg_id: &str, payload: Value) -> Value {
    json!({
        "envelope": {
            "msg_id": msg_id, "ts": "2026-11-20T20:00:00.000Z", "from": format!("agent://{from}"),
            "negotiation": "alice~deal"
        },
        "payload": payload
    })
}

/// Of every logged message: act, and policy and invited of what is pinned to it.
async fn pinned(rig: &Rig) -> Vec<(Act, Option<(String, Vec<String>)>)> {
    let told = |message: schemas::record::AdmittedMessage| {
        let pinned = message.pinned.map(|pinned| {
            let invited = pinned.invited.iter().map(|invitation| invitation.agent.to_string()).collect();
            (pinned.policy.id.clone(), invited)
        });
        (message.act, pinned)
    };
    let mut logged = rig.logged().await;
    logged.sort_by_key(|message| message.negotiation.to_string());
    logged.into_iter().map(told).collect()
}
