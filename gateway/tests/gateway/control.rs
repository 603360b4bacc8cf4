//! The control plane: registration, discovery, consent, groups, policies and the switch.

use bus::Bucket;
use bus::memory::{self, MemoryOptions};
use gateway::keys::{KeyAlgorithm, SigningKey};
use gateway::{Gateway, GatewayError, GatewayMetrics};
use serde_json::{Value, json};

use crate::admission::loop_until;
use crate::rig::{Rig, cfp, code, config, open_registration, policy};

#[tokio::test]
async fn an_agent_registers_reads_and_removes_itself_and_nobody_else() {
    let rig = Rig::start().await;
    let (bob, eve) = (rig.token("bob"), rig.token("eve"));
    let registration = open_registration();
    let put = |token| rig.call("PUT", "/v1/agents/bob", Some(token), Some(&registration));
    assert_eq!(put(&bob).await.0, 201);
    assert_eq!(put(&bob).await.0, 200);
    let (status, body) = put(&eve).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"));

    let (_, own) = rig.call("GET", "/v1/agents/bob", Some(&bob), None).await;
    assert_eq!(own["consent"]["default"], "allow");
    let (_, seen) = rig.call("GET", "/v1/agents/bob", Some(&eve), None).await;
    assert_eq!((&seen["capabilities"], seen.get("consent")), (&json!(["haul"]), None));

    let (status, body) = rig.call("DELETE", "/v1/agents/bob", Some(&eve), None).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"));
    assert_eq!(rig.call("DELETE", "/v1/agents/bob", Some(&bob), None).await.0, 204);
    let (status, body) = rig.call("GET", "/v1/agents/bob", Some(&bob), None).await;
    assert_eq!((status, code(&body)), (404, "not_found"));
    let (status, body) = rig.send("alice", &cfp("alice", "job", &["agent://bob"])).await;
    assert_eq!((status, code(&body)), (422, "no_recipient"));
}

#[tokio::test]
async fn an_agent_is_shown_with_kind_and_tags_and_stored_without_where_they_are_the_default() {
    let rig = Rig::start().await;
    let bob = rig.token("bob");
    let (_, put) = rig.call("PUT", "/v1/agents/bob", Some(&bob), Some(&open_registration())).await;
    let (_, own) = rig.call("GET", "/v1/agents/bob", Some(&bob), None).await;
    let (_, seen) = rig.call("GET", "/v1/agents/bob", Some(&rig.token("eve")), None).await;
    let (_, list) = rig.call("GET", "/v1/agents", Some(&bob), None).await;
    for shown in [&put, &own, &seen, &list["agents"][0]] {
        assert_eq!((&shown["kind"], &shown["tags"]), (&json!("thing"), &json!([])), "{shown}");
    }
    let stored = rig.bus.key_value.value(Bucket::Agents, "bob".to_owned()).await.unwrap().unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!((stored.get("kind"), stored.get("tags")), (None, None), "{stored}");
    // Whatever else a registration holds is shown to the agent itself.
    for (member, value) in stored.as_object().unwrap() {
        assert_eq!(own[member], *value, "{member}");
    }

    let mut other = open_registration();
    for (member, value) in [
        ("kind", json!("human")),
        ("tags", json!(["night"])),
        ("visibility", json!("consented")),
        ("receipts", json!("all")),
        ("description", json!("carries")),
        ("instance", json!("one")),
    ] {
        other[member] = value;
    }
    let (_, put) = rig.call("PUT", "/v1/agents/bob", Some(&bob), Some(&other)).await;
    for (member, value) in other.as_object().unwrap().iter().filter(|(member, _)| *member != "consent") {
        assert_eq!(put[member], *value, "{member}");
    }
}

