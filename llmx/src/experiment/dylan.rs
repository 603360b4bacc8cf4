//! `llmx experiment dylan`: panels of scripted agents, beside theory and what the DyLAN paper published.

use std::io::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Context;
use experiments::dylan::{DylanPart, DylanPlan};
use strum::VariantArray;

use crate::output::{Failure, Outcome, create, print, print_json};

/// Arguments of `llmx experiment dylan`.
#[derive(Debug, clap::Args)]
pub struct DylanRunArgs {
    /// Only these parts: theory, shapley, planted, choose, gaming, replay
    #[arg(long, value_delimiter = ',', value_name = "PARTS", value_parser = part)]
    only: Vec<DylanPart>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds of each part that has several (default: shapley 40, planted 20, choose 100, gaming 60)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// A tenth of the panels and seeds, to see that it works: bounds are those of the whole, and may fail
    #[arg(long, conflicts_with_all = ["seeds", "panels"])]
    quick: bool,
    /// Panels of each cell of independent agents
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    panels: u64,
    /// Keep what came out in this folder: dylan.json, dylan.txt and verdicts.csv
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Seeds of a quick run, and by what its panels are divided.
const QUICK_SEEDS: u64 = 6;
const QUICK_PANELS: u64 = 10;

/// Panels of scripted agents; a verdict that does not hold fails.
pub async fn run(args: DylanRunArgs) -> Outcome {
    let mut parts = args.only;
    if parts.is_empty() {
        parts.extend(DylanPart::VARIANTS);
    }
    let (seeds, panels) =
        if args.quick { (Some(QUICK_SEEDS), args.panels / QUICK_PANELS) } else { (args.seeds, args.panels) };
    let plan = DylanPlan { parts, seed: args.seed, seeds, panels };
    let report = tokio::task::spawn_blocking(move || experiments::dylan::run(&plan)).await?;
    if let Some(folder) = &args.out {
        create(&folder.join("dylan.json"))?.write_all(serde_json::to_string_pretty(&report)?.as_bytes())?;
        create(&folder.join("dylan.txt"))?.write_all(report.to_string().as_bytes())?;
        let verdicts = create(&folder.join("verdicts.csv"))?;
        report.write_verdicts(verdicts).with_context(|| format!("cannot write to {}", folder.display()))?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&report);
    }
    match report.verdicts.iter().filter(|verdict| !verdict.holds).count() {
        0 => Ok(()),
        failed => Err(Failure::failed(anyhow::anyhow!("{failed} of {} verdicts fail", report.verdicts.len()))),
    }
}

fn part(name: &str) -> Result<DylanPart, String> {
    let known: Vec<&str> = DylanPart::VARIANTS.iter().map(Into::into).collect();
    DylanPart::from_str(name).map_err(|_| format!("one of {} is expected", known.join(", ")))
}
