//! `llmx team`: teams of agents, played from a file, or called for a goal.

mod goal;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::agents::team::Scenario;
use ::agents::transport::Transport;
use ::agents::transport::bus::BusTransport;
use ::agents::transport::websocket::WebSocketTransport;
use ::agents::{AgentOptions, Identity};
use anyhow::Context;
use bus::memory::MemoryOptions;
use schemas::AgentId;
use schemas::delivery::Outcome as TeamOutcome;
use serde::Serialize;
use tokio::time::Instant;
use traffic_gen::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::recompute;
use traffic_gen::live::Access;
use traffic_gen::recorder::Recorder;
use traffic_gen::summary::Violations;
use traffic_gen::team::{PlayContext, TeamPlayError, Transcript, play};
use traffic_gen::trace::TraceFile;

use crate::arguments::read_text;
use crate::nats::{self, start_server};
use crate::output::{Failure, Outcome, Progress, print, print_json};

/// Largest scenario file read, in bytes: a thousand moves of each of a hundred agents.
const SCENARIO_BYTES_MAX: u64 = 16 << 20;
/// The lead's own id of the root. The exchange is the run's own, so nobody has used it.
const OWN_ID: &str = "play";

/// Arguments of `llmx team`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx team play domains/teams/evening.json\n  llmx team play domains/teams/evening.json --json\n\n\
    What teams are: docs/teams.md"
)]
pub struct TeamArgs {
    #[command(subcommand)]
    command: TeamCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TeamCommand {
    /// Play a scenario on an exchange of its own, to its conclusion
    #[command(
        after_help = "Examples:\n  llmx team play domains/teams/evening.json\n  llmx team play domains/teams/evening.json --nats-local\n  \
        llmx team play domains/teams/evening.json --websocket --trace evening.jsonl\n\n\
        Every agent of the file runs in this process and speaks with the exchange as any other would. What was said and done\n\
        is printed team by team; the digest behind it is of everything that does not depend on timing, so that two runs can\n\
        be compared. Exit codes: 1 when the team ends without a conclusion or an invariant is violated, 2 for a bad file.\n\
        Scenario files: docs/teams.md"
    )]
    Play(TeamPlayArgs),
    /// Call a team for a goal on a running exchange, and print its conclusion
    #[command(after_help = "Examples:\n  llmx team goal \"Who paints walls? Who lays floors?\"\n  \
        llmx team goal \"a survey of agent networks\" --gateway http://127.0.0.1:8080 --model examples/team-model.toml\n  \
        llmx team goal \"dinner for eight\" --members 3 --contacts contacts.json --json\n\n\
        The goal is split into clauses, each is searched for, and those are called who fit best; a model may search and choose\n\
        instead. The conclusion goes to stdout, everything else to stderr. Without a model the lead lets every member speak once\n\
        and concludes with what they said.\n\
        Exit codes: 1 without a conclusion or result, 2 usage or configuration. docs/teams.md")]
    Goal(Box<goal::TeamGoalArgs>),
}

/// Arguments of `llmx team play`.
#[derive(Debug, clap::Args)]
struct TeamPlayArgs {
    /// A scenario file
    #[arg(value_name = "SCENARIO.json")]
    scenario: PathBuf,
    /// Start a nats-server for this run (`scripts/nats-server` fetches the binary)
    #[arg(long, hide = cfg!(not(feature = "nats-local")))]
    nats_local: bool,
    /// Agents speak with the gateway over WebSockets instead of the bus
    #[arg(long)]
    websocket: bool,
    /// Write every message of every agent, one JSON document per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the transcript as JSON
    #[arg(long)]
    json: bool,
}

/// What a play has come to, as JSON.
#[derive(Serialize)]
struct PlayReport<'a> {
    scenario: &'a str,
    /// `memory` or `nats`.
    bus: &'a str,
    elapsed_s: f64,
    #[serde(flatten)]
    transcript: &'a Transcript,
    invariant_violations: &'a Violations,
}

/// Runs the subcommand.
pub async fn run(args: TeamArgs) -> Outcome {
    match args.command {
        TeamCommand::Play(args) => play_file(args).await,
        TeamCommand::Goal(args) => goal::run(*args).await,
    }
}

