//! `llmx man DIR`: a manual page of every command.

use std::path::PathBuf;

use serde_json::json;

use crate::output::{Failure, Outcome, print, print_json};

/// Arguments of `llmx man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx man ~/.local/share/man/man1 && man llmx-call\n  llmx man run/man && man -l run/man/llmx.1"
)]
pub struct ManArgs {
    /// Folder for the pages, llmx.1 and llmx-COMMAND.1; made where it is not there
    dir: PathBuf,
    /// Print the names of the pages as JSON
    #[arg(long)]
    json: bool,
}

/// Writes the pages of `llmx`, the whole command line.
pub fn run(args: &ManArgs, llmx: clap::Command) -> Outcome {
    let cannot = |error: std::io::Error| {
        Failure::configuration(format_args!("cannot write manual pages to {}: {error}", args.dir.display()))
    };
    std::fs::create_dir_all(&args.dir).map_err(cannot)?;
    clap_mangen::generate_to(llmx, &args.dir).map_err(cannot)?;
    let mut pages: Vec<String> = std::fs::read_dir(&args.dir)
        .map_err(cannot)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("llmx") && name.ends_with(".1"))
        .collect();
    pages.sort();
    if args.json {
        return print_json(&json!({ "dir": args.dir, "pages": pages }));
    }
    print(format_args!(
        "{} pages in {}; man -l {}",
        pages.len(),
        args.dir.display(),
        args.dir.join("llmx.1").display()
    ));
    Ok(())
}
