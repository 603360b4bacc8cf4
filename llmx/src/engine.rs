//! `llmx engine`: one policy engine, on NATS.

use std::sync::Arc;

use anyhow::Context;
use policy_engine::{Engine, EngineConfig, EngineMetrics};

use crate::nats::{NatsArgs, asked_to_end};
use crate::output::{Outcome, print};

/// Arguments of `llmx engine`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  llmx engine --nats nats://127.0.0.1:4222 --id engine-1")]
pub struct Args {
    #[command(flatten)]
    nats: NatsArgs,
    /// Name in records and logs; two engines that run at once must differ
    #[arg(long, env = "LLMX_ENGINE_ID")]
    id: Option<String>,
}

/// Runs until asked to end.
pub async fn run(args: Args) -> Outcome {
    let id = args.id.clone().unwrap_or_else(|| format!("engine-{}", std::process::id()));
    let bus = args.nats.open(&id).await?;
    let registry = prometheus::Registry::new();
    let metrics = Arc::new(EngineMetrics::new(&registry)?);
    let engine = Engine::start(bus, EngineConfig::new(id.clone()), metrics, None).await;
    let engine = engine.context("the engine does not start")?;
    print(format_args!("engine: {id}, {} lanes", engine.status().lanes.len()));
    asked_to_end().await;
    engine.shutdown().await;
    Ok(())
}
