//! The timers of a negotiation, and what can be said of an act that cannot be followed
//! (docs/spec/messages.md#ms-40).

use schemas::delivery::Disposition;
use schemas::{Act, Timestamp};
use serde::{Deserialize, Serialize};

/// What a timer is for. Timers that are due together fire in this order: the hard bound comes first, because a
/// negotiation that has no time left must not award.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TimerKind {
    /// `T_hard`.
    Hard,
    ContractNet(ContractNetTimer),
    Bargain(BargainTimer),
    Panel(PanelTimer),
    Team(TeamTimer),
}

/// The timers of a contract net.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ContractNetTimer {
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

/// The timers of a bargain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BargainTimer {
    /// `join_by`.
    Join,
    /// The deadline of the bargain.
    Deadline,
    /// A turn's time is up.
    Turn,
    /// The standing offer's validity runs out.
    Standing,
    /// `confirm_by` of an agreement.
    Agreement,
}

/// The timers of a panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PanelTimer {
    /// `answer_by` of a wave.
    Answer,
    /// `rank_by`.
    Rank,
    /// `review_by`.
    Review,
}

/// The timers of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TeamTimer {
    /// `join_by`.
    Join,
    /// The time to vote is over.
    Vote,
    /// The floor was held in silence.
    Speak,
    /// From now on the team only concludes.
    Wrap,
}

impl TimerKind {
    /// Bytes that name the timer in the hash chain: its number, and the lot. Numbers are never used again.
    pub(crate) fn tag(self) -> [u8; 5] {
        let (kind, lot) = match self {
            Self::Hard => (0, 0),
            Self::ContractNet(ContractNetTimer::Collect) => (1, 0),
            Self::ContractNet(ContractNetTimer::Window) => (2, 0),
            Self::ContractNet(ContractNetTimer::Crossing) => (3, 0),
            Self::ContractNet(ContractNetTimer::Decide) => (4, 0),
            Self::ContractNet(ContractNetTimer::Confirm(lot)) => (5, lot),
            Self::ContractNet(ContractNetTimer::Perform(lot)) => (6, lot),
            Self::ContractNet(ContractNetTimer::Cancel) => (7, 0),
            Self::Bargain(BargainTimer::Join) => (8, 0),
            Self::Bargain(BargainTimer::Deadline) => (9, 0),
            Self::Bargain(BargainTimer::Turn) => (10, 0),
            Self::Bargain(BargainTimer::Standing) => (11, 0),
            Self::Bargain(BargainTimer::Agreement) => (12, 0),
            Self::Panel(PanelTimer::Answer) => (32, 0),
            Self::Panel(PanelTimer::Rank) => (33, 0),
            Self::Panel(PanelTimer::Review) => (34, 0),
            Self::Team(TeamTimer::Join) => (24, 0),
            Self::Team(TeamTimer::Vote) => (25, 0),
            Self::Team(TeamTimer::Speak) => (26, 0),
            Self::Team(TeamTimer::Wrap) => (27, 0),
        };
        let [a, b, c, d] = lot.to_be_bytes();
        [kind, a, b, c, d]
    }
}

/// A timer: when, and what for.
pub(crate) type Timer = (Timestamp, TimerKind);

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
}

impl NotUnderstoodReason {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Whether an offer with this disposition was given an id its sender may refer to.
pub(crate) const fn is_numbered(disposition: Disposition) -> bool {
    matches!(disposition, Disposition::Ok | Disposition::Late | Disposition::PolicyReject)
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
