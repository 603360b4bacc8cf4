//! What a call that reaches nobody is told, and which policy a call is told it runs under.

use serde_json::{Value, json};

use crate::rig::{Rig, cfp, code};

/// Longest either text of such a refusal may be: a name looked for and three suggested, 64 characters each, and the rest.
const TEXT_MAX: usize = 500;

#[tokio::test]
async fn a_call_that_reaches_nobody_is_told_whom_it_looked_for_and_what_is_near() {
    let rig = Rig::start().await;
    rig.register_as("bob", &json!({ "topics": ["courier", "couriers"], "capabilities": ["haul", "pack"] })).await;
    rig.register_as("bobby", &json!({ "topics": ["plumber"] })).await;
    rig.register_as("alice", &json!({ "topics": ["couriex"] })).await;
    let to = |address: &str| cfp("alice", "job", &[address]);
    let asking = |members: Value| {
        let mut call = to("topic://courier");
        call["envelope"]["capabilities"] = members;
        call
    };
    let requiring = |members: Value| {
        let mut call = to("agent://bob");
        call["payload"]["requires"] = members;
        call
    };
    for (call, looked_for, near) in [
        (to("topic://curier"), "topic://curier", "registered topics nearest to that: courier, couriers, plumber"),
        (to("topic://zzz"), "topic://zzz", "registered topics nearest to that: "),
        (to("agent://bobb"), "agent://bobb", "registered agents nearest to that: bob, bobby"),
        (to("agent://alice"), "itself", "agents other than the sender"),
        (to("group://none"), "group://none", "agents other than the sender"),
        (asking(json!(["hual"])), "`hual`", "registered capabilities nearest to that: haul, pack"),
        (requiring(json!(["haul", "paint"])), "`paint`", "registered capabilities nearest to that: "),
        (cfp("alice", "job", &[]), "no address", "agents other than the sender"),
    ] {
        let (status, refused) = rig.send("alice", &call).await;
        assert_eq!((status, code(&refused), &refused["pointer"]), (422, "no_recipient", &json!("/envelope/to")));
        let [detail, expected] = ["detail", "expected"].map(|member| refused[member].as_str().unwrap());
        assert!(detail.contains(looked_for) && expected.contains(near), "{looked_for}: {refused}");
        assert!(!expected.contains("couriex"), "a topic of the sender alone reaches nobody: {refused}");
    }
}

#[tokio::test]
async fn what_a_refusal_suggests_is_bounded_and_comes_from_what_discovery_shows() {
    let rig = Rig::start().await;
    let long = |letter: &str, number: usize| format!("{}-{number:03}", letter.repeat(60));
    for number in 0..5 {
        let topics: Vec<String> = (0..64).map(|topic| long("t", number * 64 + topic)).collect();
        rig.register_as(&format!("agent-{number}"), &json!({ "topics": topics })).await;
    }
    let hidden = json!({ "topics": ["t"], "capabilities": ["secret"], "consent": { "default": "deny" } });
    rig.register_as("member", &hidden).await;
    let group = json!({ "id": "crew", "members": ["member"] });
    let put = rig.call("PUT", "/v1/groups/crew", Some(&rig.admin_token()), Some(&group)).await;
    assert!(put.0 < 300, "{put:?}");
    let mut to_group = cfp("alice", "job", &["group://crew"]);
    to_group["envelope"]["capabilities"] = json!(["secre"]);
    for call in [cfp("alice", "job", &[&format!("topic://{}", long("t", 999))]), to_group] {
        let (_, refused) = rig.send("alice", &call).await;
        assert_eq!(code(&refused), "no_recipient", "{refused}");
        for member in ["detail", "expected"] {
            let text = refused[member].as_str().unwrap();
            assert!(text.len() <= TEXT_MAX && text.matches(&"t".repeat(60)).count() <= 3, "{refused}");
            assert!(!text.contains("secret"), "who is in a group, and what it can do, is not told: {refused}");
        }
    }
}

