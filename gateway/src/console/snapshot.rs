//! The document the console is drawn from: `GET /v1/console` (schema `ConsoleSnapshot` in `/openapi.json`).

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemas::ids::Capability;
use schemas::pulse::{EndedNegotiation, NAMED_MAX, OpenNegotiation, Spread};
use schemas::{AgentId, Lane, NegotiationId, Timestamp};
use serde::Serialize;

use super::Sight;
use super::pulses::{Heard, Point, Pulses, Rates, Totals};
use crate::config::ConsoleAccess;
use crate::policies::scores_offers;
use crate::registry::Tables;

/// Agents named: the first by id. The others are counted; `GET /v1/agents` lists them all.
const AGENTS_NAMED_MAX: usize = 60;
/// Capabilities told of each.
const CAPABILITIES_TOLD_MAX: usize = 8;
/// Policies named: the first by name.
const POLICIES_NAMED_MAX: usize = 64;

/// What does not change while the gateway runs.
pub(super) struct About {
    pub(super) gateway: String,
    pub(super) lanes: u8,
    pub(super) access: ConsoleAccess,
}

#[derive(Serialize)]
struct Snapshot<'a> {
    /// By this gateway's clock.
    at: Timestamp,
    /// Whether reading needs a token: `token` or `open`.
    console: &'static str,
    /// What this document holds: `totals` or `all`.
    sight: &'static str,
    engines: usize,
    lanes: u8,
    lanes_owned: usize,
    agents: usize,
    policies: usize,
    totals: Totals,
    per_s: Rates,
    round: Spread,
    history: Vec<&'a Point>,
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<Named<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    gateway: &'a str,
    engines: Vec<NamedEngine<'a>>,
    lanes: Vec<NamedLane<'a>>,
    default_policy: &'a str,
    policies: Vec<NamedPolicy<'a>>,
    agents: Vec<NamedAgent<'a>>,
    open: Vec<&'a OpenNegotiation>,
    ended: Vec<&'a EndedNegotiation>,
}

#[derive(Serialize)]
struct NamedEngine<'a> {
    engine: &'a str,
    heard_ms_ago: u64,
    owned: &'a [Lane],
    open: u64,
    unacknowledged: u64,
    ended_per_s: f64,
    p95_us: u64,
}

#[derive(Serialize)]
struct NamedLane<'a> {
    lane: Lane,
    /// One, none while it changes hands, two for the moment in which both say so.
    owners: Vec<&'a str>,
}

#[derive(Serialize)]
struct NamedPolicy<'a> {
    id: &'a str,
    name: &'a str,
    is_default: bool,
    /// Whether calls that name no policy may get it.
    can_be_default: bool,
}

#[derive(Serialize)]
struct NamedAgent<'a> {
    agent: &'a AgentId,
    capabilities: Vec<&'a Capability>,
}

/// Writes the document one kind of visitor may see.
///
/// # Errors
/// What serialising fails with: never, for what these types hold.
pub(super) fn write(
    about: &About,
    pulses: &Pulses,
    tables: &Tables,
    sight: Sight,
    now: Duration,
) -> Result<String, serde_json::Error> {
    let lanes = lanes(pulses, about.lanes);
    let snapshot = Snapshot {
        at: Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)),
        console: match about.access {
            ConsoleAccess::Token | ConsoleAccess::Off => "token",
            ConsoleAccess::Open => "open",
        },
        sight: match sight {
            Sight::Totals => "totals",
            Sight::All => "all",
        },
        engines: pulses.engines().count(),
        lanes: about.lanes,
        lanes_owned: lanes.iter().filter(|lane| !lane.owners.is_empty()).count(),
        agents: tables.agents.len(),
        policies: tables.policies.current().count(),
        totals: pulses.totals(),
        per_s: pulses.rates(),
        round: pulses.round(),
        history: pulses.history().collect(),
        named: (sight == Sight::All).then(|| named(about, pulses, tables, lanes, now)),
    };
    serde_json::to_string(&snapshot)
}

fn named<'a>(
    about: &'a About,
    pulses: &'a Pulses,
    tables: &'a Tables,
    lanes: Vec<NamedLane<'a>>,
    now: Duration,
) -> Named<'a> {
    Named {
        gateway: &about.gateway,
        engines: pulses.engines().map(|heard| engine(heard, now)).collect(),
        lanes,
        default_policy: tables.policies.default_policy(),
        policies: policies(tables),
        agents: agents(tables),
        open: open(pulses),
        ended: ended(pulses),
    }
}

fn engine(heard: &Heard, now: Duration) -> NamedEngine<'_> {
    NamedEngine {
        engine: &heard.pulse.engine,
        heard_ms_ago: now.saturating_sub(heard.at).as_millis() as u64,
        owned: &heard.pulse.owned,
        open: heard.pulse.open,
        unacknowledged: heard.pulse.unacknowledged,
        ended_per_s: heard.rates().ended,
        p95_us: heard.pulse.round.p95_us,
    }
}

fn lanes(pulses: &Pulses, count: u8) -> Vec<NamedLane<'_>> {
    let owners = |lane: Lane| {
        let owns = |heard: &&Heard| heard.pulse.owned.contains(&lane);
        pulses.engines().filter(owns).map(|heard| heard.pulse.engine.as_str()).collect()
    };
    (0..count).map(Lane).map(|lane| NamedLane { lane, owners: owners(lane) }).collect()
}

fn policies(tables: &Tables) -> Vec<NamedPolicy<'_>> {
    let chosen = tables.policies.policy(None).map(|pinned| pinned.policy.id.as_str());
    let described = tables.policies.current().map(|pinned| NamedPolicy {
        id: &pinned.policy.id,
        name: pinned.policy.name(),
        is_default: Some(pinned.policy.id.as_str()) == chosen,
        can_be_default: scores_offers(&pinned.policy),
    });
    described.take(POLICIES_NAMED_MAX).collect()
}

fn agents(tables: &Tables) -> Vec<NamedAgent<'_>> {
    let first = tables.agents.following(None).take(AGENTS_NAMED_MAX);
    first
        .map(|(agent, registration)| NamedAgent {
            agent,
            capabilities: registration.capabilities.iter().take(CAPABILITIES_TOLD_MAX).collect(),
        })
        .collect()
}

fn open(pulses: &Pulses) -> Vec<&OpenNegotiation> {
    newest(pulses, |heard| &heard.pulse.newest, |one| (one.called_at, &one.negotiation))
}

fn ended(pulses: &Pulses) -> Vec<&EndedNegotiation> {
    newest(pulses, |heard| &heard.pulse.latest, |one| (one.at, &one.negotiation))
}

/// The newest of all engines' lists, newest first; each negotiation once, though its lane may just change hands.
fn newest<'a, T>(
    pulses: &'a Pulses,
    list: impl Fn(&'a Heard) -> &'a [T],
    key: impl Fn(&'a T) -> (Timestamp, &'a NegotiationId),
) -> Vec<&'a T> {
    let mut all: Vec<&T> = pulses.engines().flat_map(list).collect();
    all.sort_by_key(|one| std::cmp::Reverse(key(one)));
    let mut seen = BTreeSet::new();
    all.retain(|one| seen.insert(key(one).1));
    all.truncate(NAMED_MAX);
    all
}