async fn play_file(args: TeamPlayArgs) -> Outcome {
    let scenario = Arc::new(read_scenario(&args.scenario)?);
    let trace = args.trace.as_deref().map(TraceFile::create).transpose().map_err(Failure::configuration)?;
    // Declared before the bus, which ends before its server does.
    let server = if args.nats_local { Some(start_server().await?) } else { None };
    let (bus, bus_name) = match &server {
        Some((_, url)) => (nats::open_at(url, None, "llmx-team").await?, "nats"),
        None => (bus::memory::open(MemoryOptions::default()), "memory"),
    };
    let options = ExchangeOptions { tracer: crate::output::tracer(), ..ExchangeOptions::default() };
    let exchange = Exchange::start(bus.clone(), options).await.context("the exchange does not start")?;
    if !args.json {
        Progress::new().show(format_args!("exchange on {bus_name}, {}\n", exchange.url()));
    }
    let started = Instant::now();
    let recorder = Arc::new(Recorder::start(started, true, trace));
    let played = play_on(&args, &exchange, &scenario, &recorder).await;
    let elapsed_s = started.elapsed().as_secs_f64();
    let (_counts, mut verdict) = recorder.finish().context("cannot write the trace")?;
    let transcript = played.map_err(failure)?;
    recompute(&bus, &mut verdict).await?;
    exchange.check_bounds(&mut verdict);
    exchange.shutdown().await;
    let violations = Violations::from(verdict);
    if args.json {
        let scenario = &scenario.name;
        print_json(&PlayReport {
            scenario,
            bus: bus_name,
            elapsed_s,
            transcript: &transcript,
            invariant_violations: &violations,
        })?;
    } else {
        print(&transcript);
        print(format_args!("{}: {elapsed_s:.1} s on {bus_name}\n{violations}", scenario.name));
    }
    judge(&transcript, &violations)
}

async fn play_on(
    args: &TeamPlayArgs,
    exchange: &Exchange,
    scenario: &Arc<Scenario>,
    recorder: &Arc<Recorder>,
) -> Result<Transcript, TeamPlayError> {
    let control = ControlClient::try_new(exchange.url())?;
    let bus = exchange.bus.clone();
    let url = exchange.url().to_owned();
    let is_over_websocket = args.websocket;
    let transport = move |_: &AgentId| -> Arc<dyn Transport> {
        if is_over_websocket { Arc::new(WebSocketTransport::new(&url)) } else { Arc::new(BusTransport::new(&bus)) }
    };
    let names = scenario.agents.iter().map(|agent| &agent.name);
    let identities: BTreeMap<AgentId, Identity> =
        names.map(|name| exchange.identity(name).map(|identity| (name.clone(), identity))).collect::<Result<_, _>>()?;
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let options = AgentOptions { tracer: crate::output::tracer(), ..AgentOptions::default() };
    let context = PlayContext { access, options, recorder: Arc::clone(recorder) };
    play(&context, scenario, OWN_ID).await
}

/// Reads a scenario file.
fn read_scenario(path: &Path) -> Result<Scenario, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::configuration(format_args!("{}: {error}", path.display()));
    let text = read_text(path, SCENARIO_BYTES_MAX).map_err(|error| fault(&error))?;
    Scenario::parse(&text).map_err(|error| fault(&error))
}

/// What the exchange refuses lies in the file.
fn failure(error: TeamPlayError) -> Failure {
    match error {
        TeamPlayError::Id(_) | TeamPlayError::Refused(_) => Failure::configuration(error),
        TeamPlayError::Exchange(_)
        | TeamPlayError::Control(_)
        | TeamPlayError::Agent(_)
        | TeamPlayError::Endless { .. } => Failure::failed(error),
    }
}

fn judge(transcript: &Transcript, violations: &Violations) -> Outcome {
    if violations.total > 0 {
        return Err(Failure::failed(anyhow::anyhow!("{} violations of invariants", violations.total)));
    }
    let root = transcript.teams.first().and_then(|root| root.outcome);
    match root {
        Some(TeamOutcome::Concluded) => Ok(()),
        other => {
            let outcome = other.map_or("nothing", TeamOutcome::as_str);
            Err(Failure::failed(anyhow::anyhow!("the team ended without a conclusion: {outcome}")))
        }
    }
}
