//! `llmx-lab report`: every figure of an experiment, recomputed from the rounds in its folder.

use std::path::{Path, PathBuf};

use serde::Serialize;
use studies::figures::hypotheses::Judgement;
use studies::report::differences::{self, Differences};
use studies::report::folder::FolderError;
use studies::report::markdown::{change_rows, scope, summary};
use studies::report::{self, ExperimentReport, ReportError};
use studies::{agora, ioa, tournament};

use crate::output::{Failure, Outcome, print, print_json, table};

/// What `llmx-lab experiment dylan --out` leaves, beside `dylan.txt` and `verdicts.csv`.
const DYLAN_REPORT: &str = "dylan.json";

/// Arguments of `llmx-lab report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab report run/paper\n  llmx-lab report run/after --compare run/before\n  \
    llmx-lab report run/paper --json | jq '.report.hypotheses'\n\n\
    Reads cells/*/cell.json and rounds.jsonl, and writes report.html (one file, opens offline), report.md, figures.json and\n\
    tables/*.csv into DIR. Nothing else is read, so the same rounds give the same report to the byte. A damaged line is\n\
    named, and nothing is written (1). Whether a hypothesis is held does not change the exit code.\n\
    What each figure means, and what it does not: docs/experiments.md.")]
pub struct ReportArgs {
    /// The folder of an experiment, as `llmx-lab experiment` leaves it
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Another experiment's folder: which figures differ from its beyond noise
    #[arg(long, value_name = "DIR")]
    compare: Option<PathBuf>,
    /// Print figures.json
    #[arg(long)]
    json: bool,
}

/// Computes, writes and prints.
pub async fn run(args: ReportArgs) -> Outcome {
    // Minutes of arithmetic over long runs: signals are heard meanwhile.
    tokio::task::spawn_blocking(move || report(&args)).await?
}

fn report(args: &ReportArgs) -> Outcome {
    if agora::report::plan(&args.folder).is_some() {
        let text = agora::report::AgoraReport::text;
        return report_of(args, ("experiment agora", "its spread over seeds"), agora::report::write, text);
    }
    if ioa::report::plan(&args.folder).is_some() {
        let text = ioa::report::FormationReport::text;
        return report_of(args, ("experiment ioa", "its seeds"), ioa::report::write, text);
    }
    if tournament::report::plan(&args.folder).is_some() {
        let text = tournament::report::TournamentReport::text;
        return report_of(args, ("tournament", "its intervals"), tournament::report::write, text);
    }
    for folder in std::iter::once(&args.folder).chain(&args.compare) {
        if folder.join(DYLAN_REPORT).is_file() {
            return Err(Failure::configuration(format_args!(
                "{}: `llmx-lab experiment dylan` left it, and its report is there already ({DYLAN_REPORT}, dylan.txt); \
                 this command reads folders of `llmx-lab experiment run`, `agora` and `ioa`, and of `llmx-lab tournament`",
                folder.display()
            )));
        }
    }
    let own = computed(&args.folder)?;
    let other = args.compare.as_deref().map(computed).transpose()?;
    let found = other.map(|other| differences::compare(&own, &other));
    own.write(&args.folder, found.as_ref()).map_err(Failure::failed)?;
    if args.json {
        return print_json(&serde_json::json!({"report": own, "differences": found}));
    }
    print(shown(&own, found.as_ref()));
    let folder = args.folder.display();
    print(format_args!("\nwritten to {folder}: report.html, report.md, figures.json, tables/"));
    Ok(())
}

/// The report of a study whose runs are not compared, by its name and what each run states instead.
fn report_of<R: Serialize>(
    args: &ReportArgs,
    (study, states): (&str, &str),
    write: impl Fn(&Path) -> Result<R, ReportError>,
    text: impl Fn(&R) -> String,
) -> Outcome {
    if args.compare.is_some() {
        return Err(Failure::configuration(format_args!(
            "--compare: runs of `llmx-lab {study}` are not compared; each states {states}"
        )));
    }
    let report = write(&args.folder).map_err(Failure::failed)?;
    if args.json {
        return print_json(&report);
    }
    print(text(&report).trim_end());
    Ok(())
}

/// A folder that is none is bad usage; one that is damaged has failed.
fn computed(folder: &Path) -> Result<ExperimentReport, Failure> {
    report::compute(folder).map_err(|error| match error {
        ReportError::Folder(FolderError::NoCells(_)) => Failure::configuration(error),
        ReportError::Folder(_) | ReportError::Draw(_) | ReportError::Write { .. } => Failure::failed(error),
    })
}

fn shown(report: &ExperimentReport, differences: Option<&Differences>) -> String {
    let mut parts = vec![format!("{}: {}", report.name, scope(report))];
    let verdict = |verdict: &studies::figures::hypotheses::HypothesisVerdict| {
        let needed = match (verdict.judgement, verdict.rounds_needed) {
            (Judgement::CannotBeSaid, Some(needed)) => format!(" (in all about {needed} rounds per group)"),
            _ => String::new(),
        };
        vec![verdict.id.to_owned(), verdict.judgement.as_str().to_owned(), format!("{}{needed}", verdict.reason)]
    };
    parts.push(table(&report.hypotheses.iter().map(verdict).collect::<Vec<_>>()));
    if !report.paper.is_empty() {
        let mut rows = vec![["paper", "ours", "p95 paper", "p95 ours", "factor"].map(str::to_owned).to_vec()];
        rows.extend(report.paper.iter().map(|run| {
            let [paper, ours, .., paper_p95, p95, factor, _] = run.cells();
            vec![paper, ours, format!("{paper_p95} ms"), format!("{p95} ms"), factor]
        }));
        parts.push(table(&rows));
    }
    for differences in Some(&report.policies).filter(|policies| policies.is_told()).into_iter().chain(differences) {
        parts.push(summary(differences));
        parts.push(table(&change_rows(differences).into_iter().map(Vec::from).collect::<Vec<_>>()));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}
