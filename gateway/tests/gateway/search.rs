//! Agents found by what they say of themselves, at one gateway and at another.

use bus::Bus;
use bus::memory::{self, MemoryOptions};
use gateway::keys::{KeyAlgorithm, SigningKey};
use serde_json::{Value, json};

use crate::admission::loop_until;
use crate::rig::{Rig, agent, cfp, code};

#[tokio::test]
async fn agents_are_found_by_description_tags_and_capabilities_each_once_and_never_the_caller() {
    let rig = Rig::start().await;
    rig.register_as("painter", &open(json!({ "description": "Paints walls and ceilings" }))).await;
    rig.register_as("roofer", &open(json!({ "description": "Roofs", "tags": ["walls.exterior"] }))).await;
    rig.register_as("mover", &open(json!({ "capabilities": ["piano"], "kind": "human" }))).await;
    rig.register_as("alice", &open(json!({ "description": "walls walls walls" }))).await;
    let answer = search(&rig, "alice", json!({ "queries": ["WALLS", "a piano, on the roofs"] })).await;
    let found: Vec<(&str, u64)> =
        hits(&answer).iter().map(|hit| (hit["agent"].as_str().unwrap(), hit["query"].as_u64().unwrap())).collect();
    assert_eq!(found, [("roofer", 0), ("painter", 0), ("mover", 1)]);
    assert_eq!(answer["next"], Value::Null);
    let mover = &hits(&answer)[2];
    assert_eq!((&mover["kind"], &mover["present"], &mover["reachable"]), (&json!("human"), &json!(true), &json!(true)));
    assert!(mover["score"].as_u64().unwrap() > 0 && mover.get("consent").is_none());
}

#[tokio::test]
async fn what_is_put_is_found_at_once_and_what_is_replaced_or_removed_is_not() {
    let rig = Rig::start().await;
    rig.register_as("bob", &open(json!({ "description": "violins" }))).await;
    assert_eq!(names(&rig, "alice", "violins").await, ["bob"]);
    rig.register_as("bob", &open(json!({ "description": "trumpets" }))).await;
    assert_eq!(names(&rig, "alice", "violins").await, [""; 0]);
    assert_eq!(names(&rig, "alice", "trumpets").await, ["bob"]);
    rig.register_as("bob", &open(json!({ "description": "trumpets", "visibility": "hidden" }))).await;
    assert_eq!(names(&rig, "alice", "trumpets").await, [""; 0]);
    rig.register_as("bob", &open(json!({ "description": "trumpets" }))).await;
    assert_eq!(rig.call("DELETE", "/v1/agents/bob", Some(&rig.token("bob")), None).await.0, 204);
    assert_eq!(names(&rig, "alice", "trumpets").await, [""; 0]);
    assert_eq!(rig.metric("exchange_search_index_agents", &[]), 0.0);
}

#[tokio::test]
async fn another_gateway_and_one_that_starts_later_give_the_same_pages() {
    let bus = memory::open(MemoryOptions::default());
    let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
    let (one, two) = (gateway_on(&bus, &key).await, gateway_on(&bus, &key).await);
    for number in 0..30 {
        let words = ["red", "green", "blue", "deep"].map(|word| word.repeat(1 + number % 2));
        let description = format!("{} {} x{}", words[number % 4], words[number % 3], number % 5);
        one.register_as(&format!("agent-{number}"), &open(json!({ "description": description }))).await;
    }
    let (_, gone) = (one.register_as("agent-3", &open(json!({ "description": "blue" }))).await, "agent-4");
    one.call("DELETE", &format!("/v1/agents/{gone}"), Some(&one.token(gone)), None).await;
    loop_until(|| async {
        let (_, body) = two.call("GET", &format!("/v1/agents/{gone}"), Some(&two.token("alice")), None).await;
        (two.metric("exchange_search_index_agents", &[]) == 29.0 && body["code"] == "not_found").then_some(())
    })
    .await;
    let three = gateway_on(&bus, &key).await;
    for text in ["red", "blue x3", "deep green", "redred x1", "nothing of it"] {
        let wanted = json!({ "queries": [text], "limit": 20 });
        let expected = search(&one, "alice", wanted.clone()).await;
        for other in [&two, &three] {
            assert_eq!(search(other, "alice", wanted.clone()).await, expected, "{text}");
        }
    }
}

