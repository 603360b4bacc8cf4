//! What theory expects of the best of the first `k` of `n` offers whose order of arrival says nothing about their quality.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Regret in parts of the range of uniform costs: 0.423 for the first of 12, 0 for all of them.
pub fn regret(n: f64, k: f64) -> f64 {
    (n - k) / ((k + 1.0) * (n + 1.0))
}

/// Chance that the best of all is chosen.
pub fn best_chosen(n: f64, k: f64) -> f64 {
    k / n
}

/// Expected rank of the chosen among all, from 1.
pub fn rank(n: f64, k: f64) -> f64 {
    (n + 1.0) / (k + 1.0)
}

/// Mean time of the `k`-th arrival in parts of the mean delay, where delays are exponential: H(n) - H(n - k).
pub fn kth_arrival(n: u32, k: u32) -> f64 {
    (n.saturating_sub(k)..n).map(|left| 1.0 / (f64::from(left) + 1.0)).sum()
}

/// Lowest regret that waiting for a fixed number of offers reaches within a time, both in the parts of [`regret`] and
/// [`kth_arrival`]: the frontier, with mixtures of two neighbours between its points.
pub fn frontier(n: u32, time: f64) -> f64 {
    let point = |k: u32| (kth_arrival(n, k), regret(f64::from(n), f64::from(k)));
    let (mut before, mut at) = ((0.0, f64::NAN), point(1));
    for k in 2..=n {
        if time <= at.0 {
            break;
        }
        (before, at) = (at, point(k));
    }
    if before.1.is_nan() || time >= at.0 {
        return at.1;
    }
    let part = (time - before.0) / (at.0 - before.0);
    before.1 + part * (at.1 - before.1)
}

/// Jain's index of `rounds` awards among `n` contractors where each is as likely: its mean, about.
pub fn jain_null(n: f64, rounds: f64) -> f64 {
    1.0 / (1.0 + (n - 1.0) / rounds)
}

/// The value Jain's index falls below in one of 20 fair runs.
pub fn jain_null_low(n: f64, rounds: f64) -> Option<f64> {
    let squared = ChiSquared::new(n - 1.0).ok()?.inverse_cdf(0.95);
    Some(1.0 / (1.0 + squared / rounds))
}

/// Fewest awards for Jain's index to be meaningful: with 12 contractors its mean by chance is 0.986 at 800.
pub fn jain_rounds_min(n: f64) -> f64 {
    (800.0 * (n - 1.0) / 11.0).ceil()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_about(value: f64, expected: f64) {
        assert!((value - expected).abs() < 6e-4, "{value} is not {expected}");
    }

    #[test]
    fn twelve_contractors_give_the_published_values() {
        for (k, expected) in [(1.0, 0.423), (2.0, 0.256), (3.0, 0.173), (6.0, 0.066), (12.0, 0.0)] {
            is_about(regret(12.0, k), expected);
        }
        is_about(best_chosen(12.0, 3.0), 0.25);
        is_about(rank(12.0, 12.0), 1.0);
    }

    #[test]
    fn the_kth_arrival_is_the_difference_of_harmonic_numbers() {
        is_about(kth_arrival(12, 1), 1.0 / 12.0);
        is_about(kth_arrival(12, 12), 3.1032);
        is_about(kth_arrival(3, 2), 1.0 / 3.0 + 1.0 / 2.0);
        is_about(kth_arrival(3, 0), 0.0);
    }

    #[test]
    fn the_frontier_goes_through_every_fixed_number_and_is_flat_beyond() {
        for k in 1..=12 {
            is_about(frontier(12, kth_arrival(12, k)), regret(12.0, f64::from(k)));
        }
        is_about(frontier(12, 0.01), regret(12.0, 1.0));
        is_about(frontier(12, 99.0), 0.0);
        let between = f64::midpoint(kth_arrival(12, 2), kth_arrival(12, 3));
        is_about(frontier(12, between), f64::midpoint(regret(12.0, 2.0), regret(12.0, 3.0)));
    }

    #[test]
    fn jains_null_is_the_published_one() {
        is_about(jain_null(12.0, 806.0), 0.9865);
        is_about(jain_null_low(12.0, 806.0).unwrap(), 0.9762);
        is_about(jain_rounds_min(12.0), 800.0);
    }
}
