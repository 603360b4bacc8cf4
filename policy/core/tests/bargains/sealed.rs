//! Nothing of a mandate leaves: no delivery, register entry, notice, event or view shows any of it, and nothing that is
//! printed for debugging does.

use schemas::Act;
use schemas::policy::BargainRule;
use serde_json::{Value, json};

use crate::haggle::{Haggle, delegate};
use crate::script::{Script, agent};

/// Numbers and names that occur nowhere else.
const MARKS: [&str; 5] = ["777123", "888123", "4242", "zebra-policy", "sealed-policy"];

fn marked() -> Value {
    json!({
        "policy": "sealed-policy", "reservation": 777_123, "concession": {"boulware": 7},
        "utility": {"linear": [
            {"issue": "price", "weight": 500, "at_min": 888_123, "at_max": 1_000_000},
            {"issue": "colour", "weight": 500, "worth": [999_999, 888_123]},
        ]},
        "limits": [{"attr": "price", "op": "ne", "value": 4242}, {"attr": "colour", "op": "ne", "value": "zebra-policy"}],
    })
}

#[test]
fn no_effect_view_or_debug_output_shows_anything_of_a_mandate() {
    let mut haggle = played();
    let views: Vec<String> = ["alice", "bob"]
        .iter()
        .filter_map(|who| haggle.script.lane_state.view(&haggle.script.negotiation, &agent(who)))
        .map(|view| serde_json::to_string(&view).unwrap() + &format!("{view:?}"))
        .collect();
    assert_eq!(views.len(), 2);
    let lane_state = format!("{:?}", haggle.script.lane_state);
    haggle.end(90, "alice");
    for shown in
        views.into_iter().chain([lane_state, format!("{:?}", haggle.script.lane_state), haggle.everything_shown()])
    {
        for mark in MARKS {
            assert!(!shown.contains(mark), "{mark} shows in {shown}");
        }
    }
}

#[test]
fn what_is_told_does_not_depend_on_the_policy_of_a_mandate() {
    let calls: Vec<String> = ["1@1", "another@2"]
        .into_iter()
        .map(|id| {
            let mut haggle = Haggle::empty();
            let mut policy = delegate(BargainRule::Any);
            (policy.id, policy.timers_ms.collect) = (id.to_owned(), 777);
            let name = id.split('@').next().unwrap();
            let mandate = json!({"policy": name, "utility": {"table": [1, 2]}});
            let issues = json!([{"name": "price", "values": [1, 2]}]);
            let payload = json!({"bargain": {"issues": issues, "rounds": 3}, "mandate": mandate});
            haggle.script.call(0, policy, &["bob"], payload, json!({}));
            format!("{:?}", haggle.script.last("bob", Act::Cfp).told)
        })
        .collect();
    assert_eq!(calls[0], calls[1]);
}

/// A bargain in which everything was refused for a mandate that can be, and a policy has been asked.
fn played() -> Haggle {
    let issues =
        json!([{"name": "price", "min": 0, "max": 5000}, {"name": "colour", "values": ["red", "zebra-horse"]}]);
    let mut policy = delegate(BargainRule::Next { any_from_round: 900 });
    "sealed-policy@1".clone_into(&mut policy.id);
    let mut haggle =
        Haggle::under(&["alice", "bob"], json!({"issues": issues}), |_| Some((marked(), Some(policy.clone()))));
    let script: &mut Script = &mut haggle.script;
    let offer = |price: i64| json!({"terms": {"price": price, "colour": "red"}});
    assert_eq!(script.say(20, "alice", Act::Offer, offer(4241))[0], "alice<ack:ok");
    let standing = script.offer_id("alice");
    let accept = json!({"offer_id": standing, "terms_digest": "0".repeat(64)});
    script.say(21, "bob", Act::Accept, accept);
    assert_eq!(script.say(22, "bob", Act::Offer, offer(0))[0], "bob<ack:ok");
    haggle
}
