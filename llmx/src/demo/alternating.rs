//! `llmx demo --protocol alternating`: bargains between pairs and triples of agents.

use std::sync::Arc;

use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use schemas::{AgentId, Policy};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::{Load, PoissonArrivals};
use traffic_gen::bargain::load::{self, BargainPopulation, BargainScenario, BargainSummary, Catalog, Ledger};
use traffic_gen::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::Access;
use traffic_gen::recorder::Recorder;
use traffic_gen::trace::TraceFile;

use super::{DemoArgs, attended, prefix, spawn_progress};
use crate::output::{Failure, Outcome};

/// Requests of one agent per bargain, at most: a move for each round of the longest shipped domain, and repeats.
const REQUESTS_PER_BARGAIN: f64 = 200.0;

/// Runs the demo and prints its summary; any violated invariant is a failure.
pub async fn run(args: DemoArgs) -> Outcome {
    let policy = check(&args)?;
    let (csv, trace) = args.create_files()?;
    let opened = args.open().await?;
    let scenario = BargainScenario {
        agents: args.agents,
        policy: policy.as_ref().map(|policy| policy.name().to_owned()),
        rate: args.rate,
        duration: args.duration()?,
        seed: args.seed,
        run: args.run_name(opened.is_kept),
        prefix: prefix(opened.is_kept),
        ..BargainScenario::default()
    }
    .traced(crate::output::tracer());
    let options = ExchangeOptions { policies: policy.into_iter().collect(), ..ExchangeOptions::default() };
    let exchange = args.start(&opened, REQUESTS_PER_BARGAIN, options).await?;
    let (ledger, driven) = drive(&args, &exchange, &scenario, trace).await?;
    let (counts, run) = args.finish(&opened.bus, exchange, ledger.recorder(), driven, csv).await?;
    let summary = BargainSummary::new(&scenario, opened.name, &ledger.traded(), &counts, run);
    args.print(&summary)?;
    judge(&summary)
}

/// The policy to delegate to, once the arguments make sense for bargains.
fn check(args: &DemoArgs) -> Result<Option<Policy>, Failure> {
    PoissonArrivals::try_new(args.rate, args.seed).map_err(Failure::configuration)?;
    if *args.calls.load(args.rate, args.duration()?, args.seed)? != Load::Poisson {
        return Err(Failure::configuration("--load is for the contract net: bargains begin as a Poisson process"));
    }
    let (agents, least) = (args.agents, load::AGENTS_MIN);
    if args.contractor.is_some() {
        return Err(Failure::configuration(
            "--contractor is for the contract net: in a bargain there are no contractors",
        ));
    }
    if args.routines {
        return Err(Failure::configuration("--routines is for the contract net: bargains know no documents"));
    }
    if let Some(option) = args.models.given() {
        return Err(Failure::configuration(format_args!("{option} is for the contract net")));
    }
    if agents < least {
        return Err(Failure::configuration(format_args!("--agents {agents}: some bargains have {least} parties")));
    }
    args.policy.as_deref().map(bargaining_policy).transpose()
}

fn judge(summary: &BargainSummary) -> Outcome {
    let irrational = summary.figures.irrational;
    match summary.run.invariant_violations.total {
        0 if irrational == 0 => Ok(()),
        0 => Err(Failure::failed(anyhow::anyhow!("{irrational} agreements outside a party's mandate"))),
        total => Err(Failure::failed(anyhow::anyhow!("{total} violations of invariants"))),
    }
}

fn bargaining_policy(name: &str) -> Result<Policy, Failure> {
    let policy = crate::policy::preset_or_file(name)?;
    if policy.bargain.is_none() {
        return Err(Failure::configuration(format_args!(
            "{}: this policy does not bargain; `bargain-low`, `bargain-medium` and `bargain-high` do",
            policy.id
        )));
    }
    Ok(policy)
}

async fn drive(
    args: &DemoArgs,
    exchange: &Exchange,
    scenario: &BargainScenario,
    trace: Option<TraceFile>,
) -> Result<(Arc<Ledger>, (u64, f64, bool)), Failure> {
    let control = ControlClient::try_new(exchange.url())?;
    let bus = exchange.bus.clone();
    let transport = move |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&bus)) };
    let identities = exchange.identities((0..scenario.agents).map(|number| scenario.agent_name(number)))?;
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };

    let catalog = Arc::new(Catalog::shipped());
    let recorder = Arc::new(Recorder::start(Instant::now(), true, trace));
    let ledger = Arc::new(Ledger::new(recorder, Arc::clone(&catalog)));
    let population = BargainPopulation::start(&access, scenario, &catalog, &ledger).await?;
    let cancel = CancellationToken::new();
    let shown = Arc::clone(&ledger);
    let progress = spawn_progress(args, move || line(&shown));
    let started = Instant::now();
    let trading = load::trade(&population, &ledger, started, &cancel);
    let shed = attended(&cancel, scenario.drain, progress, trading).await?;
    let elapsed_s = started.elapsed().as_secs_f64();
    population.stop().await?;
    Ok((ledger, (shed, elapsed_s, cancel.is_cancelled())))
}

/// The line of progress.
fn line(ledger: &Ledger) -> String {
    let (traded, open) = (ledger.traded(), ledger.recorder().open());
    let (bargains, agreed, step) = (traded.tally.bargains(), traded.tally.agreements(), traded.step.quantiles());
    format!(
        "bargains {bargains:>6}   agreed {agreed:>6}   moves {:>8}   open {open:>4}   \
         move to next turn p50 {:.2} ms, p95 {:.2} ms",
        step.count, step.p50, step.p95
    )
}
