//! `llmx replay`: recompute every decision from a log; any difference fails and is named.

use std::path::{Path, PathBuf};

use schemas::NegotiationId;
use traffic_gen::audit::{self, AuditError};

use crate::nats::NatsArgs;
use crate::output::{Failure, Outcome, print, print_json};

/// Arguments of `llmx replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx demo --export run.jsonl && llmx replay run.jsonl\n  \
    llmx replay --nats nats://127.0.0.1:4222 --negotiation alice~run-1-7")]
pub struct Args {
    /// An export, as `llmx demo --export` writes it; without it, the log on NATS is read
    file: Option<PathBuf>,
    #[command(flatten)]
    nats: NatsArgs,
    /// Compare only this negotiation
    #[arg(long)]
    negotiation: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// A file that cannot be opened was asked for by mistake; one that is no export has been damaged.
fn unreadable(file: &Path, error: &AuditError) -> Failure {
    let told = anyhow::anyhow!("{}: {error}", file.display());
    if matches!(error, AuditError::File(_)) { Failure::configuration(told) } else { Failure::failed(told) }
}

/// Replays.
pub async fn run(args: Args) -> Outcome {
    let only = args.negotiation.as_deref().map(NegotiationId::try_new).transpose().map_err(Failure::configuration)?;
    let ledger = match (&args.file, &args.nats.nats) {
        (Some(file), None) => audit::read(file).map_err(|error| unreadable(file, &error))?,
        (None, Some(_)) => audit::read_bus(&args.nats.open("llmx-replay").await?).await?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Failure::configuration("give either a file or --nats URL"));
        }
    };
    let report = audit::verify(&ledger, only.as_ref());
    if args.json {
        print_json(&report)?;
    } else {
        print(format_args!(
            "{} records ({} skipped as unreadable), {} messages, {} decisions, {} register entries",
            report.records, report.unreadable, report.messages, report.decisions, report.register_entries
        ));
    }
    match report.first_difference {
        None => {
            if !args.json {
                print("every decision is as recorded");
            }
            Ok(())
        }
        Some(difference) => Err(Failure::failed(anyhow::anyhow!("first difference: {difference}"))),
    }
}
