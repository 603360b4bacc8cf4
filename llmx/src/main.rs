//! `llmx`: the exchange as one program. Each subcommand is a file; `llmx --help` lists them.

#![allow(unreachable_pub, reason = "a binary has no public interface; `pub` marks what a command's file offers")]

mod access;
mod agent;
mod agora;
mod archive;
mod arguments;
mod audit;
mod bargain;
mod bench;
mod call;
mod calls;
mod chaos;
mod cli;
mod completions;
mod config;
mod connections;
mod contractors;
mod demo;
mod document;
mod engine;
mod experiment;
mod gateway;
mod healthcheck;
mod ioa;
mod keys;
mod listen;
mod man;
mod metrics;
mod model;
mod model_stub;
mod nats;
mod ops;
mod output;
mod panel;
mod party;
mod policy;
mod remote;
mod replay;
mod report;
mod runtime;
mod schema;
mod search;
mod settings;
mod signals;
mod simulate;
mod soak;
mod team;
mod token;
mod top;
mod traffic;

use std::process::ExitCode;

use clap::Parser;

/// Documents are allocated on one thread and freed on another, many per message: the C library's allocator spends a
/// third of a round on its locks.
#[cfg(not(feature = "count-allocations"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The same, counted.
#[cfg(feature = "count-allocations")]
#[global_allocator]
static ALLOCATOR: alloc_tracker::Allocator<mimalloc::MiMalloc> = alloc_tracker::Allocator::new(mimalloc::MiMalloc);

/// How long tasks that outlive their command may hold the process: a reader waiting on a dead connection, a computation.
const OUTLIVING_MAX: std::time::Duration = std::time::Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return output::print_instead(&answer),
    };
    if let Err(failure) = output::start_logging().and_then(|()| cli.start_tracing()) {
        return failure.report();
    }
    let runtime = match cli.threads().runtime() {
        Ok(runtime) => runtime,
        Err(error) => return output::Failure::configuration(format!("cannot start the runtime: {error}")).report(),
    };
    let outcome = runtime.block_on(async {
        let ending = signals::listen()?;
        tokio::select! {
            biased;
            outcome = cli.run() => outcome,
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
