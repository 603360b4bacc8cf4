//! `llmx-lab bench --processes`: what a round costs with the processes users run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::processes::{self, AgentsVia, MeasuredBuild, ProcessFigures, ProcessPlan, ProcessRow};
use bench::usage;

use crate::output::{Failure, Outcome, note, print, print_json, table};

/// How long calls arrive in one measurement, in seconds, and the same with `--quick`.
const SECONDS: [u64; 2] = [15, 4];
/// The same in one step of the search for the most.
const SEARCH_SECONDS: [u64; 2] = [8, 3];
/// How long the exchange is left alone before.
const IDLE_SECONDS: [u64; 2] = [4, 1];

/// Arguments that only count with `--processes`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --processes")]
pub struct ProcessesArgs {
    /// Start nats-server, engines, a gateway, contractors and an initiator as processes, and show what a round costs each
    #[arg(long, conflicts_with = "only")]
    processes: bool,
    /// How agents reach the exchange, one after another (default: websocket,nats)
    #[arg(long, value_enum, value_delimiter = ',', requires = "processes")]
    transport: Vec<AgentsVia>,
    /// Calls per second, one row each (default: 400,200,50)
    #[arg(long, value_delimiter = ',', requires = "processes", value_name = "RATES", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: Vec<u32>,
    /// Do not look for the most it can do: the highest rate with decisions' p95 at 20 ms or less, the most rounds per second,
    /// and what is done of half as much again
    #[arg(long, requires = "processes")]
    paced_only: bool,
    /// Ask for nothing: what idle processes use, and what an agent that is connected costs the gateway
    #[arg(long, requires = "processes", conflicts_with_all = ["rate", "paced_only"])]
    idle_only: bool,
    /// How long calls arrive for each row, in seconds (default: 15, with --quick 4)
    #[arg(long, requires = "processes", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Measurements for each row; it shows the median of each figure
    #[arg(long, requires = "processes", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,
    /// Engines; 0: the gateway is `llmx serve`, which is one
    #[arg(long, requires = "processes", default_value_t = 1, value_parser = clap::value_parser!(u8).range(..=16))]
    engines: u8,
    /// Contractors
    #[arg(long, requires = "processes", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    agents: u32,
    /// Further agents, in a process of their own: connected, and never called
    #[arg(long, requires = "processes", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    idle_agents: u32,
    /// Policy that calls name
    #[arg(long, requires = "processes", default_value = "high", value_name = "NAME")]
    policy: String,
    /// Build of llmx that is measured (default: the one beside this program)
    #[arg(long, requires = "processes", value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Another build, measured in turn with it; each figure is then shown of both, with the ratio
    #[arg(long, requires = "processes", value_name = "PATH")]
    against: Option<PathBuf>,
    /// Threads of nats-server that execute at once, with GODEBUG as docker-compose.yml sets both; 0 leaves both to Go
    #[arg(long, requires = "processes", value_name = "N", default_value = "1")]
    nats_threads: u8,
    /// The same beside the other build (default: as --nats-threads)
    #[arg(long, requires = "against", value_name = "N")]
    against_nats_threads: Option<u8>,
}

impl ProcessesArgs {
    /// Whether processes are to be measured.
    pub fn is_asked(&self) -> bool {
        self.processes
    }

    /// What is measured, with so many engines.
    pub(super) fn build(&self) -> Result<(MeasuredBuild, u8), Failure> {
        let binary = match &self.binary {
            Some(named) => executable("--binary", named)?,
            None => crate::exchange_program()?,
        };
        Ok((MeasuredBuild { binary, nats_threads: self.nats_threads }, self.engines))
    }

    /// How long calls are made, where that is said.
    pub(super) fn seconds(&self) -> Option<u64> {
        self.seconds
    }

