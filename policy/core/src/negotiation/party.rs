//! What the fold remembers of one party: the messages it has seen, and a contractor's session.

use schemas::delivery::Disposition;
use schemas::ids::Position;
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::acceptance::gate::GateFault;
use crate::negotiation::phase::{ActSet, NotUnderstoodReason};

/// Bytes of a message digest that are kept to tell a duplicate from a conflict: 128 bits leave no practical collision.
pub(crate) const DIGEST_KEPT: usize = 16;

/// What the sender of a message was answered beside its receipt; kept so that a duplicate is answered alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Serialize, Deserialize)]
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
