//! The gateway: everything between an agent and the log.
//!
//! ```text
//! HTTP, WebSocket, bus ──> Admission: size → token → rate → parse → schema → scope → consent → duplicates ──> log
//! HTTP, WebSocket, SSE <── inbox of the agent <── engine (by the bus);   acknowledgements, collected ──> engine
//! /v1/agents, /v1/groups, /v1/policies ──> buckets of the bus, followed by every gateway
//! ```
//!
//! A gateway holds no negotiation state: any number of them serve one exchange, and none decides anything. What it
//! annotates a call with (policy, invited agents) is pinned in the log with the call.
//!
//! Invariants: nothing is told "accepted" before the record that carries it is stored; `from` is the subject of the
//! token; whoever does not consent is not reached; every queue, map and wait is bounded; no request ends the process.
//!
//! Reading order: [`Admission`], then `auth`, `admission/invite`, `registry`, `registry/presence`, `http`.

mod acknowledgements;
mod admission;
mod agora_token;
mod audit;
mod auth;
mod bus_ingress;
mod config;
mod console;
mod conversations;
mod error;
mod http;
pub mod keys;
mod metrics;
mod openings;
mod problem;
mod rate_limit;
mod registry;
mod streams;
mod transactions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::health::HealthProbe;
use futures_util::future::BoxFuture;
use schemas::GatewayId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use acknowledgements::Acknowledgements;
pub use admission::{Accepted, Admission, Credentials, Ingress};
pub use auth::{Identity, TOKEN_BYTES_MAX};
pub use config::{Audiences, AuthConfig, ConsoleAccess, GatewayConfig, KeySource, LimitConfig, Secret};
pub use config::{TOKEN_LIFETIME_S_DEFAULT, TOKEN_LIFETIME_S_MAX};
pub use error::{ConfigFault, GatewayError, KeyError};
pub use http::server;
pub use metrics::GatewayMetrics;
pub use streams::{AgentStream, AgentStreams, UnreadableInbox};

use auth::Authenticator;
use bus_ingress::BusIngress;
use openings::Openings;
use rate_limit::RateLimits;
use registry::{EvidenceFollower, PresenceReports, Registry, RequestNotes};

/// Scope (RFC 8693 `scope` claim) of tokens that may put policies and groups.
pub const ADMIN_SCOPE: &str = "llmx:admin";
/// Kid under which the development secret verifies HS256 tokens.
pub const DEV_SECRET_KID: &str = "dev";
/// How long the control plane's documents may take to arrive at the start.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long [`GatewayHandle::shutdown`] waits for what is under way.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// The way a message came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Transport {
    /// `POST /v1/messages`.
    Http,
    /// A frame on `GET /v1/ws`.
    #[strum(serialize = "ws")]
    WebSocket,
    /// `gw.in.<agent>` on the bus.
    Nats,
    /// A call within the process.
    InProcess,
}

/// Starts gateways.
#[derive(Debug, Clone, Copy)]
pub struct Gateway;

