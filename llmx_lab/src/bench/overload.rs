//! `llmx-lab bench --processes --overload`: what an exchange does of more than it can.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use bench::processes::ProcessRow;
use bench::processes::overload::{self, OverloadPlan, PlainLoad, Workload};
use bench::usage;
use clap::ValueEnum as _;

use super::processes::{ProcessesArgs, text};
use crate::output::{Failure, Outcome, note, print, print_json};

/// How long calls are made at each rate and in each step of the ramp, in seconds, and the same with `--quick`.
const SECONDS: [u64; 2] = [60, 15];
const RAMP_SECONDS: [u64; 2] = [8, 4];
/// What is offered, in parts of the most; and between bursts.
const PARTS: [f64; 4] = [0.5, 1.0, 2.0, 10.0];
const BURSTS_PART: f64 = 0.8;

fn parts_of_the_most(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.01..=100.0).contains(part));
    part.ok_or_else(|| "a part of the most from 0.01 to 100, as in 0.7".to_owned())
}

/// Arguments that only count with `--processes --overload`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With --processes --overload")]
pub struct OverloadArgs {
    /// Offer half of the most, the most, two and ten times as much by clients without an SDK, which no answer slows down
    #[arg(long, requires = "processes", conflicts_with_all = ["rate", "paced_only", "idle_only", "against", "transport"])]
    overload: bool,
    /// What is called for, one after another (default: all of them, with --quick net-of-one and mixed)
    #[arg(long, value_enum, value_delimiter = ',', requires = "overload", value_name = "LOADS")]
    load: Vec<LoadArg>,
    /// What is offered, in parts of the most (default: 0.5,1,2,10, with --bursts 0.8)
    #[arg(long, value_delimiter = ',', requires = "overload", value_name = "PARTS", value_parser = parts_of_the_most)]
    parts: Vec<f64>,
    /// Offer five times as much for the last five of every twenty seconds
    #[arg(long, requires = "overload")]
    bursts: bool,
    /// Calls go over HTTP, each in a request of its own; the rest stays on WebSockets
    #[arg(long, requires = "overload")]
    http: bool,
    /// Kill an engine, a gateway and nats-server meanwhile, after a quarter of the time each
    #[arg(long, requires = "overload")]
    kills: bool,
    /// Gateways
    #[arg(long, requires = "overload", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    gateways: u8,
    /// Be such clients: plays the load in FILE, and prints what became of it
    #[arg(long, hide = true, value_name = "FILE", exclusive = true)]
    plain_clients: Option<PathBuf>,
}

/// [`Workload`] on the command line, in the same order, or all of them in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LoadArg {
    /// Contract nets with one contractor
    NetOfOne,
    /// Contract nets with twelve
    NetOfTwelve,
    /// English auctions of two bidders
    Auction,
    /// Bargains of two
    Bargain,
    /// Teams of two
    Team,
    /// Panels of two
    Panel,
    /// All of these in turn
    Mixed,
}

impl LoadArg {
    fn workloads(self) -> Vec<Workload> {
        Workload::ALL.get(self as usize).map_or_else(|| Workload::ALL.to_vec(), |only| vec![*only])
    }
}

impl OverloadArgs {
    /// Whether an overload is to be measured.
    pub fn is_asked(&self) -> bool {
        self.overload
    }

    /// The load to be played, where this process is clients.
    pub fn plain_clients(&self) -> Option<&Path> {
        self.plain_clients.as_deref()
    }

    fn plan(self, processes: &ProcessesArgs, quick: bool) -> Result<OverloadPlan, Failure> {
        let of = |both: [u64; 2]| Duration::from_secs(both[usize::from(quick)]);
        let (build, engines) = processes.build()?;
        let loads: &[LoadArg] = match (self.load.as_slice(), quick) {
            ([], false) => LoadArg::value_variants(),
            ([], true) => &[LoadArg::NetOfOne, LoadArg::Mixed],
            (asked, _) => asked,
        };
        Ok(OverloadPlan {
            build,
            clients: std::env::current_exe().context("this program's own file cannot be found")?,
            engines,
            gateways: self.gateways,
            loads: loads.iter().map(|load| load.workloads()).collect(),
            calling: processes.seconds().map_or_else(|| of(SECONDS), Duration::from_secs),
            ramping: of(RAMP_SECONDS),
            factors: match (self.parts, self.bursts) {
                (parts, true) if parts.is_empty() => vec![BURSTS_PART],
                (parts, false) if parts.is_empty() => PARTS.to_vec(),
                (parts, _) => parts,
            },
            bursts: self.bursts,
            http: self.http,
            kills: self.kills,
        })
    }
}

