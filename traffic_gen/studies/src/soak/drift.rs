//! Which series are judged, what would be too much, and whether it was.
//!
//! A series drifts where three things hold together: the trend is none of chance (Holm's correction over all series of the
//! run, 5 %), the end of the slope's interval that is nearer to 0 would still be too much over 30 days, and what it has
//! come to within the run stands out from what a series does in any case.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::sample::{Begin, SampleLine, SoakLine};
use super::trend::{Point, Trend, holm};

/// Probability of any false finding in a run.
const FAMILY_ERROR: f64 = 0.05;
/// Points below which nothing can be said of a series.
pub const POINTS_MIN: usize = 20;
/// Points below which a stretch without a break is left out.
const STRETCH_MIN: usize = 8;
/// Hours of the 30 days over which a slope is to be bearable.
const MONTH_HOURS: f64 = 720.0;
const MIB: f64 = 1024.0 * 1024.0;

/// What is measured; the last part of a series' name.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Quantity {
    /// Median from the intended time of a call to the decision, in milliseconds.
    DecisionP50,
    /// The same, 95 %.
    DecisionP95,
    /// The same, 99 %.
    DecisionP99,
    /// Rounds ended per second.
    Rounds,
    /// Resident memory.
    Memory,
    /// Open file descriptors.
    Handles,
    /// Threads of the system.
    Threads,
    /// Processor time per second.
    Cpu,
    /// Tasks of the runtime that have not ended.
    Tasks,
    /// Open negotiations.
    Open,
    /// Deliveries that are not acknowledged.
    Outbox,
    /// Deliveries given up in the interval.
    DeadLetters,
    /// Records between the oldest in the log and the last one.
    LogSpan,
    /// Records behind the archive.
    Unarchived,
    /// Records behind the checkpoint.
    Unchecked,
    /// Messages in a stream, or entries of the register.
    Entries,
    /// Bytes of a stream, or of the register.
    Stored,
}

/// What of a slope would be too much.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// Factor that makes the rise one for the worse: -1 where less is worse.
    worse: f64,
    /// Over 30 days, in units of the series.
    per_month: f64,
    /// Within the run, as a share of the median.
    share: f64,
    /// Within the run, in units of the series; the larger of the two counts.
    least: f64,
}

const RISING_LOG: Bound = rising(5_000_000.0, 0.25, 1_000.0);

const fn rising(per_month: f64, share: f64, least: f64) -> Bound {
    Bound { worse: 1.0, per_month, share, least }
}

impl Quantity {
    /// What it is, in words.
    pub const fn title(self) -> &'static str {
        self.known().0
    }

    /// The unit of its values.
    pub const fn unit(self) -> &'static str {
        self.known().1
    }

    /// What it is in words, the unit of its values, and what would be too much. Over 30 days: memory and streams what the
    /// limits of docker-compose.yml leave; handles what the usual limit of 1,024 leaves; a latency that grows by 1 ms. Within
    /// a run: more than samples differ in any case.
    const fn known(self) -> (&'static str, &'static str, Bound) {
        match self {
            Self::DecisionP50 => ("call to decision, median", "ms", rising(1.0, 0.03, 0.05)),
            Self::DecisionP95 => ("call to decision, 95 %", "ms", rising(1.0, 0.08, 0.2)),
            Self::DecisionP99 => ("call to decision, 99 %", "ms", rising(1.0, 0.10, 0.5)),
            Self::Rounds => ("rounds ended", "1/s", Bound { worse: -1.0, per_month: 0.01, share: 0.05, least: 0.01 }),
            Self::Memory => ("resident memory", "bytes", rising(1024.0 * MIB, 0.01, MIB)),
            Self::Handles => ("open file descriptors", "count", rising(500.0, 0.02, 3.0)),
            Self::Threads => ("threads", "count", rising(100.0, 0.02, 2.0)),
            Self::Cpu => ("processor time", "cores", rising(0.25, 0.10, 0.02)),
            Self::Tasks => ("tasks", "count", rising(1_000.0, 0.05, 5.0)),
            Self::Open => ("open negotiations", "count", rising(100.0, 0.25, 5.0)),
            Self::Outbox => ("deliveries not acknowledged", "count", rising(1_000.0, 0.25, 20.0)),
            Self::DeadLetters => ("deliveries given up", "count", rising(1_000.0, 0.25, 5.0)),
            Self::LogSpan => ("records kept in the log", "count", RISING_LOG),
            Self::Unarchived => ("records behind the archive", "count", RISING_LOG),
            Self::Unchecked => ("records behind the checkpoint", "count", RISING_LOG),
            Self::Entries => ("entries", "count", rising(5_000_000.0, 0.05, 100.0)),
            Self::Stored => ("stored bytes", "bytes", rising(1024.0 * MIB, 0.05, 256.0 * 1024.0)),
        }
    }
}

/// What can be said of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// No drift was shown.
    Steady,
    /// It drifts.
    Drifting,
    /// Too few samples behind the warm-up.
    TooFew,
}

/// A series and what is said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesVerdict {
    /// Its name in samples: `<of>/<quantity>`.
    pub series: String,
    /// Whose it is.
    pub of: String,
    /// What is measured.
    pub quantity: Quantity,
    /// The unit of its values.
    pub unit: String,
    /// The verdict.
    pub drift: Drift,
    /// Samples behind the warm-up.
    pub points: usize,
    /// The last value.
    pub last: f64,
    /// Median behind the warm-up.
    pub median: Option<f64>,
    /// Sen's slope, in units per hour.
    pub slope_per_hour: Option<f64>,
    /// Lower end of its 95 % interval.
    pub slope_lower: Option<f64>,
    /// Upper end.
    pub slope_upper: Option<f64>,
    /// Probability of such a trend by chance.
    pub p: Option<f64>,
    /// The same, corrected for the number of series.
    pub p_adjusted: Option<f64>,
    /// What autocorrelation multiplied the variance by.
    pub inflation: Option<f64>,
    /// What a slope may come to over 30 days, in units.
    pub bound_per_month: f64,
}

