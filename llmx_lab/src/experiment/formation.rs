//! `llmx-lab experiment ioa`: whether searches find the right agents for a task.

use std::path::PathBuf;

use anyhow::Context as _;
use studies::ioa::live::LiveFormationFigures;
use studies::ioa::{FormationPlan, TASKS, play_live, report, run as play};

use super::{default_folder, lasting_runtime, none, played, print_study, study_failure};
use crate::output::Outcome;

/// Arguments of `llmx-lab experiment ioa`.
#[derive(Debug, clap::Args)]
pub struct FormationArgs {
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=super::SEED_MAX))]
    seed: u64,
    /// How many seeds are played
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Where to keep what is computed (default: run/experiments/ioa-generated-seeds-FIRST-to-LAST)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Register every profile of the first seed at a gateway in this process and form the teams by searches there too; fails (1)
    /// when one comes to other agents
    #[arg(long)]
    live: bool,
    /// Print the figures as JSON, and no progress
    #[arg(long)]
    json: bool,
}

/// Forms the teams, computes the report, and fails when a claim does not hold.
pub async fn run(args: FormationArgs) -> Outcome {
    let plan = FormationPlan::new(args.seed, args.seeds, TASKS);
    let out = args.out.unwrap_or_else(|| default_folder("ioa", "generated", (args.seed, args.seeds)));
    let (folder, runtime, is_live) = (out.clone(), lasting_runtime()?, args.live);
    let played = played(!args.json, move |progress| {
        let played = play(&plan, &folder, &|cell| progress.show_cell(cell));
        let live = played.and_then(|()| is_live.then(|| runtime.block_on(play_live(&plan))).transpose());
        live.map(|live| (report::write(&folder), live))
    });
    let (report, live) = played.await?.map_err(study_failure)?;
    let report = report.context("the report; the formations are kept, and `llmx-lab report` computes it again")?;
    let written = format_args!("{}: report.md, figures.json, cells/", out.display());
    let through = live.as_ref().map(|live| (live, told(live)));
    print_study(args.json, (&report, &report.text()), through, written)?;
    if let Some(live) = &live {
        none(live.differences, format_args!("teams differ: {}", live.told.join("; ")))?;
    }
    none(report.failures().count(), "claims do not hold; report.md names them")
}

fn told(live: &LiveFormationFigures) -> String {
    let LiveFormationFigures { registered, searches, teams, differences, .. } = live;
    format!(
        "\n{registered} profiles registered at a gateway, {searches} searches there: {teams} teams, of which {differences} differ."
    )
}
