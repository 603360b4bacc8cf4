//! `llmx demo --protocol team`: teams of two to five agents.

use std::sync::Arc;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use schemas::AgentId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::{Load, PoissonArrivals};
use traffic_gen::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::Access;
use traffic_gen::recorder::Recorder;
use traffic_gen::team::load::{self, TeamLedger, TeamPopulation, TeamScenario, TeamSummary};
use traffic_gen::trace::TraceFile;

use super::{DemoArgs, attended, prefix, spawn_progress};
use crate::output::{Failure, Outcome};

/// Requests of one agent per team, at most: a turn for each of a short discussion, tasks, votes, and repeats.
const REQUESTS_PER_TEAM: f64 = 60.0;

/// Runs the demo and prints its summary; any violated invariant is a failure.
pub async fn run(args: DemoArgs) -> Outcome {
    check(&args)?;
    let (csv, trace) = args.create_files()?;
    let opened = args.open().await?;
    let scenario = TeamScenario {
        agents: args.agents,
        rate: args.rate,
        duration: args.duration()?,
        seed: args.seed,
        run: args.run_name(opened.is_kept),
        prefix: prefix(opened.is_kept),
        ..TeamScenario::default()
    }
    .traced(crate::output::tracer());
    let exchange = args.start(&opened, REQUESTS_PER_TEAM, ExchangeOptions::default()).await?;
    let (ledger, driven) = drive(&args, &exchange, &scenario, trace).await?;
    let (counts, run) = args.finish(&opened.bus, exchange, ledger.recorder(), driven, csv).await?;
    let summary = TeamSummary::new(&scenario, opened.name, ledger.tally(), &counts, run);
    args.print(&summary)?;
    match summary.run.invariant_violations.total {
        0 => Ok(()),
        total => Err(Failure::failed(anyhow::anyhow!("{total} violations of invariants"))),
    }
}

/// Whether the arguments make sense for teams.
fn check(args: &DemoArgs) -> Outcome {
    PoissonArrivals::try_new(args.rate, args.seed).map_err(Failure::configuration)?;
    if *args.calls.load(args.rate, args.duration()?, args.seed)? != Load::Poisson {
        return Err(Failure::configuration("--load is for the contract net: teams begin as a Poisson process"));
    }
    let (agents, least) = (args.agents, load::AGENTS_MIN);
    for (is_given, option) in [
        (args.contractor.is_some(), "--contractor"),
        (args.routines, "--routines"),
        (args.policy.is_some(), "--policy"),
    ] {
        if is_given {
            return Err(Failure::configuration(format_args!("{option} is not for teams")));
        }
    }
    if let Some(option) = args.models.given() {
        return Err(Failure::configuration(format_args!("{option} is for the contract net")));
    }
    if agents < least {
        return Err(Failure::configuration(format_args!("--agents {agents}: some teams have {least} members")));
    }
    Ok(())
}

async fn drive(
    args: &DemoArgs,
    exchange: &Exchange,
    scenario: &TeamScenario,
    trace: Option<TraceFile>,
) -> Result<(Arc<TeamLedger>, (u64, f64, bool)), Failure> {
    let control = ControlClient::try_new(exchange.url())?;
    let bus = exchange.bus.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
    let identities = exchange.identities((0..scenario.agents).map(|number| scenario.agent_name(number)))?;
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let recorder = Arc::new(Recorder::start(Instant::now(), true, trace));
    let ledger = Arc::new(TeamLedger::new(recorder));
    let population = TeamPopulation::start(&access, scenario, &ledger).await?;
    let cancel = CancellationToken::new();
    let shown = Arc::clone(&ledger);
    let progress = spawn_progress(args, move || line(&shown));
    let started = Instant::now();
    let meeting = load::meet(&population, &ledger, started, &cancel);
    let shed = attended(&cancel, scenario.drain, progress, meeting).await?;
    let elapsed_s = started.elapsed().as_secs_f64();
    population.stop().await?;
    Ok((ledger, (shed, elapsed_s, cancel.is_cancelled())))
}

/// The line of progress.
fn line(ledger: &TeamLedger) -> String {
    let (tally, open) = (ledger.tally(), ledger.recorder().open());
    let (formed, turns, say) = (tally.formed, tally.turns.values().sum::<u64>(), tally.say.quantiles());
    format!(
        "teams {formed:>6}   turns {turns:>8}   open {open:>4}   say to next speaker p50 {:.2} ms, p95 {:.2} ms",
        say.p50, say.p95
    )
}
