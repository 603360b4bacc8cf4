//! The participants of a bridge, one for each agent whose token was shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime};

use agents::control::Whoami;
use agents::transport::Transport;
use agents::{Identity, Token};
use futures_util::future::join_all;
use parking_lot::Mutex;
use retry::RecentMap;
use schemas::{AgentId, Code, Digest, Refusal};
use serde::Deserialize as _;
use tokio::time::Instant;

use crate::metrics::BridgeMetrics;
use crate::participant::Participant;
use crate::service::{GatewayRequest, Gateways, Limits, ToolService};
use crate::tools::ToolSet;

/// Most participants at once.
const PARTICIPANTS_MAX: usize = 4096;
/// How long a gateway's word on a token is believed: a key that was taken out of the key set is refused after that.
const IDENTITY_KEPT_FOR: Duration = Duration::from_secs(30);
/// How long a participant stays that is asked nothing, unless something it called or is bound to is open.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// How long before its end a token counts as expired, in seconds: time to take a registration back with it.
const EXPIRY_MARGIN_S: u64 = 5;
/// How often participants are looked at.
const TICK: Duration = Duration::from_secs(2);

/// What a bridge is made of.
pub struct BridgeOptions {
    /// The exchange.
    pub gateways: Gateways,
    /// Makes the way of an agent to it: each has its own, which knows what failed last.
    pub transport: Box<dyn Fn() -> Arc<dyn Transport> + Send + Sync>,
    /// Tools that are on.
    pub sets: Vec<ToolSet>,
    /// Limits of every call.
    pub limits: Limits,
    /// Tells registrations and cursors of this process from another's.
    pub instance: String,
    /// Counts what is served.
    pub metrics: BridgeMetrics,
}

/// The participants of a bridge.
pub struct Participants {
    options: BridgeOptions,
    /// Agents by the SHA-256 of a token, and until when that is believed.
    tokens: Mutex<RecentMap<Digest, (Whoami, Instant)>>,
    entries: Mutex<HashMap<AgentId, Served>>,
    fault: Mutex<Option<Refusal>>,
    /// Bytes of deliveries that all keep.
    total: Arc<AtomicUsize>,
    /// Those whose time is over, until they are closed.
    closing: Mutex<Vec<Arc<ToolService>>>,
}

/// Whose token a request shows.
#[derive(Debug, Clone)]
pub struct Bearer {
    token: Arc<str>,
    whoami: Whoami,
}

struct Served {
    service: Arc<ToolService>,
    participant: Arc<Participant>,
    /// The newest token of the agent, with its expiry in seconds since the epoch.
    token: Arc<Mutex<(String, u64)>>,
    last_asked: Instant,
    /// Forgotten deliveries that are counted.
    lost: u64,
}

impl Participants {
    /// None yet.
    pub fn new(options: BridgeOptions) -> Self {
        let tokens = Mutex::new(RecentMap::new(PARTICIPANTS_MAX));
        let fault = Mutex::new(Some(Refusal::new(Code::Unavailable, "it starts; wait")));
        let (entries, total, closing) = (Mutex::default(), Arc::default(), Mutex::default());
        Self { options, tokens, entries, fault, total, closing }
    }

    /// Tools that are on.
    pub fn sets(&self) -> &[ToolSet] {
        &self.options.sets
    }

