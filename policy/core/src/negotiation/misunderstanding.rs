//! Why an act could not be followed, and what could have been said instead (docs/spec/messages.md#ms-40).

use schemas::Act;
use serde::{Deserialize, Serialize};

/// A set of acts, of which it has room for 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ActSet(pub(crate) u32);

const _: () = assert!(Act::ALL.len() <= u32::BITS as usize, "every act has a bit of its own");

impl ActSet {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn of(acts: &[Act]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < acts.len() {
            bits |= 1 << (acts[index] as u32);
            index += 1;
        }
        Self(bits)
    }

    pub(crate) fn to_vec(self) -> Vec<Act> {
        Act::ALL.iter().copied().filter(|act| self.0 & (1 << (*act as u32)) != 0).collect()
    }
}

/// Why an act could not be followed; `reason` of the NOT_UNDERSTOOD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum NotUnderstoodReason {
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
    /// The pinned policy contradicts itself, is not the one whose digest is pinned, or cannot accept for a party.
    InvalidPolicy,
    /// The lane's rules know no bargains, or no conditions.
    UnsupportedRules,
    /// The rules of a bargain contradict themselves.
    InvalidBargain,
    /// A mandate does not fit its bargain.
    InvalidMandate,
    /// More parties than a bargain has.
    TooManyParties,
    /// Terms that are no outcome of the bargain.
    OutOfSpace,
    /// A validity that is over, or ends before it begins.
    Validity,
    /// A condition that names nothing known, does not hold for the offer itself, or is not met.
    Condition,
    /// Terms that were offered before, and must not be again.
    Repeated,
    /// The ACCEPT names no offer that stands for its sender.
    Standing,
    /// The standing offer cannot be accepted yet.
    NotYetValid,
    /// The digest of the terms is missing, or another.
    TermsDigest,
    /// Outside the sender's own mandate.
    MandateViolation,
    /// Another currency than the call's.
    Currency,
    /// A protocol document that the award does not pin, or any in a bargain.
    Document,
    /// The rules of a panel contradict themselves, or stand beside those of another protocol.
    InvalidPanel,
    /// Its sender is not asked in this round of a panel.
    NotAsked,
    /// No answer of the panel's kind, or one that is too long.
    BadAnswer,
    /// Not one rating for each of those to be rated.
    BadRatings,
    /// Not places of what the ranker was shown, each once, and no more than are kept.
    BadOrder,
    /// The rules of a team contradict themselves.
    InvalidTeam,
    /// Nobody that may hold the floor of the team.
    UnknownMember,
    /// The team knows no such task.
    UnknownTask,
    /// Only a conclusion is taken any more.
    MustConclude,
    /// No member can do the task.
    NoCandidate,
    /// More tasks than the team may have.
    TooManyTasks,
    /// A conclusion while tasks are open.
    OpenTasks,
    /// Not a text or null for each answer that the reviewer was shown, or too long.
    BadReviews,
    /// A call to a sub-team for an award that is not committed yet.
    NotAwarded,
    /// A call to a sub-team where none may stand any more.
    Depth,
    /// A second call to a sub-team for one award.
    Taken,
    /// The rules of an auction stand beside those of another protocol.
    InvalidAuction,
}

impl NotUnderstoodReason {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_every_act() {
        assert_eq!(ActSet::of(Act::ALL).to_vec(), Act::ALL);
        for act in Act::ALL {
            assert_eq!(ActSet::of(&[*act]).to_vec(), [*act]);
        }
    }
}
