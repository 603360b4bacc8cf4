//! `llmx-lab chaos`: the exchange as real processes, killed and paused under load, judged from what its agents saw.

use std::path::PathBuf;

use anyhow::Context;
use chaos::{ChaosPlan, ChaosProgress, Traffic, Victims};
use traffic_gen::trace::TraceFile;

use crate::arguments::run_length;
use crate::output::{Failure, Outcome, Progress, print, print_json};
use crate::signals::asked_to_end;

/// Arguments of `llmx-lab chaos`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx-lab chaos --kill engines --duration 60\n  llmx-lab chaos --kill engines --stop --duration 120\n  \
    llmx-lab chaos --kill nats --replicas 3 --duration 300 --json\n  \
    llmx-lab chaos --protocol alternating --kill all --duration 60\n  llmx-lab chaos --protocol panel --kill agents --duration 60\n  \
    llmx-lab chaos --serve --kill all --duration 60\n\n\
    Starts nats-server (scripts/nats-server fetches the binary), engines and gateways of the llmx beside this program, and agents in\n\
    this process, or in processes of their own where they are hit too; every 2 to 5 seconds something is hit and started again. Afterwards everything must end, and the checker,\n\
    who knows only what agents sent, were told and received, and what stands in log and register, says whether anything\n\
    was lost or doubled. Fails (1) when something was; missed targets are reported, and fail with --strict."
)]
pub struct ChaosArgs {
    /// What the agents do meanwhile
    #[arg(long, value_enum, default_value = "contract-net")]
    protocol: Traffic,
    /// What is hit
    #[arg(long, value_enum, default_value = "engines")]
    kill: Victims,
    /// Pause processes for 1 to 30 s (SIGSTOP) instead of killing them
    #[arg(long)]
    stop: bool,
    /// How long faults come, in seconds
    #[arg(long, default_value_t = 60.0)]
    duration: f64,
    /// Copies of the log: 3 starts a cluster of three nats-servers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    replicas: u8,
    /// Agents; of contract nets four call
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(5..=1000))]
    agents: u32,
    /// Contract nets kept open; bargains, teams or panels called in ten seconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    open: u32,
    /// Engines
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=16))]
    engines: u8,
    /// Engines that stand by for each lane; with 0 every take-over reads a checkpoint
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    standbys: u8,
    /// Gateways
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    gateways: u8,
    /// One `llmx serve` in the place of engines and gateways: `--kill gateways` kills it with its nats-server, `--kill nats` that alone
    #[arg(long, conflicts_with_all = ["engines", "gateways", "standbys", "replicas"])]
    serve: bool,
    /// Lanes of the log
    #[arg(long, default_value_t = bus::LANES_DEFAULT, value_parser = clap::value_parser!(u8).range(1..=64))]
    lanes: u8,
    /// Seed of faults and contractors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write every message of every agent, one JSON document per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Fail on missed targets too
    #[arg(long)]
    strict: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Run the agents that a file says, as a process of a run that hits them; a run starts it by itself
    #[arg(long, value_name = "FILE", hide = true, exclusive = true)]
    host: Option<PathBuf>,
}

impl ChaosArgs {
    fn plan(&self) -> Result<ChaosPlan, Failure> {
        let duration = run_length(self.duration)?;
        let trace = self.trace.as_deref().map(TraceFile::create).transpose();
        let trace = trace.map_err(|error| Failure::configuration(format_args!("--trace: {error}")))?;
        if self.replicas == 2 {
            return Err(Failure::configuration("--replicas: two copies stand no failure; choose 1 or 3"));
        }
        if self.kill == Victims::Links && self.replicas != 1 {
            return Err(Failure::configuration(
                "--kill links needs --replicas 1: clients of a cluster know ways around their link",
            ));
        }
        if self.serve && matches!(self.kill, Victims::Engines | Victims::Links) {
            return Err(Failure::configuration(
                "--serve has no engines and links: --kill gateways, nats, agents or all",
            ));
        }
        if self.kill == Victims::Agents && matches!(self.protocol, Traffic::ContractNet | Traffic::Auction) {
            return Err(Failure::configuration(
                "--kill agents needs --protocol alternating, team or panel: agents of contract nets are of this process",
            ));
        }
        Ok(ChaosPlan {
            traffic: self.protocol,
            victims: self.kill,
            pauses: self.stop,
            is_served: self.serve,
            duration,
            replicas: self.replicas,
            agents: self.agents,
            open: self.open,
            engines: if self.serve { 0 } else { usize::from(self.engines) },
            standbys: self.standbys,
            register_keep_s: None,
            gateways: if self.serve { 1 } else { usize::from(self.gateways) },
            lanes: self.lanes,
            seed: self.seed,
            trace,
        })
    }
}

/// Makes the run and prints its report.
pub async fn run(args: ChaosArgs) -> Outcome {
    if let Some(told) = &args.host {
        let ready = |agents| print(format_args!("agents: {agents}"));
        return Ok(Box::pin(chaos::host(told, asked_to_end(), ready)).await.context("agents")?);
    }
    let binary = crate::exchange_program()?;
    let plan = args.plan()?;
    let progress = Progress::new();
    let chaos = Box::pin(chaos::run(plan, &binary, |standing| progress.show(line(standing))));
    // A signal drops the run, and that ends every process it started.
    let outcome = chaos.await.context("no verdict")?;
    progress.finish();
    let report = &outcome.report;
    if args.json {
        print_json(&serde_json::json!({"report": report, "strikes": outcome.faults, "output": outcome.output}))?;
    } else {
        print(report);
        if let Some(output) = &outcome.output {
            print(format_args!("  the processes' output: {}", output.display()));
        }
    }
    if let Some(first) = report.examples().next() {
        return Err(Failure::failed(anyhow::anyhow!("{} violations; the first: {first}", report.violations())));
    }
    let missed: Vec<&str> = report.targets.iter().filter(|target| !target.is_met).map(|target| target.name).collect();
    if args.strict && !missed.is_empty() {
        return Err(Failure::failed(anyhow::anyhow!("missed: {}", missed.join(", "))));
    }
    Ok(())
}

fn line(standing: &ChaosProgress) -> String {
    let ChaosProgress { elapsed, counts, open, silence } = standing;
    format!(
        "{:>4} s   calls {:>6}   offers {:>7}   awards {:>6}   ended {:>6}   open {open:>4}   last decision {:>6} ms ago",
        elapsed.as_secs(),
        counts.cfps,
        counts.offers,
        counts.awards,
        counts.rounds,
        silence.as_millis()
    )
}
