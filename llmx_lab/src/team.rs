//! `llmx-lab team`: teams of agents, played from a file, or called for a goal.

mod goal;

use std::path::PathBuf;
use std::sync::Arc;

use ::agents::AgentOptions;
use ::agents::team::Scenario;
use ::agents::transport::Transport;
use ::agents::transport::bus::BusTransport;
use ::agents::transport::websocket::WebSocketTransport;
use agents::control::ControlClient;
use anyhow::Context;
use schemas::AgentId;
use schemas::delivery::Outcome as TeamOutcome;
use scripted::team::{PlayContext, TeamPlayError, Transcript, play};
use serde::Serialize;
use tokio::time::Instant;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::invariants::{Verdict, recompute};
use traffic_gen::live::Access;
use traffic_gen::recorder::Recorder;
use traffic_gen::summary::Violations;
use traffic_gen::trace::TraceFile;

use crate::arguments::{read_file, since_epoch};
use crate::experiment::none;
use crate::nats::open_own;
use crate::output::{Failure, Outcome, Progress, print, print_json};
use crate::remote::RemoteArgs;

/// Largest scenario file read, in bytes: a thousand moves of each of a hundred agents.
const SCENARIO_BYTES_MAX: u64 = 16 << 20;
/// The lead's own id of the root; on an exchange that runs the time follows it.
const OWN_ID: &str = "play";

/// Arguments of `llmx-lab team`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx-lab team play domains/teams/evening.json\n  llmx-lab team play domains/teams/evening.json --json\n  \
    llmx-lab team goal \"Who paints walls? Who lays floors?\" --gateway http://127.0.0.1:8080\n\n\
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
        after_help = "Examples:\n  llmx-lab team play domains/teams/evening.json\n  llmx-lab team play domains/teams/evening.json --nats-local\n  \
        llmx-lab team play domains/teams/evening.json --websocket --trace evening.jsonl\n  \
        llmx-lab team play domains/teams/evening.json --running --gateway http://127.0.0.1:8080\n\n\
        Every agent of the file runs in this process and speaks with the exchange as any other would. What was said and done\n\
        is printed team by team; the digest behind it is of everything that does not depend on timing, so that two runs can\n\
        be compared. Exit codes: 1 when the team ends without a conclusion or an invariant is violated, 2 for a bad file.\n\
        Scenario files: docs/teams.md"
    )]
    Play(Box<TeamPlayArgs>),
    /// Call a team for a goal on a running exchange, and print its conclusion
    #[command(after_help = "Examples:\n  llmx-lab team goal \"Who paints walls? Who lays floors?\"\n  \
        llmx-lab team goal \"a survey of agent networks\" --gateway http://127.0.0.1:8080 --model examples/team-model.toml\n  \
        llmx-lab team goal \"dinner for eight\" --members 3 --contacts contacts.json --json\n\n\
        The goal is split into clauses, each is searched for, and those are called who fit best; a model may search and choose\n\
        instead. The conclusion goes to stdout, everything else to stderr. Without a model the lead lets every member speak once\n\
        and concludes with what they said.\n\
        Exit codes: 1 without a conclusion or result, 2 usage or configuration. docs/teams.md")]
    Goal(Box<goal::TeamGoalArgs>),
}

/// Arguments of `llmx-lab team play`.
#[derive(Debug, clap::Args)]
struct TeamPlayArgs {
    /// A scenario file
    #[arg(value_name = "SCENARIO.json")]
    scenario: PathBuf,
    /// Start a nats-server for this run (`scripts/nats-server` fetches the binary)
    #[arg(long)]
    nats_local: bool,
    /// Agents speak with the gateway over WebSockets instead of the bus
    #[arg(long)]
    websocket: bool,
    /// On an exchange that runs, reached as `llmx contractors` reaches it (--gateway), instead of one of its own. No agent of
    /// the file may be registered there
    #[arg(long, conflicts_with_all = ["nats_local", "websocket"])]
    running: bool,
    /// Write every message of every agent, one JSON document per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the transcript as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// What a play has come to.
struct Played {
    transcript: Transcript,
    verdict: Verdict,
    elapsed_s: f64,
    /// `memory`, `nats` or `elsewhere`.
    on: &'static str,
}

/// What a play has come to, as JSON.
#[derive(Serialize)]
struct PlayReport<'a> {
    scenario: &'a str,
    /// `memory`, `nats` or `elsewhere`.
    bus: &'a str,
    elapsed_s: f64,
    #[serde(flatten)]
    transcript: &'a Transcript,
    invariant_violations: &'a Violations,
}

/// Runs the subcommand.
pub async fn run(args: TeamArgs) -> Outcome {
    match args.command {
        TeamCommand::Play(args) => play_file(*args).await,
        TeamCommand::Goal(args) => goal::run(*args).await,
    }
}

