//! What a round costs with the processes users run: nats-server, engines, a gateway, contractors and an initiator, on one
//! machine, each its own process.
//!
//! Processes spend most of a round on waking up and on system calls, which one process with everything in it does not
//! show. Where two builds are compared they take turns, so that what the machine does meanwhile meets both alike.

mod exchange;
#[cfg(feature = "wasm")]
pub mod isolation;
pub mod overload;
mod search;

use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};

use self::exchange::MeasuredExchange;
use self::search::limits;
use super::overhead::median;
use super::rounds::{BenchError, stuck};

/// Figure: calls per second that were meant to be made.
const OFFERED: &str = "offered_per_s";
/// Figure: rounds completed per second, the wait for the last end included.
const REACHED: &str = "rounds_per_s";
/// Figure: 95 % of decisions, in milliseconds.
const P95: &str = "decision_p95_ms";
/// Figure: 99 % of decisions, in milliseconds.
const P99: &str = "decision_p99_ms";
/// Figure: calls without an end.
const UNENDED: &str = "unended";
/// Groups of figures, which are named `<group>.<name>`.
const US_PER_ROUND: &str = "us_per_round";
const SWITCHES_PER_ROUND: &str = "switches_per_round";
const NATS_PER_ROUND: &str = "nats_per_round";

/// How agents reach the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, clap::ValueEnum)]
#[strum(serialize_all = "snake_case")]
pub enum AgentsVia {
    /// WebSocket
    Websocket,
    /// HTTP and server-sent events
    Http,
    /// NATS
    Nats,
}

/// A build of `llmx`, and how nats-server runs beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuredBuild {
    /// The executable.
    pub binary: PathBuf,
    /// Threads of nats-server that execute at once ([`nats_server::LocalServerOptions::threads`]); 0 leaves it to Go.
    pub nats_threads: u8,
}

impl MeasuredBuild {
    fn name(&self) -> String {
        let binary = self.binary.display();
        match self.nats_threads {
            0 => format!("{binary}, nats-server as Go has it"),
            threads => format!("{binary}, nats-server on {threads}"),
        }
    }
}

/// What is to be measured.
#[derive(Debug, Clone, Default)]
pub struct ProcessPlan {
    /// What is measured.
    pub build: MeasuredBuild,
    /// What is measured in turn with it.
    pub against: Option<MeasuredBuild>,
    /// Engines.
    pub engines: u8,
    /// Contractors.
    pub contractors: u32,
    /// Further agents, which are connected and never called.
    pub idle_agents: u32,
    /// The policy calls name.
    pub policy: String,
    /// How agents reach the exchange, one after another.
    pub via: Vec<AgentsVia>,
    /// Calls per second, one row each.
    pub rates: Vec<u32>,
    /// Whether the most it can do is looked for as well.
    pub searches: bool,
    /// Measurements of each rate; the median of each figure is shown.
    pub runs: usize,
    /// How long calls arrive in one measurement.
    pub calling: Duration,
    /// The same in one step of a search.
    pub searching: Duration,
    /// How long an idle exchange is left alone after it has started, and again while it is measured.
    pub idling: Duration,
}

/// One figure after another, each with its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProcessFigures(Vec<(String, f64)>);

impl Serialize for ProcessFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl ProcessFigures {
    /// Every figure, in the order of measurement.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The figure of this name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    /// The median of each figure over several measurements of one kind.
    fn medians(measured: &[Self]) -> Self {
        let first = measured.first().map(Self::iter).into_iter().flatten();
        Self(
            first
                .map(|(name, _)| {
                    let values: Vec<f64> = measured.iter().filter_map(|figures| figures.value(name)).collect();
                    (name.to_owned(), median(&values))
                })
                .collect(),
        )
    }

    /// Each figure divided by the one of the same name in `other`, where there is one that is not 0.
    fn divided_by(&self, other: &Self) -> Self {
        let ratio = |(name, value): (&str, f64)| {
            let divisor = other.value(name).filter(|divisor| *divisor > 0.0)?;
            Some((name.to_owned(), value / divisor))
        };
        Self(self.iter().filter_map(ratio).collect())
    }
}

/// What was measured in one situation.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessRow {
    /// How agents reached the exchange.
    pub via: &'static str,
    /// The situation: `idle`, `paced`, `capacity`, `most`, `overload`.
    pub situation: &'static str,
    /// Figures of [`ProcessPlan::build`].
    pub figures: ProcessFigures,
    /// Figures of [`ProcessPlan::against`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<ProcessFigures>,
    /// The former divided by the latter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<ProcessFigures>,
}

