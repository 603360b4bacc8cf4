//! `llmx bench`: the project's benchmarks, each beside its ceiling.

use traffic_gen::bench::Row;
use traffic_gen::bench::suite::{Plan, run as run_suite};

use crate::nats::asked_to_end;
use crate::output::{Failure, Outcome, print, print_json};

/// Arguments of `llmx bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  scripts/nats-server && llmx bench\n\n\
    Needs a nats-server binary: NATS_SERVER, .tools/nats-server (scripts/nats-server fetches it) or PATH.\n\
    Ceilings are measured in the same run; ratio is value / ceiling.")]
pub struct Args {
    /// A third of the time, fewer open negotiations: a look rather than a figure
    #[arg(long)]
    quick: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the benchmarks.
pub async fn run(args: Args) -> Outcome {
    let plan = if args.quick { Plan::quick() } else { Plan::default() };
    let quiet = args.json;
    let suite = Box::pin(run_suite(plan, |row| {
        if !quiet {
            print(line(row));
        }
    }));
    let rows = tokio::select! {
        rows = suite => rows?,
        // Dropping the suite ends the servers it started.
        () = asked_to_end() => return Err(Failure::failed(anyhow::anyhow!("interrupted"))),
    };
    if args.json {
        print_json(&serde_json::json!({"results": rows}))?;
    }
    Ok(())
}

fn line(row: &Row) -> String {
    let beside = match (row.ceiling, row.ratio) {
        (Some(ceiling), Some(ratio)) => format!("  ceiling {ceiling:>12.2}  ratio {ratio:>6.3}"),
        _ => String::new(),
    };
    let target = row.target.as_deref().map(|target| format!("  target {target}")).unwrap_or_default();
    format!("{:<34} {:>12.2} {:<11}{beside}{target}", row.name, row.value, row.unit)
}
