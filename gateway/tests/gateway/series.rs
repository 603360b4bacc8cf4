//! How many series a gateway has: as many after anything agents do as before it.

use std::collections::{BTreeMap, BTreeSet};

use bus::Bucket;
use bytes::Bytes;
use gateway::{Credentials, Ingress, Transport};
use schemas::{Act, subject};
use serde_json::{Value, json};
use telemetry::metrics::SCRAPE_LIFETIME;

use crate::admission::loop_until;
use crate::rig::{PATIENCE, Rig, agent, cfp, open_registration, policy};
use crate::streams::{frame, opened, publish_inbox, send};

/// Series of one gateway process at most.
const SERIES_MAX: usize = 3_800;
/// Of which for what the process has beside its gateway: the system's, the runtime's, the bus's, the exporter's.
const OTHERS_MAX: usize = 300;
const AGENTS: usize = 10_000;

#[tokio::test]
async fn ten_thousand_agents_and_every_kind_of_traffic_make_no_series() {
    let rig = Rig::with(|config| config.limits.verification_burst = 100_000).await;
    let before = scrape(&rig).await;
    register_everybody(&rig).await;
    let mut messages = Vec::new();
    for (number, act) in Act::FROM_AGENTS.into_iter().enumerate() {
        messages.push((format!("agent-{number}"), said(&format!("agent-{number}"), act)));
    }
    for way in 0..4 {
        for (from, message) in &messages {
            enter(&rig, way, from, message).await;
        }
    }
    refused_in_every_way(&rig).await;
    every_route_with_every_method(&rig).await;
    let after = scrape(&rig).await;

    eprintln!("{} series of a gateway, {} before anything was sent", after.len(), before.len());
    let names = |series: &BTreeMap<String, String>| -> BTreeSet<String> {
        series.keys().filter(|name| !name.contains("exchange_policy_bundle_info")).cloned().collect()
    };
    let (known, found) = (names(&before), names(&after));
    assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "series that traffic made");
    assert!(after.len() <= SERIES_MAX - OTHERS_MAX, "{}", after.len());
    for act in Act::FROM_AGENTS {
        for way in ["http", "ws", "nats", "in_process"] {
            let labels = [("kind", act.as_str()), ("transport", way)];
            assert!(rig.metric("exchange_messages_total", &labels) >= 1.0, "{labels:?}");
        }
    }
    let registered = (AGENTS - 1) as f64;
    assert_eq!(rig.metric("exchange_agents_registered", &[]), registered, "agent-1 has removed itself");
}

#[tokio::test]
async fn no_label_says_who_or_about_what() {
    let rig = Rig::start().await;
    rig.register("agent-7").await;
    enter(&rig, 0, "agent-7", &said("agent-7", Act::Offer)).await;
    let series = scrape(&rig).await;
    let values = series.keys().flat_map(|name| label_values(name)).collect::<BTreeSet<_>>();
    assert!(values.contains("offer") && values.contains("malformed_json"));
    for value in values {
        let is_closed =
            value.len() <= 40 && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_/{}.+-".contains(&byte));
        assert!(is_closed && !value.contains("agent-7") && !value.contains('~'), "{value}");
    }
}

#[tokio::test]
async fn every_metric_has_a_help_text_and_the_answer_its_media_type() {
    let rig = Rig::start().await;
    let answer = rig.request("GET", "/metrics").send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.unwrap();
    let described: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '))
        .filter(|(_, help)| !help.trim().is_empty())
        .map(|(name, _)| name)
        .collect();
    let typed: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert_eq!(typed.keys().copied().collect::<BTreeSet<_>>(), described);
    for (name, kind) in typed {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    }
}

/// The first 100 over HTTP, as agents do; the others where that ends, in the store.
async fn register_everybody(rig: &Rig) {
    for number in 0..100 {
        rig.register(&format!("agent-{number}")).await;
    }
    let registration = Bytes::from(open_registration().to_string());
    for number in 100..AGENTS {
        let key = format!("agent-{number}");
        rig.bus.key_value.put(Bucket::Agents, key, registration.clone()).await.unwrap();
    }
    let last = format!("/v1/agents/agent-{}", AGENTS - 1);
    let token = rig.token("agent-0");
    loop_until(|| async { (rig.call("GET", &last, Some(&token), None).await.0 == 200).then_some(()) }).await;
}

