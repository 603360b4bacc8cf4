//! Whether a series of measurements rises or falls: Mann and Kendall's test, and Theil and Sen's slope with its interval.
//!
//! Only points of one group are compared with each other. A group is a stretch without a break: behind a restart a process
//! begins at another level, which is no trend.
//!
//! Neighbouring samples resemble each other, which makes the plain test find trends in noise. The variance of its statistic
//! is therefore multiplied by `1 + 2 sum (1 - k/n) r^k` (Yue and Wang 2004), where `r` is the correlation of neighbouring
//! residuals around Sen's line, corrected for its bias in short series (Hamed 2009); a negative one counts as none. The
//! interval of the slope (Sen 1968) uses the same variance.
//!
//! A series that accumulates, such as the entries of a register, remembers everything, and the corrected test hardly ever
//! finds its trend. Its increments do not: Student's test of their mean is the second test of every series. Of a series that
//! returns to its level increments cancel out, so that it finds nothing there. Of the two probabilities the smaller one
//! counts, doubled; the interval is that of its test.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Points beyond which blocks of neighbours are replaced by their medians: pairs grow with the square.
const POINTS_MAX: usize = 500;
/// Probability that the interval of the slope holds the slope.
const CONFIDENCE: f64 = 0.95;
/// Correlation of neighbours beyond which no more is believed: such a series has hardly any information left.
const CORRELATION_MAX: f64 = 0.98;

/// A measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// When, in hours.
    pub hours: f64,
    /// The value.
    pub value: f64,
}

/// What is known of the direction of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Median of the values.
    pub median: f64,
    /// Median of the slopes of all pairs, per hour.
    pub slope: f64,
    /// Lower end of its 95 % interval.
    pub lower: f64,
    /// Upper end.
    pub upper: f64,
    /// What autocorrelation multiplied the variance by.
    pub inflation: f64,
    /// Probability of what either test found if there were no trend, two-sided.
    pub p: f64,
}

impl Trend {
    /// The trend within groups of points in order of time; none where there is no pair to compare.
    pub fn of(groups: &[Vec<Point>]) -> Option<Self> {
        let total: usize = groups.iter().map(Vec::len).sum();
        let groups: Vec<Vec<Point>> = groups.iter().map(|group| thinned(group, total.div_ceil(POINTS_MAX))).collect();
        let (mut slopes, mut s, mut plain) = (Vec::new(), 0.0, 0.0);
        for group in &groups {
            s += kendall(group, &mut slopes);
            plain += plain_variance(group);
        }
        let slope = median(&mut slopes)?;
        let inflation = inflation(&groups, slope);
        let variance = plain * inflation;
        let (mut lower, mut upper) = interval(&mut slopes, variance);
        let mut p = two_sided(s, variance);
        if let Some(increments) = Increments::of(&groups)
            && increments.p < p
        {
            (p, lower, upper) = (increments.p, increments.lower, increments.upper);
        }
        let p = (p * 2.0).min(1.0);
        let mut values: Vec<f64> = groups.iter().flatten().map(|point| point.value).collect();
        let median = median(&mut values)?;
        Some(Self { median, slope, lower, upper, inflation, p })
    }
}

/// Replaces each block of so many neighbours by the median of its values at the mean of its times.
fn thinned(group: &[Point], block: usize) -> Vec<Point> {
    if block <= 1 {
        return group.to_vec();
    }
    let block_median = |block: &[Point]| {
        let hours = block.iter().map(|point| point.hours).sum::<f64>() / block.len() as f64;
        let mut values: Vec<f64> = block.iter().map(|point| point.value).collect();
        Some(Point { hours, value: median(&mut values)? })
    };
    group.chunks(block).filter_map(block_median).collect()
}

/// Kendall's statistic of a group; the slopes of its pairs are added to `slopes`.
fn kendall(group: &[Point], slopes: &mut Vec<f64>) -> f64 {
    let mut s = 0.0;
    for (index, early) in group.iter().enumerate() {
        for late in &group[index + 1..] {
            let rise = late.value - early.value;
            s += if rise == 0.0 { 0.0 } else { rise.signum() };
            if late.hours > early.hours {
                slopes.push(rise / (late.hours - early.hours));
            }
        }
    }
    s
}

