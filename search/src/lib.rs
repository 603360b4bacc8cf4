//! Search over the profiles of agents: which agents speak of what was asked for, in one exact order.
//!
//! ```text
//! description, tags, capabilities ──tokens──▶ ProfileDocument ──put──▶ ProfileIndex ──search──▶ hits by (score desc, agent)
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
//! | [`scan`] | the order, by looking at every document: what other indexes are compared with |
//! | [`postings`] | the same order, by looking at few documents |
//!
//! Reading order: `ranking`, [`ProfileIndex`], `scan`, `postings`.

pub mod document;
mod leaders;
pub mod postings;
pub mod ranking;
pub mod scan;
pub mod tokens;

use schemas::AgentId;

pub use document::{ProfileDocument, ProfileStanding};
pub use postings::PostingsIndex;
pub use ranking::{CollectionStatistics, Query};
pub use scan::ScanIndex;

/// Documents of agents, each with a value of the caller's, in the order of a query.
pub trait ProfileIndex<T> {
    /// Adds an agent's document, or replaces it.
    fn put(&mut self, agent: &AgentId, document: ProfileDocument, standing: ProfileStanding, value: T);

    /// Removes an agent's document; nothing happens where there is none.
    fn remove(&mut self, agent: &AgentId);

    /// What was put with an agent's document.
    fn value(&self, agent: &AgentId) -> Option<&T>;

    /// How many documents there are.
    fn len(&self) -> usize;

    /// Whether there is no document.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What scores are computed from besides the documents themselves.
    fn collection(&self) -> CollectionStatistics;

    /// The first `limit` hits of a query behind `after` that `admits` admits, best first: score descending, then agent id.
    /// What is not admitted changes no score (docs/spec/search.md#se-12).
    fn search(
        &self,
        query: &Query,
        limit: usize,
        after: Option<&HitPlace>,
        admits: &dyn Fn(&AgentId, &T) -> bool,
    ) -> Vec<Hit<T>>;
}

/// One document that a query finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit<T> {
    /// Where it stands in the order.
    pub place: HitPlace,
    /// What was put with it.
    pub value: T,
}

/// A place in the order of hits: places compare as hits follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HitPlace {
    /// The score, in millionths; above 0.
    pub score: u64,
    /// The agent.
    pub agent: AgentId,
}

impl Ord for HitPlace {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.score.cmp(&self.score).then_with(|| self.agent.cmp(&other.agent))
    }
}

impl PartialOrd for HitPlace {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
