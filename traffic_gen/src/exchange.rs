//! A whole exchange in this process: one gateway and any number of engines, over any bus. What `llmx demo` and the tests
//! run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use agents::{Identity, Token};
use bus::Bus;
use gateway::keys::{Claims, KeyAlgorithm, SigningKey};
use gateway::{
    AuthConfig, ConsoleAccess, Gateway, GatewayConfig, GatewayHandle, GatewayMetrics, KeySource, LimitConfig,
};
use policy_core::Limits;
use policy_engine::{CheckpointConfig, Engine, EngineConfig, EngineHandle, EngineMetrics, FoldObserver, OutboxConfig};
use prometheus::Registry;
use schemas::{AgentId, Policy};
use telemetry::Tracer;

use crate::invariants::{Invariant, Verdict};
use crate::live::Access;
use agents::control::{ControlClient, ControlError};

/// Issuer of the tokens of an exchange started here.
const ISSUER: &str = "llmx-local";
/// Lifetime of those tokens, in seconds: one day, the longest a gateway takes by default.
const TOKEN_LIFETIME_S: u64 = 86_400;
/// Longest wait for the engine to own its lanes and the gateway to know its registry.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// What can go wrong on the way up.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The gateway.
    #[error(transparent)]
    Gateway(#[from] gateway::GatewayError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] policy_engine::EngineError),
    /// The signing key.
    #[error(transparent)]
    Key(#[from] gateway::KeyError),
    /// The metrics.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// It took too long.
    #[error("the exchange was not ready within {} s", READY_TIMEOUT.as_secs())]
    NotReady,
}

/// How to start one.
#[derive(Clone)]
pub struct ExchangeOptions {
    /// Where HTTP is served; absent: a free port of loopback.
    pub listen: Option<SocketAddr>,
    /// Policies offered besides the presets.
    pub policies: Vec<Policy>,
    /// The policy of calls that name none.
    pub default_policy: Option<String>,
    /// The gateway's rates and bounds.
    pub limits: LimitConfig,
    /// Gaps, attempts and bounds of the engine's deliveries.
    pub outbox: OutboxConfig,
    /// How often the engines store their states.
    pub checkpoint: CheckpointConfig,
    /// How long entries of the register stay at least, in milliseconds; 0: for ever.
    pub register_keep_ms: u64,
    /// Hears what the lanes of the first engine fold.
    pub observer: Option<Arc<dyn FoldObserver>>,
    /// How many engines share the lanes; 0 is taken as 1. Only the first one's metrics are in the registry.
    pub engines: usize,
    /// Who may see the gateway's console.
    pub console: ConsoleAccess,
    /// Where the spans of gateway and engines go.
    pub tracer: Tracer,
    /// The key that signs tokens; absent: one made for this exchange.
    pub key: Option<SigningKey>,
}

impl Default for ExchangeOptions {
    fn default() -> Self {
        Self {
            listen: None,
            policies: Vec::new(),
            default_policy: None,
            limits: LimitConfig::default(),
            outbox: OutboxConfig::default(),
            checkpoint: CheckpointConfig::default(),
            register_keep_ms: EngineConfig::new("").register_keep_ms,
            observer: None,
            engines: 1,
            console: ConsoleAccess::default(),
            tracer: Tracer::off(),
            key: None,
        }
    }
}

/// A running exchange.
pub struct Exchange {
    /// Its bus.
    pub bus: Bus,
    /// Metrics of both processes' parts.
    pub registry: Registry,
    gateway: GatewayHandle,
    engine: EngineHandle,
    standbys: Vec<EngineHandle>,
    outbox_max: usize,
    key: SigningKey,
    url: String,
}

impl Exchange {
    /// Starts gateway and engine and waits until both are ready.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub async fn start(bus: Bus, options: ExchangeOptions) -> Result<Self, ExchangeError> {
        let key = match options.key {
            Some(key) => key,
            None => SigningKey::generate(KeyAlgorithm::EdDsa)?,
        };
        let registry = Registry::new();
        let engine_metrics = Arc::new(EngineMetrics::new(&registry)?);
        let outbox_max = options.outbox.in_flight_max;
        let engine_config = EngineConfig {
            outbox: options.outbox,
            checkpoint: options.checkpoint,
            register_keep_ms: options.register_keep_ms,
            tracer: options.tracer.clone(),
            ..EngineConfig::new("")
        };
        let engine = start_engine(&bus, 0, &engine_config, engine_metrics, options.observer).await?;
        let mut standbys = Vec::new();
        for number in 1..options.engines {
            let metrics = Arc::new(EngineMetrics::new(&Registry::new())?);
            standbys.push(start_engine(&bus, number, &engine_config, metrics, None).await?);
        }
        let mut config =
            GatewayConfig::new(AuthConfig::new(KeySource::Inline(gateway::keys::key_set(&[&key])), ISSUER));
        config.listen = Some(options.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))));
        config.limits = options.limits;
        config.console = options.console;
        config.tracer = options.tracer;
        config.policies = policy_core::presets();
        config.policies.extend(options.policies);
        if let Some(policy) = options.default_policy {
            config.default_policy = policy;
        }
        let gateway_metrics = Arc::new(GatewayMetrics::new(&registry)?);
        let gateway = Gateway::start(bus.clone(), config, gateway_metrics);
        let gateway = tokio::time::timeout(READY_TIMEOUT, gateway).await.map_err(|_| ExchangeError::NotReady)??;
        let url = gateway.local_addr().map(|address| format!("http://{address}")).unwrap_or_default();
        Ok(Self { bus, registry, gateway, engine, standbys, outbox_max, key, url })
    }

    /// Base address of the gateway's HTTP interface.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The engine; the first of several.
    pub fn engine(&self) -> &EngineHandle {
        &self.engine
    }

    /// The gateway.
    pub fn gateway(&self) -> &GatewayHandle {
        &self.gateway
    }

    /// The key that signs this exchange's tokens.
    pub fn signing_key(&self) -> &SigningKey {
        &self.key
    }

    /// Claims a token for `agent` would carry.
    pub fn claims(agent: &AgentId) -> Claims {
        Claims::new(agent, ISSUER, "llmx", TOKEN_LIFETIME_S)
    }

    /// An agent with a token of this exchange.
    ///
    /// # Errors
    /// [`ExchangeError::Key`] when the token cannot be signed.
    pub fn identity(&self, agent: &AgentId) -> Result<Identity, ExchangeError> {
        let token = self.key.sign(&Self::claims(agent))?;
        Ok(Identity { agent: agent.clone(), token: Token::fixed(token) })
    }

    /// A token of its own for each name.
    ///
    /// # Errors
    /// As [`Exchange::identity`].
    pub fn identities(
        &self,
        names: impl IntoIterator<Item = AgentId>,
    ) -> Result<BTreeMap<AgentId, Identity>, ExchangeError> {
        names.into_iter().map(|name| self.identity(&name).map(|identity| (name, identity))).collect()
    }

    /// Acts with the access that these agents have over the bus.
    ///
    /// # Errors
    /// Those of `act`; [`ExchangeError::Key`] when a token cannot be signed, [`ControlError`] when the HTTP client cannot be
    /// set up.
    pub async fn with_access<T, E: From<ExchangeError> + From<ControlError>>(
        &self,
        names: impl IntoIterator<Item = AgentId>,
        act: impl AsyncFnOnce(&Access<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let control = ControlClient::try_new(self.url())?;
        let transport = |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&self.bus)) };
        let identities = self.identities(names)?;
        let identity = |name: &AgentId| identities[name].clone();
        act(&Access { control: &control, transport: &transport, identity: &identity }).await
    }

    /// A token that may put policies and groups.
    ///
    /// # Errors
    /// [`ExchangeError::Key`] when the token cannot be signed.
    pub fn admin_token(&self) -> Result<String, ExchangeError> {
        let admin = AgentId::try_new("operator").expect("`operator` is a name");
        Ok(self.key.sign(&Self::claims(&admin).admin())?)
    }

    /// Invariant "bounded", as far as it can be seen from outside: every lane within its limits, nothing lost by a reader
    /// that did not keep up.
    pub fn check_bounds(&self, verdict: &mut Verdict) {
        let open_max = Limits::default().open_max;
        let engines = self.standbys.iter().chain([&self.engine]);
        for lane in engines.flat_map(|engine| engine.status().lanes) {
            let is_bounded = lane.outbox <= self.outbox_max && lane.open <= open_max;
            verdict.check(Invariant::Bounded, is_bounded, || format!("{lane:?}"));
        }
        let dropped = self.bus.pub_sub.dropped();
        verdict.check(Invariant::Bounded, dropped == 0, || format!("slow readers lost {dropped} messages"));
    }

    /// Stops intake, drains, stops.
    pub async fn shutdown(self) {
        self.gateway.shutdown().await;
        for standby in self.standbys {
            standby.shutdown().await;
        }
        self.engine.shutdown().await;
    }
}

/// Starts one of several engines.
async fn start_engine(
    bus: &Bus,
    number: usize,
    config: &EngineConfig,
    metrics: Arc<EngineMetrics>,
    observer: Option<Arc<dyn FoldObserver>>,
) -> Result<EngineHandle, ExchangeError> {
    let id = match number {
        0 => format!("engine-{}", std::process::id()),
        number => format!("engine-{}-{number}", std::process::id()),
    };
    let config = EngineConfig { id, ..config.clone() };
    let starting = Engine::start(bus.clone(), config, metrics, observer);
    Ok(tokio::time::timeout(READY_TIMEOUT, starting).await.map_err(|_| ExchangeError::NotReady)??)
}
