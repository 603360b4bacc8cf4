//! What engines tell people who look: not part of the protocol, never the ground of a decision, lost without a loss.
//!
//! Once a second an engine publishes a [`Pulse`] on [`crate::subject::pulse`]. Of one negotiation it tells the [`Journal`] on
//! [`crate::subject::journal`], which the gateways pass on to administrators only: it holds every offer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bargain::Issue;
use crate::ids::{AgentId, AwardNo, DeliveryId, Lane, Lot, NegotiationId};
use crate::payload::Terms;
use crate::time::Timestamp;

/// Most open negotiations, and most ended ones, that a pulse names: the newest.
pub const NAMED_MAX: usize = 48;
/// Most things a journal holds of one negotiation: the first and the last; what is left out between them is counted.
pub const HAPPENED_MAX: usize = 512;

/// Most policies that a pulse counts apart; negotiations under further ones are counted together, as [`OTHER`].
pub const POLICIES_MAX: usize = 16;
/// What stands for the policies that are not counted apart. A policy's id contains `@`, so none is called that.
pub const OTHER: &str = "other";
/// Most agents whose activity a pulse gives: the busiest.
pub const AGENTS_MAX: usize = 64;
/// Most buckets of a histogram: eight to each doubling of a duration.
pub const BUCKETS_MAX: usize = 496;
/// Most issues of an offer that a journal holds.
pub const ISSUES_MAX: usize = 8;
/// Most values of an issue that a journal holds; of an issue with more it holds none.
pub const ISSUE_VALUES_SHOWN_MAX: usize = 64;
/// Most bytes of text in these values.
pub const ISSUE_TEXT_SHOWN_MAX: usize = 1024;
/// Most faults that a pulse names.
pub const FAULTS_MAX: usize = 8;

/// An engine's second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pulse {
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
    pub round: Spread,
    /// From call to end, of what ended in the last five seconds.
    #[serde(default)]
    pub recent: Spread,
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
pub struct Spread {
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
    pub fn spread(&self) -> Spread {
        let count = self.0.values().fold(0, |sum: u64, &count| sum.saturating_add(count));
        let [p50_us, p95_us, p99_us] = [50, 95, 99].map(|percent| self.percentile(count, percent));
        Spread { count, p50_us, p95_us, p99_us }
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
    pub acknowledged: Spread,
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

/// Asks for a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRequest {
    /// Of this negotiation.
    pub negotiation: NegotiationId,
}

/// What an engine remembers of one negotiation since it owns the lane; nothing survives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The engine that tells.
    pub engine: String,
    /// What happened, in order: the first entries, then of what happened in between that which matters most, then the
    /// last.
    pub entries: Vec<Entry>,
    /// How much more happened, all of it where `gap` says.
    pub left_out: u64,
    /// Where something was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// Deliveries that this engine sent and that wait for an acknowledgement, whether the journal names them or not.
    #[serde(default)]
    pub unacknowledged: u64,
}

/// Where entries were left out: nothing is missing among those before `from`, nor among those from `to` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Index of the first entry behind the first that was left out.
    pub from: u64,
    /// Index of the first entry behind the last that was left out.
    pub to: u64,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When: log time of what was logged, the engine's clock of what it did.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