    /// What is counted.
    pub const fn metrics(&self) -> &BridgeMetrics {
        &self.options.metrics
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Why no gateway is ready, as far as is known.
    pub fn fault(&self) -> Option<Refusal> {
        self.fault.lock().clone()
    }

    /// What carries calls out for the bearer of a token.
    ///
    /// # Errors
    /// As [`Participants::bearer`] and [`Participants::service_of`].
    pub async fn service(&self, token: &str) -> Result<Arc<ToolService>, Refusal> {
        self.service_of(&self.bearer(token).await?)
    }

    /// Whose token this is, while it is good for a moment yet.
    ///
    /// # Errors
    /// What the gateway says of the token.
    pub async fn bearer(&self, token: &str) -> Result<Bearer, Refusal> {
        let whoami = self.whoami(token).await?;
        if whoami.expires_s <= now_s() + EXPIRY_MARGIN_S {
            return Err(Refusal::new(Code::TokenExpired, "the token has expired, or does so at once"));
        }
        Ok(Bearer { token: Arc::from(token), whoami })
    }

    /// What carries calls out for this bearer.
    ///
    /// # Errors
    /// [`Code::Overloaded`].
    pub fn service_of(&self, Bearer { token, whoami }: &Bearer) -> Result<Arc<ToolService>, Refusal> {
        let mut entries = self.entries.lock();
        if entries.len() >= PARTICIPANTS_MAX && !entries.contains_key(&whoami.agent) {
            let fault = "this bridge serves as many agents as it can";
            return Err(Refusal::new(Code::Overloaded, fault).retry_after_ms(5000));
        }
        let entry = entries.entry(whoami.agent.clone()).or_insert_with(|| self.open(whoami, token));
        entry.last_asked = Instant::now();
        let mut newest = entry.token.lock();
        // One that the gateways have refused since gives way to any.
        if whoami.expires_s >= newest.1 || entry.participant.is_refused() {
            *newest = (token.to_string(), whoami.expires_s);
        }
        drop(newest);
        Ok(Arc::clone(&entry.service))
    }

    /// Whose token this is, as a gateway says.
    async fn whoami(&self, token: &str) -> Result<Whoami, Refusal> {
        let digest = Digest::of_bytes(token.as_bytes());
        let known = self.tokens.lock().value(&digest).filter(|(_, until)| *until > Instant::now()).cloned();
        if let Some((whoami, _)) = known {
            return Ok(whoami);
        }
        let answer = self.options.gateways.ask(token, GatewayRequest::Get("/v1/whoami")).await?;
        let unreadable = |_| Refusal::new(Code::Internal, "the gateway's answer cannot be read");
        let whoami = Whoami::deserialize(answer).map_err(unreadable)?;
        self.tokens.lock().insert(digest, (whoami.clone(), Instant::now() + IDENTITY_KEPT_FOR));
        Ok(whoami)
    }

    fn open(&self, whoami: &Whoami, token: &str) -> Served {
        let token = Arc::new(Mutex::new((token.to_owned(), whoami.expires_s)));
        let newest = Arc::clone(&token);
        let source = move || newest.lock().0.clone();
        let identity = Identity { agent: whoami.agent.clone(), token: Token::renewed(source) };
        let BridgeOptions { gateways, transport, sets, limits, instance, metrics: _ } = &self.options;
        let participant = Participant::open(identity, transport(), Arc::clone(&self.total));
        let service = ToolService::new(
            Arc::clone(&participant),
            gateways.clone(),
            sets.clone(),
            limits.clone(),
            instance.clone(),
        );
        Served { service: Arc::new(service), participant, token, last_asked: Instant::now(), lost: 0 }
    }

    /// Takes registrations back and closes participants when their time is over; goes on until it is dropped.
    pub async fn tend(&self) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tick.tick().await;
            let services: Vec<_> = self.entries.lock().values().map(|entry| Arc::clone(&entry.service)).collect();
            join_all(services.iter().map(|service| service.deregister_absent())).await;
            let over: Vec<_> = self.entries.lock().extract_if(|_, entry| entry.is_over()).collect();
            self.closing.lock().extend(over.into_iter().map(|(_, entry)| entry.service));
            self.close_those_over().await;
            self.count();
            let ready = self.options.gateways.ask("", GatewayRequest::Get("/readyz")).await;
            *self.fault.lock() = ready.err();
        }
    }

    fn count(&self) {
        let mut entries = self.entries.lock();
        let lost = entries.values_mut().map(|entry| {
            let lost = entry.participant.memory().lost();
            lost - std::mem::replace(&mut entry.lost, lost)
        });
        let lost = lost.sum();
        self.options.metrics.tell(entries.len(), lost);
    }

    /// Closes all participants.
    pub async fn close(&self) {
        let all: Vec<_> = self.entries.lock().drain().collect();
        self.closing.lock().extend(all.into_iter().map(|(_, entry)| entry.service));
        self.close_those_over().await;
    }

    async fn close_those_over(&self) {
        let over = self.closing.lock().clone();
        join_all(over.iter().map(|service| service.close())).await;
        self.closing.lock().retain(|service| !over.iter().any(|closed| Arc::ptr_eq(closed, service)));
    }
}

impl Served {
    /// Its newest token has expired, or nobody has asked for long and nothing is open.
    fn is_over(&self) -> bool {
        let expires_s = self.token.lock().1;
        let is_idle = self.last_asked.elapsed() > IDLE_MAX && !self.participant.memory().is_engaged();
        expires_s <= now_s() + EXPIRY_MARGIN_S || is_idle
    }
}

fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
