//! What this build was made without: its commands are in no help, and say so when they are asked for.

use std::ffi::OsString;

use crate::output::{Failure, Outcome};

/// Arguments of a command that is not built in: anything.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct MissingArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _any: Vec<OsString>,
}

#[cfg(not(feature = "bench"))]
pub use MissingArgs as BenchArgs;
#[cfg(not(feature = "chaos"))]
pub use MissingArgs as ChaosArgs;
#[cfg(not(feature = "experiments"))]
pub use MissingArgs as ExperimentArgs;
#[cfg(not(feature = "llm"))]
pub use MissingArgs as ModelStubArgs;
#[cfg(not(feature = "experiments"))]
pub use MissingArgs as ReportArgs;
#[cfg(not(feature = "experiments"))]
pub use MissingArgs as SoakArgs;
#[cfg(not(feature = "simulate"))]
pub use MissingArgs as SimulateArgs;

/// Says what is missing. Commands come first on the command line.
#[allow(clippy::unused_async, reason = "stands in for commands that are asynchronous")]
pub async fn run(_: MissingArgs) -> Outcome {
    Err(failure(&format!("`llmx {}`", std::env::args().nth(1).unwrap_or_default())))
}

/// The failure that says so, with its remedy.
pub fn failure(what: &str) -> Failure {
    Failure::configuration(format_args!(
        "{what} is not part of this build, which was made without it, as the container's image is; run it from a full \
         build: cargo build --release"
    ))
}
