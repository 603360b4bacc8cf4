//! `llmx panel play`: the panel of a file, played by scripted agents on an exchange of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::agents::panel::PanelFile;
use agents::transport::Transport;
use agents::transport::bus::BusTransport;
use anyhow::Context;
use bus::memory::MemoryOptions;
use bus::nats::NatsOptions;
use schemas::AgentId;
use serde_json::json;
use traffic_gen::control::ControlClient;
use traffic_gen::exchange::{Exchange, ExchangeOptions};
use traffic_gen::live::Access;
use traffic_gen::panel::PlayedPanel;
use traffic_gen::panel::play;
use traffic_gen::panel::population::PanelError;
use traffic_gen::panel::tally::PanelTally;

use crate::arguments::read_text;
use crate::nats::start_server;
use crate::output::{Failure, Outcome, Progress, print, print_json};

/// Largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `llmx panel play`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx panel play domains/panels/debate.json\n  \
    llmx panel play domains/panels/split_7.json --json\n  \
    llmx panel play domains/panels/debate.json --repeat 100 --seed 7 --nats-local\n\n\
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
    #[arg(long, hide = cfg!(not(feature = "nats-local")))]
    nats_local: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Plays, and prints what came of it.
pub async fn run(args: &PanelPlayArgs) -> Outcome {
    let file = read(&args.file)?;
    let (bus, _server, name) = if args.nats_local {
        let (server, url) = start_server().await?;
        let options = NatsOptions { name: "llmx-panel".to_owned(), ..NatsOptions::new(url) };
        let nats = bus::nats::open(options).await?;
        (nats, Some(server), "nats")
    } else {
        (bus::memory::open(MemoryOptions::default()), None, "memory")
    };
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
    let miscounted = tally.miscounted;
    tell(args, &file, name, &tally, last.as_ref())?;
    match miscounted {
        0 => Ok(()),
        miscounted => Err(Failure::failed(anyhow::anyhow!("{miscounted} results count other asks than the agents"))),
    }
}

fn read(path: &Path) -> Result<PanelFile, Failure> {
    let fault = |error: &dyn std::fmt::Display| Failure::configuration(format_args!("{}: {error}", path.display()));
    let text = read_text(path, FILE_BYTES_MAX).map_err(|error| fault(&error))?;
    PanelFile::parse(&text).map_err(|error| fault(&error))
}

async fn play_on(
    exchange: &Exchange,
    file: &PanelFile,
    run: (u64, u64),
    each: impl FnMut(PlayedPanel),
) -> Result<(), Failure> {
    let control = ControlClient::try_new(exchange.url())?;
    let identities = exchange.identities(play::names(file).cloned())?;
    let transport = |_: &AgentId| -> Arc<dyn Transport> { Arc::new(BusTransport::new(&exchange.bus)) };
    let identity = |name: &AgentId| identities[name].clone();
    let access = Access { control: &control, transport: &transport, identity: &identity };
    play::on_exchange(&access, file, run, each).await.map_err(|error| match error {
        // What the exchange refuses lies in the file.
        PanelError::Refused(_) | PanelError::TurnedDown(_) => Failure::configuration(error),
        PanelError::Live(_) | PanelError::Call(_) | PanelError::Unanswered => Failure::failed(error),
    })
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