/// The variance of Kendall's statistic for independent values, equal ones considered.
fn plain_variance(group: &[Point]) -> f64 {
    let term = |count: usize| {
        let count = count as f64;
        count * (count - 1.0) * (2.0 * count + 5.0)
    };
    let mut values: Vec<f64> = group.iter().map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    let ties: f64 = values.chunk_by(|one, other| one == other).map(|equal| term(equal.len())).sum();
    if group.is_empty() { 0.0 } else { (term(group.len()) - ties) / 18.0 }
}

/// What the correlation of neighbours makes of the variance.
fn inflation(groups: &[Vec<Point>], slope: f64) -> f64 {
    let (mut together, mut alone, mut count) = (0.0, 0.0, 0_usize);
    for group in groups {
        let residual = |point: &Point| point.value - slope * point.hours;
        let mean = group.iter().map(residual).sum::<f64>() / group.len().max(1) as f64;
        let residuals: Vec<f64> = group.iter().map(|point| residual(point) - mean).collect();
        together += residuals.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>();
        alone += residuals.iter().map(|residual| residual * residual).sum::<f64>();
        count += group.len();
    }
    let count = count as f64;
    if alone <= 0.0 || count <= 4.0 {
        return 1.0;
    }
    let unbiased = (count * together / alone + 2.0) / (count - 4.0);
    inflation_by(unbiased.clamp(0.0, CORRELATION_MAX), count)
}

/// `1 + 2 sum (1 - k/n) r^k` over `k` from 1 to `n - 1`, in closed form.
fn inflation_by(r: f64, n: f64) -> f64 {
    1.0 + 2.0 * (r.powf(n + 1.0) - n * r * r + (n - 1.0) * r) / (n * (r - 1.0) * (r - 1.0))
}

/// What the increments between neighbours say.
struct Increments {
    p: f64,
    lower: f64,
    upper: f64,
}

impl Increments {
    /// Student's test of their mean, per hour; none of fewer than two.
    fn of(groups: &[Vec<Point>]) -> Option<Self> {
        let rate = |pair: &[Point]| Point {
            hours: 0.0,
            value: (pair[1].value - pair[0].value) / (pair[1].hours - pair[0].hours),
        };
        let rates: Vec<Vec<Point>> = groups.iter().map(|group| group.windows(2).map(rate).collect()).collect();
        let all = || rates.iter().flatten().map(|rate| rate.value);
        let count = all().count() as f64;
        if count < 2.0 {
            return None;
        }
        let mean = all().sum::<f64>() / count;
        let variance = all().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>() / (count - 1.0);
        let error = (variance * inflation(&rates, 0.0) / count).sqrt();
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok()?;
        let p = if error > 0.0 { 2.0 * student.sf(mean.abs() / error) } else { f64::from(u8::from(mean == 0.0)) };
        let reach = error * Normal::standard().inverse_cdf((1.0 + CONFIDENCE) / 2.0);
        p.is_finite().then_some(Self { p, lower: mean - reach, upper: mean + reach })
    }
}

/// The interval of the slope: so many ranks to either side of the middle as the statistic varies.
fn interval(slopes: &mut [f64], variance: f64) -> (f64, f64) {
    let reach = Normal::standard().inverse_cdf((1.0 + CONFIDENCE) / 2.0) * variance.sqrt();
    let count = slopes.len() as f64;
    let last = slopes.len().saturating_sub(1);
    // Ranks are far below what a float holds exactly; a negative one becomes 0.
    let lower = ((((count - reach) / 2.0).round_ties_even() - 1.0).max(0.0) as usize).min(last);
    let upper = (((count + reach) / 2.0).round_ties_even().max(0.0) as usize).min(last);
    let at = |slopes: &mut [f64], rank: usize| *slopes.select_nth_unstable_by(rank, f64::total_cmp).1;
    if slopes.is_empty() { (0.0, 0.0) } else { (at(slopes, lower), at(slopes, upper)) }
}

/// Probability of a statistic at least as far from 0, with the usual correction for steps of two.
fn two_sided(s: f64, variance: f64) -> f64 {
    if variance <= 0.0 || s == 0.0 {
        return 1.0;
    }
    let z = (s.abs() - 1.0) / variance.sqrt();
    (2.0 * Normal::standard().sf(z)).min(1.0)
}

