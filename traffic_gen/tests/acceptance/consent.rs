//! No consent, no delivery; `ask`; groups and the quality of service of their calls.

use std::collections::BTreeSet;

use bus::Received;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use policy_engine::OutboxConfig;
use schemas::control::{Consent, ConsentEffect, ConsentRule, Group, Registration};
use schemas::record::Qos;
use schemas::{Act, GroupId, subject};
use serde_json::{Value, json};
use traffic_gen::exchange::ExchangeOptions;

use crate::rig::{Rig, agent, open_registration, registration, until};

const COURIERS: &[&str] = &["topic://courier"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_consent_or_a_common_capability_nothing_is_delivered_and_the_initiator_is_told_how_many() {
    let rig = Rig::start().await;
    let mut everything = rig.exchange.bus.pub_sub.subscribe(subject::ALL_INBOXES.to_owned(), None).await.unwrap();
    let (mut alice, mut bob) = (rig.join("alice").await, rig.join("bob").await);
    rig.register("denies", &registration(ConsentEffect::Deny, &["haul"])).await;
    rig.register("asks", &registration(ConsentEffect::Ask, &["haul"])).await;
    rig.register("paints", &registration(ConsentEffect::Allow, &["paint"])).await;
    let mut wary = open_registration();
    let rule =
        ConsentRule { effect: ConsentEffect::Deny, topic: None, counterpart: Some(agent("alice")), protocol: None };
    wary.consent.rules.push(rule);
    rig.register("wary-of-alice", &wary).await;

    let mut document = alice.call_document("job", &[COURIERS[0], "agent://unregistered"], &json!({ "policy": "high" }));
    document["envelope"]["capabilities"] = json!(["haul"]);
    let msg_id = alice.send(&document).await;
    let receipt = alice.receipt(&msg_id).await;
    // alice subscribes too, but does not call herself.
    assert_eq!((receipt.invited, receipt.left_out), (Some(1), Some(4)));
    bob.offer("alice~job", 50).await;
    bob.perform("alice~job").await;
    alice.closed("alice~job").await;

    // bob has performed and alice knows the end: whatever was to be delivered has been published.
    assert_eq!(addressed(&mut everything), ["alice", "bob"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_would_reach_nobody_is_refused_with_the_reason() {
    let rig = Rig::start().await;
    let mut alice = rig.join("alice").await;
    rig.register("denies", &registration(ConsentEffect::Deny, &["haul"])).await;
    rig.register("asks", &registration(ConsentEffect::Ask, &["haul"])).await;
    let rows = [
        ("all deny or ask", COURIERS[0], json!([]), (403, "no_consent")),
        ("one denies", "agent://denies", json!(["haul"]), (403, "no_consent")),
        ("no common capability", COURIERS[0], json!(["paint"]), (422, "no_recipient")),
        ("nobody registered", "agent://nobody", json!([]), (422, "no_recipient")),
        ("only the sender", "agent://alice", json!([]), (422, "no_recipient")),
        ("no such group", "group://none", json!([]), (422, "no_recipient")),
    ];
    for (number, (name, to, capabilities, expected)) in rows.into_iter().enumerate() {
        let mut document = alice.call_document(&format!("job-{number}"), &[to], &json!({}));
        document["envelope"]["capabilities"] = capabilities;
        let (status, body) = alice.post(&document).await;
        assert_eq!((status, body["code"].as_str().unwrap()), expected, "{name}: {body}");
    }
    assert!(rig.engine_events().await.len() == rig.logged().await.len(), "nothing but the engine's claims is logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_to_be_asked_about_is_noted_for_the_owner_and_delivered_once_it_is_allowed() {
    let rig = Rig::start().await;
    let mut alice = rig.join("alice").await;
    let mut erin = rig.join_as("erin", &registration(ConsentEffect::Ask, &["haul"])).await;
    let document = alice.call_document("before", COURIERS, &json!({}));
    assert_eq!(alice.post(&document).await.0, 403);

    let token = erin.identity.token.current();
    let requests = until("the request is noted", async || {
        let noted: Value = rig.control.read("/v1/agents/erin/consent/requests", &token).await.unwrap();
        noted["requests"].as_array().filter(|requests| !requests.is_empty()).cloned()
    })
    .await;
    assert_eq!(requests.len(), 1);
    assert_eq!((&requests[0]["counterpart"], &requests[0]["topic"]), (&json!("alice"), &json!("courier")));
    assert!(erin.heard.is_empty());

    let allow =
        ConsentRule { effect: ConsentEffect::Allow, topic: None, counterpart: Some(agent("alice")), protocol: None };
    let consent = Consent { default: ConsentEffect::Ask, rules: vec![allow] };
    rig.control.put("/v1/agents/erin/consent", &token, &consent).await.unwrap();
    let negotiation = alice.call("after", COURIERS, &json!({})).await;
    erin.offer(&negotiation, 50).await;
    assert_eq!(erin.count(Act::Cfp), 1, "the call that was not allowed was never delivered");
    let noted: Value = rig.control.read("/v1/agents/erin/consent/requests", &token).await.unwrap();
    assert_eq!(noted, json!({ "requests": [] }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_reaches_its_members_and_only_them_with_the_quality_of_service_it_has() {
    let outbox = OutboxConfig { retry_base_ms: 40, ..OutboxConfig::default() };
    let rig = Rig::start_with(ExchangeOptions { outbox, ..ExchangeOptions::default() }).await;
    let mut everything = rig.exchange.bus.pub_sub.subscribe(subject::ALL_INBOXES.to_owned(), None).await.unwrap();
    let mut alice = rig.join("alice").await;
    let (mut bob, mut carol) = (rig.join("bob").await, rig.join("carol").await);
    // Calls wait for who is durable: its delivery is repeated until acknowledged, not three times.
    rig.register("bob", &Registration { durable: true, ..open_registration() }).await;
    for party in [&mut bob, &mut carol] {
        party.acknowledges = false;
    }
    rig.register("dave", &open_registration()).await;
    rig.register("denies", &registration(ConsentEffect::Deny, &["haul"])).await;
    let admin = rig.exchange.admin_token().unwrap();
    for (id, members, qos) in
        [("surely", ["bob", "denies"], Qos::AtLeastOnce), ("perhaps", ["carol", "denies"], Qos::BestEffort)]
    {
        let group = Group { id: GroupId::try_new(id).unwrap(), members: members.map(agent).to_vec(), qos };
        rig.control.put_group(&admin, &group).await.unwrap();
    }

    let mut calls = Vec::new();
    for group in ["perhaps", "surely"] {
        let to = format!("group://{group}");
        let document = alice.call_document(group, &[&to], &json!({ "policy": "high" }));
        let msg_id = alice.send(&document).await;
        let receipt = alice.receipt(&msg_id).await;
        assert_eq!((receipt.invited, receipt.left_out), (Some(1), Some(1)), "a group does not consent for its members");
        calls.push(format!("alice~{group}"));
    }
    // bob's call comes again and again; carol's went out before it, and did not.
    let mut times = 0;
    bob.hear("the call for the fourth time", |delivery| {
        times += u32::from(delivery.payload.act() == Act::Cfp);
        (times >= 4).then_some(())
    })
    .await;
    let ids: BTreeSet<_> = bob.heard.iter().map(|delivery| delivery.envelope.msg_id).collect();
    assert_eq!(ids.len(), 1, "a repeat has the id of the first");
    carol.offer(&calls[0], 50).await;
    assert_eq!(carol.count(Act::Cfp), 1, "best effort is sent once");

    // An acknowledgement ends the repeats.
    bob.acknowledges = true;
    bob.offer(&calls[1], 50).await;
    bob.perform(&calls[1]).await;
    assert_eq!(addressed(&mut everything), ["alice", "bob", "carol"]);
}

/// Whose inboxes anything was published to so far.
fn addressed(everything: &mut BoxStream<'static, Received>) -> Vec<String> {
    let mut addressed = BTreeSet::new();
    while let Some(Some(received)) = everything.next().now_or_never() {
        addressed.insert(subject::agent_of(&received.subject).unwrap().to_string());
    }
    addressed.into_iter().collect()
}
