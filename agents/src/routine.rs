//! Routines: what carries an award out, selected by the hash of the protocol document that the award pins
//! (docs/spec/agora.md#ag-50).
//!
//! | module | question it answers |
//! |---|---|
//! | [`table`] | which routine follows which document? |
//! | [`attempt`] | what is tried next? (pure) |
//! | [`runner`] | who runs routines, within which limits? |
//! | [`native`] | a function of this program |
//! | `http` | a service of the agent's own, asked over HTTP (feature `http`) |
//! | `metrics` | runs and their durations, counted (feature `metrics`) |
//!
//! WebAssembly has a crate of its own, `routine_wasm`, because it brings an interpreter along. A language model as a routine
//! is `model::routine` (feature `llm`); the contractor that runs routines is `contractor::performing`.
//!
//! A routine is given the text of the call's task and answers with a text of at most [`RESULT_CHARS_MAX`] characters. It
//! runs in a task of its own, within a time limit, never in the agent's loop. One that fails gives way to the model, and
//! that to a sentence where the contractor's owner has set one. Where all fails, the award is reported as failed.

pub mod attempt;
#[cfg(feature = "http")]
pub mod http;
pub mod native;
pub mod runner;
pub mod table;

use std::time::Duration;

use futures_util::future::BoxFuture;
use schemas::document::{DocumentHash, RoutineKind};
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::TraceContext;

pub use attempt::{Attempt, PinnedRoutine};
#[cfg(feature = "http")]
pub use http::HttpRoutine;
pub use native::NativeRoutine;
pub use runner::{RoutineAnswer, RoutineLimits, RoutineRunner, RoutineTally};
pub use table::RoutineTable;

/// Most characters of a result: what an INFORM may carry.
pub const RESULT_CHARS_MAX: usize = schemas::payload::TEXT_LEN_MAX;

/// Carries out a request.
pub trait Routine: Send + Sync {
    /// What it is.
    fn kind(&self) -> RoutineKind;

    /// Carries out a request. Whoever runs it limits the time and the result; a future that is dropped must end what it
    /// has begun, or bound it.
    fn run(&self, request: RoutineRequest) -> BoxFuture<'static, Result<String, RoutineFault>>;
}

/// The result of a run, if it comes in time and is short enough.
///
/// # Errors
/// [`RoutineFault::TimedOut`], [`RoutineFault::TooLong`], or what the run says.
pub async fn run_within(
    time_max: Duration,
    running: BoxFuture<'static, Result<String, RoutineFault>>,
) -> Result<String, RoutineFault> {
    let result = tokio::time::timeout(time_max, running).await.map_err(|_| RoutineFault::TimedOut)??;
    // Four bytes are the longest character: the length in bytes settles most results.
    let is_short = result.len() <= RESULT_CHARS_MAX || result.chars().count() <= RESULT_CHARS_MAX;
    if is_short { Ok(result) } else { Err(RoutineFault::TooLong) }
}

/// One award that is to be carried out.
#[derive(Debug, Clone)]
pub struct RoutineRequest {
    /// The contractor.
    pub agent: AgentId,
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// Where in a trace the award became binding.
    pub context: TraceContext,
    /// Log time at which it did.
    pub asked_at: Timestamp,
    /// Log time at which the negotiation ends at the latest; a later result is of no use.
    pub deadline: Timestamp,
    /// The document that the award pins.
    pub document: Option<DocumentHash>,
    /// The request: the call's task.
    pub text: String,
}

/// Why a routine gave no result. No variant holds words of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum RoutineFault {
    /// It reported an error, or ended abnormally.
    #[error("the routine failed: {0}")]
    Failed(String),
    /// No result in time.
    #[error("no result in time")]
    TimedOut,
    /// It used up its computing steps or its memory.
    #[error("the routine used up its {0}")]
    Exhausted(&'static str),
    /// The result is longer than [`RESULT_CHARS_MAX`] characters.
    #[error("the result is longer than {RESULT_CHARS_MAX} characters")]
    TooLong,
    /// The result is no UTF-8 text, or lies where the routine has no memory.
    #[error("the result cannot be read")]
    Unreadable,
    /// The service or model that should do it cannot be reached, or does not answer with success.
    #[error("what the routine needs is unavailable: {0}")]
    Unavailable(String),
    /// Too many run at once.
    #[error("too many routines run at once")]
    Busy,
}

/// Runs of routines, counted for Prometheus. Every label is a closed set.
#[cfg(feature = "metrics")]
pub mod metrics {
    use std::time::Duration;

    use schemas::document::RoutineKind;
    use strum::VariantNames as _;

    use super::RoutineFault;

    /// Bounds of the time of a run, in seconds: a function takes microseconds, a model takes seconds.
    const DURATION_BUCKETS: [f64; 14] =
        [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0];

    /// How runs end.
    fn results() -> Vec<&'static str> {
        [&["ok"][..], RoutineFault::VARIANTS].concat()
    }

    telemetry::metrics! {
        /// The metrics of all routines that contractors of a process run. Cheap to clone.
        pub struct RoutineMetrics {
            /// Runs of routines by what ran and how the run ended; a run that fails is followed by one of a weaker kind.
            runs: Counter[kind: RoutineKind, result: &'static str = results()] = "exchange_routine_runs_total";
            /// Time of runs of routines, by what ran.
            durations: Histogram(&DURATION_BUCKETS)[kind: RoutineKind] = "exchange_routine_duration_seconds";
        }
    }

    impl RoutineMetrics {
        /// Counts a run.
        pub fn ran(&self, kind: RoutineKind, took: Duration, fault: Option<&RoutineFault>) {
            self.runs.of(kind, fault.map_or("ok", Into::into)).inc();
            self.durations.of(kind).observe(took.as_secs_f64());
        }
    }
}
