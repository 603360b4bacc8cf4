//! `/healthz`, `/readyz`, `/metrics`: for whatever watches the process. No token is asked for them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse as _;
use prometheus::TextEncoder;
use schemas::{Code, Refusal};
use serde_json::json;

use super::Site;
use super::answer::{Answer, document};

/// Media type of the Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The process answers.
pub(super) async fn alive() -> Answer {
    document(&json!({ "status": "alive" }))
}

/// The gateway knows its agents, groups and policies, reaches the bus, and is not stopping.
pub(super) async fn ready(State(site): State<Arc<Site>>) -> Answer {
    if site.stop.is_cancelled() {
        return Err(Refusal::new(Code::Unavailable, "the gateway stops").into());
    }
    if !site.registry.is_caught_up() {
        return Err(Refusal::new(Code::Unavailable, "agents, groups and policies are not read yet").into());
    }
    if let Err(silence) = site.reach.check() {
        return Err(Refusal::new(Code::Unavailable, silence.to_string()).into());
    }
    document(&json!({ "status": "ready", "gateway": site.config.id }))
}

/// Everything the process's registry holds.
pub(super) async fn metrics(State(site): State<Arc<Site>>) -> Answer {
    site.metrics.messages.queued(site.admission.queued());
    measure_tables(&site);
    site.metrics.serving.connected(site.slots.agents());
    site.metrics.serving.bus_dropped(site.pub_sub.dropped());
    let text = TextEncoder::new().encode_to_string(&site.metrics.registry().gather()).map_err(|error| {
        tracing::error!(%error, "the metrics cannot be written");
        Refusal::new(Code::Internal, "the metrics cannot be written")
    })?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE))], text).into_response())
}

/// What is measured when somebody asks, instead of with every change.
fn measure_tables(site: &Site) {
    let tables = site.registry.read();
    site.metrics.access.agents(tables.agents.len());
    site.metrics.control.in_force(&tables.policies.revision());
}
