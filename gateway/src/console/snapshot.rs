//! The document the console is drawn from: `GET /v1/console` (schema `ConsoleSnapshot` in `/openapi.json`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::ids::Capability;
use schemas::statistics::{
    AGENTS_MAX, AgentActivity, EndedNegotiation, Histogram, NAMED_MAX, OTHER, OpenNegotiation, POLICIES_MAX,
    PolicyActivity, Quantiles,
};
use schemas::{AgentId, Lane, NegotiationId, Timestamp};
use serde::Serialize;

use super::policies::described;
use super::{
    DefaultPolicyChange, EngineStatistics, RatePoint, Rates, ReceivedStatistics, Sight, Sources, Totals, largest,
    now as time_now,
};
use crate::config::ConsoleAccess;
use crate::registry::{Tables, scores_offers};

/// Agents named: the first by id. The others are counted; `GET /v1/agents` lists them all.
const AGENTS_NAMED_MAX: usize = 60;
/// Capabilities told of each.
const CAPABILITIES_TOLD_MAX: usize = 8;
/// Policies named: the first by name.
const POLICIES_NAMED_MAX: usize = 64;

#[derive(Serialize)]
struct Snapshot<'a> {
    /// By this gateway's clock.
    at: Timestamp,
    /// Whether reading needs a token: `token` or `open`.
    console: &'static str,
    /// What this document holds: `totals` or `all`.
    sight: &'static str,
    /// Gateways that report whom they heard, and this one.
    gateways: usize,
    engines: usize,
    lanes: u8,
    lanes_owned: usize,
    /// Why calls are refused, each with its remedy.
    faults: &'a [String],
    agents: usize,
    /// How many of the agents are present.
    present: usize,
    policies: usize,
    totals: Totals,
    per_s: Rates,
    round: Quantiles,
    /// What `round` is computed from.
    durations: Histogram,
    history: Vec<&'a RatePoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<NamedSnapshot<'a>>,
}

#[derive(Serialize)]
struct NamedSnapshot<'a> {
    gateway: &'a str,
    engines: Vec<NamedEngine<'a>>,
    lanes: Vec<NamedLane<'a>>,
    default_policy: &'a str,
    policies: Vec<NamedPolicy<'a>>,
    /// The newest changes of the default policy that this gateway has seen, oldest first.
    switches: Vec<&'a DefaultPolicyChange>,
    agents: Vec<NamedAgent<'a>>,
    activity: Activity,
    open: Vec<NamedOpen<'a>>,
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
    /// What refuses readiness, each with its remedy.
    faults: &'a [String],
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
    /// What it does, for people.
    about: String,
}

#[derive(Serialize)]
struct NamedAgent<'a> {
    agent: &'a AgentId,
    present: bool,
    capabilities: Vec<&'a Capability>,
}

#[derive(Clone, Copy, Serialize)]
struct NamedOpen<'a> {
    #[serde(flatten)]
    open: &'a OpenNegotiation,
    /// Since the call, when its engine said so: what an engine knows is up to a second old.
    age_us: u64,
}

/// Writes the document one kind of visitor may see.
///
/// # Errors
/// What serialising fails with: never, for what these types hold.
pub(super) fn write(sources: Sources<'_>, sight: Sight, now: Duration) -> Result<String, serde_json::Error> {
    let Sources { about, statistics, tables, gateways, .. } = sources;
    let lanes = lanes(statistics, about.lanes);
    let snapshot = Snapshot {
        at: time_now(),
        console: match about.access {
            ConsoleAccess::Token | ConsoleAccess::Off => "token",
            ConsoleAccess::Open => "open",
        },
        sight: match sight {
            Sight::Totals => "totals",
            Sight::All => "all",
        },
        gateways: gateways.count(&about.gateway, now),
        engines: statistics.engines.values().count(),
        lanes: about.lanes,
        lanes_owned: lanes.iter().filter(|lane| !lane.owners.is_empty()).count(),
        faults: sources.faults,
        agents: tables.agents.len(),
        present: tables.agents.present_len(),
        policies: tables.policies.current().count(),
        totals: statistics.totals(),
        per_s: statistics.rates(now),
        round: statistics.round(),
        durations: statistics.durations(),
        history: statistics.history.iter().collect(),
        named: (sight == Sight::All).then(|| named(sources, lanes, now)),
    };
    serde_json::to_string(&snapshot)
}

fn named<'a>(sources: Sources<'a>, lanes: Vec<NamedLane<'a>>, now: Duration) -> NamedSnapshot<'a> {
    let Sources { about, statistics, tables, switches, now_ms, .. } = sources;
    NamedSnapshot {
        gateway: &about.gateway,
        engines: statistics.engines.values().map(|heard| engine(heard, now)).collect(),
        lanes,
        default_policy: tables.policies.default_policy(),
        policies: policies(tables),
        switches: switches.iter().collect(),
        agents: agents(tables, now_ms),
        activity: Activity::of(statistics, now),
        open: open(statistics),
        ended: ended(statistics),
    }
}

