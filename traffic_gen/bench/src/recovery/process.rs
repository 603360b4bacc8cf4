//! An engine as a process of `llmx`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::rounds::BenchError;
use crate::usage::resident_bytes;

/// Longest wait for readiness: far beyond what reading a whole log takes.
const READY_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest wait for everything folded and acknowledged.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// How often its state is asked for.
const POLL: Duration = Duration::from_millis(100);
/// The same where the time until then is measured.
const OWNER_POLL: Duration = Duration::from_millis(10);
/// Records between two checkpoints of a lane: a few in the course of a run, however full its records are.
pub(super) const CHECKPOINT_EVERY: u64 = 1000;
/// Lines of its output that may wait to be read.
const LINES_MAX: usize = 16;

/// A running engine; killed when dropped.
pub(super) struct EngineProcess {
    child: Child,
    status_url: String,
    ready_after: Duration,
}

impl EngineProcess {
    /// Starts an engine of the program `exchange` and waits until it is ready.
    pub(super) async fn start(exchange: &Path, nats: &str, id: &str) -> Result<Self, BenchError> {
        let started = Instant::now();
        let mut child = Command::new(exchange)
            .args(["engine", "--nats", nats, "--id", id, "--listen", "127.0.0.1:0", "--trim", "never"])
            // Nobody stands by: what one engine takes over from another is cold.
            .args(["--checkpoint-every", &CHECKPOINT_EVERY.to_string(), "--standbys", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(stuck)?;
        let stdout = child.stdout.take();
        let mut engine = Self { child, status_url: String::new(), ready_after: Duration::ZERO };
        let (lines, mut told) = mpsc::channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        loop {
            let line = tokio::time::timeout(READY_TIMEOUT, told.recv()).await.ok().flatten();
            let line = line.ok_or_else(|| stuck(format!("engine {id} ended, or was not ready in time")))?;
            if let Some(url) = line.strip_prefix("health: ") {
                engine.status_url = format!("{}/status", url.trim_end_matches("/readyz"));
            }
            if line.starts_with("engine: ") {
                engine.ready_after = started.elapsed();
                return Ok(engine);
            }
        }
    }

    /// From the start of the process to readiness.
    pub(super) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// What it says of each lane.
    async fn lanes(&self) -> Result<Vec<Value>, BenchError> {
        let local = reqwest::Client::builder().no_proxy().build().map_err(stuck)?;
        let answer = local.get(&self.status_url).send().await.map_err(stuck)?;
        let status: Value = answer.json().await.map_err(stuck)?;
        Ok(status["state"]["lanes"].as_array().cloned().unwrap_or_default())
    }

    /// Deliveries that wait for an acknowledgement, over all lanes; and open negotiations.
    async fn outbox_and_open(&self) -> Result<(u64, u64), BenchError> {
        let lanes = self.lanes().await?;
        let sum = |name: &str| lanes.iter().filter_map(|lane| lane[name].as_u64()).sum::<u64>();
        Ok((sum("outbox"), sum("open")))
    }

    /// Waits until it owns at least so many lanes.
    pub(super) async fn until_owner(&self, lanes_min: usize) -> Result<(), BenchError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let owned = self.lanes().await?.iter().filter(|lane| lane["phase"] == "owner").count();
            if owned >= lanes_min {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(stuck(format!("it owns {owned} lanes, not {lanes_min}")));
            }
            tokio::time::sleep(OWNER_POLL).await;
        }
    }

    /// Waits until at most `outbox_max` deliveries wait.
    pub(super) async fn until_below(&self, outbox_max: u64) -> Result<(), BenchError> {
        self.until(|outbox, _| outbox <= outbox_max).await
    }

    /// Waits until so many negotiations are open and nothing waits.
    pub(super) async fn until_idle(&self, open: u64) -> Result<(), BenchError> {
        self.until(|outbox, found| outbox == 0 && found == open).await
    }

    async fn until(&self, is_so: impl Fn(u64, u64) -> bool) -> Result<(), BenchError> {
        let deadline = Instant::now() + IDLE_TIMEOUT;
        loop {
            let (outbox, open) = self.outbox_and_open().await?;
            if is_so(outbox, open) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(stuck(format!("{outbox} deliveries wait, {open} negotiations are open")));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Resident memory; 0 where the system does not tell.
    pub(super) fn resident_bytes(&self) -> u64 {
        resident_bytes(&self.child.id().to_string())
    }

    /// Ends it at once, as a power switch would.
    pub(super) fn kill(&mut self) {
        // It may have ended by itself; there is nobody else to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn stuck(error: impl std::fmt::Display) -> BenchError {
    BenchError::Stuck(error.to_string())
}
