//! What became of an agent's own messages.

use serde::{Deserialize, Serialize};

use crate::ids::{AwardNo, MsgId, OfferId};
use crate::panel::SeatChoice;

crate::words! {
    /// What became of a logged message (docs/spec/messages.md#dispositions).
    pub enum Disposition {
        /// Applied.
        Ok,
        /// Seen before, same body.
        Duplicate,
        /// After collection closed.
        Late,
        /// After the negotiation's lifetime.
        Expired,
        /// Of an earlier round.
        StaleRound,
        /// Illegal in this state.
        OutOfTurn,
        /// Not readable by the fold.
        Malformed,
        /// Seen before, other body; the first stands.
        Conflict,
        /// Its `seq` is not higher than the last applied.
        StaleSeq,
        /// Not a party, or no such negotiation.
        Unauthorized,
        /// The negotiation is over.
        Closed,
        /// Fails a gate.
        PolicyReject,
        /// A bound of the exchange is reached.
        RateLimited,
        /// The award is binding.
        Committed,
        /// The award had been taken back.
        Revoked,
        /// Outside the sender's own mandate.
        MandateViolation,
    }
}

/// The disposition of one message: the payload of an `ack`, or one of [`super::Delivery::receipts`].
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Receipt {
    /// The message.
    pub ack_of: MsgId,
    /// What became of it.
    pub disposition: Disposition,
    /// For a repeat: what became of the first.
    pub first: Option<Disposition>,
    /// For an offer: the id the exchange gave it.
    pub offer_id: Option<OfferId>,
    /// For a call: how many are invited.
    pub invited: Option<u32>,
    /// For a call: how many were left out ([`crate::record::Pinned::left_out`]).
    pub left_out: Option<u32>,
    /// For a call to a panel that chooses its seats: who they are.
    pub seats: Option<SeatChoice>,
    /// For `committed` and `revoked`: the award.
    pub award_no: Option<AwardNo>,
    /// For an act that changed a team: the number of the change.
    pub step: Option<u32>,
    /// For an act that changed a team: the turn it is now.
    pub turn: Option<u32>,
    /// For an assignment: the numbers of its tasks, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<u32>,
}

impl Receipt {
    /// A receipt that says no more than what became of the message.
    #[must_use]
    pub const fn new(ack_of: MsgId, disposition: Disposition) -> Self {
        Self {
            ack_of,
            disposition,
            first: None,
            offer_id: None,
            invited: None,
            left_out: None,
            seats: None,
            award_no: None,
            step: None,
            turn: None,
            tasks: Vec::new(),
        }
    }

    /// Whether it says no more than that the message was applied (docs/spec/messages.md#ms-55): such a receipt waits for
    /// the next delivery to its sender, unless the sender asked for it.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let Self { ack_of: _, disposition, first, offer_id: _, invited, left_out, seats, award_no, step, turn, tasks } =
            self;
        let numbers = [invited, left_out, step, turn];
        let has_numbers = numbers.into_iter().any(Option::is_some) || !tasks.is_empty();
        let says_more = first.is_some() || seats.is_some() || award_no.is_some() || has_numbers;
        *disposition == Disposition::Ok && !says_more
    }
}
