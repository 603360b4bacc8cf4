//! The protocols: the one list of them, and the states each knows.

use crate::delivery::Outcome;
use crate::payload::Cfp;

crate::words! {
    /// What a negotiation is conducted by.
    ///
    /// The order is part of the rules: timers that are due together fire in it.
    #[derive(Default)]
    pub enum Protocol {
        /// The contract net (docs/spec/contract-net.md).
        #[default]
        ContractNet,
        /// Alternating offers: a bargain (docs/spec/alternating-offers.md).
        AlternatingOffers,
        /// Panels (docs/spec/panel.md).
        Panel,
        /// Team (docs/spec/team.md).
        Team,
        /// The English auction (docs/spec/english-auction.md).
        EnglishAuction,
    }
}

impl Protocol {
    /// The rules version it came with: on a lane of an earlier one a call to it is answered `unsupported_rules`.
    #[must_use]
    pub const fn rules_since(self) -> u32 {
        match self {
            // Under every version. No lane begins under 0: it stands for the rules before a new version where changes of
            // rules are tested.
            Self::ContractNet => 0,
            Self::AlternatingOffers | Self::Panel | Self::Team | Self::EnglishAuction => 1,
        }
    }

    /// The states in which a negotiation of it is open; it begins in the first.
    #[must_use]
    pub const fn phases(self) -> &'static [Phase] {
        match self {
            Self::ContractNet => {
                &[Phase::Collecting, Phase::Deciding, Phase::Awarding, Phase::Performing, Phase::Cancelling]
            }
            Self::AlternatingOffers => &[Phase::Joining, Phase::Bargaining, Phase::Confirming],
            Self::Panel => &[Phase::Asking, Phase::Ranking, Phase::Reviewing],
            Self::Team => {
                &[Phase::Forming, Phase::Discussing, Phase::Awaiting, Phase::Paused, Phase::Concluding, Phase::Voting]
            }
            Self::EnglishAuction => &[Phase::Collecting, Phase::Awarding, Phase::Performing, Phase::Cancelling],
        }
    }

    /// How a negotiation of it can end.
    #[must_use]
    pub const fn outcomes(self) -> &'static [Outcome] {
        match self {
            Self::ContractNet => &[
                Outcome::Completed,
                Outcome::NoOffers,
                Outcome::Incomplete,
                Outcome::NoCandidate,
                Outcome::Timeout,
                Outcome::Cancelled,
                Outcome::Aborted,
            ],
            Self::AlternatingOffers => {
                &[Outcome::Agreement, Outcome::NoAgreement, Outcome::Ended, Outcome::Cancelled, Outcome::Aborted]
            }
            Self::Panel => {
                &[Outcome::Consensus, Outcome::Plurality, Outcome::NoAnswer, Outcome::Cancelled, Outcome::Aborted]
            }
            Self::Team => {
                &[Outcome::Concluded, Outcome::Unconcluded, Outcome::NotFormed, Outcome::Cancelled, Outcome::Aborted]
            }
            Self::EnglishAuction => &[
                Outcome::Completed,
                Outcome::NoOffers,
                Outcome::ReserveNotMet,
                Outcome::NoCandidate,
                Outcome::Timeout,
                Outcome::Cancelled,
                Outcome::Aborted,
            ],
        }
    }

    /// The protocol that a call opens.
    #[must_use]
    pub const fn of_call(cfp: &Cfp) -> Self {
        if cfp.auction.is_some() {
            Self::EnglishAuction
        } else if cfp.panel.is_some() {
            Self::Panel
        } else if cfp.bargain.is_some() {
            Self::AlternatingOffers
        } else if cfp.team.is_some() {
            Self::Team
        } else {
            Self::ContractNet
        }
    }
}

crate::words! {
    /// State of a negotiation.
    ///
    /// With several lots awards are kept per lot; the negotiation is `Awarding` while any lot waits for a
    /// CONFIRM, and `Performing` when none does and one is committed.
    ///
    /// The order is part of the rules: the digest of the state counts with it.
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
        /// A bargain whose parties have yet to join.
        Joining,
        /// A bargain in its turns.
        Bargaining,
        /// A bargain agreed on, whose parties have yet to confirm.
        Confirming,
        /// A panel whose seats answer.
        Asking,
        /// A panel whose ranker says who goes on.
        Ranking,
        /// A team whose members have yet to join.
        Forming,
        /// A team whose members speak in turn.
        Discussing,
        /// A team that waits for tasks it has just shared out.
        Awaiting,
        /// A team of which a member waits for tasks.
        Paused,
        /// A team that takes nothing but a conclusion.
        Concluding,
        /// A team that votes on a conclusion.
        Voting,
        /// A panel whose reviewers read the answers of a round.
        Reviewing,
    }
}
