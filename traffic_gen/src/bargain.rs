//! Bargains under the alternating offers protocol: played through the core, measured, drawn, and judged.
//!
//! | module | question it answers |
//! |---|---|
//! | [`analysis`] | what was possible, and how far from it is an agreement? |
//! | [`anchoring`] | how much of its first offer is a party given? |
//! | [`in_memory`] | how does the core alone serve as an exchange? |
//! | [`session`] | how is one bargain opened and carried on there? |
//! | [`run`] | how do strategies play it to the end? |
//! | [`Played`] | what came of one? |
//! | [`figures`] | what came of many? |
//! | [`matchup`] | which domain, with which strategies? |
//! | [`report`] | how is one told? |
//! | [`load`] | what comes of many on a running exchange? |
//! | [`plot`] | what does one look like? |
//! | [`mandate_fuzz`] | does a mandate hold, whatever its party tries? |

pub mod analysis;
pub mod anchoring;
pub mod figures;
pub mod in_memory;
pub mod load;
pub mod mandate_fuzz;
pub mod matchup;
pub mod plot;
pub mod report;
pub mod run;
pub mod session;

use agents::bargain::OfferMade;
use schemas::delivery::{Closing, Outcome};
use serde::Serialize;

/// How a bargain ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum BargainEnd {
    /// All accepted.
    Agreement {
        /// What.
        outcome: usize,
        /// The party that offered it.
        by: usize,
    },
    /// Time was up (`timedout` in NegMAS).
    NoAgreement {
        /// `rounds`, `deadline`, `step_timeout`, …
        detail: String,
    },
    /// A party left (`broken` in NegMAS).
    Ended {
        /// Which, as the exchange names it.
        by: String,
    },
    /// Called off, or stopped by the exchange.
    Stopped,
}

impl BargainEnd {
    /// The end as a party was told it; `index` numbers an outcome, `party` a name.
    pub fn of(
        closing: &Closing,
        index: impl Fn(&schemas::payload::Terms) -> Option<usize>,
        party: impl Fn(&schemas::AgentId) -> Option<usize>,
    ) -> Self {
        let detail = closing.detail.clone().unwrap_or_default();
        match (closing.outcome, &closing.agreement) {
            (Outcome::Agreement, Some(agreement)) => match (index(&agreement.terms), party(&agreement.by)) {
                (Some(outcome), Some(by)) => Self::Agreement { outcome, by },
                _ => Self::Stopped,
            },
            (Outcome::NoAgreement, _) => Self::NoAgreement { detail },
            (Outcome::Ended, _) => Self::Ended { by: detail },
            (
                Outcome::Agreement
                | Outcome::Completed
                | Outcome::NoOffers
                | Outcome::Incomplete
                | Outcome::NoCandidate
                | Outcome::Timeout
                | Outcome::Cancelled
                | Outcome::Aborted
                | Outcome::Concluded
                | Outcome::Unconcluded
                | Outcome::NotFormed
                | Outcome::Consensus
                | Outcome::Plurality
                | Outcome::NoAnswer,
                _,
            ) => Self::Stopped,
        }
    }
}

/// What came of one bargain.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Played {
    /// How it ended.
    #[serde(flatten)]
    pub end: BargainEnd,
    /// The round in which it ended, counted from 1 (`step` in NegMAS).
    pub rounds: u32,
    /// Turns taken.
    pub steps: u32,
    /// Relative time at the end, 0 to 1.
    pub relative_time: f64,
    /// Every offer, in order.
    pub trace: Vec<OfferMade>,
}

impl Played {
    /// What was agreed.
    #[must_use]
    pub fn agreement(&self) -> Option<usize> {
        match self.end {
            BargainEnd::Agreement { outcome, .. } => Some(outcome),
            BargainEnd::NoAgreement { .. } | BargainEnd::Ended { .. } | BargainEnd::Stopped => None,
        }
    }

    /// What a party offered, in order.
    pub fn offers_of(&self, party: usize) -> impl Iterator<Item = usize> + '_ {
        self.trace.iter().filter(move |offered| offered.party == party).map(|offered| offered.outcome)
    }
}
