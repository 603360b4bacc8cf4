//! `/v1/agents/{id}/consent`: whose calls an agent takes. Only the agent itself sees or changes it.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use schemas::control::Consent;
use schemas::validate::{check_registration, parse};
use schemas::{AgentId, Refusal};
use serde_json::json;

use super::agents::not_registered;
use super::{Caller, HttpResult, JsonBody, PathText, RouteSpec, Site, document, identifier};
use crate::metrics::Document;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/v1/agents/{id}/consent", &["get", "put"], get(show).put(replace)),
        ("/v1/agents/{id}/consent/requests", &["get"], get(requests)),
    ]
}

/// Pointer of the consent inside a registration.
const POINTER: &str = "/consent";

/// The caller's rules.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let agent = own(&caller, path)?;
    let tables = site.registry.read();
    let registration = tables.agents.registration(&agent).ok_or_else(not_registered)?;
    document(&registration.consent)
}

/// Replaces the caller's rules. They apply to calls admitted from now on: who is invited is pinned with the call.
async fn replace(
    State(site): State<Arc<Site>>,
    caller: Caller,
    path: PathText,
    JsonBody(bytes): JsonBody,
) -> HttpResult {
    let agent = own(&caller, path)?;
    let consent = site.metrics.control.checked(Document::Registration, check_consent(&bytes))?;
    let present = site.registry.read().agents.registration(&agent).cloned();
    let mut registration = present.ok_or_else(not_registered)?.as_ref().clone();
    registration.consent = consent;
    site.registry.register(&agent, &registration, site.config.limits.agents_max).await?;
    document(&registration.consent)
}

/// Calls the caller's rules answered with `ask` and still would: allow or deny them by a rule, and they are gone.
async fn requests(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let agent = own(&caller, path)?;
    let tables = site.registry.read();
    let registration = tables.agents.registration(&agent).ok_or_else(not_registered)?;
    let noted = tables.agents.requests(&agent);
    let requests: Vec<_> = noted
        .into_iter()
        .flat_map(|requests| requests.iter())
        .filter(|request| request.is_open(&registration.consent))
        .collect();
    document(&json!({ "requests": requests }))
}

fn own(caller: &Caller, path: PathText) -> Result<AgentId, Refusal> {
    let agent = identifier(path, AgentId::try_new)?;
    caller.must_be(&agent)?;
    Ok(agent)
}

/// Checks rules as the part of a registration they are.
fn check_consent(bytes: &[u8]) -> Result<Consent, Refusal> {
    let rules = parse(bytes)?;
    let registration = check_registration(json!({ "consent": rules }).to_string().as_bytes());
    registration.map(|registration| registration.consent).map_err(|mut refusal| {
        refusal.pointer = refusal.pointer.map(|pointer| pointer.strip_prefix(POINTER).unwrap_or("").to_owned());
        refusal
    })
}
