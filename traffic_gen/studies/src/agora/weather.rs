//! Two agents and one kind of task: what agreeing on a document and writing routines for it costs, and after how many uses
//! that has paid.

use agora::schedule::Thresholds;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::conversation::{PricedModel, USD};
use super::network;
use super::query::QueryRecord;
use super::task::tasks;
use super::workload::{Assistant, Query, TaskServer, Workload};
use crate::study::StudyError;

/// Queries that are played.
const QUERIES: usize = 10;
/// Both agree on a document and write their routines in the first query.
const AT_ONCE: Thresholds =
    Thresholds { documents: 0, negotiation: 0, routine: 0, responder_routine: 1, responder_negotiation: None };
/// What the paper measured: negotiating and implementing, and one exchange in natural language.
const PAPER: (u64, u64) = (43 * USD / 1000, 20 * USD / 1000);

/// What two agents came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct BreakEven {
    /// Negotiation, checks and routines of both, in nano-dollars.
    pub setup: u64,
    /// One exchange in natural language, the mean of the queries, in nano-dollars.
    pub language: u64,
    /// The first use from which on the document has been cheaper.
    pub uses: u64,
}

impl BreakEven {
    /// From what both cost. Uses under a document by routines cost nothing.
    pub const fn of(setup: u64, language: u64) -> Self {
        let uses = match setup.checked_div(language) {
            Some(uses) => uses + 1,
            None => u64::MAX,
        };
        Self { setup, language, uses }
    }

    /// From the paper's figures.
    pub const fn paper() -> Self {
        Self::of(PAPER.0, PAPER.1)
    }

    /// From played queries.
    pub fn measured(queries: &[QueryRecord]) -> Self {
        let setup = queries.iter().map(|query| query.cost.total()).sum();
        let language: u64 = queries.iter().map(|query| query.language_cost).sum();
        Self::of(setup, language.checked_div(queries.len() as u64).unwrap_or_default())
    }
}

/// Plays the pair, both with GPT-4o. The stub of this seed never fails: the price is that of one negotiation.
///
/// # Errors
/// As [`network::play`].
pub async fn play(seed: u64) -> Result<Vec<QueryRecord>, StudyError> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let Some(kind) = tasks().first() else { return Ok(Vec::new()) };
    let queries = (0..QUERIES).map(|_| Query { assistant: 0, server: 0, data: kind.drawn(&mut random) }).collect();
    let model = PricedModel::Gpt4o;
    let workload = Workload {
        assistants: vec![Assistant { name: "alice".to_owned(), model, registry: 0 }],
        servers: vec![TaskServer { name: "bob".to_owned(), model, kind }],
        queries,
    };
    network::play(workload, AT_ONCE, network::StubFaults::None, seed).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_price_has_paid_from_the_third_use_on() {
        assert_eq!(BreakEven::paper().uses, 3);
        let spent = |uses: u64| (PAPER.0, uses * PAPER.1);
        assert!(spent(2).0 > spent(2).1 && spent(3).0 < spent(3).1);
    }

    #[test]
    fn a_price_that_is_just_met_has_not_paid_yet() {
        assert_eq!(BreakEven::of(40, 20).uses, 3);
        assert_eq!(BreakEven::of(39, 20).uses, 2);
        assert_eq!(BreakEven::of(0, 20).uses, 1);
        assert_eq!(BreakEven::of(1, 0).uses, u64::MAX, "what costs nothing is never beaten");
    }
}