/// A running gateway. Dropping it stops it without waiting.
pub struct GatewayHandle {
    admission: Admission,
    acknowledgements: Acknowledgements,
    registry: Arc<Registry>,
    local_addr: Option<SocketAddr>,
    /// Streams that are open.
    streams: AgentStreams,
    /// Whether the bus answers; asked only where somebody may want to know.
    health: Option<Arc<HealthProbe>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl GatewayMetrics {
    /// Registers every metric.
    ///
    /// # Errors
    /// [`prometheus::Error`] when the registry holds one of them already.
    pub fn new(registry: &prometheus::Registry) -> Result<Self, prometheus::Error> {
        Self::for_paths(registry, &http::paths())
    }
}

impl Gateway {
    /// Starts a gateway: returns when it is ready on every way in.
    ///
    /// # Errors
    /// [`GatewayError`]: nothing keeps running.
    pub fn start(
        bus: Bus,
        config: GatewayConfig,
        metrics: Arc<GatewayMetrics>,
    ) -> BoxFuture<'static, Result<GatewayHandle, GatewayError>> {
        // Boxed: every crate that awaits an `async fn` compiles it again.
        Box::pin(async move {
            config.check()?;
            let auth = Arc::new(Authenticator::load(config.auth.clone(), metrics.clone()).await?);
            agora_token::check(&config, &auth).await?;
            let limits = Arc::new(RateLimits::new(&config.limits, metrics.clone()));
            let openings = Openings::new(config.limits.engine_silence_ms, Instant::now());
            let registry =
                Arc::new(Registry::new(bus.key_value.clone(), &config.default_policy, openings, metrics.clone()));
            let (notes, noted) = RequestNotes::new(registry.clone());
            let admission =
                Admission::new(&bus, &config, auth.clone(), limits.clone(), registry.clone(), notes, metrics.clone());
            let acknowledgements = Acknowledgements::new(&bus.pub_sub, &config.id, metrics.clone());
            let streams = AgentStreams::new(
                GatewayId::try_new(&config.id).map_err(|error| GatewayError::Config(error.to_string()))?,
                bus.pub_sub.clone(),
                registry.clone(),
                metrics.clone(),
                config.limits.streams_per_agent_max,
            );
            let handle = GatewayHandle {
                admission,
                acknowledgements: acknowledgements.clone(),
                registry: registry.clone(),
                local_addr: None,
                streams,
                health: None,
                stop: CancellationToken::new(),
                tasks: TaskTracker::new(),
            };
            for bucket in registry::FOLLOWED {
                handle.tasks.spawn(registry.clone().drive(bucket, handle.stop.clone()));
            }
            let (audit, stop) = (Arc::clone(handle.admission.audit()), handle.stop.clone());
            handle.tasks.spawn(async move { audit.drive(stop).await });
            handle.tasks.spawn(auth.drive_refresh(handle.stop.clone()));
            handle.tasks.spawn(limits.drive_sweeps(handle.stop.clone()));
            handle.tasks.spawn(noted.drive(handle.stop.clone()));
            handle.tasks.spawn(acknowledgements.drive(handle.stop.clone()));
            tokio::time::timeout(CATCH_UP_TIMEOUT, registry.caught_up())
                .await
                .map_err(|_| GatewayError::NotCaughtUp(CATCH_UP_TIMEOUT))?;
            registry::seed(&registry, &config).await?;
            let streams = handle.streams.clone();
            let open_streams = Box::new(move || streams.agents());
            let presence =
                PresenceReports::subscribe(&bus.pub_sub, &config.id, registry.clone(), open_streams, metrics.clone())
                    .await?;
            handle.tasks.spawn(presence.drive(handle.stop.clone()));
            let evidence = EvidenceFollower::subscribe(&bus, registry.clone()).await?;
            handle.tasks.spawn(evidence.drive(handle.stop.clone()));
            handle.streams.start(&handle.tasks, &handle.stop).await?;
            let in_flight_max = config.limits.bus_in_flight_max;
            let ingress = BusIngress::subscribe(&bus, handle.admission.clone(), in_flight_max).await?;
            handle.tasks.spawn(ingress.drive(handle.stop.clone()));
            handle.serve_http(bus, config, metrics).await
        })
    }
}

impl GatewayHandle {
    /// Where HTTP is served, when it is.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addr
    }

    /// Whether the gateway knows its agents, groups and policies, reaches the bus, and is not stopping: what `/readyz`
    /// says. Without HTTP nobody asks, and the bus counts as reached.
    pub fn is_ready(&self) -> bool {
        let is_reached = self.health.as_ref().is_none_or(|health| health.check().is_ok());
        self.registry.is_caught_up() && is_reached && !self.stop.is_cancelled()
    }

    /// The way in for callers in the same process.
    pub fn admission(&self) -> Admission {
        self.admission.clone()
    }

    /// Takes acknowledgements of agents in the same process.
    pub fn acknowledgements(&self) -> Acknowledgements {
        self.acknowledgements.clone()
    }

    /// The streams of agents, which callers in the same process may open as well.
    pub fn streams(&self) -> AgentStreams {
        self.streams.clone()
    }

    /// Stops: no new connections, streams closed with a reason, requests under way answered, acknowledgements passed
    /// on, within a bounded time.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        let ending = async {
            self.tasks.wait().await;
            self.acknowledgements.flush().await;
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, ending).await.is_err() {
            tracing::warn!("the gateway stopped before everything under way had ended");
        }
    }
}

impl Drop for GatewayHandle {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What comes of a future before the gateway stops; nothing where it stops first.
async fn until<T>(stop: &CancellationToken, coming: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = stop.cancelled() => None,
        output = coming => Some(output),
    }
}