/// Measures, with progress on stderr.
pub async fn run(args: OverloadArgs, processes: ProcessesArgs, quick: bool, json: bool) -> Outcome {
    let plan = args.plan(&processes, quick)?;
    if !usage::is_measurable() {
        return Err(Failure::configuration(
            "--overload reads Linux's /proc and sets cores by taskset, which this system lacks; run it on Linux",
        ));
    }
    let on_row = |row: &ProcessRow| {
        if !json {
            print(text(row));
        }
    };
    // A signal drops the run, and that ends the processes it started.
    let rows = Box::pin(overload::run(&plan, on_row, |doing| note(doing))).await?;
    if json {
        print_json(&serde_json::json!({
            "binary": plan.build.binary, "engines": plan.engines, "gateways": plan.gateways, "results": rows
        }))?;
    }
    Ok(())
}

/// Plays the load in a file, and prints what became of it.
pub async fn run_plain_clients(file: &Path) -> Outcome {
    let text = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let load: PlainLoad =
        serde_json::from_slice(&text).with_context(|| format!("{} is no load of plain clients", file.display()))?;
    let summary = overload::run_plain_clients(load).await.map_err(|error| Failure::failed(anyhow::anyhow!(error)))?;
    print_json(&summary)
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

    fn plan(args: &[&str]) -> Result<OverloadPlan, String> {
        // No llmx stands beside this test.
        let own = std::env::current_exe().unwrap().display().to_string();
        let command =
            Command::try_parse_from([&["bench", "--processes", "--overload", "--binary", &own], args].concat());
        let args = command.map_err(|error| error.to_string())?.args;
        args.overload.plan(&args.processes, args.quick).map_err(|failure| failure.to_string())
    }

    #[test]
    fn without_further_words_every_load_is_offered() {
        let all = plan(&[]).unwrap();
        assert_eq!((all.loads.len(), all.calling, all.engines, all.gateways), (7, Duration::from_secs(60), 1, 1));
        let quick = plan(&["--quick"]).unwrap();
        assert_eq!(
            (quick.loads, quick.calling),
            (vec![vec![Workload::NetOfOne], Workload::ALL.to_vec()], Duration::from_secs(15))
        );
    }

    #[test]
    fn what_is_asked_for_is_offered_and_nothing_that_does_not_go_with_it() {
        let asked = plan(&["--load", "team,bargain", "--engines", "2", "--gateways", "2", "--seconds", "5"]).unwrap();
        assert_eq!(asked.loads, [vec![Workload::Team], vec![Workload::Bargain]]);
        assert_eq!((asked.engines, asked.gateways, asked.calling), (2, 2, Duration::from_secs(5)));
        assert_eq!(plan(&["--parts", "0.7"]).unwrap().factors, [0.7]);
        let bursts = plan(&["--bursts"]).unwrap();
        assert_eq!((bursts.factors, bursts.bursts), (vec![0.8], true));
        assert!(plan(&["--parts", "0"]).unwrap_err().contains("from 0.01 to 100"));
        assert!(plan(&["--rate", "5"]).unwrap_err().contains("cannot be used with"));
        let without = Command::try_parse_from(["bench", "--overload"]).err().unwrap().to_string();
        assert!(without.contains("--processes"), "{without}");
    }

    #[test]
    fn a_load_is_the_workload_of_its_name_and_mixed_is_all() {
        for load in LoadArg::value_variants() {
            let name = load.to_possible_value().unwrap().get_name().replace('-', "_");
            let workloads: Vec<&str> = load.workloads().into_iter().map(Into::into).collect();
            let all: Vec<&str> = Workload::ALL.iter().map(Into::into).collect();
            assert_eq!(workloads, if *load == LoadArg::Mixed { all } else { vec![&*name] });
        }
    }
}
