//! How long an engine takes to be ready again with many open negotiations, and what it then keeps in memory.
//!
//! Engines are processes of `llmx` on a real nats-server, because memory is a property of a process. The log is
//! written directly, without a gateway; every delivery is acknowledged.

mod fill;
mod process;

use std::path::Path;
use std::time::{Duration, Instant};

use bus::Bus;
use bytes::Bytes;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::Lane;
use tokio::task::JoinSet;

pub use self::fill::FillKind;
pub(super) use self::fill::acknowledge_all;
use self::fill::fill;
use self::process::{CHECKPOINT_EVERY, EngineProcess};
use super::overhead::median;
use super::rounds::{BenchError, on_server, stuck};

/// Longest wait for every lane's checkpoint: engines make one every minute.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(180);
/// How often it is looked for.
const CHECKPOINT_POLL: Duration = Duration::from_millis(500);
/// Starts of which the median counts: whether the server still holds a checkpoint in memory is chance.
const STARTS: usize = 3;
/// How long a process is left alone before its memory is read: allocators give back what they freed with a delay.
const SETTLE: Duration = Duration::from_secs(5);

/// What a recovery took.
#[derive(Debug, Clone, Copy)]
pub struct Recovery {
    /// From the start of the process to readiness, with checkpoints and the log behind them.
    pub from_checkpoint_s: f64,
    /// The same without checkpoints: the whole log.
    pub from_log_s: f64,
    /// From the end of an engine until another owns its lanes, which knew nothing of them before.
    pub cold_takeover_s: f64,
    /// Resident bytes of the engine that folded the log as it came.
    pub resident_before: u64,
    /// Resident bytes of the one that recovered from the checkpoints.
    pub resident_after: u64,
}

/// Opens `open` negotiations with twelve contractors and their offers, kills the engine, one of the program `exchange`, and
/// starts another one: first from its checkpoints, beside which a third takes over half of the lanes and then all; then from
/// the log alone.
///
/// # Errors
/// [`BenchError`].
pub async fn measure(exchange: &Path, open: u32) -> Result<Recovery, BenchError> {
    let FilledLog { server, bus, engine: first, ackers } =
        FilledLog::of(exchange, FillKind::ContractNets, open).await?;
    tokio::time::sleep(SETTLE).await;
    let resident_before = first.resident_bytes();
    drop(first);

    let second = EngineProcess::start(exchange, &server.url(), "recovery-2").await?;
    let from_checkpoint_s = second.ready_after.as_secs_f64();
    second.until_idle(u64::from(open)).await?;
    tokio::time::sleep(SETTLE).await;
    let resident_after = second.resident_bytes();

    let heir = EngineProcess::start(exchange, &server.url(), "recovery-3").await?;
    heir.until_owner(1).await?;
    let ended = Instant::now();
    drop(second);
    heir.until_owner(bus.log.lanes().into()).await?;
    let cold_takeover_s = ended.elapsed().as_secs_f64();
    heir.until_idle(u64::from(open)).await?;
    drop(heir);

    spoil_checkpoints(&bus).await?;
    let last = EngineProcess::start(exchange, &server.url(), "recovery-4").await?;
    let from_log_s = last.ready_after.as_secs_f64();
    last.until_idle(u64::from(open)).await?;
    drop(ackers);
    Ok(Recovery { from_checkpoint_s, from_log_s, cold_takeover_s, resident_before, resident_after })
}

/// Seconds from the start of an engine's process to readiness, with checkpoints and the log behind them, where another was killed
/// with `open` negotiations of one kind: the median of three engines, each of which is killed for the next.
///
/// # Errors
/// [`BenchError`].
pub async fn from_checkpoint_s(exchange: &Path, kind: FillKind, open: u32) -> Result<f64, BenchError> {
    let filled = FilledLog::of(exchange, kind, open).await?;
    drop(filled.engine);
    let mut ready_after_s = Vec::with_capacity(STARTS);
    for start in 0..STARTS {
        let engine = EngineProcess::start(exchange, &filled.server.url(), &format!("restarted-{start}")).await?;
        ready_after_s.push(engine.ready_after.as_secs_f64());
        engine.until_idle(u64::from(open)).await?;
    }
    Ok(median(&ready_after_s))
}

/// A log with open negotiations, and the engine that folded it as it came.
struct FilledLog {
    engine: EngineProcess,
    ackers: JoinSet<()>,
    bus: Bus,
    server: LocalServer,
}

impl FilledLog {
    /// Opens as many, and waits until every lane has a checkpoint and every delivery is acknowledged.
    async fn of(exchange: &Path, kind: FillKind, open: u32) -> Result<Self, BenchError> {
        let (server, bus) = on_server(LocalServerOptions::default()).await?;
        let engine = EngineProcess::start(exchange, &server.url(), "recovery-1").await?;
        let ackers = acknowledge_all(&bus).await?;
        fill(&bus, &engine, kind, open).await?;
        until_checkpointed(&bus).await?;
        engine.until_idle(u64::from(open)).await?;
        Ok(Self { engine, ackers, bus, server })
    }
}

/// Waits until no more records stand behind a lane's checkpoint than an engine leaves there when nothing comes: how far the
/// last one lags while the log is filled is chance, and whoever lags more would have more to fold.
async fn until_checkpointed(bus: &Bus) -> Result<(), BenchError> {
    let deadline = Instant::now() + CHECKPOINT_TIMEOUT;
    for lane in lanes(bus) {
        let from = bus.log.last_seq(lane).await?.saturating_sub(CHECKPOINT_EVERY);
        while bus.blobs.version(checkpoint(lane)).await?.is_none_or(|version| version < from) {
            if Instant::now() > deadline {
                return Err(stuck(format!("lane {lane} has no recent checkpoint")));
            }
            tokio::time::sleep(CHECKPOINT_POLL).await;
        }
    }
    Ok(())
}

/// Puts something unreadable in the place of every checkpoint: an engine then reads the whole log.
async fn spoil_checkpoints(bus: &Bus) -> Result<(), BenchError> {
    for lane in lanes(bus) {
        if let Some(version) = bus.blobs.version(checkpoint(lane)).await? {
            bus.blobs.put(checkpoint(lane), version, Bytes::from_static(b"none")).await?;
        }
    }
    Ok(())
}

fn checkpoint(lane: Lane) -> String {
    format!("checkpoint-{lane}")
}

fn lanes(bus: &Bus) -> impl Iterator<Item = Lane> + use<> {
    (0..bus.log.lanes()).map(Lane)
}
