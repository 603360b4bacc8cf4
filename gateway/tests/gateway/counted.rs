//! What is counted beside messages: documents, searches, consent, and what is turned away for want of room.

use bus::Bucket;
use bytes::Bytes;
use gateway::keys::{KeyAlgorithm, SigningKey};
use serde_json::{Value, json};
use telemetry::metrics::SCRAPE_LIFETIME;

use crate::admission::loop_until;
use crate::rig::{Rig, cfp, code, open_registration, policy};
use crate::streams::opened;

#[tokio::test]
async fn what_is_turned_away_for_want_of_room_is_counted_by_what_was_full() {
    let rig = Rig::with(|config| {
        config.limits.streams_per_agent_max = 1;
        config.limits.agents_max = 1;
        config.limits.rate_keys_max = 2;
    })
    .await;
    rig.register("bob").await;
    let (status, body) = rig.call("PUT", "/v1/agents/dave", Some(&rig.token("dave")), Some(&open_registration())).await;
    assert_eq!((status, code(&body)), (503, "overloaded"));
    let _socket = opened(&rig, "bob").await;
    let (status, body) = rig.call("GET", "/v1/inbox", Some(&rig.token("bob")), None).await;
    assert_eq!((status, code(&body)), (429, "rate_limited"));
    assert!(body["retry_after_ms"].as_u64().unwrap() > 0, "{body}");
    assert_eq!(rig.call("GET", "/v1/whoami", Some(&rig.token("carol")), None).await.0, 503);
    for (reason, count) in [("agents", 1.0), ("streams", 1.0), ("senders", 1.0), ("queue", 0.0), ("store", 0.0)] {
        assert_eq!(rig.metric("exchange_admission_shed_total", &[("reason", reason)]), count, "{reason}");
    }
    rig.call("GET", "/metrics", None, None).await;
    assert_eq!(rig.metric("exchange_agents_connected", &[]), 1.0);
}

#[tokio::test]
async fn no_more_agents_are_registered_at_once_than_there_is_room_for() {
    let rig = Rig::with(|config| config.limits.agents_max = 5).await;
    let names: Vec<String> = (0..30).map(|number| format!("a{number}")).collect();
    let rig = &rig;
    let puts = names.iter().map(|name| async move {
        let (token, path) = (rig.token(name), format!("/v1/agents/{name}"));
        rig.call("PUT", &path, Some(&token), Some(&open_registration())).await.0
    });
    let answers = futures_util::future::join_all(puts).await;
    let count = |status: u16| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!((count(201), count(503)), (5, 25), "{answers:?}");
    assert_eq!(rig.call("PUT", "/v1/agents/late", Some(&rig.token("late")), Some(&open_registration())).await.0, 503);
    let registered = names.iter().zip(&answers).find(|(_, answer)| **answer == 201).unwrap().0;
    let path = format!("/v1/agents/{registered}");
    assert_eq!(rig.call("PUT", &path, Some(&rig.token(registered)), Some(&open_registration())).await.0, 200);
}

#[tokio::test]
async fn agents_that_a_call_addresses_are_counted_by_what_their_rules_say() {
    let rig = Rig::start().await;
    let registered = |consent: &str, capability: &str| json!({ "capabilities": [capability], "topics": ["courier"], "consent": { "default": consent } });
    for (name, consent, capability) in
        [("bob", "allow", "haul"), ("carol", "allow", "haul"), ("shy", "ask", "haul"), ("dan", "allow", "paint")]
    {
        rig.register_as(name, &registered(consent, capability)).await;
    }
    rig.register_as("deaf", &json!({ "capabilities": ["haul"], "topics": ["courier"] })).await;
    let mut call = cfp("alice", "job", &["topic://courier"]);
    call["payload"]["requires"] = json!(["haul"]);
    assert_eq!(rig.send("alice", &call).await.0, 202);
    let expected = [
        ("consent", "allow", 2.0),
        ("consent", "escalate", 1.0),
        ("consent", "deny", 1.0),
        ("capability", "deny", 1.0),
    ];
    for (rule, effect, count) in expected {
        let labels = [("rule", rule), ("effect", effect)];
        assert_eq!(rig.metric("exchange_policy_decisions_total", &labels), count, "{labels:?}");
    }
}

