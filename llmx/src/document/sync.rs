//! `llmx document sync`: documents of one exchange are stored in another.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agents::control::in_full;
use agora::propagation::{Propagation, PropagationRound, ROUND_DOCUMENTS_MAX};
use agora::registry::{DocumentRegistry, Unobserved};
use agora::table::DOCUMENTS_MAX;
use serde_json::json;

use crate::nats;
use crate::output::{Failure, Outcome, print, print_json};

/// Rounds until everything that was there has been looked at.
const ROUNDS_MAX: usize = DOCUMENTS_MAX / ROUND_DOCUMENTS_MAX + 1;
/// Longest wait for the documents of an exchange to be read.
const READING_MAX: Duration = Duration::from_secs(60);

/// Arguments of `llmx document sync`.
#[derive(Debug, clap::Args)]
pub struct SyncArgs {
    /// NATS servers of the exchange whose documents are read, separated by commas
    #[arg(long, value_name = "URL")]
    from: String,
    /// NATS servers of the exchange where they are stored
    #[arg(long, value_name = "URL")]
    to: String,
    /// Credentials file for --from
    #[arg(long, value_name = "FILE")]
    from_creds: Option<PathBuf>,
    /// Credentials file for --to
    #[arg(long, value_name = "FILE")]
    to_creds: Option<PathBuf>,
    /// Go on, and look again every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    every: Option<u64>,
    /// Print JSON: one document, or with --every a line each time
    #[arg(long)]
    json: bool,
}

/// Stores what is missing, once or for ever.
pub async fn run(args: SyncArgs) -> Outcome {
    let from = nats::open_at(&args.from, args.from_creds.as_deref(), "llmx-document-sync").await?;
    let to = nats::open_at(&args.to, args.to_creds.as_deref(), "llmx-document-sync").await?;
    let [from, to] = [from, to].map(|bus| Arc::new(DocumentRegistry::new(bus.key_value, Arc::new(Unobserved))));
    let synchronising = async {
        read(&from, "--from").await?;
        read(&to, "--to").await?;
        synchronise(&args, &from, &to).await
    };
    tokio::select! {
        outcome = synchronising => outcome,
        () = from.drive() => Ok(()),
        () = to.drive() => Ok(()),
    }
}

/// Waits until the documents of an exchange have been read.
async fn read(registry: &DocumentRegistry, flag: &str) -> Outcome {
    let reading = tokio::time::timeout(READING_MAX, registry.until(|_| true)).await;
    reading.map_err(|_| Failure::failed(anyhow::anyhow!("the documents of {flag} cannot be read")))
}

async fn synchronise(args: &SyncArgs, from: &DocumentRegistry, to: &DocumentRegistry) -> Outcome {
    let mut propagation = Propagation::default();
    loop {
        let mut all = PropagationRound::default();
        let mut fault = None;
        for _ in 0..ROUNDS_MAX {
            match propagation.synchronise(from, to).await {
                Ok(round) => all.add(&round),
                Err(refusal) => fault = Some(refusal),
            }
            if all.is_complete || fault.is_some() {
                break;
            }
        }
        if args.every.is_none() || fault.is_none() {
            show(&all, args)?;
        }
        match (args.every, fault) {
            (None, Some(refusal)) => return Err(Failure::failed(anyhow::anyhow!("--to: {}", in_full(&refusal)))),
            (None, None) => return verdict(&all),
            (Some(_), Some(refusal)) => {
                tracing::warn!(%refusal, "the documents cannot be stored now; trying again");
            }
            (Some(_), None) => {}
        }
        tokio::time::sleep(Duration::from_secs(args.every.unwrap_or_default())).await;
    }
}

fn show(all: &PropagationRound, args: &SyncArgs) -> Outcome {
    let PropagationRound { stored, known, collisions, refused, .. } = all;
    if args.json {
        let document = json!({"stored": stored, "known": known, "collisions": collisions, "refused": refused});
        if args.every.is_none() {
            return print_json(&document);
        }
        print(document);
        return Ok(());
    }
    print(format_args!(
        "{stored} stored, {known} stored meanwhile by others, {collisions} whose hash stands for another text, {refused} without room"
    ));
    Ok(())
}

fn verdict(all: &PropagationRound) -> Outcome {
    match (all.collisions, all.refused) {
        (0, 0) => Ok(()),
        (collisions, refused) => Err(Failure::failed(anyhow::anyhow!(
            "{collisions} documents contradict those of --to, and {refused} have no room there"
        ))),
    }
}