/// The series of a run: points of each stretch without a break, warm-up cut off, by name.
pub type Stretches = BTreeMap<String, Vec<Vec<Point>>>;

/// Takes the series out of the lines of a run.
///
/// A stretch ends where the run was interrupted, and where the process it is about began anew, unless processes are killed
/// on purpose: then their lives are too short for a trend of their own.
pub fn stretches(lines: &[SoakLine]) -> Stretches {
    let mut found: BTreeMap<String, BTreeMap<(u32, u64), Vec<Point>>> = BTreeMap::new();
    let mut begin: Option<&Begin> = None;
    let mut since = BTreeMap::<(u32, String, u64), f64>::new();
    for line in lines {
        let sample = match line {
            SoakLine::Begin(begun) => {
                begin = Some(begun);
                continue;
            }
            SoakLine::Sample(sample) => sample,
            SoakLine::End(_) => continue,
        };
        let Some(begin) = begin else { continue };
        for (series, &value) in &sample.values {
            let of = series.split_once('/').map_or(series.as_str(), |(of, _)| of);
            let life = if begin.plan.are_processes_killed() { 0 } else { sample.life(of) };
            // What every series of a life is counted from: its first sample, or the start of the part.
            let key = (begin.part, of.to_owned(), life);
            let born = *since.entry(key).or_insert_with(|| first_seen(begin, sample, life));
            if sample.elapsed_s - born >= begin.warm_up_s && value.is_finite() {
                let hours = (begin.offset_s + sample.elapsed_s) / 3600.0;
                found
                    .entry(series.clone())
                    .or_default()
                    .entry((begin.part, life))
                    .or_default()
                    .push(Point { hours, value });
            }
        }
    }
    found.into_iter().map(|(series, lives)| (series, lives.into_values().collect())).collect()
}

fn first_seen(begin: &Begin, sample: &SampleLine, life: u64) -> f64 {
    // The first sample of a part stands one interval behind its start.
    let is_first = sample.elapsed_s <= 2.0 * begin.plan.sample_s;
    if life == 0 || is_first { 0.0 } else { sample.elapsed_s }
}

/// The verdict on every series.
pub fn judge(stretches: &Stretches) -> Vec<SeriesVerdict> {
    let mut verdicts: Vec<(SeriesVerdict, Option<(Trend, f64)>)> = Vec::new();
    for (series, groups) in stretches {
        let Some((of, quantity)) = series.rsplit_once('/') else { continue };
        let Ok(quantity) = quantity.parse::<Quantity>() else { continue };
        let long: Vec<Vec<Point>> = groups.iter().filter(|group| group.len() >= STRETCH_MIN).cloned().collect();
        let points: usize = long.iter().map(Vec::len).sum();
        let last = groups.iter().flatten().max_by(|one, other| one.hours.total_cmp(&other.hours));
        let verdict = SeriesVerdict {
            series: series.clone(),
            of: of.to_owned(),
            quantity,
            unit: quantity.unit().to_owned(),
            drift: Drift::TooFew,
            points,
            last: last.map_or(0.0, |point| point.value),
            median: None,
            slope_per_hour: None,
            slope_lower: None,
            slope_upper: None,
            p: None,
            p_adjusted: None,
            inflation: None,
            bound_per_month: quantity.known().2.per_month,
        };
        let trend = (points >= POINTS_MIN).then(|| Trend::of(&long)).flatten();
        verdicts.push((verdict, trend.map(|trend| (trend, span_hours(&long)))));
    }
    let probabilities: Vec<f64> = verdicts.iter().filter_map(|(_, trend)| trend.map(|(trend, _)| trend.p)).collect();
    let mut adjusted = holm(&probabilities).into_iter();
    let mut judged = Vec::new();
    for (mut verdict, trend) in verdicts {
        if let (Some((trend, span)), Some(p)) = (trend, trend.and_then(|_| adjusted.next())) {
            verdict.conclude(&trend, span, p);
        }
        judged.push(verdict);
    }
    judged
}

/// Hours of all stretches together.
fn span_hours(groups: &[Vec<Point>]) -> f64 {
    groups.iter().filter_map(|group| Some(group.last()?.hours - group.first()?.hours)).sum()
}

impl SeriesVerdict {
    fn conclude(&mut self, trend: &Trend, span: f64, p_adjusted: f64) {
        let bound = self.quantity.known().2;
        let ends = [trend.lower * bound.worse, trend.upper * bound.worse];
        let surely = ends[0].min(ends[1]);
        let come_to = trend.slope * bound.worse * span;
        let is_drift = p_adjusted < FAMILY_ERROR
            && surely * MONTH_HOURS > bound.per_month
            && come_to > bound.least.max(bound.share * trend.median.abs());
        self.drift = if is_drift { Drift::Drifting } else { Drift::Steady };
        self.median = Some(trend.median);
        self.slope_per_hour = Some(trend.slope);
        self.slope_lower = Some(trend.lower);
        self.slope_upper = Some(trend.upper);
        self.p = Some(trend.p);
        self.p_adjusted = Some(p_adjusted);
        self.inflation = Some(trend.inflation);
    }

    /// What the series is called in reports.
    pub fn title(&self) -> String {
        format!("{}: {}", self.of, self.quantity.title())
    }
}
