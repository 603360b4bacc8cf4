//! The paper's runs beside those of an experiment.
//!
//! "LLM-X: A Scalable Negotiation-Oriented Exchange for Communication Among Personal LLM Agents", arXiv 2605.11376v1: the
//! two-minute runs are its tables 1 to 3, the long ones its tables 4 and 5. Where it prints a range over repetitions, both
//! ends are here, and the upper one is the bar.

use std::fmt;

use serde::Serialize;

use super::markdown::{digits, number};
use crate::figures::group::{Group, fewest};
use crate::figures::resample::{Estimate, Interval};
use crate::record::WARM_UP;

/// What the paper prints: one number, or the ends of a range.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Printed {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A run of the paper.
struct PaperRun {
    policy: &'static str,
    minutes: f64,
    contractors: u32,
    is_warm: bool,
    /// Calls, offers and rounds of one run; 0 rounds where it prints none.
    counts: [u32; 3],
    mean_ms: Printed,
    p95_ms: Option<Printed>,
}

/// A run of the paper beside a group.
#[derive(Debug, Serialize)]
pub struct PaperComparison {
    /// The paper's run.
    pub run: String,
    /// The group.
    pub group: String,
    /// What was measured: `decision`, or `offer` where the policy decides at the deadline only.
    pub measure: &'static str,
    /// Calls, offers and rounds of one run of the paper; 0 rounds where it prints none.
    pub paper_counts: [u32; 3],
    /// The same of all seeds here, where every call is a round.
    pub counts: [u64; 3],
    /// The paper's mean, in milliseconds.
    pub paper_mean: Printed,
    /// The mean, in milliseconds.
    pub mean_ms: Option<f64>,
    /// Where the true mean lies.
    pub mean_interval: Option<Interval>,
    /// The paper's 95th percentile, in milliseconds.
    pub paper_p95: Option<Printed>,
    /// The 95th percentile, in milliseconds; of too few rounds the longest.
    pub p95_ms: Option<f64>,
    /// Whether it is the longest.
    pub is_longest: bool,
    /// How many times shorter the 95th percentile is than the paper's upper end.
    pub factor: Option<f64>,
    /// Offers in parts of calls times contractors.
    pub completion: Option<f64>,
    /// Whether the 95th percentile is at most the paper's.
    pub is_met: bool,
}

