//! `llmx-lab bench`: the project's benchmarks, each beside its ceiling.

mod overload;
mod processes;

use std::path::PathBuf;

use bench::Row;
use bench::suite::{BenchPlan, Part, run as run_suite};
use clap::ValueEnum as _;

use crate::output::{Outcome, print, print_json};

/// Arguments of `llmx-lab bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  scripts/nats-server && llmx-lab bench\n  llmx-lab bench --processes --quick\n  \
    llmx-lab bench --processes --overload --load net-of-one,mixed\n  \
    llmx-lab bench --processes --transport websocket --rate 200 --against ../before/target/release/llmx\n\n\
    Needs a nats-server binary: NATS_SERVER, .tools/nats-server (scripts/nats-server fetches it) or PATH.\n\
    Ceilings are measured in the same run; ratio is value / ceiling. With --processes: microseconds of processor time and\n    \
    context switches per round and process, messages and bytes of NATS per round, idle cores before; Linux only. Figures\n    \
    compare builds on one quiet machine, measured in turn (--against).")]
pub struct BenchArgs {
    /// A third of the time, fewer open negotiations: a look rather than a figure
    #[arg(long)]
    quick: bool,
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    processes: processes::ProcessesArgs,
    #[command(flatten)]
    overload: overload::OverloadArgs,
}

/// Runs the benchmarks.
pub async fn run(args: BenchArgs) -> Outcome {
    if let Some(load) = args.overload.plain_clients() {
        return overload::run_plain_clients(load).await;
    }
    if args.overload.is_asked() {
        return overload::run(args.overload, args.processes, args.quick, args.json).await;
    }
    if args.processes.is_asked() {
        return processes::run(args.processes, args.quick, args.json).await;
    }
    let parts = if args.only.is_empty() { Part::value_variants() } else { args.only.as_slice() };
    let exchange = if parts.iter().any(Part::starts_processes) { crate::exchange_program()? } else { PathBuf::new() };
    let plan = if args.quick { BenchPlan::quick(exchange) } else { BenchPlan::full(exchange) };
    let quiet = args.json;
    // A signal drops the suite, and that ends the servers it started.
    let suite = Box::pin(run_suite(&plan, parts, |row| {
        if !quiet {
            print(line(row));
        }
    }));
    let rows = suite.await?;
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
    let allocated = row.allocations.map(|count| format!("  allocations {count:>6.1}")).unwrap_or_default();
    let target = row.target.as_deref().map(|target| format!("  target {target}")).unwrap_or_default();
    format!("{:<34} {:>12.2} {:<11}{beside}{allocated}{target}", row.name, row.value, row.unit)
}