#[tokio::test]
async fn an_instance_that_ends_leaves_the_registration_of_the_one_that_follows() {
    let rig = Rig::start().await;
    let bob = rig.token("bob");
    let register = async |instance: Value| {
        let mut registration = open_registration();
        registration["instance"] = instance;
        rig.call("PUT", "/v1/agents/bob", Some(&bob), Some(&registration)).await.0
    };
    let remove = async |query: &str| rig.call("DELETE", &format!("/v1/agents/bob{query}"), Some(&bob), None).await;
    let stands = async || rig.call("GET", "/v1/agents/bob", Some(&bob), None).await.0 == 200;
    assert_eq!((register("old".into()).await, register("new".into()).await), (201, 200));
    assert_eq!(remove("?instance=old").await.0, 204);
    assert!(stands().await, "it is the new one's");
    let seen = rig.call("GET", "/v1/agents/bob", Some(&rig.token("eve")), None).await.1;
    assert!(seen.get("instance").is_none(), "{seen}");
    assert_eq!(remove("?instance=new").await.0, 204);
    assert!(!stands().await);
    assert_eq!((remove("?instance=new").await.0, register("new".into()).await), (204, 201));
    assert_eq!(remove("").await.0, 204, "who names none takes it away whosever it is");
    assert!(!stands().await);
    for wrong in ["?instance=a/b", "?instance=", "?other=1"] {
        assert_eq!(remove(wrong).await.0, 422, "{wrong}");
    }
    assert_eq!(register("a b".into()).await, 422);
}

#[tokio::test]
async fn discovery_finds_by_capability_and_topic_page_by_page_without_consent_rules() {
    let rig = Rig::start().await;
    for name in ["a1", "a2", "a3"] {
        rig.register(name).await;
    }
    rig.register_as("painter", &json!({ "capabilities": ["paint"], "topics": ["art"] })).await;
    let token = rig.token("alice");
    let list = |query: &'static str| {
        let (rig, token) = (&rig, &token);
        async move { rig.call("GET", &format!("/v1/agents{query}"), Some(token), None).await.1 }
    };
    let names = |body: &Value| -> Vec<String> {
        let agents = body["agents"].as_array().unwrap();
        agents.iter().map(|agent| agent["agent"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&list("?capability=paint").await), ["painter"]);
    assert_eq!(names(&list("?topic=courier").await), ["a1", "a2", "a3"]);
    assert_eq!(names(&list("?capability=paint&topic=courier").await), [""; 0]);
    let first = list("?limit=3").await;
    assert_eq!((names(&first).len(), first["next"].as_str()), (3, Some("a3")));
    let second = list("?limit=3&after=a3").await;
    assert_eq!((names(&second), second["next"].as_str()), (vec!["painter".to_owned()], None));
    assert!(!first.to_string().contains("consent"));
    for wrong in ["?limit=0", "?limit=201", "?limit=x", "?after=a.b", "?nonsense=1"] {
        let (status, _) = rig.call("GET", &format!("/v1/agents{wrong}"), Some(&token), None).await;
        assert_eq!(status, 422, "{wrong}");
    }
}

#[tokio::test]
async fn consent_rules_are_the_agents_own_and_faults_point_into_them() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let (bob, eve) = (rig.token("bob"), rig.token("eve"));
    let path = "/v1/agents/bob/consent";
    for method in ["GET", "PUT"] {
        let body = (method == "PUT").then(|| json!({ "default": "deny" }));
        let (status, answer) = rig.call(method, path, Some(&eve), body.as_ref()).await;
        assert_eq!((status, code(&answer)), (403, "unauthorized"));
    }
    let (status, body) = rig.call("PUT", path, Some(&bob), Some(&json!({ "default": "maybe" }))).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "not_allowed", Some("/default")));
    let denied = json!({ "default": "deny", "rules": [] });
    assert_eq!(rig.call("PUT", path, Some(&bob), Some(&denied)).await, (200, denied.clone()));
    assert_eq!(rig.call("GET", path, Some(&bob), None).await, (200, denied));
    let (_, agent) = rig.call("GET", "/v1/agents/bob", Some(&bob), None).await;
    assert_eq!(agent["capabilities"], json!(["haul"]), "the rest of the registration stays");
    let (status, body) = rig.send("alice", &cfp("alice", "job", &["agent://bob"])).await;
    assert_eq!((status, code(&body)), (403, "no_consent"));
}

