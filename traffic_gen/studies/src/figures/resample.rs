//! Bootstrap over seeds: rounds of one seed share arrivals and contractors and are not independent, so whole seeds are drawn
//! again, never rounds.
//!
//! Every group of as many seeds draws the same resamples. Groups that ran on the same seeds are thereby compared seed by
//! seed (common random numbers); of groups that did not, the draws are as independent as their rounds.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::statistics::{Data, OrderStatistics, Statistics};

/// How often seeds are drawn.
const RESAMPLES: usize = 1_000;
/// Seed of the draws: a report computed again is the same report.
const SEED: u64 = 0x5eed;
/// Probability that an interval holds the true value.
pub const LEVEL: f64 = 0.95;
/// Fewest seeds whose range holds the median of what they are drawn from with [`LEVEL`] at all: 1 - 2 / 2^6 > 0.95.
pub const SEEDS_MIN: usize = 6;

/// How often each seed counts, per resample.
#[derive(Debug, Clone)]
pub struct Resamples {
    weights: Vec<Vec<u32>>,
}

/// A value with what the resamples made of it.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// From every seed once.
    pub value: f64,
    seeds: usize,
    /// By resample, so that estimates are combined draw by draw; NaN where it is not defined.
    resampled: Vec<f64>,
}

/// Where the true value lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether a value is inside.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

impl Resamples {
    /// Draws of this many seeds.
    pub fn of(seeds: usize) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(SEED);
        let draw = |_| {
            let mut weights = vec![0; seeds];
            for _ in 0..seeds {
                weights[rng.random_range(0..seeds)] += 1;
            }
            weights
        };
        Self { weights: if seeds < 2 { Vec::new() } else { (0..RESAMPLES).map(draw).collect() } }
    }

    /// A statistic of weighted seeds: once of all of them, once per resample. Absent where it is not defined.
    pub fn estimate(&self, seeds: usize, statistic: impl Fn(&[u32]) -> Option<f64>) -> Option<Estimate> {
        let value = statistic(&vec![1; seeds]).filter(|value| value.is_finite())?;
        let resampled = self.weights.iter().map(|weights| statistic(weights).unwrap_or(f64::NAN));
        Some(Estimate { value, seeds, resampled: resampled.collect() })
    }
}

impl Estimate {
    /// The 95 % interval: percentiles of the resamples, moved outwards by as much as few seeds make them too narrow
    /// (Hesterberg's expanded percentile interval). Absent for one seed.
    pub fn interval(&self) -> Option<Interval> {
        let beyond = Normal::standard().cdf(-self.widened_quantile(LEVEL)?);
        let mut sorted = Data::new(self.defined());
        Some(Interval { low: sorted.quantile(beyond), high: sorted.quantile(1.0 - beyond) })
    }

    /// The interval that holds the true value together with those of `family - 1` others: as wide as Bonferroni's
    /// correction asks, from the resamples' standard error and Student's distribution. Percentiles so far out would take more
    /// resamples than there are. Absent for one seed.
    pub fn interval_among(&self, family: usize) -> Option<Interval> {
        let level = 1.0 - (1.0 - LEVEL) / family.max(1) as f64;
        let margin = self.widened_quantile(level)? * self.defined().std_dev();
        Some(Interval { low: self.value - margin, high: self.value + margin })
    }

    /// This less another.
    pub fn less(&self, other: &Self) -> Self {
        Self::combined(&[self, other], |values| values[0] - values[1])
    }

    /// A function of several estimates, resample by resample; of as many seeds as the one with the fewest.
    pub fn combined(of: &[&Self], function: impl Fn(&[f64]) -> f64) -> Self {
        let resamples = of.iter().map(|estimate| estimate.resampled.len()).min().unwrap_or(0);
        let of_resample = |resample: usize| {
            let values: Vec<f64> = of.iter().map(|estimate| estimate.resampled[resample]).collect();
            function(&values)
        };
        let values: Vec<f64> = of.iter().map(|estimate| estimate.value).collect();
        Self {
            value: function(&values),
            seeds: of.iter().map(|estimate| estimate.seeds).min().unwrap_or(0),
            resampled: (0..resamples).map(of_resample).collect(),
        }
    }