const fn run(
    (policy, minutes, contractors, is_warm): (&'static str, f64, u32, bool),
    counts: [u32; 3],
    mean: (f64, f64),
    p95: Option<(f64, f64)>,
) -> PaperRun {
    let p95_ms = match p95 {
        Some((low, high)) => Some(Printed { low, high }),
        None => None,
    };
    PaperRun { policy, minutes, contractors, is_warm, counts, mean_ms: Printed { low: mean.0, high: mean.1 }, p95_ms }
}

/// Of its three warm-ups the largest, with the range of their means; it prints neither rounds nor percentiles of them. Half of
/// the calls of its long runs have no offers.
const RUNS: [PaperRun; 13] = [
    run(("low", 2.0, 5, false), [6, 30, 0], (1.0, 8.0), None),
    run(("low", 2.0, 5, true), [3, 15, 3], (1.0, 3.0), Some((2.0, 3.0))),
    run(("low", 2.0, 9, true), [3, 27, 3], (4.0, 5.0), Some((7.0, 9.0))),
    run(("low", 2.0, 12, true), [3, 36, 3], (5.0, 7.0), Some((8.0, 11.0))),
    run(("medium", 2.0, 5, true), [6, 30, 6], (3.0, 4.0), Some((6.0, 7.0))),
    run(("medium", 2.0, 9, true), [6, 27, 4], (5.0, 5.0), Some((8.0, 9.0))),
    run(("medium", 2.0, 12, true), [6, 36, 4], (4.0, 6.0), Some((7.0, 8.0))),
    run(("high", 2.0, 5, true), [3, 15, 3], (4.1, 4.1), Some((5.4, 5.4))),
    run(("high", 2.0, 9, true), [3, 27, 3], (6.2, 6.2), Some((7.3, 7.3))),
    run(("high", 2.0, 12, true), [6, 36, 6], (7.3, 7.3), Some((8.3, 8.3))),
    run(("medium", 120.0, 12, true), [290, 1740, 145], (8.35, 8.35), Some((12.0, 12.0))),
    run(("high", 120.0, 12, true), [258, 1548, 129], (6.0, 6.0), Some((10.0, 10.0))),
    run(("high", 720.0, 12, true), [1612, 9672, 806], (6.18, 6.18), Some((11.0, 11.0))),
];

/// What stands beside each other.
pub const COLUMNS: [&str; 10] = [
    "paper",
    "ours",
    "calls, offers, rounds: paper",
    "calls, offers, rounds: ours",
    "mean, ms: paper",
    "mean, ms: ours",
    "p95, ms: paper",
    "p95, ms: ours",
    "factor",
    "offers / (calls x N)",
];

/// Longest mean delay of contractors that answer at once, in microseconds.
const DELAY_MAX_US: f64 = 100.0;

/// Every group that repeats a run of the paper, beside it.
pub fn compare(groups: &[Group]) -> Vec<PaperComparison> {
    let beside = |run: &PaperRun| {
        let repeats = groups.iter().filter(|group| run.is_repeated_by(group)).map(|group| run.beside(group));
        repeats.collect::<Vec<_>>()
    };
    RUNS.iter().flat_map(beside).collect()
}

impl PaperRun {
    fn is_repeated_by(&self, group: &Group) -> bool {
        let cell = group.cell();
        let policy = cell.policy.split('@').next().unwrap_or_default();
        policy.strip_prefix("paper41-").unwrap_or(policy) == self.policy
            && cell.contractors == self.contractors
            && cell.labels.contains_key(WARM_UP) != self.is_warm
            && cell.protocol != "alternating"
            && cell.populations.is_empty()
            && (cell.duration_s / 60.0 - self.minutes).abs() < 0.01
            // The paper's contractors answer at once.
            && group.whole(|seeds| seeds.mean("delay")).is_none_or(|delay| delay <= DELAY_MAX_US)
    }

    fn beside(&self, group: &Group) -> PaperComparison {
        let measure = if group.cell().policy.starts_with("paper41-low") { "offer" } else { "decision" };
        let [p95_ms, longest] =
            [0.95, 1.0].map(|part| group.whole(|seeds| seeds.quantile(measure, part).map(|us| us / 1e3)));
        let (offers, invited) = group.whole(|seeds| (seeds.sum("offers").0, seeds.sum("invited").0));
        let mean = group.estimate(|seeds| Some(seeds.mean(measure)? / 1e3));
        let (is_longest, ours) = (p95_ms.is_none(), p95_ms.or(longest));
        let factor = self.p95_ms.zip(ours.filter(|ours| *ours > 0.0)).map(|(printed, ours)| printed.high / ours);
        let length =
            if self.minutes < 60.0 { format!("{} min", self.minutes) } else { format!("{} h", self.minutes / 60.0) };
        let cold = if self.is_warm { "" } else { ", warm-up" };
        PaperComparison {
            run: format!("{} {length}, {} contractors{cold}", self.policy, self.contractors),
            group: group.name.clone(),
            measure,
            paper_counts: self.counts,
            counts: [group.rounds(), offers as u64, group.rounds()],
            paper_mean: self.mean_ms,
            mean_ms: mean.as_ref().map(|mean| mean.value),
            mean_interval: mean.as_ref().and_then(Estimate::interval),
            paper_p95: self.p95_ms,
            p95_ms: ours,
            is_longest,
            factor,
            completion: (invited > 0.0).then(|| offers / invited),
            is_met: factor.is_some_and(|factor| factor >= 1.0),
        }
    }
}

impl PaperComparison {
    /// The values of [`COLUMNS`].
    pub fn cells(&self) -> [String; 10] {
        let longest = |is_longest, rounds| if is_longest { format!(" (longest of {rounds})") } else { String::new() };
        let ([_, _, rounds], [_, _, paper_rounds]) = (self.counts, self.paper_counts);
        let is_few = u64::from(paper_rounds) < fewest(0.95);
        let counts = |counts: [String; 3]| counts.join(", ");
        let interval = self.mean_interval.map(|Interval { low, high }| format!(" [{}, {}]", digits(low), digits(high)));
        let paper_p95 = self.paper_p95.map(|printed| format!("{printed}{}", longest(is_few, u64::from(paper_rounds))));
        [
            self.run.clone(),
            format!("{}, {}", self.group, self.measure),
            counts(self.paper_counts.map(|count| if count == 0 { "-".to_owned() } else { count.to_string() })),
            counts(self.counts.map(|count| count.to_string())),
            self.paper_mean.to_string(),
            format!("{}{}", number(self.mean_ms), interval.unwrap_or_default()),
            paper_p95.unwrap_or_else(|| "-".to_owned()),
            format!("{}{}", number(self.p95_ms), longest(self.is_longest, rounds)),
            number(self.factor),
            number(self.completion),
        ]
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high { write!(f, "{}", self.high) } else { write!(f, "{} to {}", self.low, self.high) }
    }
}