async fn play_file(args: TeamPlayArgs) -> Outcome {
    let scenario = Arc::new(read_file(&args.scenario, SCENARIO_BYTES_MAX, Scenario::parse)?);
    let trace = args.trace.as_deref().map(TraceFile::create).transpose().map_err(Failure::configuration)?;
    let Played { transcript, verdict, elapsed_s, on } = if args.running {
        play_there(&args, &scenario, trace).await?
    } else {
        play_here(&args, &scenario, trace).await?
    };
    let violations = Violations::from(verdict);
    if args.json {
        let scenario = &scenario.name;
        print_json(&PlayReport {
            scenario,
            bus: on,
            elapsed_s,
            transcript: &transcript,
            invariant_violations: &violations,
        })?;
    } else {
        print(&transcript);
        print(format_args!("{}: {elapsed_s:.1} s on {on}\n{violations}", scenario.name));
    }
    judge(&transcript, &violations)
}

/// On an exchange of its own.
async fn play_here(args: &TeamPlayArgs, scenario: &Arc<Scenario>, trace: Option<TraceFile>) -> Result<Played, Failure> {
    let (_server, bus, on) = open_own(args.nats_local, "llmx-team").await?;
    let options = ExchangeOptions { tracer: crate::output::tracer(), ..ExchangeOptions::default() };
    let exchange = Exchange::start(bus.clone(), options).await.context("the exchange does not start")?;
    if !args.json {
        Progress::new().show(format_args!("exchange on {on}, {}\n", exchange.url()));
    }
    let control = ControlClient::try_new(exchange.url())?;
    let transport = |_: &AgentId| -> Arc<dyn Transport> {
        if args.websocket {
            Arc::new(WebSocketTransport::new(exchange.url()))
        } else {
            Arc::new(BusTransport::new(&exchange.bus))
        }
    };
    let names = scenario.agents.iter().map(|agent| agent.name.clone());
    let identities = exchange.identities(names).context("an agent gets no token")?;
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    let mut played = play_on(access, scenario, OWN_ID, trace).await?;
    played.on = on;
    recompute(&bus, &mut played.verdict).await?;
    exchange.check_bounds(&mut played.verdict);
    exchange.shutdown().await;
    Ok(played)
}

/// On one that runs elsewhere, whose log is not read.
async fn play_there(
    args: &TeamPlayArgs,
    scenario: &Arc<Scenario>,
    trace: Option<TraceFile>,
) -> Result<Played, Failure> {
    let remote = args.remote.open("llmx-team").await?;
    let transport = |_: &AgentId| -> Arc<dyn Transport> { remote.transport() };
    let identity = |agent: &AgentId| remote.identity(agent);
    let access = Access { control: &remote.control, transport: &transport, identity: &identity };
    check_names(&access, scenario).await?;
    // It may have been played there before.
    play_on(access, scenario, &format!("{OWN_ID}-{:x}", since_epoch().as_millis()), trace).await
}

/// Refuses to play under the name of an agent that is registered already: the play would be told what is for that agent, and
/// remove its registration.
async fn check_names(access: &Access<'_>, scenario: &Scenario) -> Outcome {
    for agent in &scenario.agents {
        let token = (access.identity)(&agent.name).token.current();
        if access.control.finds(&format!("/v1/agents/{}", agent.name), &token).await? {
            let taken = format!("agent `{}` of the scenario is registered at this exchange", agent.name);
            return Err(Failure::configuration(format_args!(
                "{taken}: end it, or give the scenario's agents other names"
            )));
        }
    }
    Ok(())
}

async fn play_on(
    access: Access<'_>,
    scenario: &Arc<Scenario>,
    own_id: &str,
    trace: Option<TraceFile>,
) -> Result<Played, Failure> {
    let started = Instant::now();
    let recorder = Arc::new(Recorder::start(started, true, trace));
    let options = AgentOptions { tracer: crate::output::tracer(), ..AgentOptions::default() };
    let context = PlayContext { access, options, recorder: Arc::clone(&recorder) };
    let played = play(&context, scenario, own_id).await;
    let elapsed_s = started.elapsed().as_secs_f64();
    let (_counts, verdict) = recorder.finish().context("cannot write the trace")?;
    Ok(Played { transcript: played.map_err(failure)?, verdict, elapsed_s, on: "elsewhere" })
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
    none(violations.total, "violations of invariants")?;
    let root = transcript.teams.first().and_then(|root| root.outcome);
    match root {
        Some(TeamOutcome::Concluded) => Ok(()),
        other => {
            let outcome = other.map_or("nothing", TeamOutcome::as_str);
            Err(Failure::failed(anyhow::anyhow!("the team ended without a conclusion: {outcome}")))
        }
    }
}