    fn plan(self, quick: bool) -> Result<ProcessPlan, Failure> {
        let of = |both: [u64; 2]| Duration::from_secs(both[usize::from(quick)]);
        let or = |given: Vec<u32>, default: &[u32]| if given.is_empty() { default.to_vec() } else { given };
        let (build, _) = self.build()?;
        let via = if self.transport.is_empty() { vec![AgentsVia::Websocket, AgentsVia::Nats] } else { self.transport };
        let nats_threads = self.against_nats_threads.unwrap_or(self.nats_threads);
        let beside = |binary| MeasuredBuild { binary, nats_threads };
        Ok(ProcessPlan {
            build,
            against: self.against.map(|named| executable("--against", &named)).transpose()?.map(beside),
            engines: self.engines,
            contractors: self.agents,
            idle_agents: self.idle_agents,
            policy: self.policy,
            via,
            rates: if self.idle_only { Vec::new() } else { or(self.rate, &[400, 200, 50]) },
            searches: !(self.paced_only || self.idle_only),
            runs: self.runs.into(),
            calling: self.seconds.map_or_else(|| of(SECONDS), Duration::from_secs),
            searching: of(SEARCH_SECONDS),
            idling: of(IDLE_SECONDS),
        })
    }
}

/// The whole path of a build, since processes are started in folders of their own.
fn executable(flag: &str, named: &Path) -> Result<PathBuf, Failure> {
    let path = std::fs::canonicalize(named).ok().filter(|path| path.is_file());
    path.ok_or_else(|| {
        Failure::configuration(format_args!("{flag}: {} is no file; name a build of llmx", named.display()))
    })
}

/// Measures, with progress on stderr.
pub async fn run(args: ProcessesArgs, quick: bool, json: bool) -> Outcome {
    let plan = args.plan(quick)?;
    if !usage::is_measurable() {
        return Err(Failure::configuration(
            "--processes reads Linux's /proc, which this system lacks; run it on Linux",
        ));
    }
    let on_row = |row: &ProcessRow| {
        if !json {
            print(text(row));
        }
    };
    // A signal drops the run, and that ends the processes it started.
    let rows = Box::pin(processes::run(&plan, on_row, |doing| note(doing))).await?;
    if json {
        let (engines, contractors, policy) = (plan.engines, plan.contractors, &plan.policy);
        let against = plan.against.as_ref();
        let document = serde_json::json!({
            "binary": plan.build.binary, "nats_threads": plan.build.nats_threads,
            "against": against.map(|against| &against.binary),
            "against_nats_threads": against.map(|against| against.nats_threads),
            "engines": engines, "contractors": contractors, "policy": policy, "results": rows
        });
        print_json(&document)?;
    }
    Ok(())
}

/// A heading, then a line for each figure.
pub(super) fn text(row: &ProcessRow) -> String {
    let what = match row.situation {
        "idle" => "nothing asked for".to_owned(),
        "paced" => format!("{:.0} rounds/s offered", row.figures.value("offered_per_s").unwrap_or(0.0)),
        "capacity" => "the highest rate with decisions' p95 at 20 ms or less".to_owned(),
        "most" => "the most it can do".to_owned(),
        "offered" => format!("{} of the most offered", row.figures.value("factor").unwrap_or(0.0)),
        _ => "1.5 of the most offered".to_owned(),
    };
    let mut lines = Vec::new();
    let mut heading = vec![format!("{}, {what}", row.via)];
    if row.against.is_some() {
        heading.extend(["this", "against", "ratio"].map(str::to_owned));
    }
    lines.push(heading);
    let names = if row.figures.iter().next().is_none() { row.against.as_ref() } else { Some(&row.figures) };
    for (name, _) in names.into_iter().flat_map(ProcessFigures::iter) {
        let of = |figures: Option<&ProcessFigures>| {
            figures.and_then(|figures| figures.value(name)).map_or("-".to_owned(), shown)
        };
        let mut line = vec![format!("  {name}"), of(Some(&row.figures))];
        if row.against.is_some() {
            line.extend([of(row.against.as_ref()), of(row.ratio.as_ref())]);
        }
        lines.push(line);
    }
    if lines.len() == 1 {
        lines.push(vec!["  none".to_owned()]);
    }
    table(&lines) + "\n"
}

