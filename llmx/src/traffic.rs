//! `llmx traffic`: Poisson calls from one initiator to contractors that run elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agents::AgentOptions;
use agents::metrics::{AgentMetrics, AgentRole};
use agents::observer::Observer;
use anyhow::Context;
use schemas::AgentId;
use schemas::protocols::Protocol;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::deferrals::{DeferralCounter, Deferrals};
use traffic_gen::invariants::Watch;
use traffic_gen::latency::Quantiles;
use traffic_gen::live::{self, Access, CallScenario};
use traffic_gen::metrics::{Phase, Run, TrafficMetrics};
use traffic_gen::recorder::{Counts, Recorder};
use traffic_gen::summary::{self, Driven};
use traffic_gen::trace::TraceFile;

use crate::arguments::{listen_address, run_length, since_epoch};
use crate::calls::{self, CallsArgs};
use crate::connections::Connections;
use crate::ops::{self, HealthReport};
use crate::output::{Failure, Outcome, Progress, create, print_result, tracer};
use crate::remote::{Remote, RemoteArgs};
use crate::runtime::ThreadsArgs;

/// How often progress is told where nobody watches it, in seconds; a terminal gets it each second.
const PROGRESS_LOG_S: u64 = 5;

/// Arguments of `llmx traffic`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx traffic --gateway http://127.0.0.1:8080 --rate 20 --duration 120\n  llmx traffic --to agent://bob --policy high --task \"carry a piano\"\n  \
    llmx traffic --load ramp:200 --rate 10 --duration 60\n  \
    llmx traffic --to agent://parcel-contractor-0 --task 1500 --document examples/parcel-price.md --rate 1\n\n\
    Counts are what the initiator sees. Offers, fairness and the invariants need every agent's view: `llmx demo`.\n\
    One initiator is held to the gateway's rate like every agent: 2,000 requests a second by default, acknowledgements\n\
    included, which is at least 200 calls a second. What is beyond waits and is sent again, and latencies then measure\n\
    the waiting; the summary counts it as held back. Start several, each with a name (--initiator), or raise\n\
    `requests_per_s`.\n\
    Ctrl-C and SIGTERM end it with a summary, marked as interrupted, once its open calls have ended, 30 s at most; a\n\
    second one at once.\n\
    Fails when no gateway answers (--wait), when a call has not ended 30 s after the last one, or within an hour of its\n\
    own, and when none was admitted."
)]
pub struct TrafficArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Who calls: 1 to 64 of A-Z a-z 0-9 _ -; generators that run at once must differ
    #[arg(long, default_value = live::INITIATOR, value_parser = AgentId::try_new, value_name = "NAME")]
    initiator: AgentId,
    #[command(flatten)]
    calls: CallsArgs,
    /// Policy that calls name; none or empty: the exchange's default applies
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Calls per second: above 0, up to 1000000; what one initiator does depends on the gateway's limits
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
    /// Print the summary as JSON, and no progress
    #[arg(long)]
    json: bool,
    /// Address of the health port: /healthz, /readyz (200 while calls are made), /status, /metrics, to whoever asks; for
    /// example 127.0.0.1:9466 (default: none)
    #[arg(long, env = "LLMX_TRAFFIC_LISTEN", value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// The threads it runs on.
    #[command(flatten)]
    pub threads: ThreadsArgs,
}

