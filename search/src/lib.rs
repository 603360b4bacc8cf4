//! Search over the profiles of agents: which agents speak of what was asked for, in one exact order.
//!
//! ```text
//! description, tags, capabilities ──tokens──▶ ProfileDocument ──put──▶ PostingsIndex ──search──▶ hits by (score desc, agent)
//! ```
//!
//! The order is a pure function of the registered profiles (docs/spec/search.md#se-10): whatever the order of arrival,
//! of updates and of removals, two indexes that hold the same profiles give the same hits with the same scores. No
//! socket, clock, task or random number is used here.
//!
//! | module | question it answers |
//! |---|---|
//! | [`tokens`] | what are the words of a text? |
//! | [`document`] | what is ranked: an agent's profile as counted words |
//! | [`ranking`] | what does a document score? |
//! | [`postings`] | which documents come first, by looking at few of them |
//!
//! Reading order: `ranking`, `postings`. The same order by looking at every document is in `tests/index/scan.rs`.

pub mod document;
mod leaders;
pub mod postings;
pub mod ranking;
pub mod tokens;

use schemas::AgentId;

pub use document::{ProfileDocument, ProfileStanding};
pub use postings::PostingsIndex;
pub use ranking::{CollectionStatistics, Query};

/// One document that a query finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit<T> {
    /// Where it stands in the order.
    pub place: HitPlace,
    /// What was put with it.
    pub value: T,
}

/// A place in the order of hits: the higher score first, of equal scores the smaller id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HitPlace {
    /// The score, in millionths; above 0.
    pub score: u64,
    /// The agent.
    pub agent: AgentId,
}
