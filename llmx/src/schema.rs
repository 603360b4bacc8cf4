//! `llmx schema`: the published JSON Schemas, and documents checked against them.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use schemas::Refusal;
use schemas::validate::{DOCUMENT_BYTES_MAX, Kind, check_document, check_message, published};

use crate::output::{Failure, Outcome, print, print_json};

/// Arguments of `llmx schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx schema show offer\n  llmx schema check message.json")]
pub struct SchemaArgs {
    #[command(subcommand)]
    command: SchemaCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SchemaCommand {
    /// Names of the published schemas
    #[command(after_help = "Examples:\n  llmx schema list")]
    List,
    /// One schema
    #[command(after_help = "Examples:\n  llmx schema show offer\n  llmx schema show policy > policy.schema.json")]
    Show {
        /// Its name, for example offer
        name: String,
    },
    /// Check a document: exit code 1 and a pointer to the first fault when it departs
    #[command(
        after_help = "Examples:\n  llmx schema check message.json\n  llmx schema check --kind policy my-policy.json"
    )]
    Check {
        /// The document; - for standard input
        file: PathBuf,
        /// Schema to check against; `message` also checks what a gateway checks beyond the schema
        #[arg(long, default_value = "message")]
        kind: String,
        /// Print the verdict as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Runs the subcommand.
pub fn run(args: SchemaArgs) -> Outcome {
    match args.command {
        SchemaCommand::List => {
            for (name, _) in published() {
                print(name);
            }
            Ok(())
        }
        SchemaCommand::Show { name } => match published().iter().find(|(known, _)| *known == name) {
            Some((_, text)) => {
                print(text.trim_end());
                Ok(())
            }
            None => Err(unknown(&name)),
        },
        SchemaCommand::Check { file, kind, json } => check(&file, &kind, json),
    }
}

fn check(file: &Path, kind: &str, json: bool) -> Outcome {
    let bytes = read(file)?;
    let verdict: Result<(), Refusal> = if kind == "message" {
        check_message(&bytes).map(|_| ())
    } else {
        check_document(Kind::from_name(kind).ok_or_else(|| unknown(kind))?, &bytes)
    };
    if json {
        print_json(&serde_json::json!({"valid": verdict.is_ok(), "problem": verdict.as_ref().err()}))?;
    }
    match verdict {
        Ok(()) => {
            if !json {
                print(format_args!("{}: a valid {kind}", file.display()));
            }
            Ok(())
        }
        Err(refusal) => Err(departure(file, &refusal)),
    }
}

/// Where a document departs from its schema, and what was expected there.
pub fn departure(file: &Path, refusal: &Refusal) -> Failure {
    let at = refusal.pointer.as_deref().map(|pointer| format!(" at `{pointer}`")).unwrap_or_default();
    let expected = refusal.expected.as_deref().map(|text| format!(" (expected {text})")).unwrap_or_default();
    Failure::failed(anyhow::anyhow!("{}: {refusal}{at}{expected}", file.display()))
}

fn unknown(name: &str) -> Failure {
    Failure::configuration(format_args!("there is no schema `{name}`; `llmx schema list` shows them"))
}

/// Reads a file, or standard input for `-`; one byte more than allowed is enough to be refused as too large. A file that
/// cannot be read is a mistake of the command line.
pub fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    read_up_to(file, DOCUMENT_BYTES_MAX as u64 + 1).map_err(|error| Failure::configuration(format_args!("{error:#}")))
}

fn read_up_to(file: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if file.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        opened.take(limit).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(bytes)
}
