//! `llmx replay`: recompute every decision from a log; any difference fails and is named.

use std::path::{Path, PathBuf};

use archive::VerifyOptions;
use archive::audit::{self, AuditError};
use schemas::NegotiationId;

use crate::audit::{tell, tell_archive, unreadable, verify_archive};
use crate::nats::NatsSource;
use crate::output::{Failure, Outcome, note};

/// Arguments of `llmx replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx demo --export run.jsonl && llmx replay run.jsonl\n  \
    llmx replay archive\n  \
    llmx replay --nats nats://127.0.0.1:4222 --negotiation alice~run-1-7\n\n\
    A live log that was trimmed no longer holds what led to its decisions: replay its archive.")]
pub struct ReplayArgs {
    /// An export, as `llmx demo --export` writes it, or an archive's folder; without it, the log on the NATS that --nats names is read
    path: Option<PathBuf>,
    #[command(flatten)]
    nats: NatsSource,
    /// The archive of the log on NATS: replayed in its place when its beginning was trimmed
    #[arg(long, env = "LLMX_ARCHIVE", value_name = "DIR")]
    archive: Option<PathBuf>,
    /// Compare only this negotiation
    #[arg(long, value_name = "ID", value_parser = NegotiationId::try_new)]
    negotiation: Option<NegotiationId>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Replays.
pub async fn run(args: ReplayArgs) -> Outcome {
    let ReplayArgs { path, nats, archive, negotiation: only, json } = args;
    let (name, ledger) = match path {
        // What variables and files name is for who names nothing else.
        Some(_) if nats.is_typed("url") => return Err(ambiguous()),
        Some(folder) if folder.is_dir() => return replay_archive(&folder, only, json),
        Some(file) => {
            let ledger = audit::read(&file).map_err(|error| unreadable(&file, &error))?;
            (file, ledger)
        }
        None => {
            let nats = nats.in_force()?;
            let url = nats.nats.clone().ok_or_else(ambiguous)?;
            match (audit::read_bus(&nats.open("llmx-replay").await?).await, archive) {
                (Err(AuditError::Trimmed { lane, trimmed }), Some(archive)) => {
                    let folder = archive.display();
                    note(format_args!(
                        "lane {lane}: the log was trimmed up to record {trimmed}; its archive {folder} is replayed"
                    ));
                    return replay_archive(&archive, only, json);
                }
                (ledger, _) => (PathBuf::from(bus::nats::shown(&url)), ledger.map_err(trimmed)?),
            }
        }
    };
    tell(&name, &audit::verify(&ledger, only.as_ref()), json)
}

fn ambiguous() -> Failure {
    Failure::configuration(
        "give either a file or --nats URL (LLMX_NATS, `url` under [nats] of --config); an archive is named by its folder",
    )
}

/// How an archive ends does not matter to what its records lead to.
fn replay_archive(folder: &Path, only: Option<NegotiationId>, json: bool) -> Outcome {
    let options = VerifyOptions { only, allow_open_end: true, ..VerifyOptions::default() };
    let report = verify_archive(folder, &options)?;
    tell_archive(&report, options.only.as_ref(), json)
}

/// A log that was trimmed was asked for by mistake.
fn trimmed(error: AuditError) -> Failure {
    if matches!(error, AuditError::Trimmed { .. }) { Failure::configuration(error) } else { error.into() }
}