/// What happened. Texts are those of the protocol's own enumerations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Happened {
    /// The call was logged.
    Called {
        /// `contract_net` or `alternating_offers`.
        protocol: String,
        /// Its policy.
        policy: String,
        /// Agents called.
        invited: u32,
        /// Addressed agents the gateway left out.
        left_out: u32,
    },
    /// A message was logged and disposed of.
    Message {
        /// Its sender.
        from: AgentId,
        /// Its act.
        act: String,
        /// What became of it.
        disposition: String,
        /// Score of an offer that satisfies the gates.
        score: Option<u32>,
    },
    /// The rules of a bargain, as every party is told them in its call.
    Rules {
        /// Who takes part, in the order of their turns.
        parties: Vec<AgentId>,
        /// What is bargained about: of the issues in the order of their names the first [`ISSUES_MAX`], as of the terms. One
        /// with more than [`ISSUE_VALUES_SHOWN_MAX`] values, or [`ISSUE_TEXT_SHOWN_MAX`] bytes of text, has no values here.
        issues: Vec<Issue>,
    },
    /// An offer stands in a bargain, as every party is told. Offers to a call for proposals are sealed, and their terms are in
    /// no journal.
    Proposed {
        /// Who offered.
        by: AgentId,
        /// The round, counted from 1.
        round: u32,
        /// Turns taken so far, in all rounds.
        step: u32,
        /// Its terms, at most [`ISSUES_MAX`] of them.
        terms: Terms,
    },
    /// What a bargain agreed on, as every party is told.
    Agreed {
        /// Whose offer it was.
        by: AgentId,
        /// The round in which the last party accepted, counted from 1.
        round: u32,
        /// Turns taken, the last acceptance included.
        step: u32,
        /// Its terms, at most [`ISSUES_MAX`] of them.
        terms: Terms,
    },
    /// The state changed.
    Moved {
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// Collection closed.
    Closed {
        /// The round.
        round: u32,
        /// Why.
        reason: String,
        /// Valid offers.
        offers: u32,
        /// Contractors that responded.
        responded: u32,
        /// Contractors called.
        expected: u32,
    },
    /// An award was decided.
    Decided {
        /// Who or what chose.
        cause: String,
        /// The valid offers in rank order, at most 64.
        ranked: Vec<Ranked>,
        /// Contractors that got the lots.
        winners: Vec<AgentId>,
    },
    /// The register answered.
    Registered {
        /// The key.
        key: String,
        /// `written`, `same` or `different`.
        result: String,
    },
    /// Something was sent to an agent for the first time.
    Sent {
        /// The agent.
        to: AgentId,
        /// What it says.
        act: String,
        /// Its id.
        delivery: DeliveryId,
        /// No later entry says what became of it: it is sent once only, or that entry was left out.
        #[serde(default, skip_serializing_if = "is_false")]
        settled: bool,
    },
    /// The agent acknowledged it.
    Acknowledged {
        /// The agent.
        by: AgentId,
        /// What it says.
        act: String,
        /// Its id.
        delivery: DeliveryId,
        /// Times it was sent.
        attempts: u32,
    },
    /// It was given up.
    GivenUp {
        /// The agent.
        to: AgentId,
        /// What it says.
        act: String,
        /// Its id.
        delivery: DeliveryId,
        /// Why.
        reason: String,
    },
    /// An award became binding.
    Committed {
        /// The lot.
        lot: Lot,
        /// The award.
        award_no: AwardNo,
        /// The contractor.
        contractor: AgentId,
    },
    /// An award fell through.
    AwardLost {
        /// The lot.
        lot: Lot,
        /// The award.
        award_no: AwardNo,
        /// The contractor.
        contractor: AgentId,
        /// How.
        loss: String,
    },
    /// It ended.
    Ended {
        /// How.
        outcome: String,
        /// Since the call.
        elapsed_us: u64,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// An offer in its rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// Who offered.
    pub contractor: AgentId,
    /// Its score, in parts per million.
    pub score: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_of_two_engines_add_up_and_their_quantiles_are_those_of_both() {
        let mut sum = Histogram([(10, 50), (20, 44)].into());
        sum.merge(&Histogram([(20, 1), (40, 4), (80, 1)].into()));
        assert_eq!(sum.spread(), Spread { count: 100, p50_us: 10, p95_us: 20, p99_us: 40 });
        assert_eq!(Histogram::default().spread(), Spread::default());
        let most = Histogram([(7, u64::MAX), (9, u64::MAX)].into());
        assert_eq!(most.spread().p50_us, 7, "and do not overflow");
    }

    #[test]
    fn a_pulse_of_an_engine_that_counts_less_is_read() {
        let text = r#"{"engine":"e","at":1,"owned":[],"open":0,"started":0,"ended":{},"awards":0,"offers":0,
            "unacknowledged":0,"round":{"count":0,"p50_us":0,"p95_us":0,"p99_us":0},"newest":[],"latest":[]}"#;
        let pulse: Pulse = serde_json::from_str(text).unwrap();
        assert_eq!((pulse.binding, pulse.policies.len(), pulse.durations), (0, 0, Histogram::default()));
    }

    #[test]
    fn an_entry_is_one_flat_document() {
        let what = Happened::Moved { from: "collecting".to_owned(), to: "deciding".to_owned() };
        let entry = Entry { at: Timestamp(7), what };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(text, r#"{"at":7,"what":"moved","from":"collecting","to":"deciding"}"#);
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}