/// The median; none of nothing.
fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let is_even = values.len().is_multiple_of(2);
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    let lower = below.iter().copied().max_by(f64::total_cmp).filter(|_| is_even);
    Some(lower.map_or(upper, |lower| f64::midpoint(lower, upper)))
}

/// Holm's correction: each probability, adjusted for how many were computed, in the order given.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|one, other| probabilities[*one].total_cmp(&probabilities[*other]));
    let mut adjusted = vec![1.0; probabilities.len()];
    let mut highest = 0.0_f64;
    for (rank, &index) in order.iter().enumerate() {
        highest = highest.max(probabilities[index] * (probabilities.len() - rank) as f64).min(1.0);
        adjusted[index] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha12Rng;
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// Flow of the Nile at Aswan, 1871 to 1970 (R, `datasets::Nile`).
    const NILE: [f64; 100] = [
        1120.0, 1160.0, 963.0, 1210.0, 1160.0, 1160.0, 813.0, 1230.0, 1370.0, 1140.0, 995.0, 935.0, 1110.0, 994.0,
        1020.0, 960.0, 1180.0, 799.0, 958.0, 1140.0, 1100.0, 1210.0, 1150.0, 1250.0, 1260.0, 1220.0, 1030.0, 1100.0,
        774.0, 840.0, 874.0, 694.0, 940.0, 833.0, 701.0, 916.0, 692.0, 1020.0, 1050.0, 969.0, 831.0, 726.0, 456.0,
        824.0, 702.0, 1120.0, 1100.0, 832.0, 764.0, 821.0, 768.0, 845.0, 864.0, 862.0, 698.0, 845.0, 744.0, 796.0,
        1040.0, 759.0, 781.0, 865.0, 845.0, 944.0, 984.0, 897.0, 822.0, 1010.0, 771.0, 676.0, 649.0, 846.0, 812.0,
        742.0, 801.0, 1040.0, 860.0, 874.0, 848.0, 890.0, 744.0, 749.0, 838.0, 1050.0, 918.0, 986.0, 797.0, 923.0,
        975.0, 815.0, 1020.0, 906.0, 901.0, 1170.0, 912.0, 746.0, 919.0, 718.0, 714.0, 740.0,
    ];
    const TIED: [f64; 12] = [1.2, 1.9, 1.9, 3.1, 2.7, 4.0, 4.0, 5.5, 4.8, 6.1, 5.9, 7.2];

    fn hourly(values: &[f64]) -> Vec<Point> {
        values.iter().enumerate().map(|(hour, &value)| Point { hours: hour as f64, value }).collect()
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{found} is not {expected}");
    }

    /// scipy 1.17.1, pymannkendall 1.4.3: `stats.theilslopes(y, t, 0.95)`, `pymannkendall.original_test(y)`.
    #[test]
    fn statistic_variance_probability_slope_and_interval_are_those_of_the_literature() {
        for (values, s, variance, p, (slope, lower, upper)) in [
            (&TIED[..], 58.0, 210.666_666_666_666_66, 8.596_013_970_185_723e-5, (0.525, 0.42, 0.6)),
            (
                &NILE[..],
                -1387.0,
                112_728.333_333_333_33,
                3.658_262_921_657_496e-5,
                (-2.6, -3.627_906_976_744_186, -1.428_571_428_571_428_6),
            ),
        ] {
            let group = hourly(values);
            let mut slopes = Vec::new();
            near(kendall(&group, &mut slopes), s);
            near(plain_variance(&group), variance);
            near(two_sided(s, variance), p);
            near(median(&mut slopes).unwrap(), slope);
            let (low, high) = interval(&mut slopes, variance);
            near(low, lower);
            near(high, upper);
        }
    }

    /// Python: `1 + 2*sum((1-k/n)*r**k for k in range(1, n))`.
    #[test]
    fn correlated_neighbours_raise_the_variance_as_the_sum_says() {
        for (r, n, expected) in [
            (0.0, 50.0, 1.0),
            (0.3, 50.0, 1.832_653_061_224_489_6),
            (0.6, 100.0, 3.925),
            (0.95, 30.0, 19.104_182_019_887_74),
        ] {
            near(inflation_by(r, n), expected);
        }
    }

    #[test]
    fn the_nile_still_falls_when_its_years_resemble_each_other() {
        let trend = Trend::of(&[hourly(&NILE)]).unwrap();
        assert!(trend.inflation > 1.5 && trend.inflation < 2.5, "{trend:?}");
        assert!(trend.p < 0.05 && trend.upper < 0.0 && (trend.slope + 2.6).abs() < 1e-9, "{trend:?}");
    }

    /// statsmodels 0.15: `multipletests([0.01, 0.04, 0.03, 0.005, 0.5], method='holm')[1]`.
    #[test]
    fn probabilities_are_adjusted_as_holm_did() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005, 0.5]);
        for (found, expected) in adjusted.iter().zip([0.04, 0.09, 0.09, 0.025, 0.5]) {
            near(*found, expected);
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn a_step_between_two_groups_is_no_trend() {
        let mut random = ChaCha12Rng::seed_from_u64(3);
        let level = |from: f64, random: &mut ChaCha12Rng| {
            let values: Vec<f64> = (0..60).map(|_| from + random.random::<f64>()).collect();
            hourly(&values)
        };
        let parts = [level(0.0, &mut random), level(100.0, &mut random)];
        assert!(Trend::of(&parts).unwrap().p > 0.01);
        let joined: Vec<Point> =
            parts.concat().iter().enumerate().map(|(hour, point)| Point { hours: hour as f64, ..*point }).collect();
        assert!(Trend::of(&[joined]).unwrap().slope > 0.5);
    }

    #[test]
    fn nothing_and_a_single_point_have_no_trend_and_equal_values_are_flat() {
        assert_eq!(Trend::of(&[]), None);
        assert_eq!(Trend::of(&[hourly(&[1.0])]), None);
        let flat = Trend::of(&[hourly(&[7.0; 40])]).unwrap();
        assert!((flat.p - 1.0).abs() < f64::EPSILON && flat.slope == 0.0 && flat.lower == 0.0 && flat.upper == 0.0);
    }

    #[test]
    fn noise_that_remembers_itself_is_rarely_taken_for_a_trend() {
        for memory in [0.0, 0.4, 0.7] {
            let found =
                (0..400).filter(|&seed| Trend::of(&[hourly(&noise(seed, memory, 72))]).unwrap().p < 0.05).count();
            assert!(found <= 400 / 10, "{found} of 400 at a correlation of {memory}");
        }
    }

    /// scipy 1.17.1: `stats.ttest_1samp(numpy.diff(y), 0)`.
    #[test]
    fn increments_are_tested_as_student_did() {
        let increments = Increments::of(&[hourly(&TIED)]).unwrap();
        // Their neighbours are negatively correlated, which counts as none.
        near(increments.p, 0.051_078_561_645_399_86);
    }

    #[test]
    fn what_accumulates_at_random_is_found_and_what_wanders_is_rarely() {
        let run = |seed: u64, mean: f64| {
            let mut random = ChaCha12Rng::seed_from_u64(seed);
            let mut level = 1_000.0;
            let mut next = || {
                let step: f64 = StandardNormal.sample(&mut random);
                level += mean + 5.0 * step;
                level
            };
            let values: Vec<f64> = (0..100).map(|_| next()).collect();
            Trend::of(&[hourly(&values)]).unwrap()
        };
        for seed in 0..100 {
            let trend = run(seed, 10.0);
            assert!(trend.p < 1e-6 && trend.lower > 5.0 && trend.upper < 15.0, "{trend:?}");
        }
        let wandering = (0..400).filter(|&seed| run(seed, 0.0).p < 0.05).count();
        assert!(wandering <= 400 / 6, "{wandering} of 400");
    }

    /// Values of which each takes over a share of the one before.
    fn noise(seed: u64, memory: f64, count: usize) -> Vec<f64> {
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let mut last = 0.0;
        let mut next = || {
            let fresh: f64 = StandardNormal.sample(&mut random);
            last = memory * last + fresh;
            last
        };
        (0..50).for_each(|_| {
            next();
        });
        (0..count).map(|_| next()).collect()
    }
}
