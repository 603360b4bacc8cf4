//! `/v1/groups`: named subsets of agents. A group addresses; it does not consent for its members.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::get;
use bus::Bucket;
use schemas::control::Group;
use schemas::validate::check_group;
use schemas::{Code, GroupId, Refusal};
use serde_json::json;

use super::{Caller, HttpResult, JsonBody, PathText, RouteSpec, Site, document, identifier, stored};
use crate::metrics::Document;
use crate::registry::Tables;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/v1/groups", &["get"], get(list)),
        ("/v1/groups/{id}", &["get", "put", "delete"], get(show).put(replace).delete(remove)),
    ]
}

/// Groups of one exchange.
const GROUPS_MAX: usize = 10_000;

/// Names and sizes of all groups.
async fn list(State(site): State<Arc<Site>>, _caller: Caller) -> HttpResult {
    let tables = site.registry.read();
    let mut groups: Vec<_> = tables.groups.values().collect();
    groups.sort_by(|left, right| left.id.cmp(&right.id));
    let groups: Vec<_> = groups
        .iter()
        .map(|group| json!({ "id": group.id, "members": group.members.len(), "qos": group.qos }))
        .collect();
    document(&json!({ "groups": groups }))
}

/// One group: whole to administrators, of its members to others those that they may be told of.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let id = identifier(path, GroupId::try_new)?;
    let tables = site.registry.read();
    let group = tables.groups.get(&id).ok_or_else(|| Refusal::new(Code::NotFound, "no such group"))?;
    let mut group = Group::clone(group);
    if !caller.is_admin(&site) {
        group.members.retain(|member| tables.agents.shows(member, &caller.0.agent));
    }
    document(&group)
}

/// Creates or replaces a group.
async fn replace(
    State(site): State<Arc<Site>>,
    caller: Caller,
    path: PathText,
    JsonBody(bytes): JsonBody,
) -> HttpResult {
    caller.must_be_admin(&site)?;
    let id = identifier(path, GroupId::try_new)?;
    let group = site.metrics.control.checked(Document::Group, check_group(&bytes))?;
    if group.id != id {
        return Err(Refusal::new(Code::NotAllowed, "the document names another group than the path").at("/id").into());
    }
    let registry = &site.registry;
    let (is_new, count) = {
        let tables = registry.read();
        (!tables.groups.contains_key(&id), tables.groups.len())
    };
    if is_new && count >= GROUPS_MAX {
        return Err(Refusal::new(Code::Overloaded, "no further group is taken; remove one first").into());
    }
    let is_seen = |tables: &Tables| tables.groups.get(&id).is_some_and(|seen| **seen == group);
    registry.put(Bucket::Groups, id.to_string(), &group, is_seen).await?;
    stored(is_new, &group)
}

/// Removes a group.
async fn remove(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    caller.must_be_admin(&site)?;
    let id = identifier(path, GroupId::try_new)?;
    let is_gone = |tables: &Tables| !tables.groups.contains_key(&id);
    site.registry.delete(Bucket::Groups, id.to_string(), is_gone).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
