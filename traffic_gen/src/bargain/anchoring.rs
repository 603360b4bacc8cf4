//! Opening-offer anchoring: how much of what a party first asks for it is given.
//!
//! The slope of a line through the points (utility of its first offer to the party, utility of the agreement to the
//! party), by least squares, with an interval from resampling the runs.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

/// How often the runs are drawn anew for the interval.
const RESAMPLES: usize = 2_000;
/// Fewest agreements a slope is given for: fewer say nothing.
pub const AGREEMENTS_MIN: usize = 10;

/// The slope of final on first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Anchoring {
    /// 0: what is asked for first changes nothing; 1: all of it is given.
    pub slope: f64,
    /// 95 % interval, lower end.
    pub low: f64,
    /// 95 % interval, upper end.
    pub high: f64,
    /// Agreements it rests on.
    pub agreements: usize,
    /// Seed of the resampling.
    pub seed: u64,
}

impl Anchoring {
    /// The slope through points (first, final). `None` with fewer than [`AGREEMENTS_MIN`] points, or when every first offer
    /// was worth the same.
    pub fn of(points: &[(f64, f64)], seed: u64) -> Option<Self> {
        if points.len() < AGREEMENTS_MIN {
            return None;
        }
        let slope = slope(points)?;
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let mut drawn = Vec::with_capacity(points.len());
        let mut slopes: Vec<f64> = (0..RESAMPLES)
            .filter_map(|_| {
                drawn.clear();
                drawn.extend((0..points.len()).map(|_| points[random.random_range(0..points.len())]));
                self::slope(&drawn)
            })
            .collect();
        slopes.sort_by(f64::total_cmp);
        let at = |part: f64| slopes.get((part * (slopes.len() as f64 - 1.0)).round() as usize).copied();
        let (low, high) = (at(0.025).unwrap_or(slope), at(0.975).unwrap_or(slope));
        Some(Self { slope, low, high, agreements: points.len(), seed })
    }
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let (first, last) = points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / count, b + y / count));
    let spread: f64 = points.iter().map(|(x, _)| (x - first).powi(2)).sum();
    let common: f64 = points.iter().map(|(x, y)| (x - first) * (y - last)).sum();
    (spread > f64::EPSILON).then(|| common / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_that_follows_the_first_offer_by_half_has_a_slope_of_one_half() {
        let points: Vec<_> = (0..50).map(|n| f64::from(n) / 50.0).map(|first| (first, 0.2 + first / 2.0)).collect();
        let anchoring = Anchoring::of(&points, 1).unwrap();
        assert!((anchoring.slope - 0.5).abs() < 1e-9, "{anchoring:?}");
        assert!(anchoring.high - anchoring.low < 1e-9, "{anchoring:?}");
    }

    #[test]
    fn a_final_that_ignores_the_first_offer_has_an_interval_around_zero() {
        let points: Vec<_> = (0..400).map(|n| (f64::from(n % 20) / 20.0, f64::from(n * 7919 % 101) / 101.0)).collect();
        let anchoring = Anchoring::of(&points, 7).unwrap();
        assert!(anchoring.low < 0.0 && anchoring.high > 0.0, "{anchoring:?}");
        assert_eq!(Some(anchoring), Anchoring::of(&points, 7), "the same seed gives the same interval");
    }

    #[test]
    fn too_few_agreements_and_first_offers_all_alike_give_no_slope() {
        assert_eq!(Anchoring::of(&[(0.1, 0.2); AGREEMENTS_MIN - 1], 1), None);
        assert_eq!(Anchoring::of(&[(0.1, 0.2); AGREEMENTS_MIN], 1), None);
    }
}
