//! An engine as a process of `llmx`.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rounds::{BenchError, stuck};
use crate::service::{Launcher, Service, get};

/// Longest wait for readiness, or for everything folded and acknowledged: far beyond what reading a whole log takes.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How often its state is asked for.
const POLL: Duration = Duration::from_millis(100);
/// The same where the time until then is measured.
const OWNER_POLL: Duration = Duration::from_millis(10);
/// Records between two checkpoints of a lane: a few in the course of a run, however full its records are.
pub(super) const CHECKPOINT_EVERY: u64 = 1000;

/// A running engine; killed when dropped.
pub(super) struct EngineProcess {
    // In the order in which they end.
    service: Service,
    _launcher: Launcher,
    status_url: String,
    /// From the start of the process to readiness.
    pub(super) ready_after: Duration,
}

impl EngineProcess {
    /// Starts an engine of the program `exchange` and waits until it is ready.
    pub(super) async fn start(exchange: &Path, nats: &str, id: &str) -> Result<Self, BenchError> {
        let (launcher, every) = (Launcher::new(exchange)?, CHECKPOINT_EVERY.to_string());
        let mut arguments = vec!["engine", "--nats", nats, "--id", id, "--listen", "127.0.0.1:0", "--trim", "never"];
        // Nobody stands by: what one engine takes over from another is cold.
        arguments.extend(["--checkpoint-every", &every, "--standbys", "0"]);
        let started = Instant::now();
        let mut service = launcher.start(id, &arguments)?;
        let health = service.until_said("health: ", TIMEOUT).await?;
        service.until_said("engine: ", TIMEOUT).await?;
        let status_url = format!("{}/status", health.trim_end_matches("/readyz"));
        Ok(Self { service, _launcher: launcher, status_url, ready_after: started.elapsed() })
    }

    /// What it says of each lane.
    async fn lanes(&self) -> Result<Vec<Value>, BenchError> {
        let status: Value = get(&self.status_url).await.map_err(stuck)?.json().await.map_err(stuck)?;
        Ok(status["state"]["lanes"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until it owns at least so many lanes.
    pub(super) async fn until_owner(&self, lanes_min: usize) -> Result<(), BenchError> {
        self.until(OWNER_POLL, |lanes| {
            let owned = lanes.iter().filter(|lane| lane["phase"] == "owner").count();
            (owned < lanes_min).then(|| format!("it owns {owned} lanes, not {lanes_min}"))
        })
        .await
    }

    /// Waits until at most `outbox_max` deliveries wait.
    pub(super) async fn until_below(&self, outbox_max: u64) -> Result<(), BenchError> {
        self.until(POLL, |lanes| waiting(lanes, |outbox, _| outbox <= outbox_max)).await
    }

    /// Waits until so many negotiations are open and nothing waits.
    pub(super) async fn until_idle(&self, open: u64) -> Result<(), BenchError> {
        self.until(POLL, |lanes| waiting(lanes, |outbox, found| outbox == 0 && found == open)).await
    }

    /// Waits until its lanes have no fault any more.
    async fn until(&self, poll: Duration, fault: impl Fn(&[Value]) -> Option<String>) -> Result<(), BenchError> {
        let deadline = Instant::now() + TIMEOUT;
        // One that recovers may answer late.
        while let Some(fault) = self.lanes().await.map_or_else(|late| Some(late.to_string()), |lanes| fault(&lanes)) {
            if Instant::now() > deadline {
                return Err(stuck(fault));
            }
            tokio::time::sleep(poll).await;
        }
        Ok(())
    }

    /// Resident memory; 0 where the system does not tell.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.service.resident_bytes()
    }
}

/// What waits over all lanes, unless as many deliveries wait and as many negotiations are open as should.
fn waiting(lanes: &[Value], is_so: impl Fn(u64, u64) -> bool) -> Option<String> {
    let sum = |name: &str| lanes.iter().filter_map(|lane| lane[name].as_u64()).sum::<u64>();
    let (outbox, open) = (sum("outbox"), sum("open"));
    (!is_so(outbox, open)).then(|| format!("{outbox} deliveries wait, {open} negotiations are open"))
}
