//! What a shell needs of a command line: manual pages, `llmx man DIR`, and a script that completes it, `llmx completions SHELL`.

use std::path::PathBuf;

use clap_complete::Shell;
use serde_json::json;

use crate::output::{Failure, Outcome, print, print_result};

/// Arguments of `llmx man`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx man ~/.local/share/man/man1 && man llmx-call\n  llmx man run/man && man -l run/man/llmx.1"
)]
pub struct ManArgs {
    /// Folder for the pages, one of the program and one of each command; made where it is not there
    dir: PathBuf,
    /// Print the names of the pages as JSON
    #[arg(long)]
    json: bool,
}

/// Writes the pages of a program, the whole command line.
pub fn write_pages(args: &ManArgs, program: clap::Command) -> Outcome {
    let name = program.get_name().to_owned();
    let commands: Vec<String> =
        program.get_subcommands().map(|command| format!("{name}-{}", command.get_name())).collect();
    let is_own = |page: &String| {
        let page = page.strip_suffix(".1").unwrap_or_default();
        page == name || commands.iter().any(|command| page.starts_with(command.as_str()))
    };
    let cannot = |error: std::io::Error| {
        Failure::configuration(format_args!("cannot write manual pages to {}: {error}", args.dir.display()))
    };
    std::fs::create_dir_all(&args.dir).map_err(cannot)?;
    clap_mangen::generate_to(program, &args.dir).map_err(cannot)?;
    let mut pages: Vec<String> = std::fs::read_dir(&args.dir)
        .map_err(cannot)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(is_own)
        .collect();
    pages.sort();
    let (count, dir, first) = (pages.len(), args.dir.display(), args.dir.join(format!("{name}.1")));
    let words = format_args!("{count} pages in {dir}; man -l {}", first.display());
    print_result(args.json, &json!({ "dir": args.dir, "pages": pages }), words)
}

/// Arguments of `llmx completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  source <(llmx completions bash)\n  \
    llmx completions bash > ~/.local/share/bash-completion/completions/llmx\n  \
    llmx completions zsh > \"${fpath[1]}/_llmx\"\n  \
    llmx completions fish > ~/.config/fish/completions/llmx.fish")]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for the whole command line of a program.
pub fn print_completions(args: &CompletionsArgs, program: &mut clap::Command) -> Outcome {
    let (mut script, name) = (Vec::new(), program.get_name().to_owned());
    clap_complete::generate(args.shell, program, name, &mut script);
    print(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
