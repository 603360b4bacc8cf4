//! The closed label sets, and where each value stands in them.

use policy_core::Phase;
use schemas::delivery::{CloseReason, Outcome, Told};

/// The only protocol there is so far.
pub(super) const PROTOCOL: &str = "contract_net";

/// The states an open negotiation can be in.
pub(super) const OPEN_PHASES: [Phase; 5] =
    [Phase::Collecting, Phase::Deciding, Phase::Awarding, Phase::Performing, Phase::Cancelling];

/// The invariants of DESIGN.md section 6.
pub(super) const INVARIANTS: [&str; 12] = [
    "one_award",
    "no_lost_admission",
    "recomputable",
    "idempotent",
    "no_late_winner",
    "final_notice",
    "absorbing",
    "terminates",
    "sealed",
    "turn_order",
    "authentic",
    "bounded",
];

/// What deliveries say, in the order of [`kind`].
pub(super) const KINDS: [&str; 9] =
    ["cfp", "accept", "reject", "cancel", "inform", "failure", "not_understood", "closed", "ack"];

pub(super) const fn kind(told: &Told) -> usize {
    match told {
        Told::Cfp(_) => 0,
        Told::Accept(_) => 1,
        Told::Reject(_) => 2,
        Told::Cancel(_) => 3,
        Told::Inform(_) => 4,
        Told::Failure(_) => 5,
        Told::NotUnderstood(_) => 6,
        Told::Closed(_) => 7,
        Told::Ack(_) => 8,
    }
}

/// How negotiations end, in the order of [`outcome`].
pub(super) const OUTCOMES: [&str; 7] =
    ["completed", "no_offers", "incomplete", "no_candidate", "timeout", "cancelled", "aborted"];

pub(super) const fn outcome(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Completed => 0,
        Outcome::NoOffers => 1,
        Outcome::Incomplete => 2,
        Outcome::NoCandidate => 3,
        Outcome::Timeout => 4,
        Outcome::Cancelled => 5,
        Outcome::Aborted => 6,
    }
}

/// Why collection closes, in the order of [`close_reason`].
pub(super) const CLOSE_REASONS: [&str; 5] = ["score_at_least", "k_valid", "all_responded", "window", "deadline"];

pub(super) const fn close_reason(reason: CloseReason) -> usize {
    match reason {
        CloseReason::ScoreAtLeast => 0,
        CloseReason::KValid => 1,
        CloseReason::AllResponded => 2,
        CloseReason::Window => 3,
        CloseReason::Deadline => 4,
    }
}

/// Why a delivery is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeadLetterReason {
    /// Sent as often as allowed.
    Attempts,
    /// The deadline it serves has passed.
    Expired,
    /// Too many deliveries wait for its recipient.
    Overflow,
    /// The register holds another value under the key it waits for.
    RegisterConflict,
    /// It could not be written as a document.
    Unwritable,
}

impl DeadLetterReason {
    pub(crate) const ALL: [Self; 5] =
        [Self::Attempts, Self::Expired, Self::Overflow, Self::RegisterConflict, Self::Unwritable];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Attempts => "attempts",
            Self::Expired => "expired",
            Self::Overflow => "overflow",
            Self::RegisterConflict => "register_conflict",
            Self::Unwritable => "unwritable",
        }
    }
}

/// How the register answered a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    Written,
    Same,
    Different,
    Error,
}

impl WriteResult {
    pub(crate) const ALL: [Self; 4] = [Self::Written, Self::Same, Self::Different, Self::Error];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Same => "same",
            Self::Different => "different",
            Self::Error => "error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_spelled_as_on_the_wire_and_stand_where_they_are_counted() {
        let outcomes = [
            Outcome::Completed,
            Outcome::NoOffers,
            Outcome::Incomplete,
            Outcome::NoCandidate,
            Outcome::Timeout,
            Outcome::Cancelled,
            Outcome::Aborted,
        ];
        for value in outcomes {
            assert_eq!(serde_json::to_value(value).unwrap(), OUTCOMES[outcome(value)]);
        }
        let reasons = [
            CloseReason::ScoreAtLeast,
            CloseReason::KValid,
            CloseReason::AllResponded,
            CloseReason::Window,
            CloseReason::Deadline,
        ];
        for value in reasons {
            assert_eq!(serde_json::to_value(value).unwrap(), CLOSE_REASONS[close_reason(value)]);
        }
        assert!(DeadLetterReason::ALL.iter().enumerate().all(|(index, reason)| *reason as usize == index));
        assert!(WriteResult::ALL.iter().enumerate().all(|(index, result)| *result as usize == index));
    }
}
