//! Fairness of awards among equal contractors: what engines show as a metric and runs
//! of a load in their summary.

use serde::Serialize;

/// Jain's index over wins, beside what perfect fairness would give after as many awards.
///
/// With few awards even a perfectly fair draw has a low index: read `index` against `null`, never against 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Jain {
    /// (sum of wins)^2 / (contractors x sum of squared wins); 1/n when one wins all, 1 when all win alike.
    pub index: f64,
    /// Expected index under a fair draw: 1 / (1 + (n - 1) / awards).
    pub null: f64,
    /// Awards counted.
    pub awards: u64,
}

impl Jain {
    /// The index over the wins of each contractor, losers included as 0. `None` without contractors or awards.
    #[must_use]
    pub fn of(wins: &[u64]) -> Option<Self> {
        let awards: u64 = wins.iter().sum();
        if awards == 0 {
            return None;
        }
        let contractors = wins.len() as f64;
        let total = awards as f64;
        let squares: f64 = wins.iter().map(|&won| (won as f64).powi(2)).sum();
        Some(Self {
            index: total * total / (contractors * squares),
            null: 1.0 / (1.0 + (contractors - 1.0) / total),
            awards,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_wins_give_one_and_a_monopoly_gives_one_over_n() {
        assert!((Jain::of(&[5, 5, 5, 5]).unwrap().index - 1.0).abs() < 1e-12);
        assert!((Jain::of(&[20, 0, 0, 0]).unwrap().index - 0.25).abs() < 1e-12);
        assert_eq!(Jain::of(&[0, 0]), None);
    }

    /// Under a fair draw, n = 12.
    #[test]
    fn the_null_expectation_matches_the_table() {
        for (awards, expected) in [(3_u64, 0.21), (30, 0.73), (806, 0.987)] {
            let mut wins = [0; 12];
            wins[0] = awards;
            assert!((Jain::of(&wins).unwrap().null - expected).abs() < 0.005, "{awards}");
        }
    }
}
