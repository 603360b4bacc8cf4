//! One contractor in a contract net: the state of its session, its offer, and how calls reach it.

use nonmax::NonMaxI64;
use schemas::payload::Terms;
use schemas::record::{Invitation, Qos};
use schemas::{AgentId, DocumentHash, MsgId, OfferId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::limits::CALL_ATTEMPTS_MAX;
use crate::negotiation::{Party, stored};

/// State of one contractor's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Called, no answer yet.
    Invited,
    /// Has an offer in the running.
    Offered,
    /// Its last offer failed a gate.
    PolicyRejected,
    /// Declined.
    Refused,
    /// Did not understand the call.
    NotUnderstood,
    /// Took its offer back.
    Withdrawn,
    /// Struck out.
    Excluded,
    /// Held back as runner-up.
    Standby,
    /// Accepted, and asked to confirm.
    Awarded,
    /// Bound.
    Committed,
    /// Has performed.
    Done,
    /// Its call could not be delivered: nobody waits for it, and an offer that still comes is taken.
    Undelivered,
    /// Failed, before or after an award.
    Failed,
    /// Its offer is out of the running.
    Rejected,
    /// Did not confirm in time, or was not called again.
    Lapsed,
    /// Asked to stop.
    CancelPending,
    /// Has stopped.
    Cancelled,
}

impl SessionState {
    /// Whether a first answer to the call is still taken from a session in this state.
    #[must_use]
    pub(super) const fn may_answer(self) -> bool {
        matches!(self, Self::Invited | Self::Undelivered)
    }

    /// Whether strikes may still exclude a session in this state.
    #[must_use]
    pub(super) const fn is_excludable(self) -> bool {
        matches!(
            self,
            Self::Invited
                | Self::Offered
                | Self::PolicyRejected
                | Self::Refused
                | Self::NotUnderstood
                | Self::Withdrawn
                | Self::Undelivered
                | Self::Standby
                | Self::Rejected
        )
    }

    /// Whether a session in this state counts as having responded to the call (docs/spec/contract-net.md).
    #[must_use]
    pub(super) const fn is_response(self) -> bool {
        matches!(
            self,
            Self::Offered
                | Self::PolicyRejected
                | Self::Refused
                | Self::NotUnderstood
                | Self::Withdrawn
                | Self::Excluded
                | Self::Undelivered
                | Self::Failed
        )
    }
}

/// An offer that satisfies the gates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CollectedOffer {
    pub(super) id: OfferId,
    pub(super) score: u32,
    pub(super) price: Option<NonMaxI64>,
    /// What it is paid at its rank; set at the close.
    pub(super) payment: Option<NonMaxI64>,
    /// [`Timestamp::MAX`] when it stands for the whole negotiation.
    pub(super) valid_until: Timestamp,
    /// The terms in canonical form: a tenth of the size of the parsed map.
    pub(super) terms: Box<str>,
    /// The protocol document an award of it pins.
    pub(super) document: Option<Box<DocumentHash>>,
}

/// What is paid, as an offer keeps it. Amounts are integers of JSON, far below what cannot be kept.
pub(super) fn amount(value: i64) -> NonMaxI64 {
    NonMaxI64::new(value).unwrap_or(NonMaxI64::MAX)
}

impl CollectedOffer {
    pub(super) fn price(&self) -> Option<i64> {
        self.price.map(i64::from)
    }

    pub(super) fn payment(&self) -> Option<i64> {
        self.payment.map(i64::from)
    }

    pub(super) fn document(&self) -> Option<DocumentHash> {
        self.document.as_deref().copied()
    }

    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.valid_until >= now
    }

    /// The terms.
    pub(super) fn terms(&self) -> Terms {
        serde_json::from_str(&self.terms).expect("the terms were written by this crate")
    }
}

/// How a contractor's calls are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CallDelivery {
    /// Until acknowledged; after [`CALL_ATTEMPTS_MAX`] attempts nobody waits any longer.
    AtLeastOnce,
    /// Once.
    BestEffort,
    /// Until acknowledged or the deadline: it may be absent for a while.
    Durable,
}

impl CallDelivery {
    pub(super) const fn of(invitation: &Invitation) -> Self {
        match (invitation.qos, invitation.durable) {
            (Qos::BestEffort, _) => Self::BestEffort,
            (Qos::AtLeastOnce, true) => Self::Durable,
            (Qos::AtLeastOnce, false) => Self::AtLeastOnce,
        }
    }

    pub(super) const fn qos(self) -> Qos {
        match self {
            Self::AtLeastOnce | Self::Durable => Qos::AtLeastOnce,
            Self::BestEffort => Qos::BestEffort,
        }
    }

    /// Most attempts at delivering a call, where that is fewer than of other deliveries.
    pub(super) const fn call_attempts_max(self) -> Option<u32> {
        match self {
            Self::AtLeastOnce => Some(CALL_ATTEMPTS_MAX),
            Self::BestEffort | Self::Durable => None,
        }
    }
}

/// One contractor's session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ContractorSession {
    pub(super) party: Party,
    pub(super) state: SessionState,
    /// The last round it was called for.
    pub(super) round: u32,
    /// Up to 255, of which a policy asks for [`STRIKES_MAX`](schemas::policy::STRIKES_MAX) at most.
    #[serde(serialize_with = "stored::write_count", deserialize_with = "stored::read_count")]
    pub(super) strikes: u8,
    /// Number of the last input folded from it, in the lane's count.
    pub(super) heard: u64,
    pub(super) call_delivery: CallDelivery,
    /// Whether it was bound and had no CANCEL: CLOSED is then its offer's final notice.
    pub(super) is_owed_closed: bool,
    /// The offer in the running, held, awarded or committed.
    pub(super) offer: Option<Box<CollectedOffer>>,
}

impl ContractorSession {
    pub(super) fn new(agent: AgentId, call_delivery: CallDelivery) -> Self {
        Self {
            party: Party::new(agent),
            state: SessionState::Invited,
            round: 1,
            strikes: 0,
            heard: 0,
            call_delivery,
            is_owed_closed: false,
            offer: None,
        }
    }

    /// The message an offer came in: every offer in the running has one.
    pub(super) fn message_of(&self, offer: &CollectedOffer) -> Option<MsgId> {
        self.party.seen.iter().find(|seen| seen.position() == offer.id.0).map(|seen| seen.msg_id.clone())
    }

    /// Whether it has an offer that came in none of its messages.
    pub(super) fn has_unsent_offer(&self) -> bool {
        self.offer.as_ref().is_some_and(|offer| self.message_of(offer).is_none())
    }
}
