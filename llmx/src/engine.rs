//! `llmx engine`: one policy engine, on NATS.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use bus::Bus;
use policy_engine::{Engine, EngineConfig, EngineHandle, EngineMetrics, LanePhase, StatusReader, Trim};
use prometheus::Registry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use telemetry::metrics::process;

use crate::arguments::{listen_address, since_epoch};
use crate::nats::NatsArgs;
use crate::ops::{self, HealthPort, HealthReport};
use crate::output::{Failure, Outcome, print};
use crate::runtime::ThreadsArgs;
use crate::settings::{File, Given, Section};
use crate::signals::asked_to_end;

/// How often the lanes are looked at. A lane that stops has said so in the log already; this only ends the process.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
Examples:
  llmx engine --nats nats://127.0.0.1:4222 --id engine-1 --listen 127.0.0.1:9464
  llmx healthcheck http://127.0.0.1:9464/readyz

Engines share the lanes: start as many as you like, each under its own name. Every one folds the lanes it owns and those
it stands by for (--standbys). One that is killed is replaced within 1.2 seconds; one that is asked to end (Ctrl-C,
SIGTERM) hands its lanes over first. The process ends by itself, with exit code 1, only when all its lanes have stopped.";

/// Arguments of `llmx engine`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct EngineArgs {
    #[command(flatten)]
    nats: NatsArgs,
    /// Configuration file (TOML, tables `engine` and `nats`)
    #[arg(long, env = "LLMX_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Members of `[engine]`.
    #[command(flatten)]
    pub settings: EngineSettings,
    /// The threads it runs on.
    #[command(flatten)]
    pub threads: ThreadsArgs,
}

/// Members of `[engine]`.
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSettings {
    /// Name in records, logs and heartbeats: 1 to 64 of A-Z a-z 0-9 _ -; engines that run at once must differ
    #[arg(long, env = "LLMX_ENGINE_ID", value_name = "NAME", value_parser = ops::instance_id)]
    pub id: Option<String>,
    /// What must be durable before records of the log are removed (default: after-archive)
    #[arg(long, env = "LLMX_ENGINE_TRIM", value_enum)]
    trim: Option<TrimArg>,
    /// Seconds an entry of the register stays at least once it was written; then it goes with --trim after-archive, behind
    /// archive and checkpoint; 0: for ever; the same for every engine (default: 3600)
    #[arg(long, env = "LLMX_ENGINE_REGISTER_KEEP_S", value_name = "SECONDS", value_parser = register_keep)]
    register_keep_s: Option<u64>,
    /// Records of a lane between two checkpoints; 0: none by number (one is made every minute, too) (default: 20000)
    #[arg(long, env = "LLMX_ENGINE_CHECKPOINT_EVERY", value_name = "RECORDS")]
    checkpoint_every: Option<u64>,
    /// Engines that stand by for each lane, 0 to 3, the same for every engine; with 0 a take-over reads a checkpoint first
    /// (default: 1)
    #[arg(long, env = "LLMX_ENGINE_STANDBYS", value_name = "ENGINES", value_parser = clap::value_parser!(u32).range(STANDBYS_RANGE))]
    standbys: Option<u32>,
    /// Deliveries an agent may leave unacknowledged; beyond, gateways invite it no more until it acknowledges (default: 4096)
    #[arg(long, env = "LLMX_ENGINE_BACKLOG_MAX", value_name = "DELIVERIES", value_parser = clap::value_parser!(u32).range(BACKLOG_RANGE))]
    backlog_max: Option<u32>,
    /// Address of the health port: /healthz, /readyz, /status, /metrics, to whoever asks; for example 127.0.0.1:9464
    /// (default: none)
    #[arg(long, env = "LLMX_ENGINE_LISTEN", value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
}

impl EngineSettings {
    /// The configuration of an engine of this id; it is not traced.
    fn config(&self, id: String) -> Result<EngineConfig, Failure> {
        let mut config = EngineConfig::new(id);
        config.trim = self.trim.unwrap_or(TrimArg::AfterArchive).into();
        if let Some(seconds) = self.register_keep_s {
            config.register_keep_ms = seconds.saturating_mul(1000);
        }
        config.checkpoint.every_records = self.checkpoint_every.unwrap_or(CHECKPOINT_EVERY_DEFAULT);
        if let Some(standbys) = self.standbys {
            config.standbys = usize::try_from(standbys)?;
        }
        if let Some(limit) = self.backlog_max {
            config.outbox.backlog_max = usize::try_from(limit)?;
        }
        Ok(config)
    }
}

