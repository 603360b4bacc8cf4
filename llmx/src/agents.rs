//! `llmx agents`: scripted contractors against an exchange that runs elsewhere.

use anyhow::Context;
use traffic_gen::live::{Access, Population, Scenario};

use crate::nats::asked_to_end;
use crate::output::{Outcome, print};
use crate::remote::RemoteArgs;

/// Arguments of `llmx agents`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  llmx agents --gateway http://127.0.0.1:8080 --count 12 --transport websocket")]
pub struct Args {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Contractors, named contractor-0 and so on
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Seed of their behaviour
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs until asked to end.
pub async fn run(args: Args) -> Outcome {
    let remote = args.remote.open("llmx-agents").await?;
    let (transport, identity) = (|_: &_| remote.transport(), |name: &_| remote.identity(name));
    let access = Access { control: &remote.control, transport: &transport, identity: &identity };
    let scenario = Scenario { contractors: args.count, seed: args.seed, ..Scenario::default() };
    let population = Population::start(&access, &scenario, None).await.context("the contractors do not start")?;
    print(format_args!("agents: {} contractors connected", args.count));
    asked_to_end().await;
    population.stop().await?;
    Ok(())
}
