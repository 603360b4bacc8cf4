//! An engine that stood still says of no negotiation that it does not exist: processes of their own, one of them stopped and
//! woken again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::{PATIENCE, Process, Site, key, token};

/// How long the engine stands still: less than a gateway waits for a view, so that what was asked meanwhile waits for it.
const STOPPED: Duration = Duration::from_millis(1200);
/// How often it stands still.
const STOPS: usize = 4;
/// Calls made while it stands still: enough for several on each of the four lanes.
const CALLS: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_wakes_denies_nothing_that_was_called_while_it_stood_still() {
    let site = Site::start().await;
    let mut second = Process::start(&["engine", "--nats", &site.nats_url(), "--id", "engine-2"]);
    second.says("engine: ").await;
    let alice = Alice::new(&site).await;
    let mut answers: BTreeMap<u16, usize> = BTreeMap::new();
    for stop in 0..STOPS {
        site.engine.signal("STOP").await;
        let stopped = Instant::now();
        let ids: Vec<String> = (0..CALLS).map(|number| format!("job-{stop}-{number}")).collect();
        for id in &ids {
            alice.call(id).await;
        }
        let asked: Vec<_> = ids.iter().map(|id| tokio::spawn(alice.view(id))).collect();
        tokio::time::sleep_until((stopped + STOPPED).into()).await;
        site.engine.signal("CONT").await;
        for status in asked {
            *answers.entry(status.await.unwrap()).or_default() += 1;
        }
        for id in &ids {
            let began = Instant::now();
            while alice.view(id).await != 200 {
                assert!(began.elapsed() < PATIENCE, "{id} is not found in the end");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    assert!(!answers.contains_key(&404), "answers by status: {answers:?}");
    assert_eq!(second.end().await, Some(0));
    site.end().await;
}

/// An initiator, and bob, whom it calls.
struct Alice {
    client: reqwest::Client,
    gateway: String,
    token: String,
}

impl Alice {
    async fn new(site: &Site) -> Self {
        let (alice, bob) = (token("alice", &key(&site.keys)).await, token("bob", &key(&site.keys)).await);
        let client = reqwest::Client::new();
        let registration = json!({ "topics": ["courier"], "consent": { "default": "allow" } });
        let register = client.put(format!("{}/v1/agents/bob", site.gateway_url)).json(&registration).bearer_auth(bob);
        assert!(register.send().await.unwrap().status().is_success());
        Self { client, gateway: site.gateway_url.clone(), token: alice }
    }

    async fn call(&self, id: &str) {
        let call = json!({
            "envelope": {
                "msg_id": id,
                "ts": "2026-11-20T20:00:00.000Z",
                "from": "agent://alice",
                "to": ["agent://bob"],
                "negotiation": id,
            },
            "payload": { "act": "cfp", "reply_within_ms": 60_000 },
        });
        let sent = self.client.post(format!("{}/v1/messages", self.gateway)).json(&call).bearer_auth(&self.token);
        assert_eq!(sent.timeout(PATIENCE).send().await.unwrap().status(), 202);
    }

    /// The status of an answer to a question for a negotiation.
    fn view(&self, id: &str) -> impl Future<Output = u16> + Send + 'static {
        let request = self.client.get(format!("{}/v1/negotiations/alice~{id}", self.gateway)).bearer_auth(&self.token);
        async move { request.timeout(PATIENCE).send().await.unwrap().status().as_u16() }
    }
}