/// Records of a lane between two checkpoints unless said otherwise.
const CHECKPOINT_EVERY_DEFAULT: u64 = 20_000;
/// How long entries of the register stay at least, where they do not stay for ever: longer than clocks differ, and no longer
/// than a year.
const REGISTER_KEEP_S: RangeInclusive<u64> = 10..=31_536_000;
/// How many engines may stand by for a lane.
const STANDBYS_RANGE: RangeInclusive<i64> = 0..=3;
/// What the limit of unacknowledged deliveries may be. The most is some times what a lane holds for all agents.
const BACKLOG_RANGE: RangeInclusive<i64> = 1..=1_000_000;

/// The sections an engine is configured by.
pub struct EngineSections {
    /// `[nats]`.
    pub nats: Section,
    /// `[engine]`.
    pub engine: Section,
}

impl EngineSections {
    /// Of a command line, its environment, and the file it names.
    pub fn of(given: &Given<EngineArgs>) -> Result<Self, Failure> {
        let file = given.args.config.as_deref().map(File::read).transpose()?;
        Ok(Self {
            nats: Section::new("nats", &[], file.as_ref(), given, &given.args.nats)?,
            engine: Section::new("engine", &[], file.as_ref(), given, &given.args.settings)?,
        })
    }

    /// How NATS is reached.
    pub fn nats_in_force(&self) -> Result<Value, Failure> {
        NatsArgs::of(&self.nats)?.in_force()
    }

    /// Every member of `[engine]` with its default.
    pub fn in_force(&self) -> Result<Value, Failure> {
        let settings = self.settings()?;
        let config = settings.config(String::new())?;
        Ok(serde_json::to_value(EngineSettings {
            trim: Some(settings.trim.unwrap_or(TrimArg::AfterArchive)),
            checkpoint_every: Some(config.checkpoint.every_records),
            register_keep_s: Some(config.register_keep_ms / 1000),
            standbys: Some(u32::try_from(config.standbys)?),
            backlog_max: Some(u32::try_from(config.outbox.backlog_max)?),
            ..settings
        })?)
    }

    /// The configuration in force.
    pub fn config(&self) -> Result<EngineConfig, Failure> {
        let settings = self.settings()?;
        let id = settings.id.clone().unwrap_or_else(id_of_this_run);
        Ok(EngineConfig { tracer: crate::output::tracer(), ..settings.config(id)? })
    }

    /// Where the health port opens, if it does.
    pub fn listen(&self) -> Result<Option<SocketAddr>, Failure> {
        Ok(self.settings()?.listen)
    }

    fn settings(&self) -> Result<EngineSettings, Failure> {
        let settings: EngineSettings = self.engine.read()?;
        if let Some(Err(wrong)) = settings.id.as_deref().map(ops::instance_id) {
            return Err(self.engine.fault("id", &wrong));
        }
        if let Some(Err(wrong)) = settings.register_keep_s.map(|seconds| register_keep(&seconds.to_string())) {
            return Err(self.engine.fault("register_keep_s", &wrong));
        }
        if settings.standbys.is_some_and(|standbys| !STANDBYS_RANGE.contains(&i64::from(standbys))) {
            let wrong = format!("must be {} to {}", STANDBYS_RANGE.start(), STANDBYS_RANGE.end());
            return Err(self.engine.fault("standbys", &wrong));
        }
        if settings.backlog_max.is_some_and(|limit| !BACKLOG_RANGE.contains(&i64::from(limit))) {
            let wrong = format!("must be {} to {}", BACKLOG_RANGE.start(), BACKLOG_RANGE.end());
            return Err(self.engine.fault("backlog_max", &wrong));
        }
        Ok(settings)
    }
}

/// Reads how long entries of the register stay at least.
fn register_keep(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds == 0 || REGISTER_KEEP_S.contains(seconds));
    let wrong = || format!("must be 0, or {} to {}", REGISTER_KEEP_S.start(), REGISTER_KEEP_S.end());
    seconds.ok_or_else(wrong)
}