/// A message by one of the four ways in.
async fn enter(rig: &Rig, way: usize, from: &str, message: &Value) {
    let (token, bytes) = (rig.token(from), Bytes::from(message.to_string()));
    match way {
        0 => {
            rig.post(&token, bytes.to_vec()).await;
        }
        1 => {
            let mut socket = opened(rig, from).await;
            publish_inbox(rig, from, &[]).await;
            send(&mut socket, json!({ "type": "message", "message": message })).await;
            frame(&mut socket).await;
        }
        2 => {
            let to = subject::gateway_in(&agent(from));
            rig.bus.pub_sub.request(to, Some(token), bytes, PATIENCE).await.unwrap();
        }
        _ => {
            let credentials = Credentials::Token(Some(&token));
            let transport = Transport::InProcess;
            let ingress = Ingress { transport, credentials, named_sender: None, peer: None, bytes };
            let _ = rig.handle.admission().admit(ingress).await;
        }
    }
}

async fn refused_in_every_way(rig: &Rig) {
    let wrong = [
        json!({}),
        json!({ "payload": { "act": "offer" } }),
        cfp("agent-1", "x", &["agent://nobody"]),
        cfp("somebody-else", "x", &[]),
    ];
    for way in 0..4 {
        for message in &wrong {
            enter(rig, way, "agent-1", message).await;
        }
    }
    for number in 0..200 {
        let name = format!("agent-{number}");
        rig.post(&rig.token(&name), format!("{{\"{name}\": ")).await;
        rig.post(&name, "{}").await;
    }
}

async fn every_route_with_every_method(rig: &Rig) {
    let (_, document) = rig.call("GET", "/openapi.json", None, None).await;
    let paths: Vec<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    let bodies = [json!({}), json!(policy("medium@9")), open_registration(), json!({ "id": "crew", "members": [] })];
    for path in paths.iter().filter(|path| !path.ends_with("/events") && *path != "/v1/inbox") {
        let path = path.replace("{id}", "agent-1").replace("{name}", "offer.json").replace("{asset}", "none");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW"] {
            for token in [None, Some(rig.admin_token()), Some(rig.token("agent-1"))] {
                for body in [None].into_iter().chain(bodies.iter().map(Some)) {
                    let mut request = rig.request(method, &path);
                    request = token.iter().fold(request, |request, token| request.bearer_auth(token));
                    request = body.iter().fold(request, |request, body| request.json(body));
                    let _ = request.send().await.unwrap();
                }
            }
        }
    }
    for number in 0..200 {
        rig.call("GET", &format!("/agent-{number}/{number}"), None, None).await;
    }
}

/// A well-formed message of an act.
fn said(from: &str, act: Act) -> Value {
    let mut payload = json!({ "act": act.as_str() });
    let more = match act {
        Act::Cfp => json!({ "task": "move a piano", "reply_within_ms": 1000 }),
        Act::Offer => json!({ "terms": { "price": 5 } }),
        Act::Accept => json!({ "offer_id": "o12-0" }),
        Act::Confirm => json!({ "award_no": 1 }),
        Act::Inform => json!({ "kind": "done" }),
        Act::Failure => json!({ "phase": "perform", "code": "flat_tyre" }),
        Act::Answer => json!({ "round": 1, "answer": "B" }),
        Act::Refuse
        | Act::NotUnderstood
        | Act::Withdraw
        | Act::Reject
        | Act::Cancel
        | Act::Closed
        | Act::Ack
        | Act::Join
        | Act::End
        | Act::Turn
        | Act::Ask
        | Act::Floor => json!({}),
        Act::Say | Act::Conclude => json!({ "text": "the piano is upstairs" }),
        Act::Assign => json!({ "mode": "async", "tasks": [{ "title": "stairs", "text": "measure them" }] }),
        Act::Pause => json!({ "triggers": [1] }),
    };
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut message = cfp(from, &format!("m-{from}"), &["topic://courier"]);
    message["payload"] = payload;
    if act != Act::Cfp {
        message["envelope"]["negotiation"] = json!(format!("alice~job-of-{from}"));
    }
    message
}

/// Every series with its value.
async fn scrape(rig: &Rig) -> BTreeMap<String, String> {
    tokio::time::sleep(SCRAPE_LIFETIME).await;
    let text = rig.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.rsplit_once(' '));
    series.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn label_values(series: &str) -> Vec<String> {
    series.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}
