//! `llmx traffic`: Poisson calls from one initiator to contractors that run elsewhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::live::{self, Access, Scenario};
use traffic_gen::recorder::Recorder;
use traffic_gen::summary::Summary;
use traffic_gen::trace::Trace;

use crate::nats::asked_to_end;
use crate::output::{Failure, Outcome, print, print_json};
use crate::remote::RemoteArgs;

/// Arguments of `llmx traffic`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  llmx traffic --gateway http://127.0.0.1:8080 --rate 20 --duration 120\n\n\
    Offers and completion are counted as the exchange tells the initiator: the contractors' own counts are theirs.")]
pub struct Args {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Contractors expected to answer, for the completion figure
    #[arg(long, default_value_t = 12)]
    agents: u32,
    /// Policy calls ask for
    #[arg(long, default_value = "medium")]
    policy: String,
    /// Calls per second, Poisson
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// How long calls arrive, in seconds
    #[arg(long, default_value_t = 60.0)]
    duration: f64,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write every message of the initiator, one JSON document per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the table of minutes
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the traffic and prints its summary.
pub async fn run(args: Args) -> Outcome {
    let remote = args.remote.open("llmx-traffic").await?;
    let (transport, identity) = (|_: &_| remote.transport(), |name: &_| remote.identity(name));
    let access = Access { control: &remote.control, transport: &transport, identity: &identity };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let scenario = Scenario {
        contractors: args.agents,
        policy: args.policy.clone(),
        rate: args.rate,
        duration: Duration::try_from_secs_f64(args.duration).map_err(Failure::configuration)?,
        seed: args.seed,
        run: format!("run-{:x}", now.as_secs()),
        ..Scenario::default()
    };
    let trace = args.trace.as_deref().map(Trace::create).transpose().context("cannot create the trace")?;
    let started = Instant::now();
    let recorder = Arc::new(Recorder::start(started, true, trace));
    let cancel = CancellationToken::new();
    let interrupt = tokio::spawn({
        let cancel = cancel.clone();
        async move {
            asked_to_end().await;
            cancel.cancel();
        }
    });
    let shed = live::call(&access, &scenario, &recorder, started, &cancel).await?;
    interrupt.abort();
    let (counts, verdict) = recorder.finish().context("cannot write the trace")?;
    if let Some(path) = &args.csv {
        let mut file = std::fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        recorder.write_minutes(&mut file).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let elapsed_s = started.elapsed().as_secs_f64();
    let summary = Summary::new(&scenario, "remote", &args.policy, counts, verdict, shed, elapsed_s);
    if args.json { print_json(&summary)? } else { print(&summary) }
    match summary.invariant_violations.total {
        0 => Ok(()),
        total => Err(Failure::failed(anyhow::anyhow!("{total} violations of invariants"))),
    }
}