/// [`Trim`] on the command line.
#[derive(Debug, Clone, Copy, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TrimArg {
    /// Nothing is removed
    Never,
    /// The lane's checkpoint
    AfterCheckpoint,
    /// The lane's checkpoint and what `llmx archive` has stored; without an archiver nothing is removed
    AfterArchive,
}

crate::same_variants!(TrimArg => Trim: Never, AfterCheckpoint, AfterArchive);

/// Runs until asked to end, or until every lane has stopped.
pub async fn run(given: Given<EngineArgs>) -> Outcome {
    let sections = EngineSections::of(&given)?;
    let config = sections.config()?;
    let registry = ops::registry()?;
    let bus = NatsArgs::of(&sections.nats)?.open_counted(&config.id, &registry).await?;
    process::register_config(&registry, &EngineConfig { id: String::new(), ..config.clone() })?;
    let running = RunningEngine::start(bus, config, sections.listen()?, &registry).await?;
    print(format_args!("engine: {}, {} lanes", running.id, running.engine.status().lanes.len()));
    let outcome = tokio::select! {
        () = asked_to_end() => Ok(()),
        failure = running.all_stopped() => Err(failure),
    };
    running.shutdown().await;
    outcome
}

/// An engine that runs, and its health port.
pub struct RunningEngine {
    id: String,
    engine: EngineHandle,
    health: Option<HealthPort>,
    is_leaving: Arc<AtomicBool>,
}

impl RunningEngine {
    /// Opens the health port, then starts the engine.
    pub async fn start(
        bus: Bus,
        config: EngineConfig,
        listen: Option<SocketAddr>,
        registry: &Registry,
    ) -> Result<Self, Failure> {
        let metrics = Arc::new(EngineMetrics::new(registry)?);
        let health = ops::open(listen, Some(&bus), registry)?;
        if let Some(health) = &health {
            print(format_args!("health: http://{}/readyz", health.address()));
        }
        let id = config.id.clone();
        let engine = Engine::start(bus, config, metrics, None).await.context("the engine does not start")?;
        let is_leaving = Arc::new(AtomicBool::new(false));
        if let Some(health) = &health {
            let (id, reader, is_leaving) = (id.clone(), engine.status_reader(), Arc::clone(&is_leaving));
            health.report(move || report(&id, &reader, is_leaving.load(Ordering::Relaxed)));
        }
        Ok(Self { id, engine, health, is_leaving })
    }

    /// Waits until every lane has stopped by itself, and tells one of the reasons. As long as one goes on, so does the
    /// engine: readiness and the logs tell what is wrong with the others.
    pub async fn all_stopped(&self) -> Failure {
        let mut watch = tokio::time::interval(WATCH_PERIOD);
        loop {
            watch.tick().await;
            let lanes = self.engine.status().lanes.into_iter();
            let stopped: Option<Vec<_>> =
                lanes.map(|status| Some((status.lane, status.phase.stopped()?.clone()))).collect();
            if let Some((lane, reason)) = stopped.and_then(|mut stopped| stopped.pop()) {
                return Failure::failed(anyhow::anyhow!("lane {lane} stopped: {reason}"));
            }
        }
    }

    /// Hands its lanes over and ends.
    pub async fn shutdown(self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.engine.shutdown().await;
        if let Some(health) = self.health {
            health.close().await;
        }
    }
}

/// What the health port says of the engine.
fn report(id: &str, reader: &StatusReader, is_leaving: bool) -> HealthReport {
    let status = reader.read();
    let is_ready = status.is_ready() && !is_leaving;
    let waits = status.lanes.iter().filter_map(|lane| match lane.phase {
        LanePhase::CatchingUp => Some(format!("lane {} is catching up with the log; wait", lane.lane)),
        LanePhase::Claiming => Some(format!("lane {} is being claimed; wait", lane.lane)),
        // A lane that stopped is among the faults, with its reason.
        LanePhase::Elsewhere | LanePhase::Standby | LanePhase::Owner | LanePhase::Stopped(_) => None,
    });
    let leaves = is_leaving.then(|| "the engine hands its lanes over and ends".to_owned());
    let faults = leaves.into_iter().chain(waits).chain(status.faults.iter().cloned()).collect();
    HealthReport { is_ready, faults, state: json!({ "engine": id, "lanes": status.lanes }) }
}

/// A name no other run has: process ids alone are the same in every container.
fn id_of_this_run() -> String {
    format!("engine-{}-{:x}", std::process::id(), since_epoch().as_millis())
}