#[tokio::test]
async fn a_refusal_names_only_what_its_caller_may_find() {
    let rig = Rig::start().await;
    let register = async |agent: &str, visibility: &str, members: Value| {
        let mut registration = json!({ "visibility": visibility });
        registration.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        rig.register_as(agent, &registration).await;
    };
    let of = |topics: Value, capability: &str| json!({ "topics": topics, "capabilities": [capability] });
    let mut only_for_bob = of(json!(["fair", "consented-topic"]), "lend");
    only_for_bob["consent"] = json!({ "rules": [{ "effect": "allow", "counterpart": "bob", "protocol": "team" }] });
    register("mole", "hidden", of(json!(["fair", "hidden-topic"]), "digs")).await;
    register("more", "consented", only_for_bob).await;
    let to = |caller: &str, address: &str| cfp(caller, "job", &[address]);
    let asking = |caller: &str, address: &str, capabilities: Value| {
        let mut call = to(caller, address);
        call["envelope"]["capabilities"] = capabilities;
        call
    };
    let expected = async |caller: &str, call: Value| {
        let (status, refused) = rig.send(caller, &call).await;
        assert_eq!((status, code(&refused)), (422, "no_recipient"), "{refused}");
        refused["expected"].as_str().unwrap().to_owned()
    };
    for (call, told) in [
        (to("alice", "agent://mol"), "; no registered agents that you may find are near that"),
        (to("alice", "topic://hidden-topik"), "; no registered topics that you may find are near that"),
        (asking("alice", "topic://fair", json!(["dig"])), "capabilities that an addressed agent has registered"),
        (asking("alice", "agent://mole", json!(["dig"])), "capabilities that an addressed agent has registered"),
    ] {
        let expected = expected("alice", call).await;
        assert!(expected.ends_with(told), "alice may find nobody: {expected}");
    }
    let mut guessing = to("alice", "topic://fair");
    guessing["payload"]["requires"] = json!(["digs", "paint"]);
    let (_, refused) = rig.send("alice", &guessing).await;
    assert!(refused["detail"].as_str().unwrap().contains("`digs`"), "which of them a hidden agent has: {refused}");
    register("moss", "listed", of(json!(["fair", "square"]), "dials")).await;
    for (caller, agents, topics, capabilities) in [
        ("alice", "moss", "fair, square", "dials"),
        ("bob", "more, moss", "fair, square, consented-topic", "lend, dials"),
    ] {
        for (call, nearest) in [
            (to(caller, "agent://mol"), format!("; registered agents nearest to that: {agents}")),
            (to(caller, "topic://fai"), format!("; registered topics nearest to that: {topics}")),
            (
                asking(caller, "topic://fair", json!(["len"])),
                format!("; registered capabilities nearest to that: {capabilities}"),
            ),
        ] {
            let expected = expected(caller, call).await;
            assert!(expected.ends_with(&nearest), "{caller}: {expected} for {nearest}");
        }
    }
}

#[tokio::test]
async fn an_admitted_call_is_told_the_policy_in_force_and_a_repeat_is_not() {
    let rig = Rig::start().await;
    rig.register("bob").await;
    let admin = rig.admin_token();
    let (status, first) = rig.send("alice", &cfp("alice", "one", &["agent://bob"])).await;
    assert_eq!((status, &first["policy"]), (202, &json!("medium@1")));
    let switched = rig.call("PUT", "/v1/policies/default", Some(&admin), Some(&json!({ "policy": "high" }))).await;
    assert!(switched.0 < 300, "{switched:?}");
    assert_eq!(rig.send("alice", &cfp("alice", "two", &["agent://bob"])).await.1["policy"], json!("high@1"));
    let repeated = rig.send("alice", &cfp("alice", "one", &["agent://bob"])).await;
    assert_eq!((repeated.0, repeated.1.get("policy")), (202, None), "its first sending ran under another");
}
