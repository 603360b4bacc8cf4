//! The states of a negotiation and of its contractors' sessions, and the timers (spec section 2).

use schemas::delivery::Disposition;
use schemas::{Act, Timestamp};
use serde::Serialize;

/// State of a negotiation.
///
/// With several lots the state of rows 6 to 15 is kept per lot; the negotiation is `Awarding` while any lot waits for a
/// CONFIRM, and `Performing` when none does and one is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Offers are collected.
    Collecting,
    /// `decider: initiator`: closed, and the initiator chooses.
    Deciding,
    /// An ACCEPT waits for its CONFIRM.
    Awarding,
    /// A contractor is bound and works.
    Performing,
    /// The initiator called it off; bound contractors have yet to answer.
    Cancelling,
    /// Terminal.
    Ended,
}

impl Phase {
    /// The name as it stands in metrics and views.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Collecting => "collecting",
            Self::Deciding => "deciding",
            Self::Awarding => "awarding",
            Self::Performing => "performing",
            Self::Cancelling => "cancelling",
            Self::Ended => "ended",
        }
    }
}

/// State of one contractor's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
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
    /// Whether a session in this state counts as having responded to the call (spec section 3).
    #[must_use]
    pub(crate) const fn is_response(self) -> bool {
        matches!(
            self,
            Self::Offered
                | Self::PolicyRejected
                | Self::Refused
                | Self::NotUnderstood
                | Self::Withdrawn
                | Self::Excluded
                | Self::Failed
        )
    }
}

/// What a timer is for. Timers that are due together fire in this order: the hard bound comes first, because a
/// negotiation that has no time left must not award.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TimerKind {
    /// `T_hard`.
    Hard,
    /// `T_collect`.
    Collect,
    /// `T_window`.
    Window,
    /// The falling threshold meets the best score.
    Crossing,
    /// `decide_by`.
    Decide,
    /// `T_confirm` of a lot.
    Confirm(u32),
    /// `T_perform` of a lot.
    Perform(u32),
    /// `T_cancel`.
    Cancel,
}

impl TimerKind {
    /// Bytes that name the timer in the hash chain.
    pub(crate) fn tag(self) -> [u8; 5] {
        let (kind, lot) = match self {
            Self::Hard => (0, 0),
            Self::Collect => (1, 0),
            Self::Window => (2, 0),
            Self::Crossing => (3, 0),
            Self::Decide => (4, 0),
            Self::Confirm(lot) => (5, lot),
            Self::Perform(lot) => (6, lot),
            Self::Cancel => (7, 0),
        };
        let [a, b, c, d] = lot.to_be_bytes();
        [kind, a, b, c, d]
    }
}

/// A timer: when, and what for.
pub(crate) type Timer = (Timestamp, TimerKind);

/// A set of acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActSet(u16);

impl ActSet {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn of(acts: &[Act]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < acts.len() {
            bits |= 1 << (acts[index] as u16);
            index += 1;
        }
        Self(bits)
    }

    pub(crate) fn to_vec(self) -> Vec<Act> {
        Act::ALL.into_iter().filter(|act| self.0 & (1 << (*act as u16)) != 0).collect()
    }
}

/// Why an act could not be followed; `reason` of the NOT_UNDERSTOOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misread {
    /// Illegal for this role, in this state.
    OutOfTurn,
    /// A round that has not begun.
    BadRound,
    /// No time to reply, or more than the negotiation may last.
    BadDeadline,
    /// Bound contractors leave by FAILURE{phase: decommit} only.
    UseFailureDecommit,
    /// The ACCEPT names no valid offer.
    UnknownOffer,
    /// Nobody is invited.
    NoRecipient,
    /// The pinned policy contradicts itself, or is not the one whose digest is pinned.
    InvalidPolicy,
}

impl Misread {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::OutOfTurn => "out_of_turn",
            Self::BadRound => "bad_round",
            Self::BadDeadline => "bad_deadline",
            Self::UseFailureDecommit => "use_failure_decommit",
            Self::UnknownOffer => "unknown_offer",
            Self::NoRecipient => "no_recipient",
            Self::InvalidPolicy => "invalid_policy",
        }
    }
}

/// Whether an offer with this disposition was given an id its sender may refer to.
pub(crate) const fn is_numbered(disposition: Disposition) -> bool {
    matches!(disposition, Disposition::Ok | Disposition::Late | Disposition::PolicyReject)
}
