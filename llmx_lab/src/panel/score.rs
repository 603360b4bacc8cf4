//! `llmx-lab panel score`: recorded panels, computed anew.

use ::agents::fault::DocumentFault;
use scripted::panel::score::{PanelScore, RecordedAnswer, RecordedPanel, StoppedBy, score};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{LinesArgs, all_right, each_line, read};
use crate::output::{Failure, Outcome, print_json_line};

/// How far an importance may lie from a recorded one, which is a float.
const TOLERANCE: f64 = 1e-9;
/// Units of `_e12` in a whole.
const E12: f64 = 1e12;

/// Arguments of `llmx-lab panel score`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx-lab panel score runs.jsonl\n  llmx-lab panel score runs.jsonl --mode reference --check\n  \
    llmx-lab panel score - --exact < runs.jsonl\n\n\
    A line is {\"n\":4,\"rounds\":3,\"acts\":[{\"layer\":0,\"agent\":2,\"shown\":[],\"scores_text\":null,\"answer\":\"B\"}, ..]}, acts in the\n\
    order they were asked for. Fails (1) when a line is at fault, after all others are scored. docs/panels.md"
)]
pub struct PanelScoreArgs {
    #[command(flatten)]
    lines: LinesArgs,
    /// Compare with `result`, `calls` and `importance` of each line, and with the stopping rule; the last line counts
    #[arg(long)]
    check: bool,
    /// Add importance as exact fractions
    #[arg(long)]
    exact: bool,
}

/// A line as it is read.
#[derive(Deserialize)]
struct RecordedLine {
    #[serde(default)]
    src: Value,
    #[serde(default)]
    q: Value,
    n: usize,
    rounds: usize,
    acts: Vec<RecordedAnswer>,
    /// Present: what was recorded to have come of it, which may be null.
    #[serde(default, deserialize_with = "present")]
    result: Option<Option<String>>,
    calls: Option<usize>,
    importance: Option<Vec<f64>>,
}

fn present<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(source).map(Some)
}

/// A line as it is written.
#[derive(Serialize)]
struct ScoredLine<'a> {
    line: u64,
    src: &'a Value,
    q: &'a Value,
    result: &'a Option<String>,
    key: &'a Option<String>,
    stop: StoppedBy,
    layer: usize,
    calls: usize,
    consistent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    importance_e12: &'a [u64],
    total_e12: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    importance: Option<Vec<String>>,
}

#[derive(Serialize)]
struct CheckedCases {
    cases: u64,
    failed: u64,
}

/// Scores every line.
pub fn run(args: &PanelScoreArgs) -> Outcome {
    let mut unprinted = None;
    let counts @ (failed, cases) = each_line(&args.lines.file, |number, line| {
        let mut recorded: RecordedLine = read(line).map_err(|fault| vec![fault])?;
        let (n, rounds, acts) = (recorded.n, recorded.rounds, std::mem::take(&mut recorded.acts));
        let scored = score(&RecordedPanel { n, rounds, acts }, args.lines.mode).map_err(|fault| vec![fault])?;
        let importance_e12 = scored.importance_e12();
        if let Err(failure) = tell(number, &recorded, &scored, &importance_e12, args.exact) {
            unprinted = Some(failure);
        }
        let differences = if args.check { differences(&recorded, &scored, &importance_e12) } else { Vec::new() };
        if differences.is_empty() { Ok(()) } else { Err(differences) }
    })?;
    if let Some(failure) = unprinted {
        return Err(failure);
    }
    if args.check {
        print_json_line(&CheckedCases { cases, failed })?;
    }
    all_right(counts)
}

fn tell(number: u64, recorded: &RecordedLine, scored: &PanelScore, e12: &[u64], exact: bool) -> Result<(), Failure> {
    print_json_line(&ScoredLine {
        line: number,
        src: &recorded.src,
        q: &recorded.q,
        result: &scored.result,
        key: &scored.result,
        stop: scored.stop,
        layer: scored.layer,
        calls: scored.calls,
        consistent: scored.fault.is_none(),
        fault: scored.fault.as_ref().map(ToString::to_string),
        importance_e12: e12,
        total_e12: scored.total_e12(),
        importance: exact.then(|| scored.importance_exact()),
    })
}

/// Where a record and what comes out differ. What a record does not say is not compared.
fn differences(recorded: &RecordedLine, scored: &PanelScore, e12: &[u64]) -> Vec<DocumentFault> {
    let mut found = Vec::new();
    let mut differ = |pointer: String, recorded: Value, computed: Value| {
        found.push(DocumentFault::at(pointer, format!("{recorded} is recorded, {computed} comes out")));
    };
    if let Some(result) = recorded.result.as_ref().filter(|result| **result != scored.result) {
        differ("/result".to_owned(), result.as_deref().into(), scored.result.as_deref().into());
    }
    if let Some(calls) = recorded.calls.filter(|calls| *calls != scored.calls) {
        differ("/calls".to_owned(), calls.into(), scored.calls.into());
    }
    if let Some(importance) = &recorded.importance {
        if importance.len() != e12.len() {
            differ("/importance".to_owned(), importance.len().into(), e12.len().into());
        }
        for (place, (float, e12)) in importance.iter().zip(e12).enumerate() {
            let computed = *e12 as f64 / E12;
            if (computed - float).abs() > TOLERANCE {
                differ(format!("/importance/{place}"), (*float).into(), computed.into());
            }
        }
    }
    if let Some(fault) = &scored.fault {
        found.push(fault.clone());
    }
    found
}