#[tokio::test]
async fn searches_for_agents_are_counted_by_their_result() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let token = rig.token("bob");
    for (query, status) in [("?capability=haul", 200), ("?topic=quiet", 200), ("?limit=0", 422), ("?nonsense=1", 422)] {
        assert_eq!(rig.call("GET", &format!("/v1/agents{query}"), Some(&token), None).await.0, status, "{query}");
    }
    for (result, count) in [("found", 1.0), ("empty", 1.0), ("refused", 2.0)] {
        assert_eq!(rig.metric("exchange_discovery_queries_total", &[("result", result)]), count, "{result}");
    }
}

#[tokio::test]
async fn documents_are_counted_as_they_are_checked_and_stored() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let (bob, admin) = (rig.token("bob"), rig.admin_token());
    let rows: [(&str, &str, Value, u16); 4] = [
        ("/v1/agents/bob", &bob, json!({ "topics": 1 }), 422),
        ("/v1/agents/bob/consent", &bob, json!({ "default": "never" }), 422),
        ("/v1/groups/crew", &admin, json!({ "id": "crew", "members": ["bob"], "qos": "at_least_once" }), 201),
        ("/v1/policies/medium@2", &admin, json!({}), 422),
    ];
    for (path, token, document, status) in rows {
        let (found, body) = rig.call("PUT", path, Some(token), Some(&document)).await;
        assert_eq!(found, status, "{path}: {body}");
    }
    let validations = [
        ("registration", "valid", 1.0),
        ("registration", "invalid", 2.0),
        ("group", "valid", 1.0),
        ("policy", "invalid", 1.0),
    ];
    for (schema, result, count) in validations {
        let labels = [("schema", schema), ("result", result)];
        assert_eq!(rig.metric("exchange_schema_validations_total", &labels), count, "{labels:?}");
    }
    for (schema, keyword) in [("registration", "type"), ("registration", "enum"), ("policy", "required")] {
        let labels = [("schema", schema), ("keyword", keyword)];
        assert_eq!(rig.metric("exchange_schema_errors_total", &labels), 1.0, "{labels:?}");
    }
    for bucket in ["agents", "groups"] {
        let labels = [("bucket", bucket), ("op", "put"), ("result", "ok")];
        assert_eq!(rig.metric("exchange_kv_operations_total", &labels), 1.0, "{labels:?}");
    }
}

#[tokio::test]
async fn gateways_that_agree_on_the_policies_show_the_same_revision() {
    let one = Rig::start().await;
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let two = Rig::on(one.bus.clone(), key, |_| {}).await;
    let before = revision(&one).await;
    assert_eq!(revision(&two).await, before);
    let put = serde_json::to_value(policy("medium@2")).unwrap();
    assert_eq!(one.call("PUT", "/v1/policies/medium@2", Some(&one.admin_token()), Some(&put)).await.0, 201);
    let after = revision(&one).await;
    assert_ne!(after, before);
    loop_until(|| async { (revision(&two).await == after).then_some(()) }).await;

    let unreadable = || one.metric("exchange_policy_reloads_total", &[("result", "unreadable")]);
    assert_eq!(unreadable(), 0.0);
    one.bus.key_value.put(Bucket::Policies, "odd".to_owned(), Bytes::from_static(b"{]")).await.unwrap();
    loop_until(|| async { (unreadable() == 1.0).then_some(()) }).await;
    assert_eq!(revision(&one).await, after, "what cannot be read is not in force");
}

/// The only revision that a gateway shows.
async fn revision(rig: &Rig) -> String {
    tokio::time::sleep(SCRAPE_LIFETIME).await;
    let text = rig.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("exchange_policy_bundle_info{")).collect();
    let [one] = shown.as_slice() else { panic!("{shown:?}") };
    (*one).to_owned()
}
