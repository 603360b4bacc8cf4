//! Independent agents that answer anew in every round: how often a round agrees, how many it asks, what a panel costs.

use std::fmt;

use policy_core::panel::count::quorum;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::DylanVerdict;
use super::crowd::WRONG;
use super::play::{PlayRules, SeatAnswer, SeatView, StubRanker, play};

/// Panels of each cell unless others are asked for.
pub const PANELS: u64 = 20_000;
const SEATS: [usize; 4] = [3, 4, 7, 12];
const ACCURACIES: [f64; 4] = [0.5, 0.664, 0.8, 0.9];
/// Half the width of an interval that a normal variable leaves once in a thousand times, in standard deviations.
const Z_999: f64 = 3.290_526_731_491_926;
/// Seats, liars among them, and accuracy of the cell of liars.
const LIARS: (usize, usize, f64) = (7, 2, 0.75);
/// Asks of a selection by an agent, and of the round of the two it keeps.
const SELECTED_CALLS: f64 = 3.0;

/// Cells of independent agents.
#[derive(Debug, Clone, Serialize)]
pub struct TheoryReport {
    /// Panels of each cell.
    pub panels: u64,
    /// By seats and accuracy.
    pub cells: Vec<TheoryCell>,
    /// How often liars that agree make a consensus in the first round.
    pub liars: TheoryComparison,
}

/// One cell.
#[derive(Debug, Clone, Serialize)]
pub struct TheoryCell {
    /// Seats.
    pub n: usize,
    /// Accuracy.
    pub p: f64,
    /// How often the first round agrees.
    pub consensus: TheoryComparison,
    /// Seats the first round asks.
    pub asked: TheoryComparison,
    /// Asks of the whole panel.
    pub calls: TheoryComparison,
}

/// A mean beside its expectation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TheoryComparison {
    /// By theory.
    pub exact: f64,
    /// What was played.
    pub mean: f64,
    /// Half the 99.9 % interval around the mean.
    pub half_width: f64,
}

impl TheoryComparison {
    fn of(exact: f64, values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        // A mean of rare or certain events has no variance of its own to speak of: at least that of one event.
        Self { exact, mean, half_width: Z_999 * (variance / count).sqrt().max(1.0 / count) }
    }

    fn verdict(&self, id: String) -> DylanVerdict {
        let Self { exact, mean, half_width } = *self;
        let holds = (mean - exact).abs() <= half_width;
        DylanVerdict::new(id, mean, format!("{exact:.4} within {half_width:.4}"), holds)
    }
}

/// P(Bin(k, x) >= m).
fn at_least(k: usize, x: f64, m: usize) -> f64 {
    let choose = |r: usize| (0..r).fold(1.0, |product, i| product * (k - i) as f64 / (i + 1) as f64);
    (m..=k).map(|r| choose(r) * x.powi(r as i32) * (1.0 - x).powi((k - r) as i32)).sum()
}

/// The probability that k answers hold a consensus of n seats.
fn holds(n: usize, k: usize, p: f64) -> f64 {
    let q = quorum(n);
    at_least(k, p, q) + f64::from(WRONG) * at_least(k, (1.0 - p) / f64::from(WRONG), q)
}

/// Consensus of a round, seats asked in it, asks of a panel.
pub fn expected(n: usize, p: f64) -> (f64, f64, f64) {
    let c = holds(n, n, p);
    let asked = quorum(n) as f64 + (quorum(n)..n).map(|k| 1.0 - holds(n, k, p)).sum::<f64>();
    let none = 1.0 - c;
    let last = if n <= 3 { asked } else { SELECTED_CALLS };
    (c, asked, asked * (1.0 + none) + none.powi(2) * last)
}

/// How often f liars that all give one wrong answer make a consensus in the first round.
pub fn expected_of_liars((n, f, p): (usize, usize, f64)) -> f64 {
    let (honest, wrong, q) = (n - f, (1.0 - p) / f64::from(WRONG), quorum(n));
    at_least(honest, wrong, q - f) + f64::from(WRONG - 1) * at_least(honest, wrong, q)
}

fn rules(seats: usize) -> PlayRules {
    PlayRules { seats, ranker: StubRanker::DRAWN, recheck: false }
}

fn answer(p: f64, random: &mut ChaCha8Rng) -> u32 {
    if random.random_bool(p) { 0 } else { random.random_range(1..=WRONG) }
}

