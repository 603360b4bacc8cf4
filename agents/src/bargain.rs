//! Bargaining: alternating offers among two or more parties (docs/spec/alternating-offers.md), as agents see it.
//!
//! | module | question it answers |
//! |---|---|
//! | [`domain`] | what is bargained about, by whom, under which rules? (a file) |
//! | [`space`] | which outcomes are there, and which terms is outcome 7? |
//! | [`utility`] | what is an outcome worth to a party, and which may it agree to? |
//! | [`strategy`] | offer, accept or end? (pure: what happened in, a move out) |
//! | [`plan`] | does an agent take part in this bargain, and how? |
//! | [`bargainer`] | how does it take part on the exchange? |
//!
//! Outcomes are numbered from 0, row-major: the last issue runs fastest. Utilities here are real numbers from 0 to 1; what
//! is sent to the exchange, the sealed mandate, is in parts per million, rounded down.

pub mod bargainer;
pub mod domain;
pub mod plan;
pub mod space;
pub mod strategy;
pub mod utility;

use schemas::bargain::space::SpaceFault;

pub use bargainer::{BargainEvent, BargainOutcome, BargainReport, BargainRequest, Bargainer};
pub use domain::{BargainRules, Domain, PartyProfile};
pub use plan::{BargainPlan, DomainPlanner, Fallback, Planner};
pub use space::{OUTCOMES_MAX, Space};
pub use strategy::{BargainStrategy, Move, OfferMade, StrategyKind, TurnView};
pub use utility::{Preferences, Utility};

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", if pointer.is_empty() { "the document" } else { pointer })]
pub struct DocumentFault {
    /// JSON pointer (RFC 6901) to the member at fault; empty for the document itself.
    pub pointer: String,
    /// What is wrong, or what would be right.
    pub detail: String,
}

impl From<SpaceFault> for DocumentFault {
    fn from(fault: SpaceFault) -> Self {
        Self::at(fault.pointer, fault.reason)
    }
}

impl DocumentFault {
    /// A fault at a pointer.
    #[must_use]
    pub fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }

    /// The same fault, seen from a document this one stands in.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        Self { pointer: format!("{prefix}{}", self.pointer), ..self }
    }
}
