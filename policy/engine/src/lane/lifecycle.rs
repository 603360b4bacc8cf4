//! A lane's beginning, its beginning anew where the log is not what it was, and its end.

use std::sync::Arc;
use std::time::Duration;

use bus::BusError;
use schemas::Lane;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::fold::{Beginning, Fold};
use super::inputs::{Inputs, LaneWake};
use super::maintenance::Maintenance;
use super::ownership::Ownership;
use super::publish::Publisher;
use super::requests::Requests;
use super::{LaneDriver, Shared};
use crate::backlog::{BacklogSender, LaneBacklog};
use crate::checkpoint::CheckpointStore;
use crate::engine::EngineError;
use crate::ingress::Signal;
use crate::membership::MembershipHandle;
use crate::observer::{LaneObserver, LaneStatistics, Observation};
use crate::recovery::{Recovered, Recovery, RecoveryError};
use crate::status::{LanePhase, LaneStatus, StopReason};

/// Most attempts at building a lane while the bus does not answer, and the gap between them: half a minute. A cluster
/// that has just started elects for some seconds.
const BUILDS_MAX: u32 = 30;
const BUILD_GAP: Duration = Duration::from_secs(1);
/// Time for a clean stop: several fsyncs of a slow disk, and well under the ten seconds a container is given.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(2);

/// What a lane lets others see of it.
pub(crate) struct Watched {
    pub(crate) status: watch::Receiver<LaneStatus>,
    pub(crate) statistics: watch::Receiver<LaneStatistics>,
    pub(crate) backlog: watch::Receiver<LaneBacklog>,
}

impl LaneDriver {
    /// Opens a lane.
    pub(crate) async fn open(
        lane: Lane,
        shared: Shared,
        signals: mpsc::Receiver<Signal>,
        membership: MembershipHandle,
    ) -> Result<(Self, Watched), EngineError> {
        let store = CheckpointStore::new(Arc::clone(&shared.bus.blobs));
        let recovered = recover_with_retries(lane, &shared, &store).await.map_err(|error| match error {
            RecoveryError::Bus(error) => EngineError::Bus(error),
            RecoveryError::Stop(reason) => EngineError::LaneStopped { lane, reason },
        })?;
        let (status, watched) = watch::channel(LaneStatus::new(lane));
        let (now, config) = (Instant::now(), &shared.config);
        let (observer, statistics) = LaneObserver::new(lane, config, &shared.metrics, shared.observer.clone(), now);
        let (backlog, backlogs) =
            BacklogSender::new(Arc::clone(&shared.dead_letters), Arc::clone(&shared.backlog_wake), now);
        let Recovered { lane_state, outbox, registrar, aborts, blamed, position, time, target, trimmed, reader } =
            recovered;
        let log = Arc::clone(&shared.bus.log);
        let mut driver = Self {
            lane,
            status,
            inputs: Inputs::new(shared.cancel.clone(), membership.live, signals, reader),
            fold: Fold::new(lane, config, Beginning { state: lane_state, position, time, blamed }, now),
            ownership: Ownership::new(lane, config, membership.inputs, target),
            publisher: Publisher::new(lane, &shared, backlog, (outbox, registrar, aborts), position),
            requests: Requests::new(lane, shared.bus.clone(), now),
            maintenance: Maintenance::new((lane, log), config, store, (position, trimmed), now),
            observer,
            broken: None,
            shared,
        };
        driver.begin_observing();
        Ok((driver, Watched { status: watched, statistics, backlog: backlogs }))
    }

    fn begin_observing(&mut self) {
        self.observer.begin(self.fold.state(), self.fold.position(), self.publisher.outbox_mut());
    }

    /// The log is not what it was, or begins behind the lane: its state is given up and built again. Nothing leaves the
    /// lane until it has caught up and been claimed anew.
    pub(super) async fn rebuild(&mut self, error: BusError) -> Result<(), StopReason> {
        self.report_loss(&error).await;
        let recovered = recover_with_retries(self.lane, &self.shared, self.maintenance.store()).await;
        self.restart(recovered.map_err(|error| match error {
            RecoveryError::Stop(reason) => reason,
            RecoveryError::Bus(failure) => StopReason::LogUnreadable(failure.to_string()),
        })?);
        Ok(())
    }

