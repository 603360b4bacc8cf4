//! Figures of a network's queries, computed from their records alone.

use std::collections::HashMap;

use agora::schedule::Thresholds;
use serde::Serialize;
use statrs::statistics::{Data, OrderStatistics};

use super::query::{QueryCost, QueryRecord};

/// Queries of the window over which the share of queries with a model is taken.
pub const WINDOW: usize = 100;
/// Queries at the end whose share is stated by itself.
pub const LAST: usize = 500;
/// The ratio of costs that the spread over seeds is held against: the paper's is 4.7.
const RATIO_GOAL: f64 = 4.0;
/// The 97.5 % quantile of the normal distribution: that of a two-sided interval of 95 %.
const QUANTILE: f64 = 1.959_963_985;

/// What one seed of the network came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NetworkFigures {
    /// The seed.
    pub seed: u64,
    /// Queries.
    pub queries: usize,
    /// Queries in natural language.
    pub in_language: usize,
    /// What all queries cost in natural language, in nano-dollars.
    pub language_cost: u64,
    /// What they cost with Agora, by purpose, in nano-dollars.
    pub cost: QueryCost,
    /// How many times the cost with Agora the other is.
    pub ratio: f64,
    /// What of `language_cost` no document can save, in nano-dollars: the first calls of each assistant to each server, as many
    /// as the threshold for documents is, where they were in natural language and the server had not asked for a document.
    pub opening_cost: u64,
    /// The ratio if everything but `opening_cost` had cost nothing. The queries and thresholds of the seed allow no more.
    pub ratio_bound: f64,
    /// Share of the first queries, a window of them, in which a model had a part.
    pub share_first: f64,
    /// Share of the last queries in which a model had a part.
    pub share_last: f64,
    /// Documents that were agreed on.
    pub documents: usize,
    /// Queries until the last of them was.
    pub last_document_at: usize,
    /// Negotiations.
    pub negotiations: usize,
    /// Negotiations for which a responder had asked.
    pub asked: usize,
    /// Checks of documents by models.
    pub checks: usize,
    /// Routines that were written.
    pub routines: usize,
    /// Routines that could not be written.
    pub routine_failures: usize,
    /// Documents that registries took from each other.
    pub synchronised: usize,
}

impl NetworkFigures {
    /// Computes them.
    pub fn of(seed: u64, queries: &[QueryRecord], thresholds: Thresholds) -> Self {
        let sum = |of: fn(&QueryRecord) -> usize| queries.iter().map(of).sum::<usize>();
        let mut cost = QueryCost::default();
        queries.iter().for_each(|query| cost.add(&query.cost));
        let language_cost = queries.iter().map(|query| query.language_cost).sum();
        let opening_cost = opening_cost(queries, thresholds.documents);
        let documents = queries.last().map_or(0, |query| query.documents);
        let last_document = queries.iter().find(|query| query.documents == documents);
        let (first, last) =
            (queries.get(..WINDOW.min(queries.len())), queries.get(queries.len().saturating_sub(LAST)..));
        Self {
            seed,
            queries: queries.len(),
            in_language: queries.iter().filter(|query| query.document.is_none()).count(),
            language_cost,
            cost,
            ratio: language_cost as f64 / cost.total() as f64,
            opening_cost,
            ratio_bound: language_cost as f64 / opening_cost as f64,
            share_first: model_share(first.unwrap_or_default()),
            share_last: model_share(last.unwrap_or_default()),
            documents,
            last_document_at: last_document.filter(|_| documents > 0).map_or(0, |query| query.query),
            negotiations: sum(|query| query.negotiations),
            asked: queries.iter().filter(|query| query.is_asked).count(),
            checks: sum(|query| query.checks),
            routines: sum(|query| query.routines),
            routine_failures: sum(|query| query.routine_failures),
            synchronised: sum(|query| query.synchronised),
        }
    }

