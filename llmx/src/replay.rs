//! `llmx replay`: recompute every decision from a log; any difference fails and is named.

use std::path::PathBuf;

use schemas::NegotiationId;
use traffic_gen::audit::archive::VerifyOptions;
use traffic_gen::audit::{self, AuditError};

use crate::audit::{tell, tell_archive, unreadable, verify_archive};
use crate::nats::NatsArgs;
use crate::output::{Failure, Outcome};

/// Arguments of `llmx replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx demo --export run.jsonl && llmx replay run.jsonl\n  \
    llmx replay archive\n  \
    llmx replay --nats nats://127.0.0.1:4222 --negotiation alice~run-1-7\n\n\
    A live log that was trimmed no longer holds what led to its decisions: replay its archive.")]
pub struct Args {
    /// An export, as `llmx demo --export` writes it, or an archive's folder; without it, the log on NATS is read
    path: Option<PathBuf>,
    #[command(flatten)]
    nats: NatsArgs,
    /// Compare only this negotiation
    #[arg(long, value_name = "ID", value_parser = NegotiationId::try_new)]
    negotiation: Option<NegotiationId>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Replays.
pub async fn run(args: Args) -> Outcome {
    let only = args.negotiation;
    let (name, ledger) = match (args.path, &args.nats.nats) {
        (Some(folder), None) if folder.is_dir() => {
            // How an archive ends does not matter to what its records lead to.
            let options = VerifyOptions { only, allow_open_end: true };
            let report = verify_archive(&folder, &options)?;
            return tell_archive(&report, options.only.as_ref(), args.json);
        }
        (Some(file), None) => {
            let ledger = audit::read(&file).map_err(|error| unreadable(&file, &error))?;
            (file, ledger)
        }
        (None, Some(url)) => {
            let ledger = audit::read_bus(&args.nats.open("llmx-replay").await?).await;
            (PathBuf::from(url), ledger.map_err(trimmed)?)
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(Failure::configuration("give either a file or --nats URL; an archive is named by its folder"));
        }
    };
    tell(&name, &audit::verify(&ledger, only.as_ref()), args.json)
}

/// A log that was trimmed was asked for by mistake.
fn trimmed(error: AuditError) -> Failure {
    if matches!(error, AuditError::Trimmed { .. }) { Failure::configuration(error) } else { error.into() }
}
