//! The closed label sets, and where each value stands in them.

use policy_core::{Phase, Protocol};
use schemas::delivery::{CloseReason, Notification, Outcome};

/// What negotiations are conducted by, in the order of [`protocol`].
pub(super) const PROTOCOLS: [Protocol; 2] = [Protocol::ContractNet, Protocol::AlternatingOffers];

pub(super) const fn protocol(protocol: Protocol) -> usize {
    match protocol {
        Protocol::ContractNet => 0,
        Protocol::AlternatingOffers => 1,
    }
}

/// The states an open negotiation can be in, each of one protocol.
pub(super) const OPEN_PHASES: [(Protocol, Phase); 8] = [
    (Protocol::ContractNet, Phase::Collecting),
    (Protocol::ContractNet, Phase::Deciding),
    (Protocol::ContractNet, Phase::Awarding),
    (Protocol::ContractNet, Phase::Performing),
    (Protocol::ContractNet, Phase::Cancelling),
    (Protocol::AlternatingOffers, Phase::Joining),
    (Protocol::AlternatingOffers, Phase::Bargaining),
    (Protocol::AlternatingOffers, Phase::Confirming),
];

/// The state a negotiation begins in.
pub(super) const fn first_phase(protocol: Protocol) -> Phase {
    match protocol {
        Protocol::ContractNet => Phase::Collecting,
        Protocol::AlternatingOffers => Phase::Joining,
    }
}

/// Where a state stands in [`OPEN_PHASES`]; nowhere when nothing is open in it.
pub(super) fn open_phase(phase: Phase) -> Option<usize> {
    OPEN_PHASES.iter().position(|(_, open)| *open == phase)
}

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
pub(super) const KINDS: [&str; 10] =
    ["cfp", "accept", "reject", "cancel", "inform", "failure", "not_understood", "closed", "ack", "turn"];

pub(super) const fn kind(told: &Notification) -> usize {
    match told {
        Notification::Cfp(_) => 0,
        Notification::Accept(_) => 1,
        Notification::Reject(_) => 2,
        Notification::Cancel(_) => 3,
        Notification::Inform(_) => 4,
        Notification::Failure(_) => 5,
        Notification::NotUnderstood(_) => 6,
        Notification::Closed(_) => 7,
        Notification::Ack(_) => 8,
        Notification::Turn(_) => 9,
    }
}

/// How negotiations end.
pub(super) const ENDS: [(Protocol, Outcome); 12] = [
    (Protocol::ContractNet, Outcome::Completed),
    (Protocol::ContractNet, Outcome::NoOffers),
    (Protocol::ContractNet, Outcome::Incomplete),
    (Protocol::ContractNet, Outcome::NoCandidate),
    (Protocol::ContractNet, Outcome::Timeout),
    (Protocol::ContractNet, Outcome::Cancelled),
    (Protocol::ContractNet, Outcome::Aborted),
    (Protocol::AlternatingOffers, Outcome::Agreement),
    (Protocol::AlternatingOffers, Outcome::NoAgreement),
    (Protocol::AlternatingOffers, Outcome::Ended),
    (Protocol::AlternatingOffers, Outcome::Cancelled),
    (Protocol::AlternatingOffers, Outcome::Aborted),
];

/// Where an end stands in [`ENDS`]; nowhere when the protocol has no such end.
pub(super) fn end(protocol: Protocol, outcome: Outcome) -> Option<usize> {
    ENDS.iter().position(|end| *end == (protocol, outcome))
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
        for (protocol, outcome) in ENDS {
            assert_eq!(end(protocol, outcome).map(|index| ENDS[index]), Some((protocol, outcome)));
        }
        assert_eq!(end(Protocol::ContractNet, Outcome::Agreement), None);
        for (of, phase) in OPEN_PHASES {
            assert_eq!(open_phase(phase).map(|index| OPEN_PHASES[index]), Some((of, phase)));
        }
        assert!(PROTOCOLS.iter().enumerate().all(|(index, one)| protocol(*one) == index));
        assert!(PROTOCOLS.iter().all(|one| OPEN_PHASES.contains(&(*one, first_phase(*one)))));
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
