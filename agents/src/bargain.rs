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

pub use bargainer::{BargainEvent, BargainOutcome, BargainReport, BargainRequest, Bargainer};
pub use domain::{BargainRules, Domain, PartyProfile};
pub use plan::{BargainPlan, DomainPlanner, Fallback, Planner};
pub use space::{OUTCOMES_MAX, Space};
pub use strategy::{BargainStrategy, Move, OfferMade, StrategyKind, TurnView};
pub use utility::{Preferences, Utility};

pub use crate::fault::DocumentFault;