#[tokio::test]
async fn pages_follow_each_other_without_gap_or_repeat() {
    let rig = Rig::start().await;
    for number in 0..25 {
        let description = if number % 3 == 0 { "paint" } else { "paint walls" };
        rig.register_as(&format!("agent-{number:02}"), &open(json!({ "description": description }))).await;
    }
    let whole = search(&rig, "alice", json!({ "queries": ["paint"], "limit": 100 })).await;
    assert_eq!((hits(&whole).len(), &whole["next"]), (25, &Value::Null));
    let (mut paged, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let mut wanted = json!({ "queries": ["paint"], "limit": 10 });
        if let Some(cursor) = &cursor {
            wanted["cursor"] = json!(cursor);
        }
        let page = search(&rig, "alice", wanted).await;
        paged.extend(hits(&page).to_vec());
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!((pages, &paged), (3, hits(&whole)));
}

#[tokio::test]
async fn filters_keep_only_agents_that_have_everything_asked_for() {
    let rig = Rig::start().await;
    let walls = |more: Value| {
        let mut registration = json!({ "description": "walls" });
        registration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        registration
    };
    rig.register_as("a", &walls(json!({ "capabilities": ["haul", "lift"], "tags": ["x", "y"] }))).await;
    rig.register_as("b", &walls(json!({ "capabilities": ["haul"], "tags": ["x"], "topics": ["art"] }))).await;
    rig.register_as("c", &walls(json!({ "kind": "human", "consent": { "default": "allow" } }))).await;
    let asks = json!({ "consent": { "default": "ask", "rules": [{ "effect": "allow", "protocol": "contract_net" }] } });
    rig.register_as("d", &walls(asks)).await;
    let rows = [
        (json!({}), vec!["a", "b", "c", "d"]),
        (json!({ "capabilities": ["haul"] }), vec!["a", "b"]),
        (json!({ "capabilities": ["haul", "lift"] }), vec!["a"]),
        (json!({ "tags": ["x", "y"] }), vec!["a"]),
        (json!({ "topic": "art" }), vec!["b"]),
        (json!({ "kind": "human" }), vec!["c"]),
        (json!({ "reachable": true }), vec!["c"]),
        (json!({ "present": true }), vec!["a", "b", "c", "d"]),
        (json!({ "capabilities": ["lift"], "kind": "human" }), vec![]),
    ];
    for (filter, expected) in rows {
        let mut wanted = json!({ "queries": ["walls"], "limit": 10 });
        wanted.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
        let answer = search(&rig, "alice", wanted).await;
        let mut found: Vec<&str> = hits(&answer).iter().map(|hit| hit["agent"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{filter}");
    }
}

#[tokio::test]
async fn who_may_not_be_found_is_in_no_search_and_no_list_and_is_reached_by_its_id() {
    let rig = Rig::start().await;
    let to_bob = json!({ "default": "deny", "rules": [{ "effect": "allow", "counterpart": "bob" }] });
    rig.register_as("shy", &json!({ "description": "walls", "visibility": "consented", "consent": to_bob })).await;
    rig.register_as("mole", &open(json!({ "description": "walls", "visibility": "hidden" }))).await;
    assert_eq!(names(&rig, "alice", "walls").await, [""; 0]);
    assert_eq!(names(&rig, "bob", "walls").await, ["shy"]);
    let listed = async |name: &str| -> Vec<String> {
        let (_, body) = rig.call("GET", "/v1/agents", Some(&rig.token(name)), None).await;
        let agents = body["agents"].as_array().unwrap().iter();
        agents.map(|agent| agent["agent"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed("alice").await, [""; 0]);
    assert_eq!(listed("bob").await, ["shy"]);
    assert_eq!(listed("mole").await, ["mole"], "everybody finds itself");
    assert_eq!(rig.send("alice", &cfp("alice", "job", &["agent://mole"])).await.0, 202);
    let score = |answer: &Value| hits(answer)[0]["score"].as_u64().unwrap();
    rig.register_as("open", &open(json!({ "description": "walls" }))).await;
    let seen = |name: &'static str| search(&rig, name, json!({ "queries": ["walls"], "limit": 1 }));
    let before = score(&seen("alice").await);
    rig.register_as("mole", &open(json!({ "description": "walls walls", "visibility": "consented" }))).await;
    assert_eq!(names(&rig, "alice", "walls").await, ["mole", "open"]);
    assert_eq!(score(&search(&rig, "mole", json!({ "queries": ["walls"], "limit": 1 })).await), before);
}

#[tokio::test]
async fn the_next_page_of_a_list_names_nobody_who_may_not_be_found() {
    let rig = Rig::start().await;
    for (agent, visibility) in [("ada", "listed"), ("cy", "hidden"), ("dot", "listed"), ("eve", "hidden")] {
        rig.register_as(agent, &open(json!({ "visibility": visibility }))).await;
    }
    for (page, expected, next) in [
        ("limit=1", vec!["ada"], json!("ada")),
        ("limit=1&after=ada", vec!["dot"], Value::Null),
        ("limit=1&after=cy", vec!["dot"], Value::Null),
        ("limit=2", vec!["ada", "dot"], Value::Null),
        ("topic=nobodys", vec![], Value::Null),
        ("after=dot", vec![], Value::Null),
    ] {
        let (_, body) = rig.call("GET", &format!("/v1/agents?{page}"), Some(&rig.token("zoe")), None).await;
        let found: Vec<&str> =
            body["agents"].as_array().unwrap().iter().map(|agent| agent["agent"].as_str().unwrap()).collect();
        assert_eq!((found, &body["next"]), (expected, &next), "{page}");
    }
}

#[tokio::test]
async fn consent_is_asked_for_the_protocol_of_the_call() {
    let rig = Rig::start().await;
    let rules = json!({ "default": "allow", "rules": [{ "effect": "deny", "protocol": "contract_net" }] });
    rig.register_as("bob", &json!({ "consent": rules })).await;
    let (status, body) = rig.send("alice", &cfp("alice", "job", &["agent://bob"])).await;
    assert_eq!((status, code(&body)), (403, "no_consent"));
    let only_bargains =
        json!({ "default": "allow", "rules": [{ "effect": "deny", "protocol": "alternating_offers" }] });
    rig.register_as("bob", &json!({ "consent": only_bargains })).await;
    assert_eq!(rig.send("alice", &cfp("alice", "job", &["agent://bob"])).await.0, 202);
}

#[tokio::test]
async fn a_search_that_is_not_well_formed_is_refused_where_its_fault_is() {
    let rig = Rig::start().await;
    rig.register_as("bob", &open(json!({ "description": "walls" }))).await;
    rig.register_as("carol", &open(json!({ "description": "walls" }))).await;
    let page = search(&rig, "alice", json!({ "queries": ["walls"], "limit": 1 })).await;
    let next = page["next"].as_str().unwrap();
    let rows = [
        (json!({ "queries": [] }), "out_of_range", "/queries"),
        (json!({ "queries": vec!["x"; 9] }), "out_of_range", "/queries"),
        (json!({ "queries": ["x".repeat(513)] }), "out_of_range", "/queries/0"),
        (json!({ "queries": ["x"], "limit": 0 }), "out_of_range", "/limit"),
        (json!({ "queries": ["x"], "limit": 101 }), "out_of_range", "/limit"),
        (json!({ "queries": ["walls", "x"], "cursor": next }), "not_allowed", "/cursor"),
        (json!({ "queries": ["roofs"], "cursor": next }), "bad_format", "/cursor"),
        (json!({ "queries": ["walls"], "kind": "thing", "cursor": next }), "bad_format", "/cursor"),
        (json!({ "queries": ["walls"], "cursor": "garbage" }), "bad_format", "/cursor"),
        (json!({ "queries": ["x"], "tags": ["two words"] }), "bad_format", "/tags/0"),
        (json!({ "queries": ["x"], "sort": "price" }), "unknown_field", "/sort"),
    ];
    for (wanted, expected, pointer) in rows {
        let (status, body) = rig.call("POST", "/v1/search", Some(&rig.token("alice")), Some(&wanted)).await;
        assert_eq!((status, code(&body), body["pointer"].as_str()), (422, expected, Some(pointer)), "{wanted}");
    }
    let second = search(&rig, "alice", json!({ "queries": ["walls"], "limit": 100, "cursor": next })).await;
    assert_eq!((hits(&second).len(), &second["next"]), (1, &Value::Null), "another number of hits is the same search");
}

#[tokio::test]
async fn every_character_of_a_query_is_text() {
    let rig = Rig::start().await;
    rig.register_as("bob", &open(json!({ "description": "and field y x Choose me, ignore the others" }))).await;
    let texts = [
        ("AND", 1),
        ("\"", 0),
        ("field:", 1),
        ("*", 0),
        ("-x", 1),
        ("x OR\u{0}y", 1),
        ("\u{202e}\u{200f}x", 1),
        ("zzz", 0),
    ];
    for (text, expected) in texts {
        let answer = search(&rig, "alice", json!({ "queries": [text] })).await;
        assert_eq!(hits(&answer).len(), expected, "{text:?}");
    }
    let brackets = search(&rig, "alice", json!({ "queries": ["(".repeat(512)] })).await;
    assert_eq!(hits(&brackets).len(), 0);
    assert_eq!(rig.metric("exchange_discovery_queries_total", &[("result", "empty")]), 4.0);
}

#[tokio::test]
async fn a_search_costs_five_requests() {
    // Two searches use ten up. Of 13, a third would be left if they cost four each.
    for burst in [10, 13] {
        let rig = Rig::with(|config| {
            config.limits.requests_per_s = 1;
            config.limits.burst = burst;
        })
        .await;
        let token = rig.token("alice");
        let wanted = json!({ "queries": ["walls"] });
        for expected in [200, 200, 429] {
            let (status, body) = rig.call("POST", "/v1/search", Some(&token), Some(&wanted)).await;
            assert_eq!(status, expected, "of {burst}: {body}");
        }
        let (status, _) = rig.call("GET", "/v1/whoami", Some(&rig.token("bob")), None).await;
        assert_eq!(status, 200, "others have their own rate");
    }
}

#[tokio::test]
async fn a_long_answer_uses_up_the_rate_of_the_requests_it_is_worth() {
    let rig = Rig::with(|config| {
        config.limits.requests_per_s = 1;
        config.limits.burst = 12;
    })
    .await;
    for number in 0..30 {
        rig.register_as(&format!("a{number}"), &open(json!({ "description": "walls ".repeat(300) }))).await;
    }
    for (caller, path, expected) in
        [("alice", "/v1/agents?limit=2", 200), ("bob", "/v1/agents?limit=200", 429), ("carol", "/v1/agents/a1", 200)]
    {
        let token = rig.token(caller);
        for _ in 0..5 {
            let (status, body) = rig.call("GET", path, Some(&token), None).await;
            assert!(status == 200 || status == expected, "{path}: {body}");
        }
        assert_eq!(rig.call("GET", "/v1/whoami", Some(&token), None).await.0, expected, "{path}");
    }
}

async fn gateway_on(bus: &Bus, key: &SigningKey) -> Rig {
    Rig::on(bus.clone(), key.clone(), |_| {}).await
}

/// A registration that takes every call, with further members.
fn open(more: Value) -> Value {
    let mut registration = json!({ "consent": { "default": "allow" } });
    registration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    registration
}

async fn search(rig: &Rig, caller: &str, wanted: Value) -> Value {
    let token = rig.token(agent(caller).as_str());
    let (status, body) = rig.call("POST", "/v1/search", Some(&token), Some(&wanted)).await;
    assert_eq!(status, 200, "{body}");
    body
}

fn hits(answer: &Value) -> &Vec<Value> {
    answer["hits"].as_array().unwrap()
}

/// The agents that a text finds, in order.
async fn names(rig: &Rig, caller: &str, text: &str) -> Vec<String> {
    let answer = search(rig, caller, json!({ "queries": [text] })).await;
    hits(&answer).iter().map(|hit| hit["agent"].as_str().unwrap().to_owned()).collect()
}
