//! What happened under each policy and what each agent did, summed over the engines that are heard.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use schemas::AgentId;
use schemas::statistics::{AGENTS_MAX, AgentActivity, Histogram, OTHER, POLICIES_MAX, PolicyActivity, Quantiles};
use serde::Serialize;

use super::EngineStatistics;
use super::statistics::largest;

/// As it stands in the snapshot, for those who may see names.
#[derive(Serialize)]
pub(super) struct Activity {
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
    pub(super) fn of(statistics: &EngineStatistics, now: Duration) -> Self {
        Self { policies: policies(statistics, now), agents: agents(statistics) }
    }
}

fn policies(statistics: &EngineStatistics, now: Duration) -> Vec<UnderPolicy> {
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
fn agents(statistics: &EngineStatistics) -> Vec<AgentActivity> {
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
