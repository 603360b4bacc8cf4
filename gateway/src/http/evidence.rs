//! `/v1/domains/{domain}/evidence`: what panels have shown about agents (docs/spec/panel.md#pn-38). Nobody can write it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::routing::get;
use schemas::evidence::{EvidenceEntry, EvidenceSubject};
use schemas::ids::DomainName;
use serde_json::json;

use super::{Caller, HttpResult, RouteSpec, Site, document, identifier};

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![("/v1/domains/{domain}/evidence", &["get"], get(show))]
}

/// Entries of one answer: some two megabytes.
const ENTRIES_MAX: usize = 8192;

/// To administrators everything; to others what is about them, and what their own panels have shown.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: Result<Path<String>, PathRejection>) -> HttpResult {
    let domain = identifier(path, DomainName::try_new)?;
    let is_admin = caller.is_admin(&site);
    let me = &caller.0.agent;
    let is_visible = |subject: &EvidenceSubject| is_admin || subject.agent == *me || subject.initiator == *me;
    let tables = site.registry.read();
    let found = tables.evidence.of_domain(&domain, is_visible);
    let is_complete = found.len() <= ENTRIES_MAX;
    let entry = |(subject, counts): (&EvidenceSubject, _)| EvidenceEntry { subject: subject.clone(), counts };
    let entries: Vec<EvidenceEntry> = found.into_iter().take(ENTRIES_MAX).map(entry).collect();
    document(&json!({ "domain": domain, "entries": entries, "complete": is_complete }))
}
