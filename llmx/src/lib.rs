//! `llmx`: the exchange as one program. Each subcommand is a file; `llmx --help` lists them. What is public here serves the
//! programs, `llmx` and `llmx-lab`, and is no interface for anybody else.

#![allow(
    unreachable_pub,
    clippy::new_without_default,
    reason = "a program has no public interface; `pub` marks what a command's file offers"
)]

mod a2a;
pub mod access;
mod agent;
mod agora;
mod archive;
pub mod arguments;
pub mod audit;
mod award;
mod call;
pub mod calls;
mod cli;
mod config;
mod connections;
mod contractors;
mod demo;
mod document;
mod engine;
mod english_auction;
mod gateway;
mod healthcheck;
mod ioa;
mod keys;
mod listen;
mod mcp;
mod metrics;
pub mod model;
pub mod moved;
pub mod nats;
pub mod ops;
pub mod output;
mod panel;
mod party;
pub mod policy;
pub mod remote;
mod replay;
pub mod runtime;
mod schema;
mod search;
mod serve;
mod settings;
pub mod shell;
pub mod signals;
mod token;
mod top;
mod traffic;

use std::process::ExitCode;

use clap::Parser;

use output::{Failure, Outcome};
use runtime::Threads;

/// The version of both programs, and the commit where it is known.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("LLMX_BUILT_FROM"), ")");

/// How long tasks that outlive their command may hold the process: a reader waiting on a dead connection, a computation.
const OUTLIVING_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// The help of every command, short and long.
#[derive(Debug, clap::Args)]
pub struct HelpArgs {
    /// Print help
    #[arg(short, long, action = clap::ArgAction::HelpShort, global = true)]
    help: Option<bool>,
    /// Print help with every option and value
    #[arg(long, action = clap::ArgAction::HelpLong, global = true)]
    help_all: Option<bool>,
}

/// A program's command line.
pub trait Program: Parser {
    /// Begins to export spans, if this command has any and the environment says where to.
    ///
    /// # Errors
    /// What the environment says cannot be done.
    fn start_tracing(&self) -> Outcome {
        Ok(())
    }

    /// The threads the command needs.
    fn threads(&self) -> Threads;

    /// Runs the command.
    fn run(self) -> impl Future<Output = Outcome>;
}

/// What `llmx` does.
pub fn main() -> ExitCode {
    match moved::answer(std::env::args_os().skip(1)) {
        None if std::env::args_os().len() <= 1 => cli::print_first_steps(),
        None => run::<cli::Cli>(),
        Some(failure) => failure.report(),
    }
}

/// Reads the command line of a program and runs the command, to its end or a signal's.
pub fn run<P: Program>() -> ExitCode {
    output::begin(P::command().get_name());
    let program = match P::try_parse() {
        Ok(program) => program,
        Err(answer) => return output::print_instead(&answer),
    };
    if let Err(failure) = output::start_logging().and_then(|()| program.start_tracing()) {
        return failure.report();
    }
    let runtime = match program.threads().runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::configuration(format!("cannot start the runtime: {error}")).report(),
    };
    let outcome = runtime.block_on(async {
        let ending = signals::listen()?;
        tokio::select! {
            biased;
            outcome = program.run() => outcome,
            Ok(signal) = ending => Err(signals::interrupted(signal)),
        }
    });
    runtime.shutdown_timeout(OUTLIVING_MAX);
    output::traces::finish();
    match outcome.and_then(|()| output::printed()) {
        Ok(()) => {
            output::flush_logs();
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}
