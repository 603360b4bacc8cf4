//! `/v1/agents`: registration and discovery; `/v1/domains/{domain}/evidence`: what panels have shown about agents.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bus::Bucket;
use schemas::control::{AgentKind, Consent, ReceiptPreference, Registration, Tag, Visibility};
use schemas::evidence::{EvidenceEntry, EvidenceSubject};
use schemas::ids::{Capability, DomainName};
use schemas::validate::check_registration;
use schemas::{AgentId, Code, Refusal, TopicName};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Caller, HttpResult, JsonBody, PathText, QueryOf, Refused, RouteSpec, Site, document, identifier, query, stored,
};
use crate::metrics::Document;
use crate::registry::PresenceSignal;

pub(super) fn routes() -> Vec<RouteSpec> {
    vec![
        ("/v1/whoami", &["get"], get(whoami)),
        ("/v1/agents", &["get"], get(list)),
        ("/v1/agents/{id}", &["get", "put", "delete"], get(show).put(register).delete(remove)),
        ("/v1/domains/{domain}/evidence", &["get"], get(evidence)),
    ]
}

/// Agents on one page of the list.
const PAGE_MAX: usize = 200;
/// Visible agents looked at for one page; a page may therefore be short, or empty, and still name a next one.
const SCANNED_MAX: usize = 10_000;
/// Entries of evidence in one answer: some two megabytes.
const EVIDENCE_ENTRIES_MAX: usize = 8192;

/// What others see of an agent: everything but its consent rules.
#[derive(Serialize)]
struct PublicAgent<'a> {
    agent: &'a AgentId,
    present: bool,
    capabilities: &'a [Capability],
    topics: &'a [TopicName],
    lease_ms: u32,
    durable: bool,
    kind: AgentKind,
    tags: &'a [Tag],
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

/// What the agent itself sees: its registration, with what is left out of it where that is the default.
#[derive(Serialize)]
struct OwnAgent<'a> {
    #[serde(flatten)]
    public: PublicAgent<'a>,
    consent: &'a Consent,
    receipts: ReceiptPreference,
    visibility: Visibility,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a Tag>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentQuery {
    capability: Option<Capability>,
    topic: Option<TopicName>,
    present: Option<bool>,
    after: Option<AgentId>,
    limit: Option<usize>,
}

/// Who the token says the caller is.
async fn whoami(State(site): State<Arc<Site>>, caller: Caller) -> HttpResult {
    let is_admin = caller.must_be_admin(&site).is_ok();
    document(&json!({ "agent": caller.0.agent, "expires_s": caller.0.expires_s, "admin": is_admin }))
}

/// Agents that the caller may find, by capability, topic and presence, a page at a time.
async fn list(State(site): State<Arc<Site>>, caller: Caller, wanted: QueryOf<AgentQuery>) -> HttpResult {
    let began = Instant::now();
    let found = query(wanted).map_err(Refused::from).and_then(|wanted| page(&site, &caller.0.agent, &wanted));
    let count = found.as_ref().ok().map(|(_, count)| *count);
    site.metrics.control.discovered(count, began.elapsed());
    found.map(|(response, _)| response)
}

/// One page, and how many agents are on it.
fn page(site: &Site, caller: &AgentId, wanted: &AgentQuery) -> Result<(Response, usize), Refused> {
    let limit = wanted.limit.unwrap_or(PAGE_MAX);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::new(Code::OutOfRange, "a page of that size is not offered").expecting("1 to 200").into());
    }
    let tables = site.registry.read();
    let (mut agents, mut next, mut looked_at) = (Vec::new(), None, 0);
    let now_ms = site.registry.now_ms();
    // Only those count, and only those are named as the next, so that a page says nothing of the others.
    let visible_after = |after| {
        let is_visible =
            move |agent: &AgentId, registration: &Registration| agent == caller || registration.is_visible_to(caller);
        tables.agents.following(after).filter(move |(agent, member)| is_visible(agent, &member.registration))
    };
    for (scanned, (agent, member)) in visible_after(wanted.after.as_ref()).enumerate() {
        if agents.len() == limit || scanned == SCANNED_MAX {
            break;
        }
        (next, looked_at) = (Some(agent), scanned + 1);
        let registration = &*member.registration;
        let is_present = tables.agents.is_present(member, now_ms);
        let has_presence = wanted.present.is_none_or(|wanted| wanted == is_present);
        let has_capability = wanted.capability.as_ref().is_none_or(|one| registration.capabilities.contains(one));
        let has_topic = wanted.topic.as_ref().is_none_or(|one| registration.topics.contains(one));
        if has_presence && has_capability && has_topic {
            agents.push(public(agent, registration, is_present));
        }
    }
    let next = next.filter(|last| visible_after(Some(last)).next().is_some());
    site.admission.charge_answer(caller, 0, looked_at);
    let page = document(&json!({ "agents": agents, "next": next }))?;
    Ok((page, agents.len()))
}