    /// The parts of the cost with Agora, each with its name and its share.
    pub fn split(&self) -> [(&'static str, u64, f64); 5] {
        let QueryCost { language, messages, checks, implementing, negotiation } = self.cost;
        let named = [
            ("natural language", language),
            ("messages under a document", messages),
            ("checks", checks),
            ("implementing", implementing),
            ("negotiation", negotiation),
        ];
        let total = self.cost.total().max(1) as f64;
        named.map(|(name, cost)| (name, cost, cost as f64 / total))
    }
}

/// What the first `calls` of each assistant to each server cost, where nothing but natural language was open to them.
fn opening_cost(queries: &[QueryRecord], calls: u32) -> u64 {
    let mut calls_by_pair: HashMap<(&str, &str), u32> = HashMap::new();
    let mut cost = 0;
    for query in queries {
        let number = calls_by_pair.entry((&query.initiator, &query.responder)).or_default();
        *number += 1;
        if *number <= calls && query.document.is_none() && !query.is_asked {
            cost += query.cost.language;
        }
    }
    cost
}

/// Share of queries in which a model had a part.
pub fn model_share(queries: &[QueryRecord]) -> f64 {
    let with_model = queries.iter().filter(|query| query.needs_model()).count();
    if queries.is_empty() { 0.0 } else { with_model as f64 / queries.len() as f64 }
}

/// What the seeds came to together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SeedSpread {
    /// Seeds.
    pub seeds: usize,
    /// The lowest ratio.
    pub ratio_low: f64,
    /// The median of the ratios: the mean of the middle two where their number is even.
    pub ratio_median: f64,
    /// The highest ratio.
    pub ratio_high: f64,
    /// Seeds whose ratio is 4 or more.
    pub seeds_at_four: usize,
    /// The share of such seeds among all there are, as an interval of 95 % (Wilson 1927).
    pub share_at_four: (f64, f64),
    /// Seeds whose bound of the ratio is 4 or more.
    pub seeds_bound_at_four: usize,
    /// The median of the bounds.
    pub ratio_bound_median: f64,
    /// Kendall's rank correlation of the ratio and its bound; none for fewer than two seeds, or seeds that are alike.
    pub ratio_and_bound: Option<f64>,
    /// The median of the share of the last queries in which a model had a part.
    pub share_last_median: f64,
    /// The highest of them.
    pub share_last_high: f64,
}

impl SeedSpread {
    /// Of so many seeds; none for no seed.
    pub fn of(figures: &[NetworkFigures]) -> Option<Self> {
        let sorted = |of: fn(&NetworkFigures) -> f64| {
            let mut values: Vec<f64> = figures.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (ratios, shares, bounds) =
            (sorted(|one| one.ratio), sorted(|one| one.share_last), sorted(|one| one.ratio_bound));
        let at_four = |ratios: &[f64]| ratios.iter().filter(|ratio| **ratio >= RATIO_GOAL).count();
        Some(Self {
            seeds: figures.len(),
            ratio_low: *ratios.first()?,
            ratio_median: Data::new(ratios.clone()).median(),
            ratio_high: *ratios.last()?,
            seeds_at_four: at_four(&ratios),
            share_at_four: share_interval(at_four(&ratios), figures.len()),
            seeds_bound_at_four: at_four(&bounds),
            ratio_bound_median: Data::new(bounds).median(),
            ratio_and_bound: rank_correlation(figures, |one| one.ratio, |one| one.ratio_bound),
            share_last_median: Data::new(shares.clone()).median(),
            share_last_high: *shares.last()?,
        })
    }
}

/// The interval of 95 % for the share that `hits` of `count` stand for (Wilson 1927).
fn share_interval(hits: usize, count: usize) -> (f64, f64) {
    let (count, share, square) = (count as f64, hits as f64 / count as f64, QUANTILE * QUANTILE);
    let middle = share + square / (2.0 * count);
    let reach = QUANTILE * (share * (1.0 - share) / count + square / (4.0 * count * count)).sqrt();
    let scale = 1.0 + square / count;
    ((middle - reach) / scale, (middle + reach) / scale)
}

/// Kendall's rank correlation of two figures over seeds.
fn rank_correlation(
    figures: &[NetworkFigures],
    one: fn(&NetworkFigures) -> f64,
    other: fn(&NetworkFigures) -> f64,
) -> Option<f64> {
    let (one, other): (Vec<f64>, Vec<f64>) = figures.iter().map(|figures| (one(figures), other(figures))).unzip();
    kendalls::tau_b_with_comparator(&one, &other, f64::total_cmp).ok().map(|(tau, _)| tau).filter(|tau| tau.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_share_is_that_of_wilson() {
        // Of none in n it reaches from 0 to z^2 / (n + z^2), and of all as far from the other end.
        for (hits, count, low, high) in [(61, 100, 0.5120, 0.6998), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)] {
            let (lower, upper) = share_interval(hits, count);
            assert!((lower - low).abs() < 1e-4 && (upper - high).abs() < 1e-4, "{hits} of {count}: {lower} to {upper}");
        }
    }
}
