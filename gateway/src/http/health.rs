//! `/healthz`, `/readyz`, `/metrics`: for whatever watches the process. No token is asked for them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use schemas::{Code, Refusal};
use serde_json::json;
use telemetry::metrics::{CONTENT_TYPE, to_text};
use tokio::time::Instant;

use super::{HttpResult, RouteSpec, Site, document};
use crate::metrics::gauge_value;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/healthz", &["get"], get(alive)), ("/readyz", &["get"], get(ready)), ("/metrics", &["get"], get(metrics))]
}

/// The process answers.
async fn alive() -> HttpResult {
    document(&json!({ "status": "alive" }))
}

/// The gateway knows its agents, groups and policies, reaches the bus, and is not stopping. What every gateway suffers alike
/// makes it degraded, not unready: a proxy that turned away from all of them would help nobody.
async fn ready(State(site): State<Arc<Site>>) -> HttpResult {
    if site.stop.is_cancelled() {
        return Err(Refusal::new(Code::Unavailable, "the gateway stops").into());
    }
    if !site.registry.is_caught_up() {
        return Err(Refusal::new(Code::Unavailable, "agents, groups and policies are not read yet").into());
    }
    if let Err(fault) = site.health.check() {
        return Err(Refusal::new(Code::Unavailable, fault.to_string()).into());
    }
    let faults = degraded(&site);
    let status = if faults.is_empty() { "ready" } else { "degraded" };
    document(&json!({ "status": status, "gateway": site.config.id, "faults": faults }))
}

/// What the exchange does not do at present, each with its remedy.
fn degraded(site: &Site) -> Vec<String> {
    let now = Instant::now();
    let refused = site.registry.openings().faults(site.lanes, now);
    refused.into_iter().chain(site.admission.log_faults(now)).collect()
}

/// Everything the process's registry holds, as of the last second.
async fn metrics(State(site): State<Arc<Site>>) -> HttpResult {
    let measured = site.clone();
    let write = move || {
        measure(&measured);
        to_text(measured.metrics.registry())
    };
    let text = site.scrapes.text(write).await.map_err(|error| unwritable(&error))?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE))], text.to_string()).into_response())
}

fn unwritable(error: &dyn std::error::Error) -> Refusal {
    tracing::error!(%error, "the metrics cannot be written");
    Refusal::new(Code::Internal, "the metrics cannot be written")
}

/// What is measured when somebody asks, instead of with every change.
fn measure(site: &Site) {
    let serving = &site.metrics.serving;
    site.metrics.messages.queue_depth.set(gauge_value(site.admission.queued()));
    serving.agents_connected.set(gauge_value(site.streams.agents_len()));
    serving.bus_dropped.set(i64::try_from(site.pub_sub.dropped()).unwrap_or(i64::MAX));
    let tables = site.registry.read();
    site.metrics.access.agents(tables.agents.len(), tables.agents.present_len());
    site.metrics.control.in_force(&tables.policies.revision());
}
