//! `llmx-lab experiment agora`: what protocol documents save.

use std::path::PathBuf;

use agora::schedule::Thresholds;
use anyhow::Context;
use studies::agora::live::LiveFigures;
use studies::agora::{AgoraPlan, play_live, report, run as play};

use super::{default_folder, lasting_runtime, none, played, print_study, study_failure};
use crate::output::Outcome;

/// What is played, and where it is kept.
#[derive(Debug, clap::Args)]
pub struct AgoraRunArgs {
    /// The first seed
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=super::SEED_MAX))]
    seed: u64,
    /// How many networks are played, each with a seed of its own
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// When agents look for documents, negotiate and program: paper, pypi, or five numbers as in docs/spec/agora.md#ag-21
    #[arg(long, value_name = "NAME|NUMBERS", default_value = "paper", value_parser = thresholds)]
    thresholds: Thresholds,
    /// Where to keep what is computed (default: run/experiments/agora-THRESHOLDS-seeds-FIRST-to-LAST)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Make the queries of the first seed calls through an exchange in this process too; fails (1) when one comes to anything else
    #[arg(long)]
    live: bool,
    /// Print the figures as JSON, and no progress
    #[arg(long)]
    json: bool,
}

/// Plays, and prints the report.
pub async fn run(args: AgoraRunArgs) -> Outcome {
    let seeds = args.seeds;
    let plan = AgoraPlan::new(args.seed, seeds, args.thresholds);
    let out = args.out.unwrap_or_else(|| default_folder("agora", thresholds_name(args.thresholds), (args.seed, seeds)));
    let (folder, runtime, is_live) = (out.clone(), lasting_runtime()?, args.live);
    let played = played(!args.json, move |progress| {
        let played = runtime.block_on(async {
            play(&plan, &folder, &|cell| progress.show_cell(cell)).await?;
            if is_live { play_live(&plan).await.map(Some) } else { Ok(None) }
        });
        played.map(|live| (report::write(&folder), live))
    });
    let (report, live) = played.await?.map_err(study_failure)?;
    let report = report.context("the report; the queries are kept, and `llmx-lab report` computes it again")?;
    let written = format_args!("{}: report.html, figure-5a.svg, figure-5b.svg, cells/", out.display());
    let through = live.as_ref().map(|live| (live, told(live)));
    print_study(args.json, (&report, &report.text()), through, written)?;
    let differ = |live: &LiveFigures| format!("calls differ: {}", live.told.join("; "));
    live.iter().try_for_each(|live| none(live.differences, differ(live)))
}

/// How thresholds stand in the name of a folder.
fn thresholds_name(thresholds: Thresholds) -> &'static str {
    match thresholds {
        Thresholds::PAPER => "paper",
        Thresholds::PYPI => "pypi",
        _ => "own",
    }
}

fn told(live: &LiveFigures) -> String {
    let LiveFigures { calls, by_routine, in_language, differences, mean_ms, .. } = live;
    format!(
        "\n{calls} calls through an exchange: {by_routine} answered by native routines under the document that the award pins, \
         {in_language} in natural language, {differences} differ from the queries; {mean_ms:.1} ms each."
    )
}

/// A preset, or the five thresholds in the order of their table.
fn thresholds(text: &str) -> Result<Thresholds, String> {
    match text {
        "paper" => return Ok(Thresholds::PAPER),
        "pypi" => return Ok(Thresholds::PYPI),
        _ => {}
    }
    let expected = || {
        "paper, pypi, or five numbers: calls before documents are looked at, calls before a negotiation, uses before a routine, \
         the responder's use with a routine, its conversations before it asks for a negotiation (or never): 3,5,0,1,10"
            .to_owned()
    };
    let numbers: Vec<&str> = text.split(',').collect();
    let [documents, negotiation, routine, responder_routine, asks] = numbers[..] else { return Err(expected()) };
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| expected());
    Ok(Thresholds {
        documents: number(documents)?,
        negotiation: number(negotiation)?,
        routine: number(routine)?,
        responder_routine: number(responder_routine)?,
        responder_negotiation: if asks.trim() == "never" { None } else { Some(number(asks)?) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_a_preset_or_five_numbers() {
        assert_eq!(thresholds("paper"), Ok(Thresholds::PAPER));
        assert_eq!(thresholds("pypi"), Ok(Thresholds::PYPI));
        assert_eq!(thresholds("3, 5, 0, 1, 10"), Ok(Thresholds::PAPER));
        assert_eq!(thresholds("5,10,5,5,never"), Ok(Thresholds::PYPI));
        for wrong in ["", "papers", "3,5,0,1", "3,5,0,1,10,1", "3,5,-1,1,10", "never,5,0,1,10", "4294967296,5,0,1,10"] {
            assert!(thresholds(wrong).is_err(), "{wrong}");
        }
    }
}