fn engine(heard: &ReceivedStatistics, now: Duration) -> NamedEngine<'_> {
    NamedEngine {
        engine: &heard.latest.engine,
        heard_ms_ago: now.saturating_sub(heard.at).as_millis() as u64,
        owned: &heard.latest.owned,
        open: heard.latest.open,
        unacknowledged: heard.latest.unacknowledged,
        ended_per_s: heard.rates(now).ended,
        p95_us: heard.latest.round.p95_us,
        faults: &heard.latest.faults,
    }
}

fn lanes(statistics: &EngineStatistics, count: u8) -> Vec<NamedLane<'_>> {
    let owners = |lane: Lane| {
        let owns = |heard: &&ReceivedStatistics| heard.latest.owned.contains(&lane);
        statistics.engines.values().filter(owns).map(|heard| heard.latest.engine.as_str()).collect()
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
        about: described(&pinned.policy),
    });
    described.take(POLICIES_NAMED_MAX).collect()
}

fn agents(tables: &Tables, now_ms: u64) -> Vec<NamedAgent<'_>> {
    let first = tables.agents.following(None).take(AGENTS_NAMED_MAX);
    first
        .map(|(agent, member)| NamedAgent {
            agent,
            present: tables.agents.is_present(member, now_ms),
            capabilities: member.registration.capabilities.iter().take(CAPABILITIES_TOLD_MAX).collect(),
        })
        .collect()
}

fn open(statistics: &EngineStatistics) -> Vec<NamedOpen<'_>> {
    let aged = statistics.engines.values().flat_map(|heard| {
        let told = heard.latest.at;
        heard.latest.newest.iter().map(move |open| NamedOpen { open, age_us: told.since_us(open.called_at) })
    });
    newest(aged, |one| (one.open.called_at, &one.open.negotiation))
}

fn ended(statistics: &EngineStatistics) -> Vec<&EndedNegotiation> {
    newest(statistics.engines.values().flat_map(|heard| &heard.latest.latest), |one| (one.at, &one.negotiation))
}

/// The newest of all engines' lists, newest first; each negotiation once, though its lane may just change hands.
fn newest<'a, T: Copy>(all: impl Iterator<Item = T>, key: impl Fn(T) -> (Timestamp, &'a NegotiationId)) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_by_key(|&one| std::cmp::Reverse(key(one)));
    let mut seen = BTreeSet::new();
    all.retain(|&one| seen.insert(key(one).1));
    all.truncate(NAMED_MAX);
    all
}

/// What happened under each policy and what each agent did, summed over the engines that are heard: for those who may see names.
#[derive(Serialize)]
struct Activity {
    policies: Vec<UnderPolicy>,
    agents: Vec<AgentActivity>,
}

#[derive(Serialize)]
struct UnderPolicy {
    policy: String,
    ended: u64,
    awards: u64,
    offers: u64,
    ended_per_s: f64,
    /// From call to end, of the last minute.
    round: Quantiles,
    durations: Histogram,
    /// `ended_per_s` at the points of the history, oldest first.
    history: Vec<f64>,
}

impl Activity {
    fn of(statistics: &EngineStatistics, now: Duration) -> Self {
        Self { policies: policy_activity(statistics, now), agents: agent_activity(statistics) }
    }
}

fn policy_activity(statistics: &EngineStatistics, now: Duration) -> Vec<UnderPolicy> {
    let per_s = statistics.ended_per_s_by_policy(now);
    let mut sums = BTreeMap::<&str, PolicyActivity>::new();
    for one in statistics.engines.values().flat_map(|heard| &heard.latest.policies) {
        let is_apart = sums.contains_key(one.policy.as_str()) || sums.len() < POLICIES_MAX;
        let sum = sums.entry(if is_apart { &one.policy } else { OTHER }).or_insert_with(|| PolicyActivity {
            policy: if is_apart { one.policy.clone() } else { OTHER.to_owned() },
            ended: 0,
            awards: 0,
            offers: 0,
            durations: Histogram::default(),
        });
        sum.ended = sum.ended.saturating_add(one.ended);
        sum.awards = sum.awards.saturating_add(one.awards);
        sum.offers = sum.offers.saturating_add(one.offers);
        sum.durations.merge(&one.durations);
    }
    let rate = |rates: &BTreeMap<String, f64>, policy: &str| rates.get(policy).copied().unwrap_or_default();
    let under = |PolicyActivity { policy, ended, awards, offers, durations }| UnderPolicy {
        ended,
        awards,
        offers,
        ended_per_s: rate(&per_s, &policy),
        round: durations.spread(),
        durations,
        history: statistics.history.iter().map(|point| rate(&point.ended_per_s_by_policy, &policy)).collect(),
        policy,
    };
    sums.into_values().map(under).collect()
}

