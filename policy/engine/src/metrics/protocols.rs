//! What is measured of each protocol: whose turns, and which deadlines.

use policy_core::view::Role;
use policy_core::{Phase, Protocol};
use schemas::Act;
use schemas::delivery::Outcome;

use super::Noticed;

/// Whose turns are measured.
pub(super) const ROLES: [(Protocol, Role); 8] = [
    (Protocol::ContractNet, Role::Initiator),
    (Protocol::ContractNet, Role::Contractor),
    (Protocol::AlternatingOffers, Role::Initiator),
    (Protocol::AlternatingOffers, Role::Party),
    (Protocol::Panel, Role::Panelist),
    (Protocol::Panel, Role::Ranker),
    (Protocol::Panel, Role::Reviewer),
    (Protocol::Team, Role::Member),
];

/// What was waited for when a deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Deadline {
    Collecting,
    Deciding,
    Awarding,
    Performing,
    /// The negotiation as a whole.
    Hard,
    Joining,
    Confirming,
}

/// The deadlines that can be missed. In a bargain the last round ends like a deadline, so its turns are not among them.
pub(super) const DEADLINES: [(Protocol, Deadline); 7] = [
    (Protocol::ContractNet, Deadline::Collecting),
    (Protocol::ContractNet, Deadline::Deciding),
    (Protocol::ContractNet, Deadline::Awarding),
    (Protocol::ContractNet, Deadline::Performing),
    (Protocol::ContractNet, Deadline::Hard),
    (Protocol::AlternatingOffers, Deadline::Joining),
    (Protocol::AlternatingOffers, Deadline::Confirming),
];

/// Whose turn a message was that was followed; none where it was nobody's.
pub(super) fn role_of(protocol: Protocol, phase: Phase, act: Act, is_initiator: bool) -> Option<Role> {
    Some(match (protocol, phase, act) {
        (Protocol::ContractNet, Phase::Collecting, Act::Offer | Act::Refuse) => Role::Contractor,
        (Protocol::ContractNet, Phase::Deciding, Act::Accept) => Role::Initiator,
        (Protocol::ContractNet, Phase::Awarding, Act::Confirm) => Role::Contractor,
        (Protocol::AlternatingOffers, _, Act::Join | Act::Offer | Act::Accept | Act::Confirm) => {
            if is_initiator {
                Role::Initiator
            } else {
                Role::Party
            }
        }
        (Protocol::Panel, Phase::Asking, Act::Answer) => Role::Panelist,
        (Protocol::Panel, Phase::Ranking, Act::Answer) => Role::Ranker,
        (Protocol::Panel, Phase::Reviewing, Act::Answer) => Role::Reviewer,
        (Protocol::Team, _, Act::Join | Act::Say | Act::Assign | Act::Pause | Act::Conclude) => Role::Member,
        _ => return None,
    })
}

/// Whether an act makes it another's turn in the same state: an offer, or an acceptance, the next party's.
pub(super) fn passes_turn(protocol: Protocol, act: Act) -> bool {
    protocol == Protocol::AlternatingOffers && matches!(act, Act::Offer | Act::Accept)
}

/// Which deadline a negotiation ended by, if by one, from how it stood before.
pub(super) fn missed_at_end(outcome: Outcome, phase: Phase) -> Option<Noticed> {
    let miss = |protocol, deadline| Some(Noticed::Miss(protocol, deadline));
    match (outcome, phase) {
        (Outcome::Timeout, _) => miss(Protocol::ContractNet, Deadline::Hard),
        (Outcome::NoAgreement, Phase::Joining) => miss(Protocol::AlternatingOffers, Deadline::Joining),
        (Outcome::NoAgreement, Phase::Confirming) => miss(Protocol::AlternatingOffers, Deadline::Confirming),
        _ => None,
    }
}
