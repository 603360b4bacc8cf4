//! `llmx completions SHELL`: what a shell needs to complete commands and flags.

use clap_complete::Shell;

use crate::output::{Outcome, print};

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

/// Prints the script for `llmx`, the whole command line.
pub fn run(args: &CompletionsArgs, llmx: &mut clap::Command) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, llmx, "llmx", &mut script);
    print(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
