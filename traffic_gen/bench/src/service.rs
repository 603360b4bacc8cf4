//! Processes of a build of `llmx` beside this one, each with its output in files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nats_server::GuardedProcess;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::rounds::{BenchError, stuck};
use crate::usage::{ProcessUsage, resident_bytes};

/// Between two looks at a process that is to end, or is followed.
pub const POLL: Duration = Duration::from_millis(50);
/// Between two looks at one that starts: how long that takes is measured.
const START_POLL: Duration = Duration::from_millis(5);
/// Longest wait for an answer of a process.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Where the key of their tokens is, in their folder; builds differ in where they look.
const SIGNING_KEY: &str = "run/keys/signing-key.pem";
/// Characters of a process's output repeated when it failed.
const TAIL_LEN: usize = 1500;
/// Variables that would change what the processes do.
const VARIABLES: [&str; 2] = ["LLMX_", "OTEL_"];
/// One that they are left: how many agents share a connection is part of what is measured.
const KEPT_VARIABLE: &str = "LLMX_AGENTS_PER_CONNECTION";

/// Starts processes of one build in a folder of their own.
pub struct Launcher {
    binary: PathBuf,
    /// Where they work, and where their output is.
    pub folder: TempDir,
}

impl Launcher {
    /// Makes the folder.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when there cannot be one.
    pub fn new(binary: &Path) -> Result<Self, BenchError> {
        Ok(Self { binary: binary.to_owned(), folder: TempDir::with_prefix("llmx-bench-").map_err(stuck)? })
    }

    /// Starts a process, which has a name.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when it cannot be started.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Result<Service, BenchError> {
        let cannot =
            |error: std::io::Error| stuck(format!("{name} cannot be started from {}: {error}", self.binary.display()));
        let file = |kind: &str| self.folder.path().join(format!("{name}.{kind}"));
        let mut command = Command::new(&self.binary);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(File::create(file("out")).map_err(cannot)?);
        command.stderr(File::create(file("err")).map_err(cannot)?);
        for (variable, _) in std::env::vars_os() {
            let name = variable.to_string_lossy();
            if name != KEPT_VARIABLE && VARIABLES.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&variable);
            }
        }
        command.env("LLMX_SIGNING_KEY", SIGNING_KEY);
        let process = GuardedProcess::spawn(&mut command, Some(self.folder.path())).map_err(cannot)?;
        Ok(Service { name: name.to_owned(), process, out: file("out"), err: file("err") })
    }
}

/// One process, ended with its handle.
pub struct Service {
    /// Its name.
    pub name: String,
    process: GuardedProcess,
    out: PathBuf,
    err: PathBuf,
}

impl Service {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it has used since it started.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when it is gone.
    pub fn usage(&self) -> Result<ProcessUsage, BenchError> {
        usage_of(&self.name, self.id())
    }

    /// Resident memory.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(&self.id().to_string())
    }

    /// What stands behind `mark` in the first line of its output that holds it, once there is one.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when it ends before, or there is none within `limit`.
    pub async fn until_said(&mut self, mark: &str, limit: Duration) -> Result<String, BenchError> {
        let deadline = Instant::now() + limit;
        loop {
            // A line is whole only with its end.
            let output = self.printed()?;
            let lines = output.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            if let Some((_, behind)) = lines.filter_map(|line| line.split_once(mark)).next() {
                return Ok(behind.to_owned());
            }
            if let Some(status) = self.process.ended() {
                return Err(self.failed(&format!("ended before it was ready, {}", status.map_err(stuck)?)));
            }
            if Instant::now() >= deadline {
                return Err(self.failed(&format!("was not ready within {} s", limit.as_secs())));
            }
            sleep(START_POLL).await;
        }
    }

    /// What it printed, once it has ended by itself, with exit code 0.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when it ends otherwise, or not within `limit`.
    pub async fn until_well_ended(&mut self, limit: Duration) -> Result<String, BenchError> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            match self.process.ended() {
                Some(Ok(status)) if status.success() => return self.printed(),
                Some(ended) => return Err(self.failed(&format!("ended, {}", ended.map_err(stuck)?))),
                None => sleep(POLL).await,
            }
        }
        Err(self.failed("does not end"))
    }

    /// What it has printed so far.
    ///
    /// # Errors
    /// [`BenchError::Stuck`] when its output cannot be read.
    pub fn printed(&self) -> Result<String, BenchError> {
        std::fs::read_to_string(&self.out).map_err(stuck)
    }

    /// How it failed, with its last words.
    pub fn failed(&self, how: &str) -> BenchError {
        let said = [&self.out, &self.err].map(|file| std::fs::read_to_string(file).unwrap_or_default()).concat();
        let skipped = said.chars().count().saturating_sub(TAIL_LEN);
        let tail: String = said.trim_end().chars().skip(skipped).collect();
        stuck(format!("{} {how}: {tail}", self.name))
    }
}

/// What a process has used since it started.
///
/// # Errors
/// [`BenchError::Stuck`] when it is gone.
pub fn usage_of(name: &str, id: u32) -> Result<ProcessUsage, BenchError> {
    ProcessUsage::read(id).map_err(|error| stuck(format!("{name} cannot be measured: {error}")))
}

/// Asks a process of this machine, which has five seconds.
///
/// # Errors
/// When it does not answer.
pub async fn get(url: &str) -> reqwest::Result<reqwest::Response> {
    reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build()?.get(url).send().await
}
