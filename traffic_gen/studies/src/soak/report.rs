//! What a soak shows: `soak.json`, `report.md` and `report.html`, computed from its lines alone and replaced as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::SoakPlan;
use super::drift::{Drift, Quantity, SeriesVerdict, judge, stretches};
use super::html;
use super::sample::{SAMPLES, SoakFolderError, SoakLine, begins, read};
use crate::figures::draw::decimal;
use crate::record::{add_counts, counts_told};
use crate::report::markdown::table;
use crate::run::FileError;
use crate::run::files::{pretty, replace_all};

/// The report as a document.
pub const DOCUMENT: &str = "soak.json";
/// The report for a pull request.
pub const MARKDOWN: &str = "report.md";
/// The report with its charts.
pub const PAGE: &str = "report.html";
/// Version of [`SoakReport`]'s form.
const FORMAT: u32 = 1;
/// Violations described in words.
const EXAMPLES_MAX: usize = 20;

/// What a soak shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoakReport {
    /// Version of this form.
    pub format: u32,
    /// What is soaked, as its last part was asked.
    pub plan: SoakPlan,
    /// The verdict over all.
    pub verdict: SoakVerdict,
    /// Whether all of its time was measured.
    pub is_complete: bool,
    /// Seconds measured, all parts together.
    pub measured_s: f64,
    /// Samples.
    pub samples: u64,
    /// Its parts, in order.
    pub parts: Vec<SoakPart>,
    /// Violations of invariants, by name.
    pub violations: BTreeMap<String, u64>,
    /// The first few of those found at the end of parts, in words.
    pub examples: Vec<String>,
    /// Faults injected, by name.
    pub faults: BTreeMap<String, u64>,
    /// Every series with its verdict.
    pub series: Vec<SeriesVerdict>,
}

/// The verdict over all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SoakVerdict {
    /// An invariant was violated.
    Violated,
    /// A series drifts.
    Drifting,
    /// Nothing is known of any series yet.
    TooFew,
    /// None drifts.
    Steady,
}

/// A stretch between a start and an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SoakPart {
    /// Number, from 1.
    pub part: u32,
    /// When it began.
    pub began: Timestamp,
    /// Seconds since the part before it was last measured; 0 for the first.
    pub gap_s: f64,
    /// Seconds measured.
    pub measured_s: f64,
    /// Samples.
    pub samples: u64,
    /// How it ended: `done`, `interrupted`, what went wrong; `running` or killed where nothing says so.
    pub ended: String,
}

impl SoakReport {
    /// The report over the lines of a soak; none before its first part.
    pub fn of(lines: &[SoakLine]) -> Option<Self> {
        let plan = begins(lines).last()?.plan.clone();
        let parts = parts(lines);
        let measured_s = parts.iter().fold(0.0, |sum, part| sum + part.measured_s);
        let samples = parts.iter().map(|part| part.samples).sum();
        let series = judge(&stretches(lines));
        let (mut violations, mut faults) = (BTreeMap::new(), BTreeMap::new());
        let mut examples = Vec::new();
        for line in lines {
            match line {
                SoakLine::Begin(_) => {}
                SoakLine::Sample(sample) => {
                    add_counts(&mut violations, &sample.violations);
                    add_counts(&mut faults, &sample.faults);
                }
                SoakLine::End(end) => {
                    add_counts(&mut violations, &end.violations);
                    examples.extend(end.examples.iter().take(EXAMPLES_MAX.saturating_sub(examples.len())).cloned());
                }
            }
        }
        let is_complete = measured_s >= plan.duration_s - plan.sample_s;
        let verdict = verdict(&violations, &series);
        Some(Self {
            format: FORMAT,
            plan,
            verdict,
            is_complete,
            measured_s,
            samples,
            parts,
            violations,
            examples,
            faults,
            series,
        })
    }

    /// The series that drift.
    pub fn drifting(&self) -> impl Iterator<Item = &SeriesVerdict> {
        self.series.iter().filter(|series| series.drift == Drift::Drifting)
    }

    /// The verdict in a sentence.
    pub fn sentence(&self) -> String {
        let drifting: Vec<&str> = self.drifting().map(|series| series.series.as_str()).collect();
        let violated: u64 = self.violations.values().sum();
        let judged = self.series.iter().filter(|series| series.drift != Drift::TooFew).count();
        match self.verdict {
            SoakVerdict::Violated if drifting.is_empty() => format!("violated: {violated} violations of invariants"),
            SoakVerdict::Violated => {
                format!("violated: {violated} violations of invariants; drifting: {}", drifting.join(", "))
            }
            SoakVerdict::Drifting => format!("drifting: {}", drifting.join(", ")),
            SoakVerdict::TooFew => "too few samples behind the warm-up to judge a series".to_owned(),
            SoakVerdict::Steady => format!("steady: no drift shown in {judged} series"),
        }
    }

    /// Each part, then violations and faults, in a line.
    pub fn facts(&self) -> impl Iterator<Item = String> {
        let part = |part: &SoakPart| {
            let gap = if part.gap_s > 0.0 { format!(", after a gap of {}", length(part.gap_s)) } else { String::new() };
            let (began, measured) = (part.began.strftime("%Y-%m-%d %H:%M:%S UTC"), length(part.measured_s));
            format!("Part {}: {began}{gap}: {measured}, {} samples, {}", part.part, part.samples, part.ended)
        };
        let counts = [("Violations", &self.violations), ("Faults", &self.faults)].map(|(name, counts)| {
            format!("{name}: {}", if counts.is_empty() { "none".to_owned() } else { counts_told(counts) })
        });
        self.parts.iter().map(part).chain(counts)
    }

