//! An agent that acknowledges nothing is invited no more beyond the limit of `llmx engine --backlog-max`, and again once it
//! acknowledges: a gateway and an engine as processes of their own.

use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{PATIENCE, Site, key, token};

/// Deliveries that bob may leave unacknowledged.
const BACKLOG_MAX: usize = 2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_acknowledges_nothing_beyond_the_limit_is_invited_again_once_it_acknowledges() {
    let site = Site::start_with(&["--backlog-max", &BACKLOG_MAX.to_string()]).await;
    for name in ["bob", "carol"] {
        register(&site, name).await;
    }
    let mut calls = 0;
    let refused = until("bob is invited no more", async || {
        calls += 1;
        let (status, body) = call(&site, "alice", &format!("job-{calls}"), "bob").await;
        (status != 202).then_some((status, body))
    })
    .await;
    assert_eq!((refused.0, &refused.1["code"]), (422, &json!("unresponsive")), "{}", refused.1);
    assert!(calls > BACKLOG_MAX + 1, "the limit is passed by one delivery more, not by call {calls}");
    assert_eq!(call(&site, "alice", "carol-1", "carol").await.0, 202, "carol is within the limit");
    let (status, body) = call(&site, "bob", "own-1", "carol").await;
    assert_eq!(status, 202, "its own calls still work: {body}");
    assert_eq!(call(&site, "alice", "again-0", "bob").await.0, 422, "a call of its own acknowledges nothing");

    let listen = site.remote(&["listen", "bob", "--ack", "--for", "2", "--json"]);
    let (_, heard) = listen.end_by_itself().await;
    assert!(heard.lines().count() > BACKLOG_MAX, "what waited arrives: {heard}");
    let mut calls = 0;
    until("bob is invited again", async || {
        calls += 1;
        (call(&site, "alice", &format!("again-{calls}"), "bob").await.0 == 202).then_some(())
    })
    .await;
    site.end().await;
}

/// Registers an agent that takes every call.
async fn register(site: &Site, name: &str) {
    let registration = json!({ "topics": ["courier"], "consent": { "default": "allow" } });
    let request = reqwest::Client::new().put(format!("{}/v1/agents/{name}", site.gateway_url)).json(&registration);
    let token = token(name, &key(&site.keys)).await;
    assert!(request.bearer_auth(token).send().await.unwrap().status().is_success());
}

/// Calls one agent, with a minute to answer; status and body of the gateway's answer.
async fn call(site: &Site, from: &str, own_id: &str, to: &str) -> (u16, Value) {
    let message = json!({
        "envelope": {
            "msg_id": own_id,
            "ts": "2026-11-20T20:00:00.000Z",
            "from": format!("agent://{from}"),
            "to": [format!("agent://{to}")],
            "negotiation": own_id,
        },
        "payload": { "act": "cfp", "reply_within_ms": 60_000 },
    });
    let request = reqwest::Client::new().post(format!("{}/v1/messages", site.gateway_url)).json(&message);
    let token = token(from, &key(&site.keys)).await;
    let answer = request.bearer_auth(token).timeout(PATIENCE).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Waits until a look at the world gives something.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("it did not happen: {what}"))
}
