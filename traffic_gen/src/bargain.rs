//! Bargains under the alternating offers protocol: measured, judged, and many of them on a running exchange.
//!
//! | module | question it answers |
//! |---|---|
//! | [`analysis`] | what was possible, and how far from it is an agreement? |
//! | [`anchoring`] | how much of its first offer is a party given? |
//! | [`Played`] | what came of one? |
//! | [`figures`] | what came of many? |
//! | [`matchup`] | which domain, with which strategies? |
//! | [`load`] | what comes of many on a running exchange? |

pub mod analysis;
pub mod anchoring;
pub mod figures;
pub mod load;
pub mod matchup;

use agents::bargain::OfferMade;
use schemas::delivery::Outcome;
use serde::Serialize;

/// How a bargain ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case", tag = "end")]
#[strum(serialize_all = "snake_case")]
pub enum BargainEnd {
    /// All accepted.
    Agreement {
        /// Index of the agreed outcome.
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
    /// The end that a party was told of, with what was agreed and by whom that was offered, where both are known.
    pub fn of(told: Outcome, agreed: Option<(usize, usize)>, detail: Option<&str>) -> Self {
        let detail = detail.unwrap_or_default().to_owned();
        if told == Outcome::NoAgreement {
            return Self::NoAgreement { detail };
        }
        if told == Outcome::Ended {
            return Self::Ended { by: detail };
        }
        let agreed = agreed.filter(|_| told == Outcome::Agreement);
        agreed.map_or(Self::Stopped, |(outcome, by)| Self::Agreement { outcome, by })
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