#[tokio::test]
async fn groups_are_put_by_administrators_and_read_by_all() {
    let rig = Rig::with(|config| config.admins = [crate::rig::agent("boss")].into()).await;
    let group = json!({ "id": "movers", "members": ["bob"], "qos": "at_least_once" });
    let (status, body) = rig.call("PUT", "/v1/groups/movers", Some(&rig.token("eve")), Some(&group)).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"));
    let (status, body) = rig.call("PUT", "/v1/groups/other", Some(&rig.admin_token()), Some(&group)).await;
    assert_eq!((status, code(&body)), (422, "not_allowed"));
    assert_eq!(rig.call("PUT", "/v1/groups/movers", Some(&rig.token("boss")), Some(&group)).await.0, 201);
    assert_eq!(rig.call("GET", "/v1/groups/movers", Some(&rig.token("eve")), None).await, (200, group));
    let (_, list) = rig.call("GET", "/v1/groups", Some(&rig.token("eve")), None).await;
    assert_eq!(list["groups"], json!([{ "id": "movers", "members": 1, "qos": "at_least_once" }]));
    assert_eq!(rig.call("DELETE", "/v1/groups/movers", Some(&rig.admin_token()), None).await.0, 204);
    assert_eq!(rig.call("GET", "/v1/groups/movers", Some(&rig.token("eve")), None).await.0, 404);
}

#[tokio::test]
async fn the_switch_applies_to_calls_admitted_from_then_on_and_on_every_gateway() {
    let bus = memory::open(MemoryOptions::default());
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let one = Rig::on(bus.clone(), key.clone(), |_| {}).await;
    let two = Rig::on(bus, key, |_| {}).await;
    one.register("bob").await;
    let switch = json!({ "policy": "high" });
    assert_eq!(one.send("alice", &cfp("alice", "before", &["agent://bob"])).await.0, 202);
    let (status, body) = one.call("PUT", "/v1/policies/default", Some(&one.token("eve")), Some(&switch)).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"));
    let (status, body) = one.call("PUT", "/v1/policies/default", Some(&one.admin_token()), Some(&switch)).await;
    assert_eq!((status, &body), (200, &switch));
    assert_eq!(one.send("alice", &cfp("alice", "after", &["agent://bob"])).await.0, 202);
    let mut named = cfp("alice", "named", &["agent://bob"]);
    named["payload"]["policy"] = json!("medium");
    assert_eq!(one.send("alice", &named).await.0, 202);
    loop_until(|| async {
        let (_, body) = two.call("GET", "/v1/policies/default", Some(&two.token("eve")), None).await;
        (body == switch).then_some(())
    })
    .await;
    assert_eq!(two.send("alice", &cfp("alice", "elsewhere", &["agent://bob"])).await.0, 202);

    let mut pinned: Vec<(String, String)> = one
        .logged()
        .await
        .into_iter()
        .map(|message| (message.negotiation.to_string(), message.pinned.unwrap().policy.id.clone()))
        .collect();
    pinned.sort();
    let row = |id: &str, policy: &str| (format!("alice~{id}"), policy.to_owned());
    let expected =
        [row("after", "high@1"), row("before", "medium@1"), row("elsewhere", "high@1"), row("named", "medium@1")];
    assert_eq!(pinned, expected);
}