/// Runs the traffic and prints its summary.
pub async fn run(args: TrafficArgs) -> Outcome {
    let duration = run_length(args.duration)?;
    args.calls.load(args.rate, duration, args.seed)?;
    let registry = ops::registry()?;
    let agent_metrics = AgentMetrics::try_new(&registry)?;
    let of_run = Run { scenario: Protocol::ContractNet, seed: args.seed, git_sha: env!("LLMX_BUILT_FROM") };
    let metrics = TrafficMetrics::try_new(&registry, &of_run)?;
    let health = ops::open(args.listen, None, &registry)?;
    if let Some(health) = &health {
        // On stderr: stdout is the summary's.
        Progress::new().show(format_args!("health: http://{}/readyz\n", health.address()));
        let (agents, traffic) = (agent_metrics.clone(), metrics.clone());
        health.report(move || report(agents.connected(), traffic.phase()));
    }
    let trace = args.trace.as_deref().map(TraceFile::create).transpose().map_err(Failure::configuration)?;
    let mut csv = args.csv.as_deref().map(create).transpose()?;
    let deferrals = Arc::new(DeferralCounter::default());
    let watchers: Vec<Arc<dyn Observer>> =
        vec![agent_metrics.observer(AgentRole::Initiator), Arc::new(Watch::try_new(&registry)?), deferrals.clone()];
    let options = AgentOptions { observer: Some(Arc::new(watchers)), tracer: tracer(), ..AgentOptions::default() };
    let remote = args.remote.open("llmx-traffic").await?;
    let scenario = args.scenario(duration, remote.connect_within, options)?;
    // No witness: it judges what every agent saw, and the contractors run elsewhere.
    let recorder = Arc::new(Recorder::start(Instant::now(), false, trace).with_metrics(metrics).of_run(&scenario.run));
    let connections = Arc::new(Connections::new(&agent_metrics, 1, &remote.place));
    let DrivenTraffic { started, shed, interrupted } = args.drive(&remote, &scenario, &recorder, &connections).await?;
    let (counts, _) = recorder.finish().context("cannot write the trace")?;
    if let Some(file) = &mut csv {
        recorder.write_minutes(file).context("cannot write the table of minutes")?;
    }
    let admitted = calls::judge(&counts);
    let unended = recorder.open() as u64 + counts.lost;
    let driven = Driven { shed, elapsed_s: started.elapsed().as_secs_f64(), interrupted };
    let seen = SeenAgents { deferred: deferrals.total(), ..SeenAgents::new(&args, counts, driven) };
    print_result(args.json, &seen, &seen)?;
    if let Some(health) = health {
        health.close().await;
    }
    match unended {
        0 => admitted,
        unended => {
            let fault = connections.fault().map(|fault| format!(": {fault}")).unwrap_or_default();
            Err(Failure::failed(anyhow::anyhow!("{unended} calls did not end{fault}")))
        }
    }
}

impl TrafficArgs {
    fn scenario(
        &self,
        duration: Duration,
        connect_within: Duration,
        options: AgentOptions,
    ) -> Result<CallScenario, Failure> {
        self.calls.of(CallScenario {
            policy: self.policy.clone().filter(|policy| !policy.is_empty()),
            rate: self.rate,
            duration,
            seed: self.seed,
            run: format!("run-{:x}", since_epoch().as_secs()),
            initiator: self.initiator.clone(),
            connect_within,
            options,
            ..CallScenario::default()
        })
    }

    /// Calls until the time is over or the user asks to end. Time begins with the first connection.
    async fn drive(
        &self,
        remote: &Remote,
        scenario: &CallScenario,
        recorder: &Arc<Recorder>,
        connections: &Arc<Connections>,
    ) -> Result<DrivenTraffic, Failure> {
        let (transport, identity) = (|_: &_| remote.transport(), |name: &_| remote.identity(name));
        let access = Access { control: &remote.control, transport: &transport, identity: &identity };
        let initiator = remote.connected(live::connect(&access, scenario, recorder)).await?;
        let started = Instant::now();
        let cancel = CancellationToken::new();
        let interrupt = calls::end_when_asked(&cancel, scenario.drain);
        let watch = tokio::spawn({
            let connections = Arc::clone(connections);
            async move { connections.watch().await }
        });
        let period = Duration::from_secs(if std::io::stderr().is_terminal() { 1 } else { PROGRESS_LOG_S });
        let progress = calls::show_progress(Arc::clone(recorder), started, period, line);
        let progress = (!self.json).then(|| tokio::spawn(progress));
        let shed = live::call_from(initiator, scenario, recorder, started, &cancel).await;
        interrupt.abort();
        watch.abort();
        if let Some(progress) = progress {
            progress.abort();
            Progress::new().finish();
        }
        Ok(DrivenTraffic { started, shed: shed?, interrupted: cancel.is_cancelled() })
    }
}

/// A load that is over.
struct DrivenTraffic {
    /// The first connection.
    started: Instant,
    /// Calls that were not made.
    shed: u64,
    /// Whether it was asked to end before its time.
    interrupted: bool,
}

