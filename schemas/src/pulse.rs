//! What engines tell people who look: not part of the protocol, never the ground of a decision, lost without a loss.
//!
//! Once a second an engine publishes a [`Pulse`] on [`crate::subject::pulse`]. Of one negotiation it tells the [`Journal`] on
//! [`crate::subject::journal`], which the gateways pass on to administrators only: it holds every offer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, AwardNo, DeliveryId, Lane, Lot, NegotiationId};
use crate::time::Timestamp;

/// Most open negotiations, and most ended ones, that a pulse names: the newest.
pub const NAMED_MAX: usize = 48;
/// Most things a journal holds of one negotiation: the first and the last; what is left out between them is counted.
pub const HAPPENED_MAX: usize = 512;

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
    /// Awards that became binding since the process started, and bargains that ended in agreement.
    pub awards: u64,
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
    /// How it ended.
    pub outcome: String,
    /// ACCEPTs sent.
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
    fn an_entry_is_one_flat_document() {
        let what = Happened::Moved { from: "collecting".to_owned(), to: "deciding".to_owned() };
        let entry = Entry { at: Timestamp(7), what };
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(text, r#"{"at":7,"what":"moved","from":"collecting","to":"deciding"}"#);
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
    }
}
