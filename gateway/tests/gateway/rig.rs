//! A gateway on the embedded bus, and what tests do with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::memory::{self, MemoryOptions};
use bus::{Bus, LogRecord};
use futures_util::StreamExt as _;
use gateway::keys::{Claims, KeyAlgorithm, SigningKey, key_set};
use gateway::{AuthConfig, Gateway, GatewayConfig, GatewayHandle, GatewayMetrics, KeySource};
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{AgentId, Lane, Policy};
use serde_json::{Value, json};

/// Issuer of every token here.
pub(crate) const ISSUER: &str = "https://issuer.test";
/// Longest a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running gateway.
pub(crate) struct Rig {
    pub(crate) bus: Bus,
    pub(crate) handle: GatewayHandle,
    pub(crate) key: SigningKey,
    pub(crate) registry: prometheus::Registry,
    client: reqwest::Client,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// Starts with a configuration of the test's.
    pub(crate) async fn with(change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let key = SigningKey::generate(KeyAlgorithm::EdDsa).unwrap();
        Self::on(memory::open(MemoryOptions::default()), key, change).await
    }

    /// Starts on a bus and with a key that others share.
    pub(crate) async fn on(bus: Bus, key: SigningKey, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let mut config = config(&key);
        change(&mut config);
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(GatewayMetrics::new(&registry).unwrap());
        let handle = Gateway::start(bus.clone(), config, metrics).await.unwrap();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        Self { bus, handle, key, registry, client }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.handle.local_addr().unwrap()
    }

    /// A token for an agent, valid for a minute.
    pub(crate) fn token(&self, name: &str) -> String {
        self.key.sign(&claims(name)).unwrap()
    }

    pub(crate) fn admin_token(&self) -> String {
        self.key.sign(&claims("root").admin()).unwrap()
    }

    /// A JSON request; the answer's status and body (null when empty).
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> (u16, Value) {
        let mut request = self.client.request(method.parse().unwrap(), format!("http://{}{path}", self.address()));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request).await
    }

    /// Posts bytes as a message.
    pub(crate) async fn post(&self, token: &str, bytes: impl Into<Vec<u8>>) -> (u16, Value) {
        let request = self
            .client
            .post(format!("http://{}/v1/messages", self.address()))
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(bytes.into());
        answer(request).await
    }

    /// Posts a document as a message of `from`.
    pub(crate) async fn send(&self, from: &str, message: &Value) -> (u16, Value) {
        self.post(&self.token(from), message.to_string()).await
    }

    /// Any request, for headers of the test's.
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method.parse().unwrap(), format!("http://{}{path}", self.address()))
    }

    /// Registers an agent that takes every call.
    pub(crate) async fn register(&self, name: &str) {
        self.register_as(name, &open_registration()).await;
    }

    /// Registers an agent.
    pub(crate) async fn register_as(&self, name: &str, registration: &Value) {
        let path = format!("/v1/agents/{name}");
        let (status, body) = self.call("PUT", &path, Some(&self.token(name)), Some(registration)).await;
        assert!(matches!(status, 200 | 201), "{status} {body}");
    }

    /// Every message in the log, lane by lane.
    pub(crate) async fn logged(&self) -> Vec<AdmittedMessage> {
        let mut messages = Vec::new();
        for lane in 0..self.bus.log.lanes() {
            let last = self.bus.log.last_seq(Lane(lane)).await.unwrap();
            let mut records = self.bus.log.read(Lane(lane), 1).await.unwrap();
            let mut seq = 0;
            while seq < last {
                let record: LogRecord = records.next().await.unwrap().unwrap();
                seq = record.seq;
                for entry in Record::decode(&record.bytes).unwrap().entries {
                    if let Entry::Message(message) = entry {
                        messages.push(message);
                    }
                }
            }
        }
        messages
    }

    /// See [`metric`].
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        metric(&self.registry, name, labels)
    }
}

/// The sum of the counters or gauges of a name that have these labels, 0 when there are none.
pub(crate) fn metric(registry: &prometheus::Registry, name: &str, labels: &[(&str, &str)]) -> f64 {
    let families = registry.gather();
    let metrics = families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
    let has = |metric: &prometheus::proto::Metric, (label, value): &(&str, &str)| {
        metric.get_label().iter().any(|pair| pair.name() == *label && pair.value() == *value)
    };
    metrics
        .filter(|metric| labels.iter().all(|label| has(metric, label)))
        .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
        .sum()
}

/// A configuration that trusts one key, with the policies every test needs.
pub(crate) fn config(key: &SigningKey) -> GatewayConfig {
    let mut config = GatewayConfig::new(AuthConfig::new(KeySource::Inline(key_set(&[key])), ISSUER));
    config.policies = vec![policy("medium@1"), policy("high@1")];
    // No engine runs beside these gateways.
    config.limits.engine_silence_ms = 0;
    config
}

/// A policy with every default but its id.
pub(crate) fn policy(id: &str) -> Policy {
    let weights = json!([{ "attr": "price", "dir": "lower", "lo": 0, "hi": 1000, "w": 1000 }]);
    serde_json::from_value(json!({ "id": id, "weights": weights, "close": { "all_responded": true } })).unwrap()
}

pub(crate) fn claims(name: &str) -> Claims {
    Claims::new(&agent(name), ISSUER, "llmx", 60)
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// A registration that takes every call.
pub(crate) fn open_registration() -> Value {
    json!({ "capabilities": ["haul"], "topics": ["courier"], "consent": { "default": "allow" } })
}

/// A call for proposals.
pub(crate) fn cfp(from: &str, msg_id: &str, to: &[&str]) -> Value {
    json!({
        "envelope": {
            "msg_id": msg_id, "ts": "2026-11-20T20:00:00.000Z", "from": format!("agent://{from}"), "to": to,
            "scope": { "consent": "opt-in", "ttl": 60 }
        },
        "payload": { "act": "cfp", "task": "move a piano", "reply_within_ms": 1000 }
    })
}

/// An offer in a negotiation.
pub(crate) fn offer(from: &str, msg_id: &str, negotiation: &str) -> Value {
    json!({
        "envelope": {
            "msg_id": msg_id, "ts": "2026-11-20T20:00:00.000Z", "from": format!("agent://{from}"),
            "negotiation": negotiation
        },
        "payload": { "act": "offer", "terms": { "price": 500 } }
    })
}

/// The code of a problem document, which must be whole.
pub(crate) fn code(body: &Value) -> &str {
    for member in ["type", "title", "status", "detail"] {
        assert!(body.get(member).is_some(), "no `{member}` in {body}");
    }
    body["code"].as_str().unwrap()
}

/// Sends a request; the answer's status and body (null when empty).
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let is_problem = response
        .headers()
        .get("content-type")
        .is_some_and(|value| value.to_str().unwrap().starts_with("application/problem+json"));
    assert_eq!(is_problem, status >= 400, "every refusal is a problem document, and nothing else is");
    let bytes = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}
