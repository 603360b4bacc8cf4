//! The states of a contractor's session (docs/spec/contract-net.md).

use serde::Serialize;

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
    pub(crate) const fn may_answer(self) -> bool {
        matches!(self, Self::Invited | Self::Undelivered)
    }

    /// Whether a session in this state counts as having responded to the call (docs/spec/contract-net.md).
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
                | Self::Undelivered
                | Self::Failed
        )
    }
}
