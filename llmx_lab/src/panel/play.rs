//! `llmx-lab panel play`: the panel of a file, played by scripted agents on an exchange of its own.

use std::path::PathBuf;

use anyhow::Context;
use scripted::panel::file::PanelFile;
use scripted::panel::play;
use serde_json::json;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::Access;
use traffic_gen::panel::PlayedPanel;
use traffic_gen::panel::population::PanelError;
use traffic_gen::panel::tally::PanelTally;

use crate::arguments::read_file;
use crate::experiment::none;
use crate::nats::open_own;
use crate::output::{Failure, Outcome, Progress, print, print_json};

/// Largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `llmx-lab panel play`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab panel play domains/panels/debate.json\n  \
    llmx-lab panel play domains/panels/split_7.json --json\n  \
    llmx-lab panel play domains/panels/debate.json --repeat 100 --seed 7 --nats-local\n\n\
    Files, and what importance does not mean: docs/panels.md")]
pub struct PanelPlayArgs {
    /// A file with a question, the rules of the panel, and who takes part
    #[arg(value_name = "FILE.json")]
    file: PathBuf,
    /// Play so many, one after another, and tell what came of all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    repeat: Option<u64>,
    /// Seed of what agents draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Over a nats-server started for this run, instead of this process's memory
    #[arg(long)]
    nats_local: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Plays, and prints what came of it.
pub async fn run(args: &PanelPlayArgs) -> Outcome {
    let file = read_file(&args.file, FILE_BYTES_MAX, PanelFile::parse)?;
    let (_server, bus, name) = open_own(args.nats_local, "llmx-panel").await?;
    let exchange = Exchange::start(bus, ExchangeOptions::default()).await.context("the exchange does not start")?;
    let (mut tally, mut last) = (PanelTally::default(), None);
    let progress = (args.repeat.is_some() && !args.json).then(Progress::new);
    let repeat = args.repeat.unwrap_or(1);
    let played = play_on(&exchange, &file, (args.seed, repeat), |played| {
        tally.add(&played);
        if let Some(progress) = &progress {
            progress.show(format_args!("{} of {repeat} panels", tally.panels));
        }
        last = Some(played);
    });
    let played = played.await;
    if let Some(progress) = &progress {
        progress.finish();
    }
    exchange.shutdown().await;
    played?;
    tell(args, &file, name, &tally, last.as_ref())?;
    none(tally.miscounted, "results count other asks than the agents")
}

async fn play_on(
    exchange: &Exchange,
    file: &PanelFile,
    run: (u64, u64),
    each: impl FnMut(PlayedPanel),
) -> Result<(), Failure> {
    let playing = async |access: &Access<'_>| {
        play::on_exchange(access, file, run, each).await.map_err(|error| match error {
            // What the exchange refuses lies in the file.
            PanelError::Refused(_) | PanelError::TurnedDown(_) => Failure::configuration(error),
            PanelError::Live(_) | PanelError::Call(_) | PanelError::Unanswered => Failure::failed(error),
        })
    };
    exchange.with_access(play::names(file).cloned(), playing).await
}

fn tell(args: &PanelPlayArgs, file: &PanelFile, on: &str, tally: &PanelTally, last: Option<&PlayedPanel>) -> Outcome {
    let (name, seed) = (&file.name, args.seed);
    if args.json {
        let head = json!({"name": name, "seed": seed, "exchange": on});
        return match (args.repeat, last) {
            (None, Some(last)) => print_json(&json!({"run": head, "played": last})),
            _ => print_json(&json!({"run": head, "tally": tally})),
        };
    }
    print(format_args!("{name}: {} seats, at most {} rounds, seed {seed}, {on}", file.seats.len(), file.panel.rounds));
    match (args.repeat, last) {
        (None, Some(last)) => print(last),
        _ => print(tally),
    }
    Ok(())
}
