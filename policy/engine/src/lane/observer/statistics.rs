//! The engine's statistics: once a second, what its lanes come to, for people who look. Lost without a loss.
//!
//! Each owned lane says its part a few times a second ([`LaneStatistics`]); one task adds the parts up and publishes them. What was
//! counted counts for ever, whoever owns the lane now; what is open counts only where this engine owns the lane.

mod counters;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use bus::PubSub;
use bytes::Bytes;
use schemas::delivery::Outcome;
use schemas::statistics::{
    AGENTS_MAX, AgentActivity, EndedNegotiation, FAULTS_MAX, Histogram, NAMED_MAX, OTHER, OpenNegotiation,
    POLICIES_MAX, PolicyActivity, Statistics,
};
use schemas::{AgentId, Timestamp, subject};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{AgentTotals, LaneStatistics, Totals};
use crate::config::WallClock;
use crate::lane::{LaneReceivers, Shared};
use crate::status::StatusReader;

pub(crate) use counters::LaneCounters;

impl AgentTotals {
    /// How busy it was.
    fn messages(&self) -> u64 {
        self.opened + self.calls + self.offers + self.awards
    }

    fn merge(&mut self, other: &Self) {
        self.opened += other.opened;
        self.calls += other.calls;
        self.offers += other.offers;
        self.awards += other.awards;
        self.fair_ppm = self.fair_ppm.saturating_add(other.fair_ppm);
        self.acknowledged.merge(&other.acknowledged);
    }

    fn activity(self, agent: AgentId) -> AgentActivity {
        let Self { opened, calls, offers, awards, fair_ppm, acknowledged, last: _ } = self;
        AgentActivity { agent, opened, calls, offers, awards, fair_ppm, acknowledged: acknowledged.spread() }
    }
}

/// Publishes the statistics.
pub(crate) struct StatisticsReporter {
    engine: String,
    every: Duration,
    clock: WallClock,
    pub_sub: Arc<dyn PubSub>,
    lanes: Vec<watch::Receiver<LaneStatistics>>,
    status: StatusReader,
}

impl StatisticsReporter {
    /// Publishes the sum of what lanes say; nothing where the configuration wants no statistics.
    pub(crate) fn new(shared: &Shared, lanes: &[LaneReceivers], status: StatusReader) -> Option<Self> {
        let config = &shared.config;
        (config.statistics_ms > 0).then(|| Self {
            engine: config.id.clone(),
            every: Duration::from_millis(config.statistics_ms),
            clock: Arc::clone(&config.clock.now),
            pub_sub: Arc::clone(&shared.bus.pub_sub),
            lanes: lanes.iter().map(|lane| lane.statistics.clone()).collect(),
            status,
        })
    }

    /// Publishes until it is dropped.
    pub(crate) async fn drive(self) {
        let mut seconds = interval(self.every);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            let statistics = self.statistics();
            let Ok(payload) = serde_json::to_vec(&statistics).map(Bytes::from) else { continue };
            // Nobody waits for it: one that is lost is followed by the next.
            let _ = timeout(self.every, self.pub_sub.publish(subject::statistics(&self.engine), payload)).await;
        }
    }

    fn statistics(&self) -> Statistics {
        let parts = self.lanes.iter().map(|lane| {
            let part = lane.borrow().clone();
            // A lane whose task has ended owns nothing.
            if lane.has_changed().is_ok() {
                part
            } else {
                LaneStatistics { counted: part.counted, ..LaneStatistics::default() }
            }
        });
        let faults = self.status.read().faults.into_iter().take(FAULTS_MAX).collect();
        Statistics { faults, ..sum(&self.engine, (self.clock)(), parts) }
    }
}

fn sum(engine: &str, at: Timestamp, parts: impl Iterator<Item = LaneStatistics>) -> Statistics {
    let (mut owned, mut newest, mut latest) = (Vec::new(), Vec::new(), Vec::new());
    let (mut open, mut unacknowledged) = (0, 0);
    let mut all = Totals::default();
    for part in parts {
        if let Some(lane) = part.owned {
            owned.push(lane);
            open += count(part.open);
            unacknowledged += count(part.unacknowledged);
            newest.extend(part.newest);
        }
        let counted = part.counted;
        all.started += counted.started;
        all.awards += counted.awards;
        all.binding += counted.binding;
        all.offers += counted.offers;
        all.lower_bound |= counted.lower_bound;
        all.ended.iter_mut().zip(counted.ended).for_each(|(sum, times)| *sum += times);
        all.round.merge(&counted.round);
        all.recent.merge(&counted.recent);
        all.policies.extend(counted.policies);
        all.agents.extend(counted.agents);
        latest.extend(counted.latest);
    }
    let ended = Outcome::ALL.iter().zip(all.ended).filter(|(_, times)| *times > 0);
    newest.sort_by_key(|one: &OpenNegotiation| Reverse(one.called_at));
    newest.truncate(NAMED_MAX);
    latest.sort_by_key(|one: &EndedNegotiation| Reverse(one.at));
    latest.truncate(NAMED_MAX);
    Statistics {
        engine: engine.to_owned(),
        at,
        owned,
        open,
        started: all.started,
        ended: ended.map(|(outcome, times)| (outcome.as_str().to_owned(), times)).collect(),
        awards: all.awards,
        binding: all.binding,
        offers: all.offers,
        unacknowledged,
        lower_bound: all.lower_bound,
        round: all.round.spread(),
        recent: all.recent.spread(),
        durations: all.round,
        policies: sum_policies(all.policies.into_iter()),
        agents: sum_agents(all.agents.into_iter(), AGENTS_MAX),
        faults: Vec::new(),
        newest,
        latest,
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Adds up what lanes counted, in the order of the ids: the policies under which most ended, the others together.
fn sum_policies(parts: impl Iterator<Item = PolicyActivity>) -> Vec<PolicyActivity> {
    let mut all = BTreeMap::<String, PolicyActivity>::new();
    parts.for_each(|part| add_policy(&mut all, part));
    let mut by_size: Vec<PolicyActivity> = all.into_values().collect();
    by_size.sort_by_key(|one| (one.policy == OTHER, Reverse(one.ended)));
    let mut told = BTreeMap::new();
    for (place, mut one) in by_size.into_iter().enumerate() {
        if place >= POLICIES_MAX {
            OTHER.clone_into(&mut one.policy);
        }
        add_policy(&mut told, one);
    }
    told.into_values().collect()
}

fn add_policy(all: &mut BTreeMap<String, PolicyActivity>, one: PolicyActivity) {
    let policy = one.policy.clone();
    let sum = all.entry(policy.clone()).or_insert_with(|| PolicyActivity {
        policy,
        ended: 0,
        awards: 0,
        offers: 0,
        durations: Histogram::default(),
    });
    sum.ended += one.ended;
    sum.awards += one.awards;
    sum.offers += one.offers;
    sum.durations.merge(&one.durations);
}

/// Adds up what lanes counted; the `most` busiest, the busiest first.
fn sum_agents(parts: impl Iterator<Item = (AgentId, AgentTotals)>, most: usize) -> Vec<AgentActivity> {
    let mut by_id = HashMap::<AgentId, AgentTotals>::new();
    for (agent, counted) in parts {
        by_id.entry(agent).or_default().merge(&counted);
    }
    let mut all: Vec<(AgentId, AgentTotals)> = by_id.into_iter().collect();
    all.sort_by(|(one, left), (other, right)| right.messages().cmp(&left.messages()).then_with(|| one.cmp(other)));
    all.into_iter().take(most).map(|(agent, counted)| counted.activity(agent)).collect()
}
