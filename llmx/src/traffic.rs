//! `llmx traffic`: Poisson calls from one initiator to contractors that run elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::arrivals::PoissonArrivals;
use traffic_gen::latency::Quantiles;
use traffic_gen::live::{self, Access, Scenario};
use traffic_gen::recorder::{Counts, Recorder};
use traffic_gen::trace::Trace;

use crate::nats::asked_to_end;
use crate::output::{Failure, Outcome, print, print_json};
use crate::remote::RemoteArgs;

/// Arguments of `llmx traffic`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  llmx traffic --gateway http://127.0.0.1:8080 --rate 20 --duration 120\n\n\
    Counts are what the initiator sees. Offers, fairness and the invariants need every agent's view: `llmx demo`.\n\
    Fails when a call has not ended 30 s after the last one.")]
pub struct Args {
    #[command(flatten)]
    remote: RemoteArgs,
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
    PoissonArrivals::try_new(args.rate, args.seed).map_err(Failure::configuration)?;
    let remote = args.remote.open("llmx-traffic").await?;
    let (transport, identity) = (|_: &_| remote.transport(), |name: &_| remote.identity(name));
    let access = Access { control: &remote.control, transport: &transport, identity: &identity };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let scenario = Scenario {
        policy: args.policy.clone(),
        rate: args.rate,
        duration: Duration::try_from_secs_f64(args.duration).map_err(Failure::configuration)?,
        seed: args.seed,
        run: format!("run-{:x}", now.as_secs()),
        ..Scenario::default()
    };
    let trace = args.trace.as_deref().map(Trace::create).transpose().context("cannot create the trace")?;
    let started = Instant::now();
    // No witness: it judges what every agent saw, and the contractors run elsewhere.
    let recorder = Arc::new(Recorder::start(started, false, trace));
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
    let (counts, _) = recorder.finish().context("cannot write the trace")?;
    if let Some(path) = &args.csv {
        let mut file = std::fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        recorder.write_minutes(&mut file).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let seen = Seen::new(&args, counts, shed, started.elapsed().as_secs_f64());
    if args.json {
        print_json(&seen)?
    } else {
        print(&seen)
    }
    match recorder.open() {
        0 => Ok(()),
        open => Err(Failure::failed(anyhow::anyhow!("{open} calls did not end"))),
    }
}

/// What the initiator saw of a run. Members are those of the same name in the summary of `llmx demo`.
#[derive(Serialize)]
struct Seen {
    seed: u64,
    policy: String,
    rate: f64,
    rounds: u64,
    cfps: u64,
    awards: u64,
    award_rate: f64,
    latency_ms: SeenLatencies,
    rejected: BTreeMap<String, u64>,
    dispositions: BTreeMap<String, u64>,
    outcomes: BTreeMap<String, u64>,
    shed: u64,
    elapsed_s: f64,
}

#[derive(Serialize)]
struct SeenLatencies {
    decision: Quantiles,
    round: Quantiles,
}

impl Seen {
    fn new(args: &Args, counts: Counts, shed: u64, elapsed_s: f64) -> Self {
        Self {
            seed: args.seed,
            policy: args.policy.clone(),
            rate: args.rate,
            rounds: counts.rounds,
            cfps: counts.cfps,
            awards: counts.awards,
            award_rate: if counts.rounds == 0 { 0.0 } else { counts.awarded as f64 / counts.rounds as f64 },
            latency_ms: SeenLatencies { decision: counts.decision.quantiles(), round: counts.round.quantiles() },
            rejected: counts.rejected,
            dispositions: counts.dispositions,
            outcomes: counts.outcomes,
            shed,
            elapsed_s,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "policy {}, {} calls/s, seed {}: {:.1} s", self.policy, self.rate, self.seed, self.elapsed_s)?;
        writeln!(f, "  rounds {}   calls {}   awards {}", self.rounds, self.cfps, self.awards)?;
        writeln!(f, "  award rate {:.1} %", self.award_rate * 100.0)?;
        for (name, latency) in [("call to decision", self.latency_ms.decision), ("call to end", self.latency_ms.round)]
        {
            let Quantiles { p50, p95, p99, max, .. } = latency;
            writeln!(f, "  {name:<22} p50 {p50:>8.2}   p95 {p95:>8.2}   p99 {p99:>8.2}   max {max:>8.2}  ms")?;
        }
        writeln!(f, "  outcomes {}", counted(&self.outcomes))?;
        write!(f, "  rejected at the gateway {}", counted(&self.rejected))
    }
}

fn counted(by_name: &BTreeMap<String, u64>) -> String {
    let counted: Vec<String> = by_name.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if counted.is_empty() { "none".to_owned() } else { counted.join(", ") }
}
