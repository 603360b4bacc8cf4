//! `llmx-lab panel parse`: what texts of models say, as an agent that asks one reads them.

use ::agents::fault::DocumentFault;
use ::agents::panel::parse::{ReadingMode, answer, order, ratings};
use policy_core::panel::key::{agrees, key};
use schemas::panel::{AnswerKind, SEATS_MAX};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{LinesArgs, all_right, each_line, read};
use crate::output::{Outcome, print_json_line};

/// Arguments of `llmx-lab panel parse`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab panel parse replies.jsonl\n  \
    echo '{\"kind\":\"ratings\",\"text\":\"[[5, 1]]\",\"of\":2}' | llmx-lab panel parse - --mode reference\n\n\
    A line is one of\n  {\"kind\":\"ratings\",\"text\":..,\"of\":3}\n  {\"kind\":\"rank\",\"text\":..,\"of\":4,\"keep\":2}\n  \
    {\"kind\":\"answer\",\"answer\":{\"kind\":\"math\"},\"text\":..}\n  {\"kind\":\"equal\",\"answer\":{\"kind\":\"number\"},\"a\":\"1/2\",\"b\":\"0.5\"}\n\n\
    Fails (1) when a line is at fault, after all others are read. docs/panels.md")]
pub struct PanelParseArgs {
    #[command(flatten)]
    lines: LinesArgs,
}

/// What is asked of a line.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ParseTask {
    Ratings,
    Rank,
    Answer,
    Equal,
}

/// A line as it is read; each task has members of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseLine {
    kind: ParseTask,
    text: Option<String>,
    of: Option<usize>,
    keep: Option<usize>,
    answer: Option<AnswerKind>,
    a: Option<String>,
    b: Option<String>,
}

/// Reads every line.
pub fn run(args: &PanelParseArgs) -> Outcome {
    let mut unprinted = None;
    let counts = each_line(&args.lines.file, |_, line| {
        let found = read(line).and_then(|line: ParseLine| line.parse(args.lines.mode)).map_err(|fault| vec![fault])?;
        if let Err(failure) = print_json_line(&found) {
            unprinted = Some(failure);
        }
        Ok(())
    })?;
    unprinted.map_or_else(|| all_right(counts), Err)
}

impl ParseLine {
    fn parse(&self, mode: ReadingMode) -> Result<Value, DocumentFault> {
        match self.kind {
            ParseTask::Ratings => {
                let found = ratings(mode, given(self.text.as_deref(), "/text")?, count(self.of, "/of")?);
                Ok(json!({"ratings": found}))
            }
            ParseTask::Rank => {
                let (of, keep) = (count(self.of, "/of")?, count(self.keep, "/keep")?);
                Ok(json!({"order": order(given(self.text.as_deref(), "/text")?, of, keep)}))
            }
            ParseTask::Answer => {
                let kind = given(self.answer.as_ref(), "/answer")?;
                let found = answer(mode, kind, given(self.text.as_deref(), "/text")?);
                let key = found.as_deref().and_then(|found| key(kind, found).ok());
                Ok(json!({"answer": found, "key": key.as_ref().map(|key| key.text())}))
            }
            ParseTask::Equal => {
                let kind = given(self.answer.as_ref(), "/answer")?;
                let key = |text: &str| key(kind, text).ok();
                let equal = match (&self.a, &self.b) {
                    (Some(a), Some(b)) => key(a).zip(key(b)).is_some_and(|(a, b)| agrees(kind, &a, &b)),
                    (None, None) => mode == ReadingMode::Reference,
                    (Some(_), None) | (None, Some(_)) => false,
                };
                Ok(json!({"equal": equal}))
            }
        }
    }
}

fn given<T>(member: Option<T>, pointer: &str) -> Result<T, DocumentFault> {
    member.ok_or_else(|| DocumentFault::at(pointer, "it is missing"))
}

fn count(member: Option<usize>, pointer: &str) -> Result<usize, DocumentFault> {
    let count = given(member, pointer)?;
    let is_within = (1..=SEATS_MAX).contains(&count);
    if is_within { Ok(count) } else { Err(DocumentFault::at(pointer, format!("1 to {SEATS_MAX} is expected"))) }
}