/// As many decimals as a figure of this size deserves.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:>8.0}"),
        size if size >= 10.0 => format!("{value:>8.1}"),
        _ => format!("{value:>8.3}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::bench::BenchArgs;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn plan(args: &[&str]) -> Result<ProcessPlan, String> {
        // No llmx stands beside this test.
        let own = std::env::current_exe().unwrap().display().to_string();
        let command = Command::try_parse_from([&["bench", "--processes", "--binary", &own], args].concat());
        let args = command.map_err(|error| error.to_string())?.args;
        args.processes.plan(args.quick).map_err(|failure| failure.to_string())
    }

    #[test]
    fn without_further_words_two_transports_and_three_rates_are_measured() {
        let plan = plan(&[]).unwrap();
        assert_eq!((plan.via, plan.rates), (vec![AgentsVia::Websocket, AgentsVia::Nats], vec![400, 200, 50]));
        assert_eq!((plan.engines, plan.contractors, plan.policy.as_str(), plan.runs), (1, 12, "high", 1));
        assert_eq!((plan.calling, plan.searches), (Duration::from_secs(15), true));
        let own = MeasuredBuild { binary: std::env::current_exe().unwrap(), nats_threads: 1 };
        assert_eq!((plan.build, plan.against), (own, None));
    }

    #[test]
    fn idle_processes_can_be_measured_alone() {
        let plan = plan(&["--idle-only", "--agents", "10000"]).unwrap();
        assert_eq!((plan.contractors, plan.rates.len(), plan.searches), (10_000, 0, false));
    }

    #[test]
    fn what_is_asked_for_is_measured() {
        let own = std::env::current_exe().unwrap().display().to_string();
        let args = [
            "--transport",
            "http",
            "--rate",
            "10,20",
            "--engines",
            "2",
            "--quick",
            "--paced-only",
            "--idle-agents",
            "10000",
            "--against",
            &own,
            "--against-nats-threads",
            "0",
        ];
        let plan = plan(&args).unwrap();
        assert_eq!((plan.via, plan.rates, plan.engines), (vec![AgentsVia::Http], vec![10, 20], 2));
        assert_eq!((plan.calling, plan.searches, plan.idle_agents), (Duration::from_secs(4), false, 10_000));
        let against = plan.against.unwrap();
        assert!(against.binary.is_absolute());
        assert_eq!((plan.build.nats_threads, against.nats_threads), (1, 0));
    }

    #[test]
    fn a_build_that_is_not_there_and_a_rate_of_nothing_are_refused() {
        let refused = plan(&["--against", "/nowhere/llmx"]).unwrap_err();
        assert_eq!(refused, "--against: /nowhere/llmx is no file; name a build of llmx");
        assert!(plan(&["--rate", "0"]).unwrap_err().contains("0 is not in 1..=100000"));
        assert!(plan(&["--only", "core"]).unwrap_err().contains("cannot be used with"));
        let without = Command::try_parse_from(["bench", "--engines", "2"]).err().unwrap().to_string();
        assert!(without.contains("--processes"), "{without}");
    }

    #[test]
    fn figures_stand_in_lines_with_their_ratio() {
        let row = |of: &str| -> String { of.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") };
        assert_eq!(shown(1234.5).trim(), "1234");
        assert_eq!(shown(12.345).trim(), "12.3");
        assert_eq!(shown(0.25).trim(), "0.250");
        let nothing = ProcessRow {
            via: "nats",
            situation: "capacity",
            figures: ProcessFigures::default(),
            against: None,
            ratio: None,
        };
        assert_eq!(row(&text(&nothing)), "nats, the highest rate with decisions' p95 at 20 ms or less\n  none");
    }
}
