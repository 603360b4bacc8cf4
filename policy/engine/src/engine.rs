use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError};
use futures_util::future::BoxFuture;
use schemas::Lane;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::config::EngineConfig;
use crate::ingress::Ingress;
use crate::lane::{BacklogReporter, EvidencePublisher, FoldObserver, LaneHost, STOP_MAX, Shared, StatisticsReporter};
use crate::membership::{HeartbeatTask, LiveEngines, MembershipHandle, MembershipInput};
use crate::metrics::EngineMetrics;
use crate::status::{LanePhase, LaneStatus, Status, StatusReader, StopReason, lane_status};

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The bus refused a subscription or a reading. The caller may try again.
    #[error("the engine cannot use the bus: {0}")]
    Bus(#[from] BusError),
    /// The configuration names a lane the log does not have.
    #[error("lane {lane} does not exist: the log has {lanes} lanes, counted from 0; correct `lanes`")]
    NoSuchLane {
        /// The lane.
        lane: Lane,
        /// Lanes of the log.
        lanes: u8,
    },
    /// Another engine runs under this id. Give each its own, or end the other.
    #[error("another engine runs under the id `{0}`: give each its own (--id, LLMX_ENGINE_ID), or end the other")]
    IdInUse(String),
    /// The configuration names no lane, or an empty id.
    #[error("the engine's configuration is not usable: {0}")]
    Config(&'static str),
    /// A lane stopped before it was ready.
    #[error("lane {lane} stopped: {reason}")]
    LaneStopped {
        /// The lane.
        lane: Lane,
        /// Why.
        reason: StopReason,
    },
}

/// The policy engine of one process.
#[derive(Debug)]
pub struct Engine;

/// Longest a shutdown waits for engines that have to read a checkpoint first.
const COLD_LEAVE_MAX: Duration = Duration::from_secs(5);

impl Engine {
    /// Starts a task per lane and returns when every lane that this engine is to fold has caught up with the end of the
    /// log and is owned, or stood by because another engine should own it.
    ///
    /// # Errors
    /// [`EngineError`]; nothing runs any more then. [`EngineError::IdInUse`] after an engine of the same id, which was
    /// there first, has been heard for as long as it takes to count one as dead. A lane that stops is an error only if no other goes on.
    pub fn start(
        bus: Bus,
        config: EngineConfig,
        metrics: Arc<EngineMetrics>,
        observer: Option<Arc<dyn FoldObserver>>,
    ) -> BoxFuture<'static, Result<EngineHandle, EngineError>> {
        // Boxed: every crate that awaits an `async fn` compiles it again.
        Box::pin(async move {
            config.check().map_err(EngineError::Config)?;
            let lanes = lanes_of(&bus, &config)?;
            let (cancel, ingress_cancel, heartbeat_cancel) =
                (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
            // Acks and other engines are heard before the log is read, so that none is lost in between.
            let mut ingress = Ingress::subscribe(&bus, Arc::clone(&metrics)).await?;
            let served: Vec<Lane> = lanes.iter().copied().collect();
            let (mut heartbeats, membership) =
                HeartbeatTask::subscribe(&bus, &config, served, Arc::clone(&metrics)).await?;
            let leave_max = config.membership.dead_after();
            let (id, mut id_in_use) = (config.id.clone(), heartbeats.id_in_use());
            let shared = Shared::new(bus, config, metrics, observer, ingress.routes(), cancel.clone());
            let (mut hosts, mut watched) = (Vec::new(), Vec::new());
            for lane in lanes {
                let (status, shown) = watch::channel(LaneStatus::new(lane));
                let (sender, signals) = ingress.connect(lane, shown);
                let handle = heartbeats.another_handle(&membership);
                let (host, lane) = LaneHost::new(lane, shared.clone(), (status, signals), handle);
                heartbeats.connect(lane.status.clone(), sender);
                hosts.push(host);
                watched.push(lane);
            }
            let statuses: Vec<_> = watched.iter().map(|lane| lane.status.clone()).collect();
            let status = StatusReader::new(statuses.clone(), heartbeats.has_duplicate_id());
            let statistics = StatisticsReporter::new(&shared, &watched, status.clone());
            let backlogs = BacklogReporter::new(&shared, &watched);
            let evidence = EvidencePublisher::new(&shared, &watched);
            let mut handle = EngineHandle {
                _statistics: statistics.map(|reporter| AbortOnDropHandle::new(tokio::spawn(reporter.drive()))),
                _backlogs: AbortOnDropHandle::new(tokio::spawn(backlogs.drive())),
                _evidence: AbortOnDropHandle::new(tokio::spawn(evidence.drive())),
                lanes: statuses,
                status,
                membership,
                leave_max,
                ingress: tokio::spawn(ingress.drive(ingress_cancel.clone())),
                heartbeats: tokio::spawn(heartbeats.drive(heartbeat_cancel.clone())),
                tasks: hosts.into_iter().map(|host| tokio::spawn(host.drive())).collect(),
                ingress_cancel: ingress_cancel.drop_guard(),
                cancel: cancel.drop_guard(),
                heartbeat_cancel: heartbeat_cancel.drop_guard(),
            };
            tokio::select! {
                biased;
                served = handle.until_served() => served?,
                Ok(_) = id_in_use.wait_for(|&is_in_use| is_in_use) => return Err(EngineError::IdInUse(id)),
            }
            Ok(handle)
        })
    }
}

/// The lanes to serve, each once.
fn lanes_of(bus: &Bus, config: &EngineConfig) -> Result<BTreeSet<Lane>, EngineError> {
    let lanes = bus.log.lanes();
    let chosen: BTreeSet<Lane> = match &config.lanes {
        Some(chosen) => chosen.iter().copied().collect(),
        None => (0..lanes).map(Lane).collect(),
    };
    if chosen.is_empty() {
        return Err(EngineError::Config("`lanes` is empty"));
    }
    match chosen.iter().find(|lane| lane.0 >= lanes) {
        Some(lane) => Err(EngineError::NoSuchLane { lane: *lane, lanes }),
        None => Ok(chosen),
    }
}

/// A running engine. Dropping it stops the engine without handing its lanes over; prefer [`EngineHandle::shutdown`].
#[derive(Debug)]
pub struct EngineHandle {
    /// Publishes the statistics until it is dropped.
    _statistics: Option<AbortOnDropHandle<()>>,
    /// Says which agents do not acknowledge, until it is dropped.
    _backlogs: AbortOnDropHandle<()>,
    /// Publishes what panels have shown, until it is dropped.
    _evidence: AbortOnDropHandle<()>,
    lanes: Vec<watch::Receiver<LaneStatus>>,
    status: StatusReader,
    membership: MembershipHandle,
    /// Longest a shutdown waits for others to take the lanes.
    leave_max: Duration,
    ingress: JoinHandle<()>,
    heartbeats: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
    /// Ends the listening.
    ingress_cancel: DropGuard,
    /// Ends the lanes.
    cancel: DropGuard,
    /// Ends the heartbeats.
    heartbeat_cancel: DropGuard,
}

impl EngineHandle {
    /// The state of each lane, and what refuses readiness.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.read()
    }

    /// Reads the status for as long as it is kept, also while the engine shuts down.
    #[must_use]
    pub fn status_reader(&self) -> StatusReader {
        self.status.clone()
    }

    /// Whether every lane is owned or stood by, and nothing refuses readiness.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status().is_ready()
    }

    /// Hands the lanes over to other engines if there are any, publishes and logs what is under way, and ends every
    /// task, within a bounded time.
    pub async fn shutdown(mut self) {
        // An engine that has ended already has nothing to hand over.
        if self.membership.inputs.send(MembershipInput::Leave).await.is_ok() {
            let leave_max = if self.has_cold_heirs() { COLD_LEAVE_MAX } else { self.leave_max };
            let _ = timeout(leave_max, self.until_handed_over()).await;
        }
        // Listening ends first, so that the lanes can log every acknowledgement that was heard.
        drop(self.ingress_cancel);
        end(self.ingress).await;
        drop(self.cancel);
        for task in self.tasks {
            end(task).await;
        }
        drop(self.heartbeat_cancel);
        end(self.heartbeats).await;
    }

    /// Ends every task where it stands, as a crash would: nothing is handed over, published or logged any more. Entries
    /// that wait in the queue of an append may still reach the log.
    pub fn abort(self) {
        for task in self.tasks.iter().chain([&self.ingress, &self.heartbeats]) {
            task.abort();
        }
    }

    async fn until_served(&mut self) -> Result<(), EngineError> {
        let (mut stopped, mut served) = (None, 0);
        for watched in &mut self.lanes {
            let lane = watched.borrow().lane;
            let is_settled = |status: &LaneStatus| !matches!(status.phase, LanePhase::CatchingUp | LanePhase::Claiming);
            // An error means that the lane's task has ended, which its status tells.
            let _ = watched.wait_for(is_settled).await;
            match lane_status(watched).phase.stopped() {
                Some(reason) => stopped = Some(EngineError::LaneStopped { lane, reason: reason.clone() }),
                None => served += 1,
            }
        }
        stopped.filter(|_| served == 0).map_or(Ok(()), Err)
    }

    /// Whether a lane is owned here that only an engine could take which does not fold it yet.
    fn has_cold_heirs(&self) -> bool {
        let Some(live) = self.membership.live.borrow().clone() else { return false };
        let mut owned = self.lanes.iter().map(|lane| lane.borrow()).filter(|lane| lane.phase == LanePhase::Owner);
        owned.any(|lane| has_other(&live, live.assigned(lane.lane)) && !has_other(&live, live.ranked(lane.lane)))
    }

    /// Waits until no lane is owned that another engine could take.
    async fn until_handed_over(&mut self) {
        for watched in &mut self.lanes {
            let lane = watched.borrow().lane;
            loop {
                let is_held = matches!(watched.borrow_and_update().phase, LanePhase::Owner | LanePhase::Claiming);
                let live = self.membership.live.borrow_and_update().clone();
                let has_heir = live.is_some_and(|live| has_other(&live, live.assigned(lane)));
                if !is_held || !has_heir {
                    break;
                }
                let is_gone = tokio::select! {
                    biased;
                    changed = watched.changed() => changed.is_err(),
                    changed = self.membership.live.changed() => changed.is_err(),
                };
                if is_gone {
                    break;
                }
            }
        }
    }
}

/// Whether other live engines are among these.
fn has_other(live: &LiveEngines, ids: &[String]) -> bool {
    ids.iter().any(|id| live.others.contains_key(id))
}

/// Waits for a task that has been told to end. Tasks bound themselves; the bound here is for one that cannot.
async fn end(mut task: JoinHandle<()>) {
    if timeout(2 * STOP_MAX, &mut task).await.is_err() {
        task.abort();
    }
}
