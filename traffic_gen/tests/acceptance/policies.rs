//! Policies are data: one HTTP call switches them, for new negotiations only.

use schemas::Policy;
use schemas::delivery::{CloseReason, Notification, Outcome};
use serde_json::{Value, json};

use crate::party::{Party, UNIT};
use crate::rig::{Rig, policy};

const COURIERS: &[&str] = &["agent://bob", "agent://carol"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_between_two_rounds_leaves_the_running_negotiation_its_policy_and_gives_the_next_the_new_one() {
    let rig = Rig::start().await;
    rig.put_as_admin("/v1/policies/default", &json!({ "policy": "high" })).await;
    let (mut alice, mut bob, mut carol) = (rig.join("alice").await, rig.join("bob").await, rig.join("carol").await);

    let running = alice.call("running", COURIERS, &json!({})).await;
    bob.offer(&running, 70).await;
    rig.put_as_admin("/v1/policies/default", &json!({ "policy": "low" })).await;
    let next = alice.call("next", COURIERS, &json!({})).await;
    bob.offer(&next, 70).await;
    let awarded = alice.awarded(&next).await;
    assert_eq!((awarded.reason, awarded.offers), (CloseReason::KValid, 1), "the next one runs under `low`");

    // Under `low` the running one would have closed at its first offer; it still waits for everybody.
    assert_eq!(policy_of(&rig, &alice, &running).await, json!("high@1"));
    assert_eq!(rig.control.read::<Value>(&path(&running), &token(&alice)).await.unwrap()["state"], "collecting");
    carol.offer(&running, 60).await;
    let awarded = alice.awarded(&running).await;
    assert_eq!((awarded.reason, awarded.offers), (CloseReason::AllResponded, 2));
    assert_eq!(awarded.contractor.as_str(), "carol");
    carol.perform(&running).await;
    bob.perform(&next).await;
    for negotiation in [&running, &next] {
        assert_eq!(alice.closed(negotiation).await.outcome, Outcome::Completed);
    }
    for (negotiation, id) in [(&running, "high@1"), (&next, "low@1")] {
        let told = carol.told(negotiation, "CFP", called_under).await;
        assert_eq!(told, id, "contractors are told what they are called under");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_of_a_policy_is_put_without_a_restart_and_pins_new_calls_only() {
    let rig = Rig::with_policies(vec![cheap("cheap@1", 100 * UNIT)]).await;
    let (mut alice, mut bob) = (rig.join("alice").await, rig.join("bob").await);
    let cfp = json!({ "policy": "cheap" });
    let before = alice.call("before", &["agent://bob"], &cfp).await;
    let admin = rig.exchange.admin_token().unwrap();
    rig.control.put_policy(&admin, &cheap("cheap@2", 50 * UNIT)).await.unwrap();
    let after = alice.call("after", &["agent://bob"], &cfp).await;
    // 80 is within the mandate of the first version and beyond that of the second.
    assert_eq!(bob.offer(&before, 80).await.disposition.as_str(), "ok");
    assert_eq!(bob.offer(&after, 80).await.disposition.as_str(), "policy_reject");
    assert_eq!(bob.reject(&after).await.code.as_deref(), Some("price.max"));
    assert_eq!(bob.told(&before, "CFP", called_under).await, "cheap@1");
    assert_eq!(bob.told(&after, "CFP", called_under).await, "cheap@2");
}

#[tokio::test]
async fn only_an_operator_switches() {
    let rig = Rig::start().await;
    let token = rig.identity("mallory").token.current();
    let refused = rig.control.put("/v1/policies/default", &token, &json!({ "policy": "low" })).await;
    assert!(refused.unwrap_err().to_string().starts_with("unauthorized"));
    let default: Value = rig.control.read("/v1/policies/default", &token).await.unwrap();
    assert_eq!(default, json!({ "policy": "medium" }));
}

fn cheap(id: &str, price_max: i64) -> Policy {
    policy(id, |policy| policy.gates[0].max = Some(price_max))
}

fn called_under(told: &Notification) -> Option<String> {
    if let Notification::Cfp(call) = told { Some(call.policy.clone()) } else { None }
}

async fn policy_of(rig: &Rig, viewer: &Party, negotiation: &str) -> Value {
    let view: Value = rig.control.read(&path(negotiation), &token(viewer)).await.unwrap();
    view["policy"].clone()
}

fn path(negotiation: &str) -> String {
    format!("/v1/negotiations/{negotiation}")
}

fn token(viewer: &Party) -> String {
    viewer.identity.token.current()
}