/// The busiest agents, the busiest first.
fn agent_activity(statistics: &EngineStatistics) -> Vec<AgentActivity> {
    let mut sums = BTreeMap::<&AgentId, AgentActivity>::new();
    for one in statistics.engines.values().flat_map(|heard| &heard.latest.agents) {
        match sums.get_mut(&one.agent) {
            Some(sum) => add(sum, one),
            None => drop(sums.insert(&one.agent, one.clone())),
        }
    }
    let mut all: Vec<AgentActivity> = sums.into_values().collect();
    let messages =
        |one: &AgentActivity| [one.opened, one.calls, one.offers, one.awards].into_iter().fold(0, u64::saturating_add);
    all.sort_by_key(|one| Reverse(messages(one)));
    all.truncate(AGENTS_MAX);
    all
}

fn add(sum: &mut AgentActivity, one: &AgentActivity) {
    for (sum, more) in [
        (&mut sum.opened, one.opened),
        (&mut sum.calls, one.calls),
        (&mut sum.offers, one.offers),
        (&mut sum.awards, one.awards),
        (&mut sum.fair_ppm, one.fair_ppm),
    ] {
        *sum = sum.saturating_add(more);
    }
    sum.acknowledged = largest([sum.acknowledged, one.acknowledged].into_iter());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::console::{About, DefaultPolicyHistory, Gateways};

    #[test]
    fn what_two_engines_tell_of_one_negotiation_stands_once_and_the_newest_first() {
        let mut statistics = EngineStatistics::default();
        let numbers = |from: u64| (from..from + 40).collect::<Vec<_>>();
        hear(&mut statistics, "old-owner", &[0, 1], &numbers(100));
        hear(&mut statistics, "new-owner", &[1], &numbers(120));
        let named = written(&statistics, Sight::All)["named"].clone();
        let open: Vec<&str> =
            named["open"].as_array().unwrap().iter().map(|one| one["negotiation"].as_str().unwrap()).collect();
        let expected: Vec<String> = (112..160).rev().map(|number| format!("alice~{number}")).collect();
        assert_eq!(open, expected);
        assert_eq!(named["open"][0]["age_us"], 41);
        let owners = |lane: usize| named["lanes"][lane]["owners"].clone();
        assert_eq!(
            (owners(0), owners(1), owners(2)),
            (json!(["old-owner"]), json!(["new-owner", "old-owner"]), json!([]))
        );
    }

    #[test]
    fn totals_name_nobody() {
        let mut statistics = EngineStatistics::default();
        hear(&mut statistics, "engine-1", &[0], &[7]);
        let totals = written(&statistics, Sight::Totals);
        assert_eq!(
            (&totals["lanes"], &totals["lanes_owned"], &totals["totals"]["open"]),
            (&json!(3), &json!(1), &json!(1))
        );
        let text = totals.to_string();
        assert!(!text.contains("alice") && !text.contains("engine-1") && !text.contains("gateway-1"), "{text}");
    }

    fn written(statistics: &EngineStatistics, sight: Sight) -> Value {
        let about = About { gateway: "gateway-1".to_owned(), lanes: 3, access: ConsoleAccess::Token };
        let (tables, switches, gateways) =
            (Tables::new("medium"), DefaultPolicyHistory::default(), Gateways::default());
        let (about, tables, switches, gateways) = (&about, &tables, &switches, &gateways);
        let sources = Sources { about, statistics, tables, switches, gateways, faults: &[], now_ms: 0 };
        let text = write(sources, sight, Duration::ZERO).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn hear(statistics: &mut EngineStatistics, engine: &str, owned: &[u8], numbers: &[u64]) {
        let newest: Vec<Value> = numbers
            .iter()
            .rev()
            .map(|number| {
                json!({ "negotiation": format!("alice~{number}"), "protocol": "contract_net", "phase": "collecting",
                    "policy": "medium@1", "called_at": number, "invited": 3, "offers": 0 })
            })
            .collect();
        let sample = json!({
            "engine": engine, "at": 200, "owned": owned, "open": numbers.len(), "started": 0, "ended": {}, "awards": 0,
            "offers": 0, "unacknowledged": 0, "round": Quantiles::default(), "newest": newest, "latest": []
        });
        let on = schemas::subject::statistics(engine);
        assert!(statistics.handle_statistics(&on, sample.to_string().as_bytes(), Duration::ZERO));
    }
}
