//! `llmx metrics`: every metric of every process, as they register them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ::agents::metrics::AgentMetrics;
use ::gateway::GatewayMetrics;
use bus::memory::{self, MemoryOptions};
use bus::nats::NatsStatus;
use policy_engine::EngineMetrics;
use prometheus::Registry;
use prometheus::proto::{MetricFamily, MetricType};
use schemas::Lane;
use schemas::protocols::Protocol;
use serde::Serialize;
use traffic_gen::invariants::Watch;
use traffic_gen::metrics::{Run, TrafficMetrics};

use crate::ops;
use crate::output::{Failure, Outcome, print, print_json};

/// More values than these are not listed: whoever needs them finds them in a scrape.
const VALUES_MAX: usize = 24;
/// Labels whose values are not from a list: of the build, of the configuration, of the run, cells, numbers of lanes.
const OPEN_LABELS: [&str; 9] =
    ["version", "git_sha", "rustc", "digest", "revision", "lane", "seed", "scenario", "cell"];

/// Arguments of `llmx metrics`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx metrics --process gateway\n  llmx metrics --json\n\n\
    What a running process has measured is on its /metrics.")]
pub struct MetricsArgs {
    /// Only those of one process
    #[arg(long, value_enum)]
    process: Option<Process>,
    /// Print them as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print them as the table of docs/metrics.md
    #[arg(long)]
    markdown: bool,
}

schemas::words! {
    /// What serves metrics.
    #[derive(clap::ValueEnum)]
    pub enum Process {
        /// `llmx gateway`
        Gateway,
        /// `llmx engine`
        Engine,
        /// `llmx contractors`
        #[value(alias = "agents")]
        Contractors,
        /// `llmx traffic`
        Traffic,
        /// `llmx bridge`
        Bridge,
        /// `llmx-lab experiment`
        Experiment,
    }
}

impl Process {
    /// Everything this process registers.
    fn registry(self) -> Result<Registry, Failure> {
        let registry = ops::registry()?;
        match self {
            Self::Gateway => {
                of_the_exchange(&registry)?;
                GatewayMetrics::new(&registry)?;
            }
            Self::Engine => {
                of_the_exchange(&registry)?;
                Arc::new(EngineMetrics::new(&registry)?).show_lane(Lane(0));
            }
            Self::Contractors => {
                of_agents(&registry)?;
                ::agents::routine::metrics::RoutineMetrics::try_new(&registry)?;
                ::agents::model::metrics::ModelMetrics::try_new(&registry)?;
            }
            Self::Traffic => {
                of_agents(&registry)?;
                let run = Run { scenario: Protocol::ContractNet, seed: 1, git_sha: "unknown" };
                TrafficMetrics::try_new(&registry, &run)?;
            }
            Self::Bridge => {
                bridges::BridgeMetrics::try_new(&registry)?;
            }
            Self::Experiment => {
                traffic_gen::metrics::running::RunningCell::try_new(&registry)?;
            }
        }
        Ok(registry)
    }
}

/// What gateways and engines have in common: a configuration, and a bus.
fn of_the_exchange(registry: &Registry) -> Result<(), Failure> {
    telemetry::metrics::process::register_config(registry, &"")?;
    ops::bus::register_nats(registry, Arc::new(NatsStatus::default()))?;
    ops::bus::counted(memory::open(MemoryOptions::default()), registry)?;
    Ok(())
}

/// What every process with agents has.
fn of_agents(registry: &Registry) -> Result<(), Failure> {
    AgentMetrics::try_new(registry)?;
    Watch::try_new(registry)?;
    Ok(())
}

/// One metric.
#[derive(Debug, Serialize)]
struct Metric {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    help: String,
    /// Its labels, with their values where those are a list.
    labels: BTreeMap<String, BTreeSet<String>>,
    processes: BTreeSet<Process>,
}

/// Prints them.
pub fn run(args: &MetricsArgs) -> Outcome {
    let processes = args.process.map_or_else(|| Process::ALL.to_vec(), |process| vec![process]);
    let metrics = catalogue(&processes)?;
    if args.json {
        return print_json(&serde_json::json!({ "metrics": metrics.values().collect::<Vec<_>>() }));
    }
    if args.markdown {
        print("| Metric | Type | Labels | Of | What it is |\n|---|---|---|---|---|");
        metrics.values().for_each(|metric| print(Row(metric)));
    } else {
        metrics.values().for_each(print);
    }
    Ok(())
}

fn catalogue(processes: &[Process]) -> Result<BTreeMap<String, Metric>, Failure> {
    let mut metrics = BTreeMap::new();
    for process in processes {
        for family in process.registry()?.gather() {
            let name = family.name().to_owned();
            let metric = metrics.entry(name).or_insert_with(|| Metric::of(&family));
            metric.add_labels(&family);
            metric.processes.insert(*process);
        }
    }
    Ok(metrics)
}

impl Metric {
    fn of(family: &MetricFamily) -> Self {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            MetricType::SUMMARY => "summary",
            MetricType::UNTYPED => "untyped",
        };
        let (name, help) = (family.name().to_owned(), family.help().to_owned());
        Self { name, kind, help, labels: BTreeMap::new(), processes: BTreeSet::new() }
    }

    fn add_labels(&mut self, family: &MetricFamily) {
        for label in family.get_metric().iter().flat_map(|metric| metric.get_label()) {
            let values = self.labels.entry(label.name().to_owned()).or_default();
            if !OPEN_LABELS.contains(&label.name()) {
                values.insert(label.value().to_owned());
            }
        }
    }

    fn labels(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|(name, values)| label(name, values)).collect();
        labels.join("; ")
    }

    fn processes(&self) -> String {
        let names: Vec<&str> = self.processes.iter().map(|process| process.as_str()).collect();
        if names.len() == Process::ALL.len() { "all".to_owned() } else { names.join(", ") }
    }
}

fn label(name: &str, values: &BTreeSet<String>) -> String {
    let listed: Vec<&str> = values.iter().map(String::as_str).collect();
    match listed.len() {
        0 => name.to_owned(),
        count if count > VALUES_MAX => format!("{name}: {count} values"),
        _ => format!("{name}: {}", listed.join(" ")),
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})\n    {}", self.name, self.kind, self.processes(), self.help)?;
        if self.labels.is_empty() { Ok(()) } else { write!(f, "\n    {}", self.labels()) }
    }
}

/// A line of the table.
struct Row<'a>(&'a Metric);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Metric { name, kind, help, .. } = self.0;
        let [labels, help] = [self.0.labels(), help.clone()].map(|text| text.replace('|', "\\|"));
        write!(f, "| `{name}` | {kind} | {labels} | {} | {help} |", self.0.processes())
    }
}
