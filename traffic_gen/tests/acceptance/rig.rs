//! A whole exchange in this process, for agents driven by hand ([`crate::party`]) or by strategies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::Identity;
use agents::control::ControlClient;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use bus::Bus;
use bus::memory::{self, MemoryOptions};
use gateway::{AuthConfig, Gateway, GatewayConfig, GatewayHandle, GatewayMetrics, KeySource};
use prometheus::Registry;
use reqwest::Client;
use schemas::control::{Consent, ConsentEffect, ReceiptPreference, Registration};
use schemas::ids::Capability;
use schemas::record::{EngineEvent, Entry};
use schemas::{AgentId, Policy, Timestamp, TopicName};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::Verdict;
use traffic_gen::live::{self, Access, CallScenario, Population};
use traffic_gen::recorder::{Counts, Recorder};

use crate::log;
use crate::party::Party;

/// Longest wait for something that must happen; hanging is failing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The log's clock in the hand of a test: it stands still until it is moved.
#[derive(Clone)]
pub(crate) struct LogTime(Arc<AtomicU64>);

impl LogTime {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn move_to(&self, time: Timestamp) {
        self.0.store(time.0, Ordering::SeqCst);
    }
}

/// An exchange and its control plane.
pub(crate) struct Rig {
    pub(crate) exchange: Exchange,
    pub(crate) control: ControlClient,
    http: Client,
}

impl Rig {
    /// On an embedded bus, everything else as by default.
    pub(crate) async fn start() -> Self {
        Self::start_with(ExchangeOptions::default()).await
    }

    /// On an embedded bus.
    pub(crate) async fn start_with(options: ExchangeOptions) -> Self {
        Self::on(memory::open(MemoryOptions::default()), options).await
    }

    /// On any bus.
    pub(crate) async fn on(bus: Bus, options: ExchangeOptions) -> Self {
        let exchange = Exchange::start(bus, options).await.unwrap();
        let control = ControlClient::try_new(exchange.url()).unwrap();
        Self { exchange, control, http: Client::builder().no_proxy().timeout(PATIENCE).build().unwrap() }
    }

    /// With policies besides the presets, and with the log's clock in hand.
    pub(crate) async fn with_log_time(policies: Vec<Policy>) -> (Self, LogTime) {
        // 2026-11-20T20:00:00Z, as the documents say.
        let time = LogTime(Arc::new(AtomicU64::new(1_795_204_800_000_000)));
        let read = time.clone();
        let options = MemoryOptions { clock: Arc::new(move || read.now()), ..MemoryOptions::default() };
        let rig = Self::on(memory::open(options), ExchangeOptions { policies, ..ExchangeOptions::default() }).await;
        (rig, time)
    }

    /// With policies besides the presets.
    pub(crate) async fn with_policies(policies: Vec<Policy>) -> Self {
        Self::start_with(ExchangeOptions { policies, ..ExchangeOptions::default() }).await
    }

    pub(crate) fn identity(&self, name: &str) -> Identity {
        self.exchange.identity(&agent(name)).unwrap()
    }

    /// Registers an agent that takes every call, and lets the test speak and hear for it.
    pub(crate) async fn join(&self, name: &str) -> Party {
        self.join_as(name, &open_registration()).await
    }

    /// Registers an agent and lets the test speak and hear for it.
    pub(crate) async fn join_as(&self, name: &str, registration: &Registration) -> Party {
        self.register(name, registration).await;
        Party::connect(&self.exchange.bus, self.exchange.url(), self.http.clone(), self.identity(name)).await
    }

    /// Registers an agent that nobody speaks for.
    pub(crate) async fn register(&self, name: &str, registration: &Registration) {
        let token = self.identity(name).token.current();
        self.control.register(&agent(name), &token, registration).await.unwrap();
    }

    /// Puts a document as the operator.
    pub(crate) async fn put_as_admin(&self, path: &str, document: &Value) {
        let token = self.exchange.admin_token().unwrap();
        self.control.put(path, &token, document).await.unwrap();
    }

    /// A second gateway of the same exchange, and its address: it knows nothing of what the first has admitted.
    pub(crate) async fn second_gateway(&self) -> (GatewayHandle, String) {
        let keys = gateway::keys::key_set(&[self.exchange.signing_key()]);
        let issuer = Exchange::claims(&agent("anyone")).iss;
        let mut config = GatewayConfig::new(AuthConfig::new(KeySource::Inline(keys), issuer));
        config.id = "gateway-2".to_owned();
        let metrics = Arc::new(GatewayMetrics::new(&Registry::new()).unwrap());
        let gateway = Gateway::start(self.exchange.bus.clone(), config, metrics).await.unwrap();
        let url = format!("http://{}", gateway.local_addr().unwrap());
        (gateway, url)
    }

    /// Runs a scenario against the exchange, over its bus; the counts and what the agents' own observations prove.
    pub(crate) async fn run(&self, scenario: &CallScenario) -> (Counts, Verdict) {
        let bus = self.exchange.bus.clone();
        let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
        let identity = |name: &AgentId| self.identity(name.as_str());
        let access = Access { control: &self.control, transport: &transport, identity: &identity };
        let recorder = Arc::new(Recorder::start(Instant::now(), true, None));
        let population = Population::start(&access, scenario, Some(&recorder)).await.unwrap();
        live::call(&access, scenario, &recorder, &CancellationToken::new()).await.unwrap();
        population.stop().await.unwrap();
        recorder.finish().unwrap()
    }

    /// Every entry of the log, lane by lane.
    pub(crate) async fn logged(&self) -> Vec<Entry> {
        log::entries(&self.exchange.bus).await
    }

    /// What engines have added to the log.
    pub(crate) async fn engine_events(&self) -> Vec<EngineEvent> {
        let entries = self.logged().await;
        entries
            .into_iter()
            .filter_map(|entry| match entry {
                Entry::Engine { event, .. } => Some(event),
                Entry::Message(_) | Entry::Tick => None,
            })
            .collect()
    }
}

/// Waits until a look at the world gives something.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("it did not happen: {what}"))
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).unwrap()
}

/// Takes every call of the topic `courier`.
pub(crate) fn open_registration() -> Registration {
    registration(ConsentEffect::Allow, &["haul"])
}

/// Subscribes to `courier`.
pub(crate) fn registration(default: ConsentEffect, capabilities: &[&str]) -> Registration {
    let capabilities = capabilities.iter().map(|name| Capability::try_new(name).unwrap()).collect();
    let topics = vec![TopicName::try_new("courier").unwrap()];
    let (consent, receipts) = (Consent { default, rules: Vec::new() }, ReceiptPreference::All);
    Registration { capabilities, topics, consent, receipts, ..Registration::default() }
}

/// The preset `high` under another name, changed.
pub(crate) fn policy(id: &str, change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = policy_core::preset("high").unwrap();
    policy.id = id.to_owned();
    change(&mut policy);
    policy_core::check(&policy).unwrap();
    policy
}