    async fn report_loss(&mut self, error: &BusError) {
        let (lane, folded, position) = (self.lane.0, self.fold.folded(), self.fold.position());
        if let BusError::Diverged(_) = error {
            self.observer.observe(Observation::LogDiverged);
            let left = self.shared.bus.log.last_seq(self.lane).await.ok();
            let lost = left.map(|left| position.saturating_sub(left));
            tracing::error!(lane, %error, folded, position, ?left, ?lost, "the log has lost records; the lane is rebuilt");
        } else {
            tracing::warn!(lane, %error, folded, position, "the lane is behind what was trimmed; it is rebuilt");
        }
    }

    fn restart(&mut self, recovered: Recovered) {
        let (now, lane, config) = (Instant::now(), self.lane, &self.shared.config);
        let Recovered { lane_state, outbox, registrar, aborts, blamed, position, time, target, trimmed, reader } =
            recovered;
        let (store, log) = (self.maintenance.store().clone(), Arc::clone(&self.shared.bus.log));
        self.inputs.restart(reader);
        self.fold = Fold::new(lane, config, Beginning { state: lane_state, position, time, blamed }, now);
        self.ownership.restart(target);
        self.publisher.restart(&self.shared, (outbox, registrar, aborts), position);
        self.requests.clear();
        self.maintenance = Maintenance::new((lane, log), config, store, (position, trimmed), now);
        self.begin_observing();
    }

    /// Stops the lane. After a shutdown what is under way is finished first; after anything else nothing more may leave.
    pub(super) async fn stop(mut self, reason: StopReason) {
        if let (StopReason::Shutdown, Some(epoch)) = (&reason, self.ownership.epoch()) {
            self.finish(epoch).await;
        } else if reason != StopReason::Shutdown {
            tracing::error!(lane = self.lane.0, %reason, "the lane stops");
        }
        self.report(Instant::now());
        self.status.send_modify(|status| {
            status.phase = LanePhase::Stopped(reason);
            status.is_fit = false;
            // The state goes with the task.
            (status.open, status.outbox, status.register_pending) = (0, 0, 0);
        });
        self.ownership.announce();
    }

    /// Publishes what is queued, logs what was acknowledged and registered, and waits for what the bus still has to
    /// answer. No further record is read: the next owner folds it.
    async fn finish(&mut self, epoch: u64) {
        let deadline = Instant::now() + STOP_MAX;
        while let Some(signal) = self.inputs.ready_signal() {
            let _ = self.handle_signal(signal);
        }
        self.inputs.ignore_shutdown();
        let finishing = async {
            self.publish().await;
            while self.inputs.has_writes() {
                self.finish_next().await;
            }
            let now = Instant::now();
            self.publisher.note_registered(self.fold.position(), now);
            self.publisher.append_all_delivered(epoch, now, &mut self.inputs);
            while self.inputs.appends_len() > 0 {
                self.finish_next().await;
            }
            let _ = self.shared.bus.pub_sub.flush().await;
        };
        if timeout_at(deadline, finishing).await.is_err() {
            tracing::warn!(lane = self.lane.0, "the bus did not answer in time; the next owner finishes what is left");
        }
    }

    async fn finish_next(&mut self) {
        match self.inputs.wait(None, false).await {
            LaneWake::Write(done) => {
                self.publisher.handle_write(&done, self.fold.state(), &mut self.observer);
                self.publish().await;
            }
            LaneWake::Signal(signal) => {
                let _ = self.handle_signal(signal);
            }
            LaneWake::Append(_)
            | LaneWake::Maintenance(_)
            | LaneWake::Request(_)
            | LaneWake::End(_)
            | LaneWake::Record(_)
            | LaneWake::Peers
            | LaneWake::Time
            | LaneWake::Shutdown => {}
        }
        self.observe_deliveries();
    }
}

/// [`recover`], again while the bus does not answer.
async fn recover_with_retries(
    lane: Lane,
    shared: &Shared,
    store: &CheckpointStore,
) -> Result<Recovered, RecoveryError> {
    let mut failures = 0;
    loop {
        let failure = match recover(lane, shared, store).await {
            Err(RecoveryError::Bus(failure)) => failure,
            outcome => return outcome,
        };
        failures += 1;
        if failures >= BUILDS_MAX || matches!(failure, BusError::Closed) {
            return Err(RecoveryError::Bus(failure));
        }
        tracing::warn!(lane = lane.0, %failure, "the lane could not be built yet");
        sleep(BUILD_GAP).await;
    }
}

async fn recover(lane: Lane, shared: &Shared, store: &CheckpointStore) -> Result<Recovered, RecoveryError> {
    let Shared { bus, config, metrics, .. } = shared;
    Recovery { lane, log: &bus.log, store, config, metrics }.run().await
}