/// The line of progress.
fn line(counts: &Counts, open: usize) -> String {
    let (Counts { cfps, awards, rounds, lost, .. }, decision) = (counts, counts.decision.quantiles());
    format!(
        "calls {cfps:>6}   awards {awards:>6}   ended {rounds:>6}   open {open:>4}   lost {lost:>2}   \
         decision p50 {:.2} ms, p95 {:.2} ms",
        decision.p50, decision.p95
    )
}

/// What the health port says.
fn report(connected: u64, phase: Phase) -> HealthReport {
    let fault = match (connected, phase) {
        (0, _) => Some("the initiator is not connected; wait, or see why (LLMX_LOG=agents=debug)"),
        (_, Phase::Starting) => Some("it starts; wait"),
        (_, Phase::Running) => None,
        (_, Phase::Draining | Phase::Ended) => Some("the run is over: no further calls are made"),
    };
    let faults = fault.map(str::to_owned).into_iter().collect();
    let state = json!({ "connected": connected, "phase": <&str>::from(phase) });
    HealthReport { is_ready: fault.is_none(), faults, state }
}

/// What the initiator saw of a run. Members are those of the same name in the summary of `llmx demo`.
#[derive(Serialize)]
struct SeenAgents {
    initiator: AgentId,
    seed: u64,
    policy: Option<String>,
    policies: BTreeMap<String, u64>,
    rate: f64,
    rounds: u64,
    cfps: u64,
    awards: u64,
    award_rate: f64,
    latency_ms: SeenLatencies,
    rejected: BTreeMap<String, u64>,
    deferred: Deferrals,
    dispositions: BTreeMap<String, u64>,
    outcomes: BTreeMap<String, u64>,
    lost: u64,
    #[serde(flatten)]
    driven: Driven,
}

#[derive(Serialize)]
struct SeenLatencies {
    lag: Quantiles,
    decision: Quantiles,
    round: Quantiles,
}

impl SeenAgents {
    fn new(args: &TrafficArgs, counts: Counts, driven: Driven) -> Self {
        Self {
            initiator: args.initiator.clone(),
            seed: args.seed,
            policy: counts.policy.or_else(|| args.policy.clone()),
            policies: counts.policies,
            rate: args.rate,
            rounds: counts.rounds,
            cfps: counts.cfps,
            awards: counts.awards,
            award_rate: if counts.rounds == 0 { 0.0 } else { counts.awarded as f64 / counts.rounds as f64 },
            latency_ms: SeenLatencies {
                lag: counts.lag.quantiles(),
                decision: counts.decision.quantiles(),
                round: counts.round.quantiles(),
            },
            rejected: counts.rejected,
            deferred: Deferrals::default(),
            dispositions: counts.dispositions,
            outcomes: counts.outcomes,
            lost: counts.lost,
            driven,
        }
    }
}

impl fmt::Display for SeenAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.driven.begin(f)?;
        let policies = summary::policies(self.policy.as_deref().unwrap_or("unknown"), &self.policies);
        writeln!(f, "{policies}, {} calls/s, seed {}: {:.1} s", self.rate, self.seed, self.driven.elapsed_s)?;
        writeln!(f, "  rounds {}   calls {}   awards {}", self.rounds, self.cfps, self.awards)?;
        writeln!(f, "  award rate {:.1} %", self.award_rate * 100.0)?;
        summary::line(f, "call to decision", &self.latency_ms.decision)?;
        summary::line(f, "call to end", &self.latency_ms.round)?;
        writeln!(f, "  outcomes {}", summary::counts(&self.outcomes))?;
        write!(f, "  rejected at the gateway {}", summary::counts(&self.rejected))?;
        if self.deferred.is_empty() {
            return Ok(());
        }
        write!(f, "\n  held back or not answered {}", self.deferred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_is_ready_while_it_is_connected_and_calls() {
        for (connected, phase, is_ready) in [
            (0, Phase::Running, false),
            (1, Phase::Starting, false),
            (1, Phase::Running, true),
            (1, Phase::Draining, false),
            (1, Phase::Ended, false),
        ] {
            let report = report(connected, phase);
            assert_eq!((report.is_ready, report.faults.is_empty()), (is_ready, is_ready), "{phase:?}");
        }
    }
}
