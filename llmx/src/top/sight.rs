//! What `llmx top` shows, and where it comes from.

use std::time::{Duration, Instant};

use agents::control::{ControlClient, ControlError};
use schemas::{AgentId, Code};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::access::{AccessArgs, Bearer, refused};
use crate::healthcheck::readiness_of;
use crate::output::{Failure, one_line};
use crate::remote;

/// How long a gateway may take to say whether it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// One look at an exchange.
#[derive(Debug, Default)]
pub struct Sight {
    /// Each gateway that was named.
    pub gateways: Vec<GatewayState>,
    /// The console's snapshot, as it came.
    pub raw: Value,
    /// The same, read.
    pub snapshot: Option<Snapshot>,
    /// What is missing, and how to get it.
    pub fault: Option<String>,
}

/// Whether a gateway answers.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
pub struct GatewayState {
    /// Its address.
    pub url: String,
    /// `ready`, `degraded`, `not ready` or `unreachable`.
    pub state: &'static str,
    /// The first that it says is wrong.
    pub fault: Option<String>,
    /// How long the answer took.
    pub answer_ms: Option<f64>,
}

/// `GET /v1/console`, as far as it is shown. What a gateway does not say is absent or 0.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    pub sight: String,
    pub lanes: u64,
    pub lanes_owned: u64,
    pub engines: u64,
    pub agents: u64,
    pub totals: ConsoleTotals,
    pub per_s: Rates,
    pub round: RoundLatency,
    pub history: Vec<HistoryPoint>,
    pub named: Option<Named>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct ConsoleTotals {
    pub open: u64,
    pub started: u64,
    pub ended: u64,
    pub awards: u64,
    pub offers: u64,
    pub unacknowledged: u64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Rates {
    pub started: f64,
    pub ended: f64,
    pub awards: f64,
    pub offers: f64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct RoundLatency {
    pub count: u64,
    pub p50_us: u64,
    pub p95_us: u64,
    pub p99_us: u64,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct HistoryPoint {
    pub ended_per_s: f64,
    pub p95_us: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub gateway: String,
    pub default_policy: String,
    pub engines: Vec<Engine>,
    pub lanes: Vec<Lane>,
    pub agents: Vec<AgentRow>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Engine {
    pub engine: String,
    pub heard_ms_ago: u64,
    pub owned: Vec<u64>,
    pub open: u64,
    pub unacknowledged: u64,
    pub ended_per_s: f64,
    pub p95_us: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Lane {
    pub lane: u64,
    pub owners: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct AgentRow {
    pub agent: String,
    pub present: Option<bool>,
}

impl GatewayState {
    /// What it says is wrong, for a line of its own.
    fn told(&self) -> Option<String> {
        self.fault.as_ref().map(|fault| format!("{} is {}: {fault}", self.url, self.state))
    }
}

impl Sight {
    /// Keeps what was seen last, and says what is missing now.
    pub fn fail(&mut self, gateways: Vec<GatewayState>, failure: &Failure) {
        self.gateways = gateways;
        self.fault = Some(one_line(&format!("{failure}; trying again")));
    }

    /// The document of `--json`.
    pub fn document(&self) -> Value {
        json!({ "gateways": self.gateways, "console": self.raw })
    }
}

/// Looks at an exchange, as much of it as its token may see.
pub struct ExchangeWatcher<'a> {
    access: &'a AccessArgs,
    bearer: Option<Bearer>,
    client: Option<reqwest::Client>,
}

impl<'a> ExchangeWatcher<'a> {
    /// A watcher with the token that was given, or one of an administrator where a key is there to sign it.
    pub fn new(access: &'a AccessArgs) -> Self {
        let bearer = AgentId::try_new("operator").ok().and_then(|operator| access.administrator(&operator).ok());
        Self { access, bearer, client: remote::client(READY_TIMEOUT, &access.gateway).ok() }
    }

    /// Looks once.
    ///
    /// # Errors
    /// Which gateways answer, and why there is no snapshot.
    pub async fn look(&mut self) -> Result<Sight, (Vec<GatewayState>, Failure)> {
        let gateways = self.gateways().await;
        let raw = match self.snapshot().await {
            Ok(raw) => raw,
            Err(failure) => return Err((gateways, failure)),
        };
        let snapshot = serde_json::from_value(shown(raw.clone())).ok();
        let unreadable = snapshot.is_none().then(|| "the gateway's answer cannot be read by this build".to_owned());
        let fault = unreadable.or_else(|| gateways.iter().find_map(GatewayState::told));
        Ok(Sight { gateways, raw, snapshot, fault })
    }

    async fn gateways(&self) -> Vec<GatewayState> {
        let mut reached = Vec::new();
        for url in &self.access.gateway {
            reached.push(self.reach(url).await);
        }
        reached
    }

    async fn reach(&self, url: &str) -> GatewayState {
        let began = Instant::now();
        let answer = match &self.client {
            Some(client) => readiness_of(client, url).await,
            None => None,
        };
        let answer_ms = answer.is_some().then(|| began.elapsed().as_secs_f64() * 1000.0);
        let (state, faults) = match answer {
            Some((true, faults)) => (if faults.is_empty() { "ready" } else { "degraded" }, faults),
            Some((false, faults)) => ("not ready", faults),
            None => ("unreachable", Vec::new()),
        };
        GatewayState { url: url.to_owned(), state, fault: faults.into_iter().next(), answer_ms }
    }

    async fn snapshot(&mut self) -> Result<Value, Failure> {
        loop {
            let token = self.bearer.as_ref().map(|bearer| bearer.token.current());
            let read = async |gateway: &ControlClient| match gateway.read_as(PATH, token.as_deref()).await {
                Err(ControlError::Refused(refusal)) => Ok(Err(refusal)),
                outcome => outcome.map(Ok),
            };
            match self.access.ask(read).await? {
                Ok(raw) => return Ok(raw),
                // A key of another exchange, found where keys usually are: counts are shown without a token.
                Err(refusal) if refusal.code == Code::Unauthenticated && self.has_own_token() => self.bearer = None,
                Err(refusal) => return Err(refused(&refusal)),
            }
        }
    }

    /// Whether the token was signed here, and not asked for.
    fn has_own_token(&self) -> bool {
        self.bearer.as_ref().is_some_and(|bearer| bearer.is_signed_here)
    }
}

/// A document as it may be shown: every text on one line, without control characters.
fn shown(document: Value) -> Value {
    match document {
        Value::String(text) => one_line(&text).into(),
        Value::Array(items) => items.into_iter().map(shown).collect(),
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, shown(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => document,
    }
}

/// What the console reads.
const PATH: &str = "/v1/console";
