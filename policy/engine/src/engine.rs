use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bus::Bus;
use bytes::Bytes;
use schemas::{Lane, RegisterKey};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::EngineConfig;
use crate::driver::{Driver, STOP_MAX, Shared};
use crate::error::EngineError;
use crate::ingress::Ingress;
use crate::metrics::EngineMetrics;
use crate::status::{LanePhase, LaneStatus, Status, StopReason};
use crate::tap::Tap;

/// The policy engine of one process.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Starts a task per lane and returns when every lane has caught up with the end of the log and is owned.
    ///
    /// # Errors
    /// [`EngineError`]; nothing runs any more then.
    pub async fn start(
        bus: Bus,
        config: EngineConfig,
        metrics: Arc<EngineMetrics>,
        tap: Option<Arc<dyn Tap>>,
    ) -> Result<EngineHandle, EngineError> {
        let lanes = lanes_of(&bus, &config)?;
        let (cancel, deaf) = (CancellationToken::new(), CancellationToken::new());
        // Acks are heard before the log is read, so that none is lost in between.
        let mut ingress = Ingress::subscribe(&bus, Arc::clone(&metrics)).await?;
        let mut registered = registered_by_lane(&bus).await?;
        let shared = Shared { bus, config, metrics, tap, cancel: cancel.clone() };
        let (mut drivers, mut watched) = (Vec::new(), Vec::new());
        for lane in lanes {
            let signals = ingress.connect(lane);
            let registered = registered.remove(&lane).unwrap_or_default();
            let (driver, status) = Driver::open(lane, shared.clone(), signals, registered).await?;
            drivers.push(driver);
            watched.push(status);
        }
        let mut handle = EngineHandle {
            lanes: watched,
            ingress: tokio::spawn(ingress.drive(deaf.clone())),
            tasks: drivers.into_iter().map(|driver| tokio::spawn(driver.drive())).collect(),
            deaf: deaf.drop_guard(),
            cancel: cancel.drop_guard(),
        };
        handle.until_owned().await?;
        Ok(handle)
    }
}

/// The lanes to serve, each once.
fn lanes_of(bus: &Bus, config: &EngineConfig) -> Result<BTreeSet<Lane>, EngineError> {
    let lanes = bus.log.lanes();
    let chosen: BTreeSet<Lane> = match &config.lanes {
        Some(chosen) => chosen.iter().copied().collect(),
        None => (0..lanes).map(Lane).collect(),
    };
    if config.id.is_empty() {
        return Err(EngineError::Config("`id` is empty"));
    }
    if chosen.is_empty() {
        return Err(EngineError::Config("`lanes` is empty"));
    }
    match chosen.iter().find(|lane| lane.0 >= lanes) {
        Some(lane) => Err(EngineError::NoSuchLane { lane: *lane, lanes }),
        None => Ok(chosen),
    }
}

/// What the register holds, so that a restart need not write the whole past again.
async fn registered_by_lane(bus: &Bus) -> Result<HashMap<Lane, HashMap<RegisterKey, Bytes>>, EngineError> {
    let lanes = bus.log.lanes();
    let mut by_lane: HashMap<Lane, HashMap<RegisterKey, Bytes>> = HashMap::new();
    for (key, value) in bus.register.entries().await? {
        by_lane.entry(key.negotiation().lane(lanes)).or_default().insert(key, value);
    }
    Ok(by_lane)
}

/// A running engine. Dropping it stops the engine without finishing what is under way; prefer
/// [`EngineHandle::shutdown`].
#[derive(Debug)]
pub struct EngineHandle {
    lanes: Vec<watch::Receiver<LaneStatus>>,
    ingress: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
    /// Ends the listening.
    deaf: DropGuard,
    /// Ends the lanes.
    cancel: DropGuard,
}

impl EngineHandle {
    /// The state of each lane.
    #[must_use]
    pub fn status(&self) -> Status {
        let lanes = self.lanes.iter().map(|watched| {
            let mut status = watched.borrow().clone();
            // A lane that stops says so before its sender goes; one that does not has panicked.
            if watched.has_changed().is_err() && !matches!(status.phase, LanePhase::Stopped(_)) {
                status.phase = LanePhase::Stopped(StopReason::TaskEnded);
            }
            status
        });
        Status { lanes: lanes.collect() }
    }

    /// Whether every lane is owned and emitting.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status().is_ready()
    }

    /// Stops reading, publishes and logs what is under way, and ends every task, within a bounded time.
    pub async fn shutdown(self) {
        // Listening ends first, so that the lanes can log every acknowledgement that was heard.
        drop(self.deaf);
        end(self.ingress).await;
        drop(self.cancel);
        for task in self.tasks {
            end(task).await;
        }
    }

    async fn until_owned(&mut self) -> Result<(), EngineError> {
        for watched in &mut self.lanes {
            let lane = watched.borrow().lane;
            let settled =
                watched.wait_for(|status| matches!(status.phase, LanePhase::Owner | LanePhase::Stopped(_))).await;
            let reason = match settled {
                Ok(status) => match &status.phase {
                    LanePhase::Stopped(reason) => reason.clone(),
                    LanePhase::CatchingUp | LanePhase::Claiming | LanePhase::Owner => continue,
                },
                Err(_) => StopReason::TaskEnded,
            };
            return Err(EngineError::LaneStopped { lane, reason });
        }
        Ok(())
    }
}

/// Waits for a task that has been told to end. Tasks bound themselves; the bound here is for one that cannot.
async fn end(mut task: JoinHandle<()>) {
    if timeout(2 * STOP_MAX, &mut task).await.is_err() {
        task.abort();
    }
}
