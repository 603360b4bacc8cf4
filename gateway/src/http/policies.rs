//! `/v1/policies`: acceptance policies as documents, and the switch.
//!
//! A stored version never changes. Putting a version makes it the current one of its name, so putting an earlier one
//! again is the way back. Negotiations that run keep the policy pinned in their first record.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use bus::Bucket;
use schemas::validate::{check_policy, parse};
use schemas::{Code, Policy, Refusal};
use serde::Deserialize;
use serde_json::json;

use super::{Caller, HttpResult, JsonBody, PathText, RouteSpec, Site, document, segment, stored};
use crate::metrics::Document;
use crate::registry::{DEFAULT_KEY, PinnedPolicy, Tables, check_consistency, publish};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/v1/policies", &["get"], get(list)),
        ("/v1/policies/default", &["get", "put"], get(show_default).put(switch_default)),
        ("/v1/policies/{id}", &["get", "put"], get(show).put(store)),
    ]
}

/// Names and versions of one exchange. Each negotiation pins a whole copy; the store only holds what can be named.
const POLICIES_MAX: usize = 4096;
/// The name that stands for the switch itself.
const DEFAULT_NAME: &str = "default";

/// Every current policy and the default.
async fn list(State(site): State<Arc<Site>>, _caller: Caller) -> HttpResult {
    let tables = site.registry.read();
    let policies: Vec<_> = tables.policies.current().map(described).collect();
    document(&json!({ "default": tables.policies.default_policy(), "policies": policies }))
}

/// One policy, by name (the current version) or `name@version`.
async fn show(State(site): State<Arc<Site>>, _caller: Caller, path: PathText) -> HttpResult {
    let id = segment(path)?;
    let tables = site.registry.read();
    document(&described(tables.policies.known(&id)?))
}

/// What calls that name no policy get.
async fn show_default(State(site): State<Arc<Site>>, _caller: Caller) -> HttpResult {
    let tables = site.registry.read();
    document(&json!({ "policy": tables.policies.default_policy() }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultPolicyRequest {
    policy: String,
}

/// The switch: calls admitted from now on that name no policy get this one, on every gateway.
async fn switch_default(State(site): State<Arc<Site>>, caller: Caller, JsonBody(bytes): JsonBody) -> HttpResult {
    caller.must_be_admin(&site)?;
    let DefaultPolicyRequest { policy } = DefaultPolicyRequest::deserialize(parse(&bytes)?).map_err(|_| {
        Refusal::new(Code::WrongType, "not a switch").at("/policy").expecting(r#"{"policy": "<name or name@version>"}"#)
    })?;
    let registry = &site.registry;
    registry.read().policies.for_offers(&policy).map_err(|refusal| refusal.at("/policy"))?;
    let is_seen = |tables: &Tables| tables.policies.default_policy() == policy;
    let switch = json!({ "policy": policy });
    registry.put(Bucket::Policies, DEFAULT_KEY.to_owned(), &switch, is_seen).await?;
    tracing::info!(policy, by = caller.0.agent.as_str(), "the default policy was switched");
    document(&switch)
}

/// Publishes a version and makes it current.
async fn store(State(site): State<Arc<Site>>, caller: Caller, path: PathText, JsonBody(bytes): JsonBody) -> HttpResult {
    caller.must_be_admin(&site)?;
    let id = segment(path)?;
    let policy = site.metrics.control.checked(Document::Policy, check_policy(&bytes))?;
    check_put(&site, &id, &policy)?;
    let registry = &site.registry;
    publish(registry, &policy).await?;
    let tables = registry.read();
    stored(true, &described(tables.policies.known(&id)?))
}

fn check_put(site: &Site, id: &str, policy: &Policy) -> Result<(), Refusal> {
    if policy.id != id {
        return Err(Refusal::new(Code::NotAllowed, "the document names another policy than the path")
            .at("/id")
            .expecting("PUT /v1/policies/<name>@<version> with the same `id`"));
    }
    if policy.name() == DEFAULT_NAME {
        return Err(Refusal::new(Code::NotAllowed, "`default` names the switch, not a policy").at("/id"));
    }
    check_consistency(policy)?;
    if site.registry.read().policies.len() >= POLICIES_MAX {
        return Err(Refusal::new(Code::Overloaded, "no further policy is taken"));
    }
    Ok(())
}

fn described(pinned: &PinnedPolicy) -> serde_json::Value {
    json!({ "digest": pinned.digest, "policy": pinned.policy })
}
