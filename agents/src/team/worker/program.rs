//! A program that carries tasks out: the task on stdin, the result on stdout.
//!
//! It gets an environment of its own: `PATH` and `HOME` as this program has them, and nothing else, so that no token leaks. What
//! it writes to stderr is discarded. It is ended when its time is over or its result too long; processes that it has started
//! itself are its own to end.

use std::path::PathBuf;
use std::process::Stdio;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use super::{WorkRequest, Worker};
use crate::routine::{RESULT_CHARS_MAX, RoutineFault};

/// Bytes of a result: every character of the longest can have four.
const RESULT_BYTES_MAX: usize = 4 * RESULT_CHARS_MAX;
/// Variables that a program is given, as this program has them.
const VARIABLES: [&str; 2] = ["PATH", "HOME"];

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct ProgramWorker {
    program: PathBuf,
    arguments: Vec<String>,
}

impl ProgramWorker {
    /// This program, started anew for each task.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, arguments: Vec<String>) -> Self {
        Self { program: program.into(), arguments }
    }

    fn start(&self) -> Result<Child, RoutineFault> {
        let kept = VARIABLES.iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value)));
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(kept).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().map_err(|error| RoutineFault::Unavailable(format!("the program does not start: {error}")))
    }
}

impl Worker for ProgramWorker {
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let started = self.start();
        async move { converse(started?, request.text).await }.boxed()
    }
}

/// Writes the task and reads the result at the same time: a program may answer before it has read everything.
async fn converse(mut child: Child, task: String) -> Result<String, RoutineFault> {
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(RoutineFault::Unavailable("the program has no pipes".to_owned()));
    };
    let write = async move {
        // A program that needs no more of its task may close its end.
        let _closed_early = stdin.write_all(task.as_bytes()).await;
    };
    let read = async {
        let mut result = Vec::new();
        let read = stdout.take(RESULT_BYTES_MAX as u64 + 1).read_to_end(&mut result).await;
        read.map(|_| result).map_err(|error| RoutineFault::Failed(format!("its result cannot be read: {error}")))
    };
    let ((), result) = tokio::join!(write, read);
    let result = result?;
    if result.len() > RESULT_BYTES_MAX {
        return Err(RoutineFault::TooLong);
    }
    let status = child.wait().await.map_err(|error| RoutineFault::Failed(format!("it is lost: {error}")))?;
    if !status.success() {
        return Err(RoutineFault::Failed(format!("it ended with {status}")));
    }
    let result = String::from_utf8(result).map_err(|_| RoutineFault::Unreadable)?;
    Ok(result.trim_end_matches('\n').to_owned())
}
