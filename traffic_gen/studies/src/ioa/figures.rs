//! What the ranks of a seed come to, and whether they hold what is claimed.

use serde::Serialize;

use super::formation::{FormationRecord, Forming};

/// The measures of the paper, over the agents that tasks were made for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankFigures {
    /// Agents that tasks were made for.
    pub count: usize,
    /// Share of them of which that agent itself was called.
    pub top_1: f64,
    /// Share of them of which one of the ten most similar was called.
    pub top_10: f64,
    /// Mean rank of the most similar agent that was called (MR).
    pub mean_rank: f64,
    /// Mean of one over that rank (MRR).
    pub mean_reciprocal_rank: f64,
}

/// What the paper states, on its own tasks and profiles: regular and nested.
pub const PAPER: [(Forming, RankFigures); 2] =
    [(Forming::Regular, paper(0.414, 0.649, 27.4, 0.501)), (Forming::Nested, paper(0.597, 0.818, 10.6, 0.665))];

const fn paper(top_1: f64, top_10: f64, mean_rank: f64, mean_reciprocal_rank: f64) -> RankFigures {
    RankFigures { count: 625, top_1, top_10, mean_rank, mean_reciprocal_rank }
}

/// What one seed came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeedFigures {
    /// The seed.
    pub seed: u64,
    /// Teams for tasks.
    pub regular: RankFigures,
    /// Sub-teams for sub-tasks.
    pub nested: RankFigures,
    /// Agents at random.
    pub random: RankFigures,
    /// Share of the sub-tasks one of the team could do that one was found to.
    pub right_alone: f64,
    /// Share of the other sub-tasks of which nobody of the team was found to.
    pub right_nested: f64,
    /// What is claimed, and whether it holds.
    pub verdicts: Vec<FormationVerdict>,
}

/// A claim about a figure.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FormationVerdict {
    /// The figure.
    pub name: &'static str,
    /// What it came to.
    pub value: f64,
    /// The least it may be.
    pub min: Option<f64>,
    /// The most it may be.
    pub max: Option<f64>,
    /// Whether it is.
    pub holds: bool,
}

impl RankFigures {
    /// The figures of ranks.
    pub fn of(ranks: &[usize]) -> Self {
        let count = ranks.len();
        let mean = |sum: f64| if count == 0 { 0.0 } else { sum / count as f64 };
        let within = |most: usize| mean(ranks.iter().filter(|rank| **rank <= most).count() as f64);
        Self {
            count,
            top_1: within(1),
            top_10: within(10),
            mean_rank: mean(ranks.iter().map(|rank| *rank as f64).sum()),
            mean_reciprocal_rank: mean(ranks.iter().map(|rank| 1.0 / (*rank).max(1) as f64).sum()),
        }
    }
}

impl SeedFigures {
    /// The figures of a seed's records.
    pub fn of(seed: u64, records: &[FormationRecord]) -> Self {
        let of = |forming: Forming| {
            let ranks: Vec<usize> =
                records.iter().filter(|record| record.forming == forming).map(|record| record.rank).collect();
            RankFigures::of(&ranks)
        };
        let decisions: Vec<_> = records.iter().filter_map(|record| record.alone).collect();
        let right = |alone: bool| {
            let of_kind = decisions.iter().filter(|decision| decision.right == alone);
            let (count, right) = of_kind.fold((0_u32, 0_u32), |(count, right), decision| {
                (count + 1, right + u32::from(decision.taken == decision.right))
            });
            if count == 0 { 0.0 } else { f64::from(right) / f64::from(count) }
        };
        let (regular, nested, random) = (of(Forming::Regular), of(Forming::Nested), of(Forming::Random));
        let (right_alone, right_nested) = (right(true), right(false));
        let verdicts = vec![
            verdict("regular Top@1", regular.top_1, Some(0.55), Some(0.67)),
            verdict("regular Top@10", regular.top_10, Some(0.82), None),
            verdict("regular MR", regular.mean_rank, None, Some(27.4)),
            verdict("regular MRR", regular.mean_reciprocal_rank, Some(0.62), None),
            verdict("nested Top@1", nested.top_1, Some(0.66), None),
            verdict("nested Top@10", nested.top_10, Some(0.95), None),
            verdict("nested MR", nested.mean_rank, None, Some(10.6)),
            verdict("nested MRR", nested.mean_reciprocal_rank, Some(0.75), None),
            verdict("decided alone rightly", right_alone, Some(0.99), None),
            verdict("decided to nest rightly", right_nested, Some(0.99), None),
            verdict("random Top@1", random.top_1, None, Some(0.01)),
            verdict("random MR", random.mean_rank, Some(200.0), None),
        ];
        Self { seed, regular, nested, random, right_alone, right_nested, verdicts }
    }
}

fn verdict(name: &'static str, value: f64, min: Option<f64>, max: Option<f64>) -> FormationVerdict {
    let holds = min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max);
    FormationVerdict { name, value, min, max, holds }
}
