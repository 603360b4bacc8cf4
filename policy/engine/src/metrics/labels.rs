//! The closed label sets.

use policy_core::{Phase, Protocol};
use schemas::delivery::Outcome;

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

/// The protocol that knows a state; none where nothing is open in it.
pub(super) fn protocol_of(phase: Phase) -> Option<Protocol> {
    open_phase(phase).map(|index| OPEN_PHASES[index].0)
}

/// Every change from an open state to another of its protocol, or to the end.
pub(super) fn transitions() -> Vec<(Protocol, Phase, Phase)> {
    let after = |(protocol, from): (Protocol, Phase)| {
        let open = OPEN_PHASES.into_iter().filter(move |(of, _)| *of == protocol).map(|(_, to)| to);
        open.chain([Phase::Ended]).filter(move |to| *to != from).map(move |to| (protocol, from, to))
    };
    OPEN_PHASES.into_iter().flat_map(after).collect()
}

/// The invariants, as reports and the fold name them.
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

/// Why a delivery is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How the register answered a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WriteResult {
    Written,
    Same,
    Different,
    Error,
}

impl WriteResult {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What becomes of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum CheckpointResult {
    Stored,
    /// A later one is stored already.
    Outdated,
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_of_one_protocol_which_begins_in_one_of_its_own() {
        for (protocol, phase) in OPEN_PHASES {
            assert_eq!(protocol_of(phase), Some(protocol));
            assert!(OPEN_PHASES.contains(&(protocol, first_phase(protocol))));
        }
        assert_eq!(protocol_of(Phase::Ended), None);
        assert!(transitions().iter().all(|(protocol, from, to)| {
            from != to && (*to == Phase::Ended || protocol_of(*to) == Some(*protocol))
        }));
    }
}
