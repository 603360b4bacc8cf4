//! `llmx bench`: the project's benchmarks, each beside its ceiling.

use crate::output::Outcome;

/// Arguments of `llmx bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the benchmarks.
pub async fn run(args: Args) -> Outcome {
    let _ = args.json;
    Ok(())
}
