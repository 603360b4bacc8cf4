//! What carries the tasks of a team out: a function of this program, a program, a service.
//!
//! A worker is given the text of a task and answers with its result, of at most
//! [`RESULT_CHARS_MAX`](crate::routine::RESULT_CHARS_MAX) characters. It runs in a
//! task of its own and never in the agent's loop; [`WorkRunner`] limits its time and the result.

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "programs")]
mod program;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use schemas::{AgentId, NegotiationId};
use tokio::sync::Semaphore;

use crate::routine::native::BlockingFunction;
use crate::routine::{RoutineFault, run_within};

#[cfg(feature = "http")]
pub use http::HttpWorker;
#[cfg(feature = "programs")]
pub use program::ProgramWorker;

/// Tasks that one agent's worker has under way at a time; a further one fails as busy.
pub const WORKERS_MAX: usize = 16;
/// Longest run of a task that names no deadline of its own. A program or a model takes seconds, a service milliseconds.
pub const WORK_TIME_DEFAULT: Duration = Duration::from_secs(60);

/// Carries out tasks.
pub trait Worker: Send + Sync {
    /// Carries a task out. Whoever runs it limits the time and the result; a future that is dropped must end what it has
    /// begun, or bound it.
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>>;
}

/// One task to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkRequest {
    /// Its owner.
    pub agent: AgentId,
    /// The task's negotiation.
    pub task: NegotiationId,
    /// What it is called.
    pub title: String,
    /// What is to be done.
    pub text: String,
}

/// Runs the tasks of one agent: [`WORKERS_MAX`] at a time, each within a time limit.
#[derive(Clone)]
pub struct WorkRunner {
    worker: Arc<dyn Worker>,
    time_max: Duration,
    places: Arc<Semaphore>,
}

impl WorkRunner {
    /// A runner of this worker, with [`WORK_TIME_DEFAULT`] for each task.
    #[must_use]
    pub fn new(worker: impl Worker + 'static) -> Self {
        let places = Arc::new(Semaphore::new(WORKERS_MAX));
        Self { worker: Arc::new(worker), time_max: WORK_TIME_DEFAULT, places }
    }

    /// The same with another time limit.
    #[must_use]
    pub fn within(self, time_max: Duration) -> Self {
        Self { time_max, ..self }
    }

    /// Carries a task out.
    ///
    /// # Errors
    /// [`RoutineFault`]: what the worker says, [`RoutineFault::TimedOut`], [`RoutineFault::TooLong`], or
    /// [`RoutineFault::Busy`] where too many tasks are under way.
    pub async fn run(&self, request: WorkRequest) -> Result<String, RoutineFault> {
        let _place = self.places.try_acquire().map_err(|_| RoutineFault::Busy)?;
        run_within(self.time_max, self.worker.run(request)).await
    }
}

/// A function of this program, run on a thread for blocking work. One that is given up for its time keeps its thread until it
/// returns, because a thread cannot be ended from outside.
#[derive(Clone)]
pub struct FunctionWorker(BlockingFunction<WorkRequest>);

impl FunctionWorker {
    /// This function.
    #[must_use]
    pub fn new(function: impl Fn(&WorkRequest) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(BlockingFunction::new(function, WORKERS_MAX))
    }
}

impl Worker for FunctionWorker {
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        self.0.run(request)
    }
}

#[cfg(test)]
mod tests;
