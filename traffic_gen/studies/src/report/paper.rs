//! The paper's runs beside those of an experiment.
//!
//! "LLM-X: A Scalable Negotiation-Oriented Exchange for Communication Among Personal LLM Agents", arXiv 2605.11376v1: the
//! two-minute runs are its tables 1 to 3, the long ones its tables 4 and 5. Where it prints a range over repetitions, both
//! ends are here, and the upper one is the bar.

use std::fmt;

use serde::Serialize;

use crate::figures::group::Group;

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
    mean_ms: Printed,
    p95_ms: Printed,
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
    /// The paper's mean, in milliseconds.
    pub paper_mean: Printed,
    /// The mean, in milliseconds.
    pub mean_ms: Option<f64>,
    /// The paper's 95th percentile, in milliseconds.
    pub paper_p95: Printed,
    /// The 95th percentile, in milliseconds.
    pub p95_ms: Option<f64>,
    /// How many times shorter the 95th percentile is than the paper's upper end.
    pub factor: Option<f64>,
    /// Offers in parts of calls times contractors.
    pub completion: Option<f64>,
    /// Whether the 95th percentile is at most the paper's.
    pub is_met: bool,
}

const fn run(policy: &'static str, minutes: f64, contractors: u32, mean: (f64, f64), p95: (f64, f64)) -> PaperRun {
    PaperRun {
        policy,
        minutes,
        contractors,
        mean_ms: Printed { low: mean.0, high: mean.1 },
        p95_ms: Printed { low: p95.0, high: p95.1 },
    }
}

const RUNS: [PaperRun; 12] = [
    run("low", 2.0, 5, (1.0, 3.0), (2.0, 3.0)),
    run("low", 2.0, 9, (4.0, 5.0), (7.0, 9.0)),
    run("low", 2.0, 12, (5.0, 7.0), (8.0, 11.0)),
    run("medium", 2.0, 5, (3.0, 4.0), (6.0, 7.0)),
    run("medium", 2.0, 9, (5.0, 5.0), (8.0, 9.0)),
    run("medium", 2.0, 12, (4.0, 6.0), (7.0, 8.0)),
    run("high", 2.0, 5, (4.1, 4.1), (5.4, 5.4)),
    run("high", 2.0, 9, (6.2, 6.2), (7.3, 7.3)),
    run("high", 2.0, 12, (7.3, 7.3), (8.3, 8.3)),
    run("medium", 120.0, 12, (8.35, 8.35), (12.0, 12.0)),
    run("high", 120.0, 12, (6.0, 6.0), (10.0, 10.0)),
    run("high", 720.0, 12, (6.18, 6.18), (11.0, 11.0)),
];

/// Longest mean delay of contractors that answer at once, in microseconds.
const DELAY_MAX_US: f64 = 100.0;

/// Every group that repeats a run of the paper, beside it.
#[must_use]
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
            && cell.protocol != "alternating"
            && cell.populations.is_empty()
            && (cell.duration_s / 60.0 - self.minutes).abs() < 0.01
            // The paper's contractors answer at once.
            && group.whole(|seeds| seeds.mean("delay")).is_none_or(|delay| delay <= DELAY_MAX_US)
    }

    fn beside(&self, group: &Group) -> PaperComparison {
        let measure = if group.cell().policy.starts_with("paper41-low") { "offer" } else { "decision" };
        let (mean_ms, p95_ms, completion) = group.whole(|seeds| {
            let (offers, invited) = (seeds.sum("offers").0, seeds.sum("invited").0);
            let completion = (invited > 0.0).then(|| offers / invited);
            (seeds.mean(measure).map(|us| us / 1e3), seeds.quantile(measure, 0.95).map(|us| us / 1e3), completion)
        });
        let factor = p95_ms.filter(|ours| *ours > 0.0).map(|ours| self.p95_ms.high / ours);
        let length =
            if self.minutes < 60.0 { format!("{} min", self.minutes) } else { format!("{} h", self.minutes / 60.0) };
        PaperComparison {
            run: format!("{} {length}, {} contractors", self.policy, self.contractors),
            group: group.name.clone(),
            measure,
            paper_mean: self.mean_ms,
            mean_ms,
            paper_p95: self.p95_ms,
            p95_ms,
            factor,
            completion,
            is_met: factor.is_some_and(|factor| factor >= 1.0),
        }
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high { write!(f, "{}", self.high) } else { write!(f, "{} to {}", self.low, self.high) }
    }
}
