//! The decision record: what was decided, from what, and why. Its digest stands in the register under every award it
//! makes; it is recomputed from the log, byte for byte (docs/spec/messages.md#ms-48).

use schemas::delivery::CloseReason;
use schemas::ids::{Position, ordered_position};
use schemas::{AgentId, AwardNo, Digest, DocumentHash, Lot, NegotiationId, OfferId, Timestamp};
use serde::Serialize;

/// One decision: integers and texts only. Members stand in the order of their names, here and in what it contains, so that
/// compact JSON is the canonical form.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// When: log time of a message, deadline of a timer; microseconds.
    pub at: Timestamp,
    /// The awards it makes.
    pub awards: Vec<Placement>,
    /// Who or what chose.
    pub cause: Cause,
    /// Head of the hash chain over the negotiation's inputs.
    pub chain: Digest,
    /// Why collection closed.
    pub closed: CloseReason,
    /// Whether everybody called had responded by then.
    pub complete: bool,
    /// Contractors called.
    pub expected: u32,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The valid offers in rank order (after a lost award: those still held).
    pub offers: Vec<RankedOffer>,
    /// Digest of the policy it runs under.
    pub policy: Digest,
    /// Position of the input that caused it; at a close this is the closing position that breaks ties.
    #[serde(serialize_with = "ordered_position")]
    pub position: Position,
    /// After a lost award: digest of the decision before.
    pub previous: Option<Digest>,
    /// Contractors that had responded by then.
    pub responded: u32,
    /// The round.
    pub round: u32,
    /// Of the formation of a team: how many of the ranked got a seat.
    pub seats: Option<u32>,
}

/// Who or what chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The score, at the close.
    Score,
    /// The initiator, under `decider: initiator`.
    Initiator,
    /// The score, because the initiator was silent until `decide_by`.
    InitiatorSilent,
    /// The next runner-up, because an award was lost.
    ReAward(AwardLoss),
    /// A member of a team, who named the owner of a task.
    Direct,
}

/// How an award was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AwardLoss {
    /// REFUSE, WITHDRAW or NOT_UNDERSTOOD in answer to the ACCEPT (docs/spec/contract-net.md#cn-44).
    Refused,
    /// FAILURE before the CONFIRM (docs/spec/contract-net.md#cn-46).
    Failed,
    /// No CONFIRM in time (docs/spec/contract-net.md#cn-47).
    ConfirmTimeout,
    /// FAILURE while performing (docs/spec/contract-net.md#cn-49).
    PerformFailed,
    /// No INFORM in time (docs/spec/contract-net.md#cn-50).
    PerformTimeout,
    /// The ACCEPT could not be delivered (docs/spec/contract-net.md#cn-48).
    Undelivered,
    /// The initiator called it off (docs/spec/contract-net.md#cn-55).
    Cancelled,
    /// The hard deadline (docs/spec/contract-net.md#cn-58).
    Timeout,
    /// The negotiation was aborted.
    Aborted,
}

/// One valid offer in its rank.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RankedOffer {
    /// Its contractor.
    pub contractor: AgentId,
    /// Its contractor's last win in this lane, under `tie_break: least_recent_winner`.
    #[serde(serialize_with = "ordered_position")]
    pub last_win: Option<Position>,
    /// The offer.
    pub offer_id: OfferId,
    /// What it would be paid at its rank.
    pub payment: Option<i64>,
    /// Its own price, in micro-units, where it has one.
    pub price: Option<i64>,
    /// Its contractor's reputation as the call pinned it, where the policy weighs that.
    pub reputation: Option<u64>,
    /// Its score.
    pub score: u32,
    /// Digest of its terms.
    pub terms: Digest,
    /// Valid until then; absent when it stands for the whole negotiation.
    pub valid_until: Option<Timestamp>,
}

/// One award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The award.
    pub award_no: AwardNo,
    /// The protocol document it pins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentHash>,
    /// The lot.
    pub lot: Lot,
    /// The offer.
    pub offer_id: OfferId,
}

impl Decision {
    /// Digest of the canonical record.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_ordered(self)
            .expect("a decision holds integers, texts and digests only, which all have a canonical form")
    }
}
