//! Whether importance orders agents as their Shapley values do: agents of known accuracy debate, and what one adds to each subset
//! of the others is computed exactly.

use std::collections::BTreeMap;
use std::fmt;

use schemas::evidence::EvidenceCounts;
use serde::Serialize;

use super::DylanVerdict;
use super::crowd::{Crowd, StubAgent, add_all, relative};
use super::play::StubRanker;

/// Seeds unless others are asked for.
pub const SEEDS: u64 = 40;

const AGENTS: usize = 7;
const ACCURACIES: [f64; AGENTS] = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3];
/// Wrong options beside the right one, which is number 0.
const WRONG: usize = super::crowd::WRONG as usize;
/// How often an agent takes another's answer for what it is.
const DISCERNMENT: f64 = 0.75;
/// After how many panels importance is compared; the third is judged.
const PANELS: [usize; 4] = [28, 100, 281, 1000];
const JUDGED: usize = 281;
/// Lowest mean correlation, and the lowest that [`GOOD_SEEDS`] of the seeds must reach.
const MEAN_MIN: f64 = 0.95;
const GOOD: f64 = 0.9;
const GOOD_SEEDS: f64 = 0.9;
/// Shapley values, and the mean over subsets that the paper's formula (2) takes, as computed elsewhere.
const EXPECTED: [(f64, f64); AGENTS] = [
    (0.2300, 0.0266),
    (0.1816, 0.0205),
    (0.1342, 0.0146),
    (0.0884, 0.0090),
    (0.0449, 0.0036),
    (0.0037, -0.0013),
    (-0.0353, -0.0058),
];
/// Unit of the last place of [`EXPECTED`].
const TOLERANCE: f64 = 1e-4;

/// Importance beside Shapley values.
#[derive(Debug, Clone, Serialize)]
pub struct ShapleyReport {
    /// By agent.
    pub agents: Vec<ShapleyRow>,
    /// By panels played: the correlation of each seed.
    pub correlations: BTreeMap<usize, Vec<f64>>,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShapleyRow {
    /// How often its first answer is right.
    pub accuracy: f64,
    /// What it adds to a panel of one round, over all orders of joining.
    pub shapley: f64,
    /// The paper's formula (2): the plain mean over subsets, divided by the number of agents.
    pub plain: f64,
    /// Its mean importance in all panels, 1 being a fair share.
    pub relative: f64,
}

/// P(the most frequent answer is right) of a subset of agents in one round, ties shared; of nobody the chance of a guess.
fn performance(subset: usize) -> f64 {
    let mut counted: BTreeMap<[usize; WRONG + 1], f64> = BTreeMap::from([([0; WRONG + 1], 1.0)]);
    for (_, accuracy) in ACCURACIES.iter().enumerate().filter(|(agent, _)| subset & (1 << agent) != 0) {
        let mut next = BTreeMap::new();
        for (counts, chance) in counted {
            for option in 0..=WRONG {
                let share = if option == 0 { *accuracy } else { (1.0 - accuracy) / WRONG as f64 };
                let mut counts = counts;
                counts[option] += 1;
                *next.entry(counts).or_insert(0.0) += chance * share;
            }
        }
        counted = next;
    }
    let right = |counts: &[usize; WRONG + 1]| {
        let most = counts.iter().max().copied().unwrap_or(0);
        let tied = counts.iter().filter(|count| **count == most).count();
        if counts[0] == most { 1.0 / tied as f64 } else { 0.0 }
    };
    counted.iter().map(|(counts, chance)| chance * right(counts)).sum()
}

/// By agent: its Shapley value, and the plain mean over subsets divided by the number of agents.
pub fn exact() -> [(f64, f64); AGENTS] {
    let performances: Vec<f64> = (0..1 << AGENTS).map(performance).collect();
    let factorial = |n: usize| (1..=n).map(|factor| factor as f64).product::<f64>();
    std::array::from_fn(|agent| {
        let (mut shapley, mut sum) = (0.0, 0.0);
        for subset in (0..1_usize << AGENTS).filter(|subset| subset & (1 << agent) == 0) {
            let size = subset.count_ones() as usize;
            let gain = performances[subset | (1 << agent)] - performances[subset];
            shapley += factorial(size) * factorial(AGENTS - size - 1) / factorial(AGENTS) * gain;
            sum += gain;
        }
        (shapley, sum / f64::from(1 << (AGENTS - 1)) / AGENTS as f64)
    })
}

/// Computes what is exact, and plays so many seeds from the first on.
pub fn run(seed: u64, seeds: u64) -> ShapleyReport {
    let exact = exact();
    let values = exact.map(|(shapley, _)| shapley);
    let mut correlations: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let (mut all, everybody) = ([0.0; AGENTS], (0..AGENTS).collect::<Vec<_>>());
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        let agents = ACCURACIES.map(|accuracy| StubAgent::honest(accuracy, DISCERNMENT)).to_vec();
        let crowd = Crowd { agents, ranker: StubRanker::Support, seed };
        let mut shown = [EvidenceCounts::default(); AGENTS];
        for panel in 1..=PANELS[PANELS.len() - 1] {
            add_all(&mut shown, crowd.play(panel as u64, &everybody).importance.as_ref());
            if PANELS.contains(&panel) {
                let relative = shown.map(|counts| relative(&counts));
                correlations.entry(panel).or_default().push(spearman(&relative, &values));
            }
        }
        all.iter_mut().zip(shown).for_each(|(all, shown)| *all += relative(&shown));
    }
    let row = |agent: usize| ShapleyRow {
        accuracy: ACCURACIES[agent],
        shapley: exact[agent].0,
        plain: exact[agent].1,
        relative: all[agent] / seeds as f64,
    };
    ShapleyReport { agents: (0..AGENTS).map(row).collect(), correlations }
}

