//! `llmx demo --protocol alternating|team|panel`: bargains, teams or panels as they fall due.

use std::sync::Arc;

use schemas::Policy;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::{Load, PoissonArrivals};
use traffic_gen::bargain::load::Bargains;
use traffic_gen::exchange::ExchangeOptions;
use traffic_gen::load::{LoadScenario, LoadSummary, ProtocolLoad, ProtocolSummary, RunningLoad};
use traffic_gen::panel::load::Panels;
use traffic_gen::recorder::Recorder;
use traffic_gen::summary::Driven;
use traffic_gen::team::Teams;

use super::{DemoArgs, attended, prefix, spawn_progress};
use crate::output::{Failure, Outcome, print_result};

/// What a demo says of a load, and asks of its arguments.
pub trait DemoLoad: ProtocolLoad<State: Send + 'static> + Default {
    /// Requests of one agent per negotiation, at most.
    const REQUESTS: f64;
    /// What has as many members as there must be agents, and what those are.
    const LARGEST: [&'static str; 2];

    /// What is said of an option that is none of the protocol's.
    fn refused(option: &str) -> Option<&'static str>;

    /// The load that arguments ask for.
    fn of(_args: &DemoArgs) -> Result<(Self, Option<Policy>), Failure> {
        Ok((Self::default(), None))
    }
}

impl DemoLoad for Bargains {
    /// A move for each round of the longest shipped domain, and repeats.
    const REQUESTS: f64 = 200.0;
    const LARGEST: [&'static str; 2] = ["some bargains have", "parties"];

    fn refused(option: &str) -> Option<&'static str> {
        match option {
            "--policy" => None,
            "--load" => Some("is for the contract net: bargains begin as a Poisson process"),
            "--contractor" => Some("is for the contract net: in a bargain there are no contractors"),
            "--routines" => Some("is for the contract net: bargains know no documents"),
            _ => Some("is for the contract net"),
        }
    }

    /// With the policy that agents delegate to.
    fn of(args: &DemoArgs) -> Result<(Self, Option<Policy>), Failure> {
        let Some(name) = &args.policy else { return Ok((Self::default(), None)) };
        let policy = crate::policy::preset_or_file(name)?;
        if policy.bargain.is_none() {
            return Err(Failure::configuration(format_args!(
                "{}: this policy does not bargain; `bargain-low`, `bargain-medium` and `bargain-high` do",
                policy.id
            )));
        }
        Ok((Self { policy: Some(policy.name().to_owned()), ..Self::default() }, Some(policy)))
    }
}

impl DemoLoad for Teams {
    /// A turn for each of a short discussion, tasks, votes, and repeats.
    const REQUESTS: f64 = 60.0;
    const LARGEST: [&'static str; 2] = ["some teams have", "members"];

    fn refused(option: &str) -> Option<&'static str> {
        match option {
            "--load" => Some("is for the contract net: teams begin as a Poisson process"),
            "--contractor" | "--routines" | "--policy" => Some("is not for teams"),
            _ => Some("is for the contract net"),
        }
    }
}

impl DemoLoad for Panels {
    /// An answer in each round, and repeats.
    const REQUESTS: f64 = 20.0;
    const LARGEST: [&'static str; 2] = ["a panel has", "seats or more"];

    fn refused(_option: &str) -> Option<&'static str> {
        Some("is not for panels")
    }
}

/// Runs the demo and prints its summary; any violated invariant is a failure.
pub async fn run<S: ProtocolSummary<Load: DemoLoad>>(args: DemoArgs) -> Outcome {
    check::<S::Load>(&args)?;
    let (protocol, policy) = S::Load::of(&args)?;
    let (csv, trace) = args.create_files()?;
    let opened = args.open().await?;
    let scenario = LoadScenario {
        protocol,
        agents: args.agents(),
        rate: args.rate(),
        duration: args.duration()?,
        seed: args.seed,
        run: args.run_name(opened.is_kept),
        prefix: prefix(opened.is_kept),
        ..LoadScenario::default()
    }
    .traced(crate::output::tracer());
    let options = ExchangeOptions { policies: policy.into_iter().collect(), ..ExchangeOptions::default() };
    let exchange = args.start(&opened, S::Load::REQUESTS, options).await?;
    let load: RunningLoad<S::Load> =
        RunningLoad::start_on::<Failure>(&exchange, scenario, Recorder::start(Instant::now(), true, trace)).await?;
    let cancel = CancellationToken::new();
    let shown = Arc::clone(&load.ledger);
    let progress = spawn_progress(&args, move || S::line(&shown));
    let started = Instant::now();
    let shed = attended(&cancel, load.scenario.drain, progress, load.drive(started, &cancel)).await?;
    let driven = Driven { shed, elapsed_s: started.elapsed().as_secs_f64(), interrupted: cancel.is_cancelled() };
    let (scenario, ledger) = load.stop().await?;
    let (counts, run) = args.finish(&opened.bus, exchange, ledger.recorder(), driven, csv).await?;
    let summary = LoadSummary::<S>::new(&scenario, opened.name, &ledger, (&counts, run));
    print_result(args.json, &summary, &summary)?;
    let fault = match summary.run.invariant_violations.total {
        0 => summary.own.fault(),
        total => Some(format!("{total} violations of invariants")),
    };
    fault.map_or(Ok(()), |fault| Err(Failure::failed(anyhow::anyhow!(fault))))
}

/// Whether the arguments make sense for the protocol.
fn check<W: DemoLoad>(args: &DemoArgs) -> Outcome {
    PoissonArrivals::try_new(args.rate(), args.seed).map_err(Failure::configuration)?;
    let load = args.calls.load(args.rate(), args.duration()?, args.seed)?;
    let given = [
        ("--load", *load != Load::Poisson),
        ("--contractor", args.contractor.is_some()),
        ("--routines", args.routines),
        ("--policy", args.policy.is_some()),
    ];
    let given =
        given.into_iter().filter_map(|(option, is_given)| is_given.then_some(option)).chain(args.models.given());
    for option in given {
        if let Some(why) = W::refused(option) {
            return Err(Failure::configuration(format_args!("{option} {why}")));
        }
    }
    if args.agents() < W::AGENTS_MIN {
        let ([have, members], least) = (W::LARGEST, W::AGENTS_MIN);
        return Err(Failure::configuration(format_args!("--agents {}: {have} {least} {members}", args.agents())));
    }
    Ok(())
}
