//! `llmx engine`: one policy engine, on NATS.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use policy_engine::{Engine, EngineConfig, EngineHandle, EngineMetrics, LanePhase, StopReason};
use schemas::Lane;

use crate::nats::{NatsArgs, asked_to_end};
use crate::output::{Failure, Outcome, print};

/// How often the lanes are looked at. A lane that stops has said so in the log already; this only ends the process.
const WATCH_PERIOD: Duration = Duration::from_secs(1);

/// Arguments of `llmx engine`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  llmx engine --nats nats://127.0.0.1:4222 --id engine-1\n\n\
    One engine serves every lane. A second one takes the lanes over, and the first ends with exit code 1.")]
pub struct Args {
    #[command(flatten)]
    nats: NatsArgs,
    /// Name in records and logs; two engines that run at once must differ
    #[arg(long, env = "LLMX_ENGINE_ID")]
    id: Option<String>,
}

/// Runs until asked to end, or until a lane stops: a process that serves only part of the lanes would look healthy.
pub async fn run(args: Args) -> Outcome {
    let id = args.id.clone().unwrap_or_else(|| format!("engine-{}", std::process::id()));
    let bus = args.nats.open(&id).await?;
    let registry = prometheus::Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry)?);
    let engine = Engine::start(bus, EngineConfig::new(id.clone()), metrics, None).await;
    let engine = engine.context("the engine does not start")?;
    print(format_args!("engine: {id}, {} lanes", engine.status().lanes.len()));
    let stopped = tokio::select! {
        () = asked_to_end() => None,
        stopped = first_stopped(&engine) => Some(stopped),
    };
    engine.shutdown().await;
    match stopped {
        None => Ok(()),
        Some((lane, reason)) => Err(Failure::failed(anyhow::anyhow!("lane {lane} stopped: {reason}"))),
    }
}

/// Waits for a lane that stops by itself.
async fn first_stopped(engine: &EngineHandle) -> (Lane, StopReason) {
    let mut watch = tokio::time::interval(WATCH_PERIOD);
    loop {
        watch.tick().await;
        for status in engine.status().lanes {
            if let LanePhase::Stopped(reason) = status.phase {
                return (status.lane, reason);
            }
        }
    }
}