/// The rank correlation of values without ties.
fn spearman(one: &[f64; AGENTS], other: &[f64; AGENTS]) -> f64 {
    let rank = |values: &[f64; AGENTS], value: f64| values.iter().filter(|other| **other < value).count() as f64;
    let squares = one.iter().zip(other).map(|(left, right)| (rank(one, *left) - rank(other, *right)).powi(2));
    let n = AGENTS as f64;
    1.0 - 6.0 * squares.sum::<f64>() / (n * (n * n - 1.0))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl ShapleyReport {
    /// S1: exact values, and the correlations of those panels that are judged.
    pub fn verdicts(&self) -> Vec<DylanVerdict> {
        let apart = |row: &ShapleyRow, (shapley, plain): (f64, f64)| {
            (row.shapley - shapley).abs().max((row.plain - plain).abs())
        };
        let worst = self.agents.iter().zip(EXPECTED).map(|(row, expected)| apart(row, expected)).fold(0.0, f64::max);
        let judged = self.correlations.get(&JUDGED).map_or(&[][..], Vec::as_slice);
        let (mean, good) = (mean(judged), judged.iter().filter(|value| **value >= GOOD).count() as f64);
        let needed = (GOOD_SEEDS * judged.len() as f64).ceil();
        vec![
            DylanVerdict::at_most("S1 exact values", worst, TOLERANCE, " apart").exact(),
            DylanVerdict::at_least("S1 mean Spearman", mean, MEAN_MIN, ""),
            DylanVerdict::at_least("S1 seeds of at least 0.9", good, needed, ""),
        ]
    }
}

impl fmt::Display for ShapleyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Shapley values and importance (stub): accuracy, Shapley, formula (2), relative importance")?;
        for ShapleyRow { accuracy, shapley, plain, relative } in &self.agents {
            writeln!(f, "{accuracy:>5} {shapley:>8.4} {plain:>8.4} {relative:>7.3}")?;
        }
        for (panels, correlations) in &self.correlations {
            writeln!(
                f,
                "after {panels:>4} panels: mean Spearman {:.3} of {} seeds",
                mean(correlations),
                correlations.len()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapley_values_are_those_computed_elsewhere_and_sum_to_the_gain_of_all() {
        let exact = exact();
        for ((shapley, plain), expected) in exact.into_iter().zip(EXPECTED) {
            assert!(
                (shapley - expected.0).abs() <= TOLERANCE && (plain - expected.1).abs() <= TOLERANCE,
                "{shapley} {plain}"
            );
        }
        let gain = performance((1 << AGENTS) - 1) - performance(0);
        assert!((exact.iter().map(|(shapley, _)| shapley).sum::<f64>() - gain).abs() < 1e-12);
    }

    #[test]
    fn the_rank_correlation_is_one_for_one_order_and_less_for_another() {
        let rising = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let falling = [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0];
        assert!((spearman(&rising, &rising) - 1.0).abs() < 1e-12 && (spearman(&rising, &falling) + 1.0).abs() < 1e-12);
    }

    #[test]
    fn importance_orders_agents_as_their_shapley_values_do() {
        let report = run(1, 2);
        assert!(report.verdicts().iter().all(|verdict| verdict.holds), "{:?}", report.verdicts());
    }
}
