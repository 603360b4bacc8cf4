//! `llmx demo --protocol panel`: panels of scripted panelists, one initiator.

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
use traffic_gen::panel::load::{self, PanelLedger, PanelScenario, PanelSummary};
use traffic_gen::recorder::Recorder;

use super::{DemoArgs, attended, prefix, spawn_progress};
use crate::output::{Failure, Outcome};

/// Requests of one agent per panel, at most: an answer in each round, and repeats.
const REQUESTS_PER_PANEL: f64 = 20.0;

/// Runs the demo and prints its summary; any violated invariant is a failure.
pub async fn run(args: DemoArgs) -> Outcome {
    check(&args)?;
    let (csv, trace) = args.create_files()?;
    let opened = args.open().await?;
    let scenario = PanelScenario {
        agents: args.agents,
        rate: args.rate,
        duration: args.duration()?,
        seed: args.seed,
        run: args.run_name(opened.is_kept),
        prefix: prefix(opened.is_kept),
        ..PanelScenario::default()
    }
    .traced(crate::output::tracer());
    let exchange = args.start(&opened, REQUESTS_PER_PANEL, ExchangeOptions::default()).await?;
    let (recorder, ledger) = (Arc::new(Recorder::start(Instant::now(), true, trace)), Arc::new(PanelLedger::default()));
    let driven = drive(&args, &exchange, &scenario, (&recorder, &ledger)).await;
    let driven = driven?;
    let (counts, run) = args.finish(&opened.bus, exchange, &recorder, driven, csv).await?;
    let summary = PanelSummary::new(&scenario, opened.name, ledger.tally(), &counts, run);
    args.print(&summary)?;
    judge(&summary)
}

/// Whether the arguments make sense for panels.
fn check(args: &DemoArgs) -> Outcome {
    PoissonArrivals::try_new(args.rate, args.seed).map_err(Failure::configuration)?;
    let load = args.calls.load(args.rate, args.duration()?, args.seed)?;
    let others = [
        ("--load", *load != Load::Poisson),
        ("--contractor", args.contractor.is_some()),
        ("--policy", args.policy.is_some()),
        ("--routines", args.routines),
    ];
    let given = others.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option);
    if let Some(option) = given.or_else(|| args.models.given()) {
        return Err(Failure::configuration(format_args!("{option} is not for panels")));
    }
    let (agents, least) = (args.agents, load::AGENTS_MIN);
    if agents < least {
        return Err(Failure::configuration(format_args!("--agents {agents}: a panel has {least} seats or more")));
    }
    Ok(())
}

fn judge(summary: &PanelSummary) -> Outcome {
    match (summary.run.invariant_violations.total, summary.tally.miscounted) {
        (0, 0) => Ok(()),
        (0, miscounted) => {
            Err(Failure::failed(anyhow::anyhow!("{miscounted} findings count other asks than the agents")))
        }
        (total, _) => Err(Failure::failed(anyhow::anyhow!("{total} violations of invariants"))),
    }
}

async fn drive(
    args: &DemoArgs,
    exchange: &Exchange,
    scenario: &PanelScenario,
    (recorder, ledger): (&Arc<Recorder>, &Arc<PanelLedger>),
) -> Result<(u64, f64, bool), Failure> {
    let control = ControlClient::try_new(exchange.url())?;
    let bus = exchange.bus.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
    let names = (0..scenario.agents).map(|number| scenario.agent_name(number)).chain([scenario.initiator()]);
    let identities = exchange.identities(names)?;
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let population = load::start(&access, scenario, recorder).await?;
    let cancel = CancellationToken::new();
    let shown = (Arc::clone(ledger), Arc::clone(recorder));
    let progress = spawn_progress(args, move || line(&shown.0, shown.1.open()));
    let started = Instant::now();
    let asking = load::run(&population, scenario, (recorder, ledger), started, &cancel);
    let shed = attended(&cancel, scenario.drain, progress, asking).await?;
    let elapsed_s = started.elapsed().as_secs_f64();
    population.stop().await?;
    Ok((shed, elapsed_s, cancel.is_cancelled()))
}

/// The line of progress.
fn line(ledger: &PanelLedger, open: usize) -> String {
    let tally = ledger.tally();
    let (panels, right, asks) = (tally.panels, tally.right, tally.asks_mean());
    format!("panels {panels:>6}   right {right:>6}   asks a panel {asks:>6.2}   open {open:>4}")
}