/// Plays every cell.
pub fn run(seed: u64, panels: u64) -> TheoryReport {
    let cells = SEATS.into_iter().flat_map(|n| ACCURACIES.into_iter().map(move |p| (n, p)));
    let random = |cell: usize| ChaCha8Rng::seed_from_u64(seed.wrapping_add(cell as u64));
    let cells = cells.enumerate().map(|(cell, (n, p))| {
        let mut random = random(cell);
        let (mut agreed, mut asked, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..panels {
            let says = |_, _: &SeatView<'_>, random: &mut ChaCha8Rng| SeatAnswer::unrated(answer(p, random));
            let played = play(rules(n), &mut random, says);
            agreed.push(f64::from(u8::from(played.consensus_in == Some(1))));
            asked.push(played.asked_first as f64);
            calls.push(played.calls as f64);
        }
        let (exact_c, exact_a, exact_calls) = expected(n, p);
        TheoryCell {
            n,
            p,
            consensus: TheoryComparison::of(exact_c, &agreed),
            asked: TheoryComparison::of(exact_a, &asked),
            calls: TheoryComparison::of(exact_calls, &calls),
        }
    });
    let cells: Vec<TheoryCell> = cells.collect();
    let (n, f, p) = LIARS;
    let mut random = random(cells.len());
    let lie = |_| {
        let says = |seat: usize, _: &SeatView<'_>, random: &mut ChaCha8Rng| {
            SeatAnswer::unrated(if seat < f { WRONG } else { answer(p, random) })
        };
        let played = play(rules(n), &mut random, says);
        f64::from(u8::from(played.consensus_in == Some(1) && played.answer != 0))
    };
    let liars = TheoryComparison::of(expected_of_liars(LIARS), &(0..panels).map(lie).collect::<Vec<_>>());
    TheoryReport { panels, cells, liars }
}

impl TheoryReport {
    /// T1: each figure within its interval.
    pub fn verdicts(&self) -> Vec<DylanVerdict> {
        let of_cell = |cell: &TheoryCell| {
            let id = |what: &str| format!("T1 n={} p={} {what}", cell.n, cell.p);
            [cell.consensus.verdict(id("consensus")), cell.asked.verdict(id("asked")), cell.calls.verdict(id("calls"))]
        };
        let liars = std::iter::once(self.liars.verdict("T1 liars".to_owned()));
        self.cells.iter().flat_map(of_cell).chain(liars).collect()
    }
}

impl fmt::Display for TheoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "independent agents, {} panels a cell: theory / stub", self.panels)?;
        writeln!(f, "{:>3} {:>6} {:>17} {:>17} {:>17}", "n", "p", "consensus", "asked", "calls")?;
        for cell in &self.cells {
            let pair = |compared: TheoryComparison| format!("{:.4} / {:.4}", compared.exact, compared.mean);
            let columns = [cell.consensus, cell.asked, cell.calls].map(pair);
            writeln!(f, "{:>3} {:>6} {:>17} {:>17} {:>17}", cell.n, cell.p, columns[0], columns[1], columns[2])?;
        }
        writeln!(f, "two liars of seven, p = {}: {:.4} / {:.4}", LIARS.2, self.liars.exact, self.liars.mean)?;
        writeln!(f, "The published runs of four agents stop in 78.5 % of first rounds, where independent ones of the")?;
        writeln!(f, "paper's accuracy .664 would in {:.1} %: real agents are correlated.", 100.0 * expected(4, 0.664).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_are_those_of_the_table() {
        let table = [
            (3, [(0.1389, 3.0, 7.808), (0.2970, 3.0, 6.592), (0.5129, 3.0, 5.173), (0.7291, 3.0, 4.033)]),
            (4, [(0.3611, 3.861, 7.553), (0.6033, 3.703, 5.644), (0.8226, 3.487, 4.200), (0.9481, 3.271, 3.449)]),
            (7, [(0.2326, 6.857, 13.886), (0.5654, 6.525, 9.927), (0.8520, 6.017, 6.973), (0.9743, 5.524, 5.668)]),
            (
                12,
                [(0.0730, 11.955, 25.614), (0.3855, 11.646, 19.935), (0.7946, 10.873, 13.233), (0.9744, 9.966, 10.224)],
            ),
        ];
        for (n, row) in table {
            for (p, (c, asked, calls)) in ACCURACIES.into_iter().zip(row) {
                let found = expected(n, p);
                let is_near = |found: f64, wanted: f64, places: f64| (found - wanted).abs() <= places;
                assert!(
                    is_near(found.0, c, 1e-4) && is_near(found.1, asked, 1e-3) && is_near(found.2, calls, 1e-3),
                    "{n} {p}: {found:?}"
                );
            }
        }
        assert!((expected_of_liars(LIARS) - 0.0051).abs() < 5e-5);
    }

    #[test]
    fn what_is_played_is_what_theory_expects() {
        let report = run(1, 2_000);
        let failed: Vec<DylanVerdict> = report.verdicts().into_iter().filter(|verdict| !verdict.holds).collect();
        assert_eq!((failed, report.cells.len()), (Vec::new(), 16));
    }
}
