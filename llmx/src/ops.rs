//! The health port of a process that serves nothing else over HTTP.
//!
//! | path | answers |
//! |---|---|
//! | `/healthz` | 200 as long as the process runs |
//! | `/readyz` | 200, or 503 with a problem document (RFC 9457) that lists what refuses readiness, each with its remedy |
//! | `/status` | the state in full |
//! | `/metrics` | every metric, as of the last second, in Prometheus's text format |
//!
//! It opens before the process has caught up, and closes after it has handed over, so that neither looks like a crash.

pub mod bus;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::bus::Bus;
use ::bus::health::HealthProbe;
use ::gateway::server::{self, ServerOptions};
use anyhow::Context;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use prometheus::Registry;
use schemas::AgentId;
use serde_json::{Value, json};
use telemetry::metrics::{self as process_metrics, Build, ScrapeCache};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::output::{Failure, traces};

/// Connections open at once: a scraper, an orchestrator and a few people who look.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send a header, or its next request.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for answers under way when the port closes.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// What this program was made from.
const BUILD: Build<'static> =
    Build { version: env!("CARGO_PKG_VERSION"), git_sha: env!("LLMX_BUILT_FROM"), rustc: env!("LLMX_BUILT_BY") };

/// Checks the name of an engine or a gateway.
pub fn instance_id(text: &str) -> Result<String, String> {
    // Names of instances follow the rule of agents' names, which are tokens of subjects.
    let is_name = AgentId::try_new(text).is_ok();
    if is_name { Ok(text.to_owned()) } else { Err("a name has 1 to 64 characters of A-Z a-z 0-9 _ -".to_owned()) }
}

/// What a process says about itself.
#[derive(Debug, Clone)]
pub struct HealthReport {
    /// Whether it does all it is there for.
    pub is_ready: bool,
    /// What refuses readiness, each with its remedy.
    pub faults: Vec<String>,
    /// Its state in full, for `/status`.
    pub state: Value,
}

/// A registry that holds what every process tells: what it is made from, what it uses, how its runtime fares, and what
/// became of its spans. Must be called on the runtime.
pub fn registry() -> Result<Registry, Failure> {
    let registry = Registry::new();
    process_metrics::process::register(&registry, BUILD)?;
    process_metrics::runtime::register(&registry)?;
    traces::counts()?.register(&registry)?;
    telemetry::log::stderr::stderr().register(&registry)?;
    Ok(registry)
}

/// Opens a health port at `listen`, if it says where. Without a bus, silence of the bus is no fault.
pub fn open(listen: Option<SocketAddr>, bus: Option<&Bus>, registry: &Registry) -> Result<Option<HealthPort>, Failure> {
    let Some(address) = listen else { return Ok(None) };
    let options = ServerOptions::new(CONNECTIONS_MAX, CLIENT_TIMEOUT);
    open_with(address, bus, registry, (Router::new(), options)).map(Some)
}

/// The same with further routes.
///
/// # Errors
/// The address is taken, or is none of this machine.
pub fn open_with(
    address: SocketAddr,
    bus: Option<&Bus>,
    registry: &Registry,
    routes: (Router, ServerOptions),
) -> Result<HealthPort, Failure> {
    let open = || HealthPort::open(address, bus.cloned(), registry.clone(), routes);
    Ok(open().with_context(|| format!("cannot listen on {address}"))?)
}

/// An open health port.
pub struct HealthPort {
    address: SocketAddr,
    site: Arc<Site>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// Reads the present report.
type Reading = Box<dyn Fn() -> HealthReport + Send + Sync>;

struct Site {
    /// Whether the bus answers, where there is one.
    health: Option<HealthProbe>,
    registry: Registry,
    scrapes: ScrapeCache,
    /// Empty while the process starts.
    reading: OnceLock<Reading>,
}

impl HealthPort {
    fn open(
        address: SocketAddr,
        bus: Option<Bus>,
        registry: Registry,
        (routes, options): (Router, ServerOptions),
    ) -> std::io::Result<Self> {
        let listener = server::bind(address)?;
        let address = listener.local_addr()?;
        let (health, scrapes) = (bus.is_some().then(HealthProbe::new), ScrapeCache::default());
        let site = Arc::new(Site { health, registry, scrapes, reading: OnceLock::new() });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let router = Router::new()
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .route("/status", get(status))
            .route("/metrics", get(metrics))
            .with_state(Arc::clone(&site))
            .merge(routes);
        tasks.spawn(server::drive(listener, router, options, tasks.clone(), stop.clone()));
        if let Some(bus) = bus {
            let (asking, stopped) = (Arc::clone(&site), stop.clone());
            tasks.spawn(async move {
                let Some(health) = &asking.health else { return };
                tokio::select! {
                    () = stopped.cancelled() => {}
                    _ = health.drive(&bus) => {}
                }
            });
        }
        Ok(Self { address, site, stop, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process has started: from now on `read` says how it is.
    pub fn report(&self, read: impl Fn() -> HealthReport + Send + Sync + 'static) {
        // Only the first start counts; a process has one.
        let _ = self.site.reading.set(Box::new(read));
    }

    /// Closes the port; answers under way end within a bounded time.
    pub async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(CLOSE_MAX, self.tasks.wait()).await;
    }
}

impl Site {
    /// The present report, a silent bus among the faults.
    fn read(&self) -> HealthReport {
        let mut report = self.reading.get().map_or_else(starting, |read| read());
        if let Some(Err(unreachable)) = self.health.as_ref().map(HealthProbe::check) {
            report.is_ready = false;
            report.faults.push(unreachable.to_string());
        }
        report
    }
}

fn starting() -> HealthReport {
    let faults = vec!["it starts; wait".to_owned()];
    HealthReport { is_ready: false, faults, state: json!({}) }
}

async fn alive() -> Response {
    Json(json!({ "status": "alive" })).into_response()
}

async fn ready(State(site): State<Arc<Site>>) -> Response {
    let HealthReport { is_ready, faults, state } = site.read();
    if is_ready {
        return Json(json!({ "status": "ready", "state": state })).into_response();
    }
    let problem = json!({
        "type": "urn:llmx:problem:unavailable",
        "title": "Not ready",
        "status": 503,
        "code": "unavailable",
        "detail": faults.join("; "),
        "faults": faults,
        "state": state,
    });
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::SERVICE_UNAVAILABLE, kind, problem.to_string()).into_response()
}

async fn status(State(site): State<Arc<Site>>) -> Response {
    let HealthReport { is_ready, faults, state } = site.read();
    Json(json!({ "is_ready": is_ready, "faults": faults, "state": state })).into_response()
}

async fn metrics(State(site): State<Arc<Site>>) -> Response {
    let registry = site.registry.clone();
    match site.scrapes.text(move || process_metrics::to_text(&registry)).await {
        Ok(text) => ([(header::CONTENT_TYPE, process_metrics::CONTENT_TYPE)], text.to_string()).into_response(),
        Err(error) => {
            tracing::error!(%error, "the metrics cannot be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