    fn defined(&self) -> Vec<f64> {
        self.resampled.iter().copied().filter(|value| value.is_finite()).collect()
    }

    /// Seeds it was drawn from.
    pub fn seeds(&self) -> usize {
        self.seeds
    }

    /// Student's quantile, times what a standard deviation over few seeds falls short by.
    fn widened_quantile(&self, level: f64) -> Option<f64> {
        if self.seeds < 2 || self.defined().len() < RESAMPLES / 2 {
            return None;
        }
        let seeds = self.seeds as f64;
        let student = StudentsT::new(0.0, 1.0, seeds - 1.0).ok()?;
        Some(student.inverse_cdf(1.0 - (1.0 - level) / 2.0) * (seeds / (seeds - 1.0)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(values: &[f64]) -> impl Fn(&[u32]) -> Option<f64> {
        move |weights| {
            let total: f64 = values.iter().zip(weights).map(|(value, weight)| value * f64::from(*weight)).sum();
            Some(total / f64::from(weights.iter().sum::<u32>()))
        }
    }

    fn estimate(values: &[f64]) -> Estimate {
        Resamples::of(values.len()).estimate(values.len(), mean_of(values)).unwrap()
    }

    #[test]
    fn the_interval_holds_the_true_mean_in_about_95_of_100_samples() {
        let mut rng = ChaCha12Rng::seed_from_u64(7);
        let normal = rand_distr::Normal::new(10.0, 2.0).unwrap();
        for seeds in [8, 20] {
            let resamples = Resamples::of(seeds);
            let mut held = [0, 0];
            for _ in 0..400 {
                let values: Vec<f64> = (0..seeds).map(|_| rng.sample(normal)).collect();
                let estimate = resamples.estimate(seeds, mean_of(&values)).unwrap();
                held[0] += u32::from(estimate.interval().unwrap().holds(10.0));
                held[1] += u32::from(estimate.interval_among(1).unwrap().holds(10.0));
            }
            assert!(held.iter().all(|held| (364..=396).contains(held)), "{held:?} of 400 from {seeds} seeds");
        }
    }

    #[test]
    fn one_seed_has_no_interval_and_equal_seeds_have_one_of_no_width() {
        assert_eq!(estimate(&[3.0]).interval(), None);
        assert_eq!(estimate(&[3.0; 6]).interval(), Some(Interval { low: 3.0, high: 3.0 }));
    }

    #[test]
    fn an_interval_among_many_is_wider() {
        let alone = estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let (one, many) = (alone.interval_among(1).unwrap(), alone.interval_among(40).unwrap());
        assert!(many.half_width() > 1.5 * one.half_width(), "{one:?} {many:?}");
    }

    #[test]
    fn what_two_groups_share_by_seed_is_no_noise_of_their_difference() {
        let shared = [1.0, 9.0, 4.0, 7.0, 2.0, 8.0, 5.0, 3.0];
        let later = shared.map(|value| value + 0.5);
        let difference = estimate(&later).less(&estimate(&shared));
        let interval = difference.interval_among(1).unwrap();
        assert!((interval.low - 0.5).abs() < 1e-9 && (interval.high - 0.5).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn a_draw_without_a_value_moves_no_other_out_of_its_place() {
        let shared = [1.0, 9.0, 4.0, 7.0, 2.0, 8.0, 5.0, 3.0];
        let resamples = Resamples::of(shared.len());
        // Of a statistic that only some seeds have.
        let partly = |weights: &[u32]| (weights[0] > 0).then(|| mean_of(&shared)(weights)).flatten();
        let later = resamples.estimate(shared.len(), partly).unwrap();
        let interval = later.less(&estimate(&shared)).interval_among(1).unwrap();
        assert!(interval.low.abs() < 1e-9 && interval.high.abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn the_same_seeds_give_the_same_interval() {
        let values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        assert_eq!(estimate(&values).interval(), estimate(&values).interval());
    }
}