/// One agent: whole to itself, without its consent rules to others.
async fn show(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let agent = identifier(path, AgentId::try_new)?;
    let tables = site.registry.read();
    let member = tables.agents.member(&agent).ok_or_else(not_registered)?;
    let (registration, present) = (&*member.registration, tables.agents.is_present(member, site.registry.now_ms()));
    if caller.0.agent == agent {
        document(&own(&agent, registration, present))
    } else {
        document(&public(&agent, registration, present))
    }
}

/// Registers the caller, or replaces its registration.
async fn register(
    State(site): State<Arc<Site>>,
    caller: Caller,
    path: PathText,
    JsonBody(bytes): JsonBody,
) -> HttpResult {
    let agent = identifier(path, AgentId::try_new)?;
    caller.must_be(&agent)?;
    let registration = site.metrics.control.checked(Document::Registration, check_registration(&bytes))?;
    let is_new = site.registry.register(&agent, &registration, site.config.limits.agents_max).await?;
    site.registry.note_presence(&agent, PresenceSignal::Here);
    site.streams.renew(&agent).await;
    let tables = site.registry.read();
    let registration = tables.agents.registration(&agent).ok_or_else(not_registered)?;
    stored(is_new, &own(&agent, registration, true))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemovalQuery {
    instance: Option<Tag>,
}

/// Removes the caller's registration, or that of one of its instances alone: nobody reaches it any more.
async fn remove(
    State(site): State<Arc<Site>>,
    caller: Caller,
    path: PathText,
    wanted: QueryOf<RemovalQuery>,
) -> HttpResult {
    let agent = identifier(path, AgentId::try_new)?;
    caller.must_be(&agent)?;
    let registry = &site.registry;
    if let Some(instance) = query(wanted)?.instance {
        // Not what this gateway has seen: another instance may have registered a moment ago.
        let stored = registry.stored(Bucket::Agents, agent.to_string()).await?;
        let stored = stored.and_then(|stored| serde_json::from_slice::<Registration>(&stored).ok());
        if stored.is_none_or(|stored| stored.instance != Some(instance)) {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    let is_gone = |tables: &crate::registry::Tables| tables.agents.registration(&agent).is_none();
    registry.delete(Bucket::Agents, agent.to_string(), is_gone).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// What panels have shown (docs/spec/panel.md#pn-38): to administrators everything; to others what is about them, and what
/// their own panels have shown. Nobody can write it.
async fn evidence(State(site): State<Arc<Site>>, caller: Caller, path: PathText) -> HttpResult {
    let domain = identifier(path, DomainName::try_new)?;
    let is_admin = caller.is_admin(&site);
    let me = &caller.0.agent;
    let is_visible = |subject: &EvidenceSubject| is_admin || subject.agent == *me || subject.initiator == *me;
    let tables = site.registry.read();
    let found = tables.evidence.of_domain(&domain, is_visible);
    let is_complete = found.len() <= EVIDENCE_ENTRIES_MAX;
    let entry = |(subject, counts): (&EvidenceSubject, _)| EvidenceEntry { subject: subject.clone(), counts };
    let entries: Vec<EvidenceEntry> = found.into_iter().take(EVIDENCE_ENTRIES_MAX).map(entry).collect();
    document(&json!({ "domain": domain, "entries": entries, "complete": is_complete }))
}

pub(super) fn not_registered() -> Refusal {
    Refusal::new(Code::NotFound, "no such agent is registered")
}

fn public<'a>(agent: &'a AgentId, registration: &'a Registration, present: bool) -> PublicAgent<'a> {
    PublicAgent {
        agent,
        present,
        capabilities: &registration.capabilities,
        topics: &registration.topics,
        lease_ms: registration.lease_ms,
        durable: registration.durable,
        kind: registration.kind,
        tags: &registration.tags,
        description: registration.description.as_deref(),
    }
}

fn own<'a>(agent: &'a AgentId, registration: &'a Registration, present: bool) -> OwnAgent<'a> {
    OwnAgent {
        public: public(agent, registration, present),
        consent: &registration.consent,
        receipts: registration.receipts,
        visibility: registration.visibility,
        instance: registration.instance.as_ref(),
    }
}
