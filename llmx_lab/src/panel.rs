//! `llmx-lab panel`: plays panels from files, runs panel computations on lines of input, and prints the evidence about agents.

mod choose;
mod evidence;
mod parse;
mod play;
mod score;

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use ::agents::fault::{DocumentFault, read_json};
use serde::de::DeserializeOwned;

use crate::output::{Failure, Outcome, note, printed};

/// Longest line read, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `llmx-lab panel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab panel play domains/panels/debate.json\n  \
    llmx-lab panel score runs.jsonl --mode reference --check\n  llmx-lab panel parse replies.jsonl\n  \
    llmx-lab panel evidence --domain algebra\n  llmx-lab panel choose --domain algebra --keep 4 --initiator alice\n\n\
    Panels on a running exchange: llmx panel. docs/panels.md")]
pub struct PanelArgs {
    #[command(subcommand)]
    command: PanelCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PanelCommand {
    /// A panel of a file, played by scripted agents: who was asked how often, the result, importance
    Play(play::PanelPlayArgs),
    /// What came of recorded panels: result, calls, why they stopped, importance
    Score(score::PanelScoreArgs),
    /// What a model's texts say: ratings, orders, answers
    Parse(parse::PanelParseArgs),
    /// What panels of a domain have shown about agents, as a gateway knows it or an export leads to
    Evidence(evidence::PanelEvidenceArgs),
    /// Whom that evidence recommends, printed or stored as a group
    Choose(choose::PanelChooseArgs),
}

/// Runs a command.
pub async fn run(args: &PanelArgs) -> Outcome {
    match &args.command {
        PanelCommand::Play(args) => play::run(args).await,
        PanelCommand::Score(args) => score::run(args),
        PanelCommand::Parse(args) => parse::run(args),
        PanelCommand::Evidence(args) => evidence::run(args).await,
        PanelCommand::Choose(args) => choose::run(args).await,
    }
}

/// Reads a file, or stdin for `-`, line by line, and gives each that is not blank to `each` with its number. Faults are told on
/// stderr as FILE:LINE; gives how many lines had one, and how many were read.
fn each_line(
    file: &Path,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), Vec<DocumentFault>>,
) -> Result<(u64, u64), Failure> {
    let unreadable = |error| Failure::configuration(format_args!("cannot read {}: {error}", file.display()));
    let mut source: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(std::fs::File::open(file).map_err(unreadable)?))
    };
    let (mut number, mut lines, mut faulty, mut line) = (0, 0, 0, Vec::new());
    loop {
        line.clear();
        if source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
            return Ok((faulty, lines));
        }
        number += 1;
        let is_cut = line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n");
        if !is_cut && line.trim_ascii().is_empty() {
            continue;
        }
        lines += 1;
        let faults = if is_cut {
            skip_line(&mut source).map_err(unreadable)?;
            vec![DocumentFault::at("", format!("it is longer than {LINE_BYTES_MAX} bytes"))]
        } else {
            each(number, line.trim_ascii()).err().unwrap_or_default()
        };
        for fault in &faults {
            let at = if fault.pointer.is_empty() { String::new() } else { format!("{}: ", fault.pointer) };
            note(format_args!("{}:{number}: {at}{}", file.display(), fault.detail));
        }
        faulty += u64::from(!faults.is_empty());
        // Who reads may have gone.
        printed()?;
    }
}

fn skip_line(source: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let held = source.fill_buf()?;
        let (skipped, is_end) = match held.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (held.len(), held.is_empty()),
        };
        source.consume(skipped);
        if is_end {
            return Ok(());
        }
    }
}

/// Reads one document.
fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, DocumentFault> {
    let text = std::str::from_utf8(line).map_err(|error| DocumentFault::at("", error.to_string()))?;
    read_json(text)
}

/// Fails when a line had a fault.
fn all_right((faulty, lines): (u64, u64)) -> Outcome {
    if faulty == 0 { Ok(()) } else { Err(Failure::failed(anyhow::anyhow!("{faulty} of {lines} lines are at fault"))) }
}

/// Where lines come from.
#[derive(Debug, clap::Args)]
struct LinesArgs {
    /// JSON documents, one a line; - reads stdin
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// Read as panels do, or as the DyLAN paper's code does
    #[arg(long, default_value = "panel", value_name = "panel|reference")]
    mode: ::agents::panel::parse::ReadingMode,
}
