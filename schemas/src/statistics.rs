//! Statistics of engines, for people who look: not part of the protocol, never the ground of a decision, lost without a loss.
//!
//! Once a second an engine publishes [`Statistics`] on [`crate::subject::statistics`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, Lane, NegotiationId};
use crate::time::Timestamp;

/// Most open negotiations, and most ended ones, that statistics name: the newest.
pub const NAMED_MAX: usize = 48;

/// Most policies that statistics count apart; negotiations under further ones are counted together, as [`OTHER`].
pub const POLICIES_MAX: usize = 16;
/// What stands for the policies that are not counted apart. A policy's id contains `@`, so none is called that.
pub const OTHER: &str = "other";
/// Most agents whose activity statistics give: the busiest.
pub const AGENTS_MAX: usize = 64;
/// Most buckets of a histogram: eight to each doubling of a duration.
pub const BUCKETS_MAX: usize = 496;
/// Most faults that statistics name.
pub const FAULTS_MAX: usize = 8;

/// What one engine has counted, and what it holds now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// The engine.
    pub engine: String,
    /// When it says so, by its own clock.
    pub at: Timestamp,
    /// Lanes it owns. What follows is about them, since this process owns them.
    pub owned: Vec<Lane>,
    /// Negotiations open now.
    pub open: u64,
    /// Negotiations opened since the process started.
    pub started: u64,
    /// Negotiations ended since the process started, by outcome.
    pub ended: BTreeMap<String, u64>,
    /// Awards made since the process started, re-awards included, and bargains that ended in agreement.
    pub awards: u64,
    /// How many of these became binding.
    #[serde(default)]
    pub binding: u64,
    /// Offers that counted since the process started.
    pub offers: u64,
    /// Deliveries that wait for an acknowledgement.
    pub unacknowledged: u64,
    /// Whether more happened in the exchange than the engines that are there have counted: this one took a lane from an
    /// engine that is gone, and what that one had counted is gone with it.
    #[serde(default)]
    pub lower_bound: bool,
    /// From call to end, of what ended in the last minute.
    pub round: Quantiles,
    /// From call to end, of what ended in the last five seconds.
    #[serde(default)]
    pub recent: Quantiles,
    /// What `round` was computed from.
    #[serde(default)]
    pub durations: Histogram,
    /// The same by policy; at most [`POLICIES_MAX`] and [`OTHER`].
    #[serde(default)]
    pub policies: Vec<PolicyActivity>,
    /// What agents did; at most [`AGENTS_MAX`].
    #[serde(default)]
    pub agents: Vec<AgentActivity>,
    /// What refuses readiness, each with its remedy; at most [`FAULTS_MAX`].
    #[serde(default)]
    pub faults: Vec<String>,
    /// The newest open negotiations, newest first; at most [`NAMED_MAX`].
    pub newest: Vec<OpenNegotiation>,
    /// The newest ended negotiations, newest first; at most [`NAMED_MAX`].
    pub latest: Vec<EndedNegotiation>,
}

/// How long something takes, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many were measured; the others are 0 when this is.
    pub count: u64,
    /// Half took at most this.
    pub p50_us: u64,
    /// 95 of 100 took at most this.
    pub p95_us: u64,
    /// 99 of 100 took at most this.
    pub p99_us: u64,
}

/// How many durations fell into each bucket. A bucket is named by the longest duration it holds, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram(pub BTreeMap<u64, u64>);

impl Histogram {
    /// Adds what another histogram holds.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            let sum = self.0.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// How many durations there are, and what 50, 95 and 99 of 100 of them are at most.
    #[must_use]
    pub fn spread(&self) -> Quantiles {
        let count = self.0.values().fold(0, |sum: u64, &count| sum.saturating_add(count));
        let [p50_us, p95_us, p99_us] = [50, 95, 99].map(|percent| self.percentile(count, percent));
        Quantiles { count, p50_us, p95_us, p99_us }
    }

    /// The longest duration of the bucket that holds the value `percent` of all are at most.
    fn percentile(&self, count: u64, percent: u128) -> u64 {
        let rank = (u128::from(count) * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.0.iter().find(|(_, times)| {
            seen += u128::from(**times);
            seen >= rank
        });
        found.map_or(0, |(bucket, _)| *bucket)
    }
}

/// What happened under one policy since the process started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyActivity {
    /// Its id; `alternating_offers` for all bargains, because their policies are sealed; or [`OTHER`].
    pub policy: String,
    /// Negotiations ended.
    pub ended: u64,
    /// Awards made in these, re-awards and agreements included.
    pub awards: u64,
    /// Offers that counted in these.
    pub offers: u64,
    /// From call to end, of what ended in the last minute.
    pub durations: Histogram,
}

/// What one agent did since the process started. What it did in bargains is counted as far as messages show it: calls and
/// offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentActivity {
    /// The agent.
    pub agent: AgentId,
    /// Negotiations it opened.
    pub opened: u64,
    /// Calls sent to it.
    pub calls: u64,
    /// Offers of its that counted.
    pub offers: u64,
    /// Awards made to it, re-awards included.
    pub awards: u64,
    /// Awards it would have got if each had been drawn among the valid offers it was chosen from, in parts per million.
    pub fair_ppm: u64,
    /// From the first sending of a delivery to its acknowledgement.
    pub acknowledged: Quantiles,
}

/// An open negotiation, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenNegotiation {
    /// Its id.
    pub negotiation: NegotiationId,
    /// `contract_net` or `alternating_offers`.
    pub protocol: String,
    /// Its state.
    pub phase: String,
    /// Its policy.
    pub policy: String,
    /// When the call was logged.
    pub called_at: Timestamp,
    /// Agents called.
    pub invited: u32,
    /// Offers that counted so far.
    pub offers: u32,
}

/// An ended negotiation, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedNegotiation {
    /// Its id.
    pub negotiation: NegotiationId,
    /// `contract_net` or `alternating_offers`.
    pub protocol: String,
    /// Its policy.
    #[serde(default)]
    pub policy: String,
    /// How it ended.
    pub outcome: String,
    /// Awards made, re-awards included; 1 for an agreement.
    pub awards: u32,
    /// Offers that counted.
    pub offers: u32,
    /// When it ended.
    pub at: Timestamp,
    /// Since the call.
    pub elapsed_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_of_two_engines_add_up_and_their_quantiles_are_those_of_both() {
        let mut sum = Histogram([(10, 50), (20, 44)].into());
        sum.merge(&Histogram([(20, 1), (40, 4), (80, 1)].into()));
        assert_eq!(sum.spread(), Quantiles { count: 100, p50_us: 10, p95_us: 20, p99_us: 40 });
        assert_eq!(Histogram::default().spread(), Quantiles::default());
        let most = Histogram([(7, u64::MAX), (9, u64::MAX)].into());
        assert_eq!(most.spread().p50_us, 7, "and do not overflow");
    }

    #[test]
    fn statistics_of_an_engine_that_counts_less_are_read() {
        let text = r#"{"engine":"e","at":1,"owned":[],"open":0,"started":0,"ended":{},"awards":0,"offers":0,
            "unacknowledged":0,"round":{"count":0,"p50_us":0,"p95_us":0,"p99_us":0},"newest":[],"latest":[]}"#;
        let statistics: Statistics = serde_json::from_str(text).unwrap();
        assert_eq!((statistics.binding, statistics.policies.len(), statistics.durations), (0, 0, Histogram::default()));
    }
}