#[tokio::test]
async fn a_policy_version_never_changes_and_putting_it_makes_it_current() {
    let rig = Rig::start().await;
    let admin = rig.admin_token();
    let put = |id: &'static str, document: Value| {
        let (rig, admin) = (&rig, &admin);
        async move { rig.call("PUT", &format!("/v1/policies/{id}"), Some(admin), Some(&document)).await }
    };
    let document = |id: &str| serde_json::to_value(policy(id)).unwrap();
    let (status, body) = put("medium@2", document("medium@2")).await;
    assert_eq!(status, 201, "{body}");
    let current =
        || async { rig.call("GET", "/v1/policies/medium", Some(&admin), None).await.1["policy"]["id"].clone() };
    assert_eq!(current().await, "medium@2");
    assert_eq!(put("medium@1", document("medium@1")).await.0, 201, "the way back");
    assert_eq!(current().await, "medium@1");

    let mut changed = document("medium@2");
    changed["max_strikes"] = json!(5);
    let (status, body) = put("medium@2", changed).await;
    assert_eq!((status, code(&body)), (409, "conflict"));
    let (status, body) = put("medium@3", document("medium@4")).await;
    assert_eq!((status, code(&body)), (422, "not_allowed"));
    let (status, body) = put("default@1", document("default@1")).await;
    assert_eq!((status, code(&body)), (422, "not_allowed"));
    let mut contradictory = document("odd@1");
    contradictory["weights"][0]["w"] = json!(999);
    let (status, body) = put("odd@1", contradictory).await;
    assert_eq!((status, code(&body)), (422, "invalid_policy"));
    let (status, body) = rig.call("PUT", "/v1/policies/new@1", Some(&rig.token("eve")), Some(&document("new@1"))).await;
    assert_eq!((status, code(&body)), (403, "unauthorized"));
    let (status, body) = rig.call("GET", "/v1/policies/unheard-of", Some(&admin), None).await;
    assert_eq!((status, code(&body)), (422, "unknown_policy"));
    let unknown = json!({ "policy": "unheard-of" });
    let (status, body) = rig.call("PUT", "/v1/policies/default", Some(&admin), Some(&unknown)).await;
    assert_eq!((status, code(&body), body["pointer"].as_str()), (422, "unknown_policy", Some("/policy")));
    let misspelt = json!({ "policy": "mediun" });
    let (_, body) = rig.call("PUT", "/v1/policies/default", Some(&admin), Some(&misspelt)).await;
    assert!(body["expected"].as_str().unwrap().contains("nearest to that: medium, high"), "{body}");
    let (_, list) = rig.call("GET", "/v1/policies", Some(&admin), None).await;
    assert_eq!((list["default"].as_str(), list["policies"].as_array().unwrap().len()), (Some("medium"), 2));
}

#[tokio::test]
async fn a_restart_with_older_policies_does_not_undo_what_was_put() {
    let bus = memory::open(MemoryOptions::default());
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let rig = Rig::on(bus.clone(), key.clone(), |_| {}).await;
    let document = serde_json::to_value(policy("medium@2")).unwrap();
    let (status, _) = rig.call("PUT", "/v1/policies/medium@2", Some(&rig.admin_token()), Some(&document)).await;
    assert_eq!(status, 201);
    rig.handle.shutdown().await;
    let again = Rig::on(bus, key, |_| {}).await;
    let (_, body) = again.call("GET", "/v1/policies/medium", Some(&again.token("eve")), None).await;
    assert_eq!(body["policy"]["id"], "medium@2");
}

#[tokio::test]
async fn a_configured_policy_that_contradicts_itself_stops_the_start() {
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let mut config = config(&key);
    config.policies[0].weights[0].w = 1;
    let metrics = std::sync::Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
    let started = Gateway::start(memory::open(MemoryOptions::default()), config, metrics).await;
    assert!(matches!(started, Err(GatewayError::Config(_))));
}

#[tokio::test]
async fn a_default_policy_the_exchange_does_not_have_stops_the_start_and_a_stored_one_does_not() {
    let bus = memory::open(MemoryOptions::default());
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let start = async |default: &str| {
        let mut config = config(&key);
        config.default_policy = default.to_owned();
        let metrics = std::sync::Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
        Gateway::start(bus.clone(), config, metrics).await
    };
    let fault = match start("mediun").await {
        Err(GatewayError::Setting(fault)) => fault,
        other => panic!("it starts, or fails otherwise: {:?}", other.map(|_| ())),
    };
    assert_eq!(fault.member, "default_policy");
    for part in ["the exchange has no policy `mediun`", "nearest to that: medium", "there are high, medium"] {
        assert!(fault.expected.contains(part), "no {part} in {}", fault.expected);
    }
    // Somebody puts it: stored policies count from the next start on.
    let rig = Rig::on(bus.clone(), key.clone(), |_| {}).await;
    let document = serde_json::to_value(policy("mediun@1")).unwrap();
    let (status, _) = rig.call("PUT", "/v1/policies/mediun@1", Some(&rig.admin_token()), Some(&document)).await;
    assert_eq!(status, 201);
    for name in ["mediun", "mediun@1"] {
        assert!(start(name).await.is_ok(), "{name} is stored");
    }
    assert!(matches!(start("mediun@2").await, Err(GatewayError::Setting(_))), "this version is not");
}
