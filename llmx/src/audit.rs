//! `llmx audit verify`: an archive or an export, checked on a machine that has nothing else.

use std::path::{Path, PathBuf};

use archive::audit::{self, AuditError, AuditReport};
use archive::{ArchiveError, ArchiveReport, VerifyOptions};
use schemas::NegotiationId;

use crate::output::{Failure, Outcome, one_line, print, print_json, print_result};

/// Arguments of `llmx audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx audit verify archive")]
pub struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AuditCommand {
    /// Check chain, digests, decisions and register of an archive or an export, offline
    Verify(VerifyArgs),
}

/// Arguments of `llmx audit verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx archive --to archive --once && llmx audit verify archive\n  \
    llmx audit verify run.jsonl --negotiation alice~run-1-7\n\n\
    Exit code 1 names the first difference: file, line, what; and each file in an archive's folder that is not of it.\n\
    The chain shows damage and alteration; note the chains it prints elsewhere to see later that nothing before them was\n\
    rewritten.")]
pub struct VerifyArgs {
    /// A folder as `llmx archive` writes it, or a file as `llmx demo --export` does
    path: PathBuf,
    /// Tell more of this negotiation; fail when it did not end here
    #[arg(long, value_name = "ID", value_parser = NegotiationId::try_new)]
    negotiation: Option<NegotiationId>,
    /// Take an archive that is still being written, or whose writer was killed
    #[arg(long)]
    allow_open_end: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: AuditArgs) -> Outcome {
    let AuditCommand::Verify(args) = args.command;
    let only = args.negotiation;
    if args.path.is_dir() {
        let options = VerifyOptions { only, allow_open_end: args.allow_open_end, ..VerifyOptions::default() };
        let report = verify_archive(&args.path, &options)?;
        tell_archive(&report, options.only.as_ref(), args.json)?;
        return refuse_foreign(&report);
    }
    let ledger = audit::read(&args.path).map_err(|error| unreadable(&args.path, &error))?;
    // A damaged line is named before what the damage leads to.
    let mut report = audit::verify(&ledger, only.as_ref());
    report.first_difference = ledger.fault.or(report.first_difference);
    tell(&args.path, &report, args.json)
}

/// Reads an archive. One that is not there was asked for by mistake.
pub fn verify_archive(folder: &Path, options: &VerifyOptions) -> Result<ArchiveReport, Failure> {
    let is_usage = |error: &ArchiveError| matches!(error, ArchiveError::File { .. });
    archive::verify(folder, options).map_err(|error| Failure::of(is_usage(&error), error))
}

/// A file that cannot be opened was asked for by mistake; one that is no export has been damaged.
pub fn unreadable(file: &Path, error: &AuditError) -> Failure {
    Failure::of(matches!(error, AuditError::File(_)), anyhow::anyhow!("{}: {error}", file.display()))
}

/// Prints what an export showed.
pub fn tell(file: &Path, report: &AuditReport, json: bool) -> Outcome {
    let words = format_args!(
        "{} records ({} skipped as unreadable), {} messages, {} decisions, {} register entries",
        report.records, report.unreadable, report.messages, report.decisions, report.register_entries
    );
    print_result(json, report, words)?;
    match &report.first_difference {
        None if json => Ok(()),
        None => {
            print("every decision is as recorded");
            Ok(())
        }
        Some(difference) => {
            let file = file.display();
            Err(Failure::failed(anyhow::anyhow!("{file}: first difference: {difference}")))
        }
    }
}

/// Prints what an archive showed.
pub fn tell_archive(report: &ArchiveReport, only: Option<&NegotiationId>, json: bool) -> Outcome {
    if json {
        print_json(report)?;
    } else {
        tell_lanes(report);
    }
    if let Some(difference) = &report.first_difference {
        return Err(Failure::failed(anyhow::anyhow!("first difference: {difference}")));
    }
    if let Some(only) = only.filter(|_| report.closings.is_empty()) {
        return Err(Failure::failed(anyhow::anyhow!("no negotiation {only} ended in this archive")));
    }
    if !json {
        print("every decision is as recorded");
    }
    Ok(())
}

/// What no archiver wrote is no evidence, and must not pass for some because it stands beside it.
fn refuse_foreign(report: &ArchiveReport) -> Outcome {
    let Some(first) = report.foreign.first() else { return Ok(()) };
    let count = report.foreign.len();
    Err(Failure::failed(anyhow::anyhow!(
        "{count} in the folder {} not of the archive; the first is {first}; move {} elsewhere",
        if count == 1 { "is" } else { "are" },
        if count == 1 { "it" } else { "them" },
    )))
}

fn tell_lanes(report: &ArchiveReport) {
    let total = report.total;
    print(format_args!(
        "{} records ({} skipped as unreadable), {} messages, {} negotiations, {} decisions, {} register entries",
        total.records, total.unreadable, total.messages, total.negotiations, total.decisions, total.register_entries
    ));
    if total.unregistered > 0 {
        print(format_args!("{} register entries were not there yet when they were asked for", total.unregistered));
    }
    if total.conflicts > 0 {
        print(format_args!("{} negotiations were aborted over the register, as the log says", total.conflicts));
    }
    for lane in &report.lanes {
        let end = if lane.is_ended { "" } else { ", open end" };
        let begin = lane.removed_below.map(|from| format!("from record {from} ")).unwrap_or_default();
        print(format_args!("lane {}: {begin}up to record {}, chain {}{end}", lane.lane, lane.position, lane.chain));
    }
    for foreign in &report.foreign {
        print(one_line(&format!("not of the archive: {foreign}")));
    }
    for leftover in &report.leftovers {
        print(one_line(&format!("left over: {leftover}")));
    }
    for closing in &report.closings {
        let registered = if closing.is_registered { "compared" } else { "not asked for" };
        print(format_args!(
            "{} line {}: {} at record {}; {} inputs, chain {}; {} decisions; {} register entries, {registered}",
            closing.file.display(),
            closing.line,
            serde_json::json!(closing.outcome),
            closing.seq,
            closing.inputs,
            closing.chain,
            closing.decisions,
            closing.register_entries
        ));
    }
}
