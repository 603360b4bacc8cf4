//! Who a call reaches: consent, topics, groups, requests to an agent's owner.

use schemas::record::Qos;
use serde_json::json;

use crate::admission::loop_until;
use crate::rig::{Rig, cfp, code, open_registration};

#[tokio::test]
async fn consent_is_asked_by_topic_and_counterpart_and_the_left_out_are_counted() {
    let rig = Rig::start().await;
    rig.register("open").await;
    let by_topic = json!({
        "capabilities": ["haul"], "topics": ["courier"],
        "consent": { "default": "deny", "rules": [
            { "effect": "deny", "counterpart": "mallory" }, { "effect": "allow", "topic": "courier" }
        ]}
    });
    rig.register_as("picky", &by_topic).await;
    rig.send("alice", &cfp("alice", "by-topic", &["topic://courier"])).await;
    rig.send("alice", &cfp("alice", "direct", &["agent://picky", "agent://open"])).await;
    rig.send("mallory", &cfp("mallory", "by-topic", &["topic://courier"])).await;
    rig.send("alice", &cfp("alice", "both", &["agent://picky", "topic://courier"])).await;
    let mut found: Vec<(String, Vec<String>, u32)> = rig
        .logged()
        .await
        .into_iter()
        .map(|message| {
            let pinned = message.pinned.unwrap();
            let names = pinned.invited.iter().map(|invitation| invitation.agent.to_string()).collect();
            (message.negotiation.to_string(), names, pinned.left_out)
        })
        .collect();
    found.sort();
    let row = |id: &str, names: &[&str], left_out| {
        (id.to_owned(), names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), left_out)
    };
    assert_eq!(
        found,
        [
            row("alice~both", &["open", "picky"], 0),
            row("alice~by-topic", &["open", "picky"], 0),
            row("alice~direct", &["open"], 1),
            row("mallory~by-topic", &["open"], 1),
        ]
    );
}

#[tokio::test]
async fn a_group_reaches_its_consenting_members_with_its_quality_of_service() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    rig.register("carol").await;
    rig.register_as("deaf", &json!({ "capabilities": ["haul"] })).await;
    rig.register("outsider").await;
    let group = json!({ "id": "movers", "members": ["bob", "carol", "deaf", "ghost", "alice"], "qos": "best_effort" });
    let (status, body) = rig.call("PUT", "/v1/groups/movers", Some(&rig.admin_token()), Some(&group)).await;
    assert_eq!(status, 201, "{body}");

    let to = ["group://movers", "agent://carol"];
    assert_eq!(rig.send("alice", &cfp("alice", "job", &to)).await.0, 202);
    let logged = rig.logged().await;
    let pinned = logged[0].pinned.as_ref().unwrap();
    let reached: Vec<_> = pinned.invited.iter().map(|invitation| (invitation.agent.as_str(), invitation.qos)).collect();
    assert_eq!(reached, [("bob", Qos::BestEffort), ("carol", Qos::AtLeastOnce)]);
    assert_eq!(pinned.left_out, 1, "deaf is registered and does not consent; a ghost is nobody");
}

#[tokio::test]
async fn a_rule_that_asks_delivers_nothing_and_notes_the_request_once() {
    let rig = Rig::start().await;
    let asks = json!({ "capabilities": ["haul"], "topics": ["courier"], "consent": { "default": "ask" } });
    rig.register_as("shy", &asks).await;
    for attempt in ["one", "two"] {
        let (status, body) = rig.send("alice", &cfp("alice", attempt, &["agent://shy"])).await;
        assert_eq!((status, code(&body)), (403, "no_consent"));
    }
    let requests = loop_until(|| async {
        let path = "/v1/agents/shy/consent/requests";
        let (_, body) = rig.call("GET", path, Some(&rig.token("shy")), None).await;
        let requests = body["requests"].as_array().unwrap().clone();
        (!requests.is_empty()).then_some(requests)
    })
    .await;
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0]["counterpart"], "alice");

    let allowed = json!({ "default": "ask", "rules": [{ "effect": "allow", "counterpart": "alice" }] });
    rig.call("PUT", "/v1/agents/shy/consent", Some(&rig.token("shy")), Some(&allowed)).await;
    assert_eq!(rig.send("alice", &cfp("alice", "three", &["agent://shy"])).await.0, 202);
    let (_, body) = rig.call("GET", "/v1/agents/shy/consent/requests", Some(&rig.token("shy")), None).await;
    assert_eq!(body["requests"], json!([]), "what a rule answers is no longer asked");
}

#[tokio::test]
async fn a_call_that_reaches_more_agents_than_a_negotiation_holds_is_refused() {
    let rig = Rig::with(|config| config.limits.verification_burst = 100_000).await;
    let key_value = rig.bus.key_value.clone();
    for number in 0..1025 {
        let document = open_registration().to_string().into_bytes().into();
        key_value.put(bus::Bucket::Agents, format!("c{number}"), document).await.unwrap();
    }
    loop_until(|| async {
        let path = "/v1/agents?after=c1023&limit=1";
        let (_, body) = rig.call("GET", path, Some(&rig.token("alice")), None).await;
        (body["agents"][0]["agent"] == "c1024").then_some(())
    })
    .await;
    let (status, body) = rig.send("alice", &cfp("alice", "job", &["topic://courier"])).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "out_of_range", Some("/envelope/to")));
    assert!(rig.logged().await.is_empty());
}
