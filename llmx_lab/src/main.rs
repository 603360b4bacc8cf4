//! `llmx-lab`: the laboratory of `llmx`. Each subcommand is a file; `llmx-lab --help` lists them.

#![allow(unreachable_pub, reason = "a binary has no public interface; `pub` marks what a command's file offers")]

mod bargain;
mod bench;
mod chaos;
mod experiment;
#[cfg(test)]
#[path = "../../llmx/tests/common/help.rs"]
mod help;
mod model_stub;
mod panel;
mod report;
mod simulate;
mod soak;
mod team;
mod tournament;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use llmx::output::{Failure, Outcome};
use llmx::runtime::Threads;
use llmx::{
    HelpArgs, Program, access, arguments, audit, calls, model, nats, ops, output, policy, remote, shell, signals,
};

/// The allocator of `llmx`, so that figures of both compare.
#[cfg(not(feature = "count-allocations"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The same, counted.
#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: alloc_tracker::Allocator<mimalloc::MiMalloc> = alloc_tracker::Allocator::new(mimalloc::MiMalloc);

/// The laboratory of llmx: faults, figures, experiments; bargains, panels and teams of files.
#[derive(Debug, Parser)]
#[command(name = "llmx-lab", version = llmx::VERSION, propagate_version = true, disable_help_flag = true, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    _help: HelpArgs,
    #[command(subcommand)]
    command: LabCommand,
}

const EXAMPLES: &str = "\
Examples:
  llmx-lab simulate --seeds 1000                     faults from a seed, every invariant checked
  llmx-lab chaos --kill engines --duration 60        real processes, killed under load
  llmx-lab bench --json
  llmx-lab experiment paper --time-scale 60          the paper's runs, as many rounds in less time
  llmx-lab bargain domains/car_purchase.json --a boulware --b conceder --plot car.svg
  llmx-lab team play domains/teams/evening.json      three agents talk, vote and conclude

Processes of the exchange are those of the program llmx beside this one; LLMX_BIN names another.
Exit codes: 0 fine, 1 the thing asked for failed, 2 bad usage or configuration.
Logs go to stderr; LLMX_LOG=info (or debug, or a filter) shows more, LLMX_LOG_FORMAT=text or json chooses how.";

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// The whole exchange under faults on a virtual clock, judged by every invariant
    Simulate(simulate::SimulateArgs),
    /// Real processes, killed under load; whether anything was lost or doubled
    Chaos(chaos::ChaosArgs),
    /// Load for hours, and a verdict on everything that could drift: latency, memory, handles, streams
    Soak(Box<soak::SoakArgs>),
    /// The project's benchmarks, each beside its ceiling
    Bench(bench::BenchArgs),
    /// Plans of cells, each run once into a folder: list, show, run, the paper's
    Experiment(experiment::ExperimentArgs),
    /// Every figure of an experiment, recomputed from its rounds: tables, pictures, hypotheses, what differs from another
    Report(report::ReportArgs),
    /// Alternating offers over a domain file: strategies, the agreement, what was possible; or does a mandate hold?
    Bargain(bargain::BargainArgs),
    /// Bargaining strategies, negotiators of NegMAS and models: every pair on every domain, ranked by utility
    Tournament(tournament::TournamentArgs),
    /// Panels: play one of a file, score recorded ones, parse what models said
    Panel(panel::PanelArgs),
    /// Teams of agents: a scenario file, played to its conclusion
    Team(team::TeamArgs),
    /// An OpenAI-compatible endpoint without a model: every answer from a seed, faults included
    ModelStub(model_stub::ModelStubArgs),
    /// A script that completes commands and flags, for a shell
    #[command(after_help = "Examples:\n  source <(llmx-lab completions bash)\n  \
        llmx-lab completions zsh > \"${fpath[1]}/_llmx-lab\"")]
    Completions(shell::CompletionsArgs),
    /// Manual pages of every command
    #[command(after_help = "Examples:\n  llmx-lab man ~/.local/share/man/man1 && man llmx-lab-chaos")]
    Man(shell::ManArgs),
}

impl Program for Cli {
    fn threads(&self) -> Threads {
        Threads::Cores
    }

    async fn run(self) -> Outcome {
        match self.command {
            LabCommand::Simulate(args) => simulate::run(args).await,
            LabCommand::Chaos(args) => chaos::run(args).await,
            LabCommand::Soak(args) => Box::pin(soak::run(*args)).await,
            LabCommand::Bench(args) => bench::run(args).await,
            LabCommand::Experiment(args) => Box::pin(experiment::run(args)).await,
            LabCommand::Report(args) => report::run(args).await,
            LabCommand::Bargain(args) => bargain::run(&args),
            LabCommand::Tournament(args) => tournament::run(args).await,
            LabCommand::Panel(args) => Box::pin(panel::run(&args)).await,
            LabCommand::Team(args) => Box::pin(team::run(args)).await,
            LabCommand::ModelStub(args) => model_stub::run(args).await,
            LabCommand::Completions(args) => shell::print_completions(&args, &mut Self::command()),
            LabCommand::Man(args) => shell::write_pages(&args, Self::command()),
        }
    }
}

/// The program `llmx`, whose processes are killed, soaked and measured.
///
/// # Errors
/// [`Failure::configuration`] where there is none.
fn exchange_program() -> Result<PathBuf, Failure> {
    let named = std::env::var_os("LLMX_BIN").filter(|name| !name.is_empty()).map(PathBuf::from);
    let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("llmx"));
    let program = named.map_or_else(beside, Ok)?;
    // The whole path: processes are started in folders of their own.
    std::fs::canonicalize(&program).ok().filter(|path| path.is_file()).ok_or_else(|| {
        let program = program.display();
        Failure::configuration(format_args!(
            "{program} is no file; build llmx beside this program (cargo build --release), or name it by LLMX_BIN"
        ))
    })
}

fn main() -> ExitCode {
    // Engines' own faults of arithmetic show only beside another.
    traffic_gen::invariants::judge_mandates_by(policy_reference::is_inside);
    llmx::run::<Cli>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_subcommand_has_examples_of_itself() {
        super::help::assert_examples(Cli::command(), 27);
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
