//! What the fold remembers of one party: the messages it has seen, and a contractor's session.

use schemas::delivery::Disposition;
use schemas::ids::Position;
use schemas::record::{Invitation, Qos};
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, OfferId, Timestamp};

use crate::acceptance::gate::GateFault;
use crate::contract_net::state::SessionState;
use crate::limits::CALL_ATTEMPTS_MAX;
use crate::negotiation::phase::{ActSet, NotUnderstoodReason};

/// Bytes of a message digest that are kept to tell a duplicate from a conflict: 128 bits leave no practical collision.
pub(crate) const DIGEST_KEPT: usize = 16;

/// What the sender of a message was answered beside its receipt; kept so that a duplicate is answered alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FollowUp {
    /// Nothing.
    None,
    /// REJECT{late}.
    Late,
    /// REJECT{policy}.
    Policy(GateFault),
    /// NOT_UNDERSTOOD.
    NotUnderstood(NotUnderstoodReason, ActSet),
    /// NOT_UNDERSTOOD, and where.
    Pointed(Box<Pointed>),
    /// CLOSED.
    Closed,
    /// CANCEL of an award taken back before.
    Revoked(AwardNo),
}

/// What could not be followed, and where in the message it stands. Rare, so it is boxed: every message keeps a [`FollowUp`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointed {
    pub(crate) reason: NotUnderstoodReason,
    pub(crate) expected: ActSet,
    /// JSON pointer.
    pub(crate) pointer: Box<str>,
}

impl FollowUp {
    /// The award that is answered as taken back.
    pub(crate) fn revoked_award(&self) -> Option<AwardNo> {
        match self {
            Self::Revoked(award_no) => Some(*award_no),
            Self::None | Self::Late | Self::Policy(_) | Self::NotUnderstood(..) | Self::Pointed(_) | Self::Closed => {
                None
            }
        }
    }
}

/// One message, as far as a duplicate of it needs to be recognised and answered.
#[derive(Debug, Clone)]
pub(crate) struct SeenMessage {
    pub(crate) msg_id: MsgId,
    pub(crate) digest: [u8; DIGEST_KEPT],
    pub(crate) act: Act,
    pub(crate) disposition: Disposition,
    pub(crate) reply: FollowUp,
    /// The award a CONFIRM was for.
    pub(crate) award_no: Option<AwardNo>,
    pub(crate) position: Position,
    pub(crate) at: Timestamp,
}

/// One party of a negotiation: the initiator, or a contractor.
#[derive(Debug)]
pub(crate) struct Party {
    pub(crate) agent: AgentId,
    /// Highest `seq` folded; absent while the party numbers nothing.
    pub(crate) last_seq: Option<u64>,
    pub(crate) seen: Vec<SeenMessage>,
}

/// What a message is to what its sender sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Nothing alike: go on.
    New,
    /// The same message: index of the first.
    Duplicate(usize),
    /// The same id with another body: index of the first.
    Conflict(usize),
    /// Older than one folded already.
    Stale,
}

impl Party {
    pub(crate) fn new(agent: AgentId) -> Self {
        Self { agent, last_seq: None, seen: Vec::new() }
    }

    /// Repeats and order. A party that numbers nothing has no order to protect; once it has numbered a message, one
    /// without a number counts as older than every numbered one.
    pub(crate) fn repeat(&self, msg_id: &MsgId, digest: Digest, seq: Option<u64>) -> Repeat {
        if let Some(index) = self.seen.iter().position(|seen| seen.msg_id == *msg_id) {
            return if self.seen[index].digest == digest.short() {
                Repeat::Duplicate(index)
            } else {
                Repeat::Conflict(index)
            };
        }
        Self::order(self.last_seq, seq)
    }

    /// Remembers a message. Most parties send one to three, and a vector's first growth is to four: it grows exactly while
    /// it is small.
    pub(crate) fn remember(&mut self, seen: SeenMessage, seq: Option<u64>) {
        self.last_seq = self.last_seq.max(seq);
        if self.seen.len() < 4 {
            self.seen.reserve_exact(1);
        }
        self.seen.push(seen);
    }