impl ProcessRow {
    fn new(via: AgentsVia, situation: &'static str, mut by_build: Vec<ProcessFigures>) -> Self {
        let against = (by_build.len() > 1).then(|| by_build.swap_remove(1));
        let figures = by_build.pop().unwrap_or_default();
        let ratio = against.as_ref().map(|against| figures.divided_by(against));
        Self { via: via.into(), situation, figures, against, ratio }
    }
}

/// Measures everything the plan asks for. `on_row` gets each row as it comes, `on_progress` what is done next.
///
/// # Errors
/// [`BenchError`]: the rows given before stand. No process is left behind in any case.
pub async fn run(
    plan: &ProcessPlan,
    mut on_row: impl FnMut(&ProcessRow),
    on_progress: impl Fn(&str),
) -> Result<Vec<ProcessRow>, BenchError> {
    if !super::usage::is_measurable() {
        return Err(stuck("processes are measured by Linux's /proc, which this system lacks"));
    }
    let builds: Vec<&MeasuredBuild> = iter::once(&plan.build).chain(&plan.against).collect();
    let mut rows = Vec::new();
    let mut add = |row: ProcessRow| {
        on_row(&row);
        rows.push(row);
    };
    let mut turn = 0_usize;
    for &via in &plan.via {
        let mut measured = Vec::new();
        for build in &builds {
            on_progress(&format!("{}, idle: {}", <&str>::from(via), build.name()));
            measured.push(MeasuredExchange::start(build, plan, via).await?.idle().await?);
        }
        add(ProcessRow::new(via, "idle", measured));
        for &rate in &plan.rates {
            let mut measured = vec![Vec::new(); builds.len()];
            for run in 0..plan.runs {
                // Who is first takes turns as well.
                for place in 0..builds.len() {
                    let build = (place + turn) % builds.len();
                    on_progress(&format!(
                        "{}, {rate} rounds/s, run {} of {}: {}",
                        <&str>::from(via),
                        run + 1,
                        plan.runs,
                        builds[build].name()
                    ));
                    let mut exchange = MeasuredExchange::start(builds[build], plan, via).await?;
                    measured[build].push(exchange.measure(f64::from(rate), plan.calling).await?);
                }
                turn += 1;
            }
            let figures = measured.iter().map(|measured| ProcessFigures::medians(measured)).collect();
            add(ProcessRow::new(via, "paced", figures));
        }
        if plan.searches {
            let mut found = Vec::new();
            for build in &builds {
                found.push(limits(build, plan, via, &on_progress).await?);
            }
            for (situation, of) in [("capacity", 0), ("most", 1), ("overload", 2)] {
                let figures = found.iter().map(|found: &[ProcessFigures; 3]| found[of].clone()).collect();
                add(ProcessRow::new(via, situation, figures));
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: &[(&str, f64)]) -> ProcessFigures {
        ProcessFigures(values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect())
    }

    #[test]
    fn a_row_of_two_builds_divides_what_both_have() {
        let (ours, other) = (figures(&[("a", 3.0), ("b", 1.0), ("c", 5.0)]), figures(&[("a", 6.0), ("b", 0.0)]));
        let row = ProcessRow::new(AgentsVia::Nats, "paced", vec![ours.clone(), other.clone()]);
        assert_eq!((row.figures, row.against), (ours, Some(other)));
        assert_eq!(row.ratio, Some(figures(&[("a", 0.5)])));
        assert_eq!(row.via, "nats");
    }

    #[test]
    fn a_row_of_one_build_has_no_ratio() {
        let row = ProcessRow::new(AgentsVia::Websocket, "most", vec![figures(&[("a", 3.0)])]);
        assert_eq!(
            serde_json::to_string(&row).unwrap(),
            r#"{"via":"websocket","situation":"most","figures":{"a":3.0}}"#
        );
    }

    #[test]
    fn runs_are_shown_by_the_median_of_each_figure() {
        let runs = [
            figures(&[("a", 3.0), ("b", 9.0)]),
            figures(&[("a", 1.0), ("b", 7.0)]),
            figures(&[("a", 100.0), ("b", 8.0)]),
        ];
        assert_eq!(ProcessFigures::medians(&runs), figures(&[("a", 3.0), ("b", 8.0)]));
    }
}