    /// What was soaked, in a line.
    pub fn heading(&self) -> String {
        let SoakPlan { place, agents, policy, rate, faults, seed, .. } = &self.plan;
        let (place, faults): (&str, &str) = (place.into(), faults.into());
        format!(
            "{place}, {agents} contractors, policy {policy}, {rate} calls/s, faults {faults}, seed {seed}: {} of {} measured",
            length(self.measured_s),
            length(self.plan.duration_s)
        )
    }
}

fn verdict(violations: &BTreeMap<String, u64>, series: &[SeriesVerdict]) -> SoakVerdict {
    let is_any = |drift| series.iter().any(|series| series.drift == drift);
    if violations.values().any(|&count| count > 0) {
        SoakVerdict::Violated
    } else if is_any(Drift::Drifting) {
        SoakVerdict::Drifting
    } else if is_any(Drift::Steady) {
        SoakVerdict::Steady
    } else {
        SoakVerdict::TooFew
    }
}

/// The parts, each up to its last line.
pub fn parts(lines: &[SoakLine]) -> Vec<SoakPart> {
    let mut parts: Vec<SoakPart> = Vec::new();
    let mut last: Option<Timestamp> = None;
    for line in lines {
        match line {
            SoakLine::Begin(begin) => {
                let gap_s = last.map_or(0.0, |last| begin.at.duration_since(last).as_secs_f64());
                parts.push(SoakPart {
                    part: begin.part,
                    began: begin.at,
                    gap_s,
                    measured_s: 0.0,
                    samples: 0,
                    ended: "running, or killed".to_owned(),
                });
                last = Some(begin.at);
            }
            SoakLine::Sample(sample) => {
                last = Some(sample.at);
                if let Some(part) = parts.last_mut() {
                    part.samples += 1;
                    part.measured_s = sample.elapsed_s;
                }
            }
            SoakLine::End(end) => {
                last = Some(end.at);
                if let Some(part) = parts.last_mut() {
                    (part.measured_s, part.ended) = (end.elapsed_s, end.reason.clone());
                }
            }
        }
    }
    parts
}

/// Seconds as a person says them.
pub fn length(seconds: f64) -> String {
    let seconds = seconds.round().max(0.0) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A value with its unit, as a person reads it.
pub fn amount(value: f64, quantity: Quantity) -> String {
    let (value, unit) = match quantity.unit() {
        "bytes" if value.abs() >= 1024.0 * 1024.0 => (value / (1024.0 * 1024.0), " MiB"),
        "bytes" if value.abs() >= 1024.0 => (value / 1024.0, " KiB"),
        "bytes" => (value, " bytes"),
        "ms" => (value, " ms"),
        "1/s" => (value, "/s"),
        "cores" => (value, " cores"),
        _ => (value, ""),
    };
    let decimals = if value == 0.0 { 0.0 } else { (2.0 - value.abs().log10().floor()).clamp(0.0, 4.0) };
    format!("{}{unit}", decimal(value, decimals))
}

/// The columns of [`row`].
pub const OF_SERIES: [&str; 5] = ["series", "verdict", "median", "slope per hour (95 % interval)", "p, corrected"];

/// The verdict on a series in the words of a table.
pub fn row(verdict: &SeriesVerdict) -> [String; 5] {
    let say = |value: Option<f64>| value.map_or_else(String::new, |value| amount(value, verdict.quantity));
    let drift: &str = match verdict.drift {
        Drift::Drifting => "DRIFTING",
        Drift::Steady => "steady",
        Drift::TooFew => "too few samples",
    };
    let slope = match (verdict.slope_lower, verdict.slope_upper) {
        (Some(_), Some(_)) => {
            format!("{} ({} to {})", say(verdict.slope_per_hour), say(verdict.slope_lower), say(verdict.slope_upper))
        }
        (_, _) => String::new(),
    };
    let p = verdict
        .p_adjusted
        .map_or_else(String::new, |p| if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") });
    [verdict.title(), drift.to_owned(), say(verdict.median), slope, p]
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        for verdict in &self.series {
            let [title, drift, median, slope, p] = row(verdict);
            let slope = if slope.is_empty() { slope } else { format!("{slope} an hour, p {p}") };
            writeln!(f, "  {title:<52} {drift:<16} {median:>12}   {slope}")?;
        }
        for part in &self.parts {
            if part.gap_s > 0.0 {
                writeln!(f, "  gap of {} before part {}", length(part.gap_s), part.part)?;
            }
        }
        for example in &self.examples {
            writeln!(f, "  {example}")?;
        }
        write!(f, "  {}", self.sentence())
    }
}

/// The report for a pull request.
pub fn markdown(report: &SoakReport) -> String {
    let mut text = format!("# Soak: {}\n\n{}\n\n", report.sentence(), report.heading());
    report.facts().for_each(|fact| text += &format!("* {fact}\n"));
    text + &table(&OF_SERIES, report.series.iter().map(row))
}

/// Computes the report over the lines of a folder and puts its three files there, each in the place of the one before; none
/// before the first part.
///
/// # Errors
/// [`SoakFolderError`]; the files that stood there stay.
pub fn write(folder: &Path) -> Result<Option<SoakReport>, SoakFolderError> {
    let (lines, _) = read(&folder.join(SAMPLES))?;
    let Some(report) = SoakReport::of(&lines) else { return Ok(None) };
    let path = folder.join(DOCUMENT);
    let fault = |FileError { path, source }| SoakFolderError::File { path, source };
    let document = pretty(&path, &report).map_err(fault)?;
    let (markdown, page) = (markdown(&report), html::page(&report, &lines));
    let files = [(path, document), (folder.join(MARKDOWN), markdown), (folder.join(PAGE), page)];
    replace_all(&files).map_err(fault)?;
    Ok(Some(report))
}