    /// Whether a new message comes in its sender's order.
    pub(crate) fn order(last_seq: Option<u64>, seq: Option<u64>) -> Repeat {
        match (last_seq, seq) {
            (Some(last), Some(seq)) if seq <= last => Repeat::Stale,
            (Some(_), None) => Repeat::Stale,
            (Some(_) | None, Some(_)) | (None, None) => Repeat::New,
        }
    }
}

/// An offer that satisfies the gates.
#[derive(Debug, Clone)]
pub(crate) struct CollectedOffer {
    pub(crate) id: OfferId,
    pub(crate) score: u32,
    pub(crate) price: Option<i64>,
    /// What it is paid at its rank; set at the close.
    pub(crate) payment: Option<i64>,
    /// [`Timestamp::MAX`] when it stands for the whole negotiation.
    pub(crate) valid_until: Timestamp,
    /// The terms in canonical form: a tenth of the size of the parsed map.
    pub(crate) terms: Box<str>,
    /// The message it came in.
    pub(crate) msg_id: MsgId,
}

impl CollectedOffer {
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.valid_until >= now
    }
}

/// How a contractor's calls are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallDelivery {
    /// Until acknowledged; after [`CALL_ATTEMPTS_MAX`] attempts nobody waits any longer.
    AtLeastOnce,
    /// Once.
    BestEffort,
    /// Until acknowledged or the deadline: it may be absent for a while.
    Durable,
}

impl CallDelivery {
    pub(crate) const fn of(invitation: &Invitation) -> Self {
        match (invitation.qos, invitation.durable) {
            (Qos::BestEffort, _) => Self::BestEffort,
            (Qos::AtLeastOnce, true) => Self::Durable,
            (Qos::AtLeastOnce, false) => Self::AtLeastOnce,
        }
    }

    pub(crate) const fn qos(self) -> Qos {
        match self {
            Self::AtLeastOnce | Self::Durable => Qos::AtLeastOnce,
            Self::BestEffort => Qos::BestEffort,
        }
    }

    /// Most attempts at delivering a call, where that is fewer than of other deliveries.
    pub(crate) const fn call_attempts_max(self) -> Option<u32> {
        match self {
            Self::AtLeastOnce => Some(CALL_ATTEMPTS_MAX),
            Self::BestEffort | Self::Durable => None,
        }
    }
}

/// One contractor's session.
#[derive(Debug)]
pub(crate) struct ContractorSession {
    pub(crate) party: Party,
    pub(crate) state: SessionState,
    /// The last round it was called for.
    pub(crate) round: u32,
    pub(crate) strikes: u32,
    /// Number of the last input folded from it, in the lane's count.
    pub(crate) heard: u64,
    pub(crate) call_delivery: CallDelivery,
    /// Whether it was bound and had no CANCEL: CLOSED is then its offer's final notice.
    pub(crate) is_owed_closed: bool,
    /// The offer in the running, held, awarded or committed.
    pub(crate) offer: Option<Box<CollectedOffer>>,
}

impl ContractorSession {
    pub(crate) fn new(agent: AgentId, call_delivery: CallDelivery) -> Self {
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
}

/// One lot.
#[derive(Debug, Clone, Default)]
pub(crate) struct LotState {
    /// ACCEPTs sent so far.
    pub(crate) tries: u32,
    /// The award that is live or was completed.
    pub(crate) award: Option<LiveAward>,
    /// The last award's number and whether its end is registered.
    pub(crate) registered: Option<(AwardNo, bool)>,
}

/// An award that has not been taken back.
#[derive(Debug, Clone)]
pub(crate) struct LiveAward {
    pub(crate) award_no: AwardNo,
    pub(crate) session: usize,
    pub(crate) stage: AwardStage,
    /// `confirm_by`, then `perform_by`.
    pub(crate) deadline: Timestamp,
    /// The ACCEPT's delivery, and the lane's input count when it was made.
    pub(crate) accept: (schemas::DeliveryId, u64),
}

/// How far a live award has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AwardStage {
    /// Waits for CONFIRM.
    Awarded,
    /// Bound.
    Committed,
    /// Performed.
    Done,
    /// Called off; waits for the contractor's answer.
    CancelPending,
}

/// An award that was taken back: a CONFIRM for it is answered `revoked`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RevokedAward {
    pub(crate) award_no: AwardNo,
    pub(crate) session: usize,
    pub(crate) lot: usize,
}
