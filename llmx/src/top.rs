//! `llmx top`: how a running exchange does, on one page of the terminal.

mod page;
mod sight;
mod terminal;

use std::io::IsTerminal as _;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::access::AccessArgs;
use crate::arguments::seconds;
use crate::output::{Failure, Outcome, print, print_json};
use crate::signals::asked_to_end;

use sight::{ExchangeWatcher, Sight};
use terminal::{Pressed, Screen};

/// The page where there is no terminal to ask for its size.
const COLUMNS: u16 = 100;
const ROWS: u16 = 40;
/// Keys that wait to be handled.
const KEYS_MAX: usize = 16;

/// Arguments of `llmx top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx top\n  llmx top --gateway http://127.0.0.1:8080,http://127.0.0.1:8081 --every 5\n  \
    llmx top --once                one page as text, over a pipe as well\n  \
    llmx top --json | jq .console.per_s\n\n\
    Reads what the console reads: `GET /v1/console` of the first gateway that answers, and `/readyz` of each. Without an\n\
    administrator's token a gateway shows counts only, unless it runs with --console open. The token is --token, or one\n\
    signed with --key where that file is there. Figures are those of docs/console.md.\n\
    Keys: q or Ctrl-C ends. Exit codes: 0 ended; 1 with --once or --json, when no gateway answers or it refuses;\n\
    2 usage, or no terminal."
)]
pub struct TopArgs {
    /// Print one page as text and end
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print `{"console": …, "gateways": […]}` and end
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,
    #[command(flatten)]
    access: AccessArgs,
}

/// Shows the page until it is asked to end.
pub async fn run(args: TopArgs) -> Outcome {
    let mut watcher = ExchangeWatcher::new(&args.access);
    if args.json {
        let sight = watcher.look().await.map_err(|(_, failure)| failure)?;
        return print_json(&sight.document());
    }
    if args.once {
        let sight = watcher.look().await.map_err(|(_, failure)| failure)?;
        print(page::text(&sight, COLUMNS, ROWS)?);
        return Ok(());
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::configuration("stdout is no terminal: use --once or --json"));
    }
    watch(&args, &mut watcher).await
}

async fn watch(args: &TopArgs, watcher: &mut ExchangeWatcher<'_>) -> Outcome {
    let mut screen = Screen::open()?;
    let (sender, mut keys) = mpsc::channel(KEYS_MAX);
    terminal::read_keys(sender);
    let mut tick = tokio::time::interval(args.every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = asked_to_end();
    tokio::pin!(ended);
    let mut sight = Sight::default();
    screen.draw(&sight)?;
    loop {
        tokio::select! {
            () = &mut ended => return Ok(()),
            pressed = keys.recv() => match pressed {
                Some(Pressed::End) | None => return Ok(()),
                Some(Pressed::Resized) => {}
            },
            // A look that takes long must not hold up the end; the next tick looks again.
            looked = async { tick.tick().await; watcher.look().await } => match looked {
                Ok(seen) => sight = seen,
                Err((gateways, failure)) => sight.fail(gateways, &failure),
            },
        }
        screen.draw(&sight)?;
    }
}
