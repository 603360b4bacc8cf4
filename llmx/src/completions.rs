//! `llmx completions SHELL`: what a shell needs to complete commands and flags.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
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

/// Prints the script.
pub fn run(args: &CompletionsArgs) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "llmx", &mut script);
    print(String::from_utf8_lossy(&script).trim_end());
    Ok(())
}
