//! A lane's beginning, and its beginning anew where the log is not what it was.

use std::sync::Arc;
use std::time::Duration;

use bus::BusError;
use bus::appender::{Appender, AppenderOptions};
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use schemas::Lane;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use super::backlog::Backlog;
use super::inputs::Inputs;
use super::maintenance::Maintenance;
use super::ownership::OwnershipState;
use super::questions::Questions;
use super::telling::Reporting;
use super::uncounted::UncountedEvents;
use super::{Driver, Shared};
use crate::backlog::LaneBacklog;
use crate::checkpoint::CheckpointStore;
use crate::clock_health::ClockHealth;
use crate::delivered::DeliveredBatch;
use crate::digests::Digests;
use crate::engine::EngineError;
use crate::ingress::Signal;
use crate::membership::MembershipHandle;
use crate::recovery::{Recovered, Recovery, RecoveryError};
use crate::statistics::LaneStatistics;
use crate::status::{LaneStatus, StopReason};
use crate::tick::LogClock;
use crate::tick::Ticker;
use crate::trace::Traces;

/// Most attempts at building a lane while the bus does not answer, and the gap between them: half a minute. A cluster
/// that has just started elects for some seconds.
const BUILDS_MAX: u32 = 30;
const BUILD_GAP: Duration = Duration::from_secs(1);

/// What a lane lets others see of it.
pub(crate) struct Watched {
    pub(crate) status: watch::Receiver<LaneStatus>,
    pub(crate) statistics: watch::Receiver<LaneStatistics>,
    pub(crate) backlog: watch::Receiver<LaneBacklog>,
}

impl Driver {
    /// Opens a lane.
    pub(crate) async fn open(
        lane: Lane,
        shared: Shared,
        signals: mpsc::Receiver<Signal>,
        membership: MembershipHandle,
    ) -> Result<(Self, Watched), EngineError> {
        let store = CheckpointStore::new(Arc::clone(&shared.bus.blobs));
        let recovered = recover_patiently(lane, &shared, &store).await.map_err(|error| match error {
            RecoveryError::Bus(error) => EngineError::Bus(error),
            RecoveryError::Stop(reason) => EngineError::LaneStopped { lane, reason },
        })?;
        let (status, watched) = watch::channel(LaneStatus::new(lane));
        let (now, config) = (Instant::now(), &shared.config);
        let (telling, statistics) = Reporting::new(config, now);
        let (backlog, backlogs) = Backlog::new(now);
        let Recovered { lane_state, outbox, registrar, aborts, blamed, position, time, target, trimmed, reader } =
            recovered;
        let mut driver = Self {
            lane,
            gauges: shared.metrics.lane(lane),
            status,
            inputs: Inputs {
                cancel: shared.cancel.clone(),
                peers: membership.live,
                log: reader,
                signals,
                views: None,
                writes: FuturesUnordered::new(),
                appends: FuturesUnordered::new(),
                maintenance: FuturesUnordered::new(),
                ends: FuturesUnordered::new(),
            },
            appender: Appender::spawn(Arc::clone(&shared.bus.log), lane, config.id.clone(), AppenderOptions::default()),
            outbox,
            registrar,
            aborts,
            blamed,
            clock: LogClock::new(now),
            clock_health: ClockHealth::default(),
            ticker: Ticker::new(now),
            delivered: DeliveredBatch::new(&config.batch),
            digests: Digests::starting_at(position).every(config.digest_every),
            maintenance: Maintenance::new(config, store, position, trimmed, now),
            telling,
            uncounted: UncountedEvents::default(),
            backlog,
            traces: Traces::new(config.tracer.clone(), lane),
            ownership: OwnershipState::CatchingUp { target },
            is_first: false,
            rules_wanted: None,
            claim_failure: None,
            membership: membership.inputs,
            position,
            wrote_at: position,
            last: Bytes::new(),
            folded: 0,
            broken: None,
            views_at: now,
            notices: Vec::new(),
            questions: Questions::default(),
            lane_state,
            shared,
        };
        driver.begin(time, now);
        Ok((driver, Watched { status: watched, statistics, backlog: backlogs }))
    }

    /// Takes note of what the restored state says.
    fn begin(&mut self, time: schemas::Timestamp, now: Instant) {
        self.clock.observe(time, now);
        self.gauges.restart(self.lane_state.open_phases());
        self.gauges.set_checkpoint(self.position);
        self.telling.forget();
        self.uncounted.forget();
        self.traces.forget();
        if self.telling.is_on() || self.traces.is_on() {
            self.outbox.keep_events();
        }
        if self.traces.is_on() {
            self.outbox.trace_all(|deliver| self.traces.of_old_delivery(deliver));
        }
    }

    /// The log is not what it was, or begins behind the lane: its state is given up and built again. Nothing leaves the
    /// lane until it has caught up and been claimed anew.
    pub(super) async fn rebuild(&mut self, error: BusError) -> Result<(), StopReason> {
        self.report_loss(&error).await;
        let recovered = recover_patiently(self.lane, &self.shared, &self.maintenance.store).await;
        self.restart(recovered.map_err(|error| match error {
            RecoveryError::Stop(reason) => reason,
            RecoveryError::Bus(failure) => StopReason::LogUnreadable(failure.to_string()),
        })?);
        Ok(())
    }

    async fn report_loss(&mut self, error: &BusError) {
        let (lane, folded, position) = (self.lane.0, self.folded, self.position);
        if let BusError::Diverged(_) = error {
            self.shared.metrics.engines.count_divergence();
            let left = self.shared.bus.log.last_seq(self.lane).await.ok();
            let lost = left.map(|left| position.saturating_sub(left));
            tracing::error!(lane, %error, folded, position, ?left, ?lost, "the log has lost records; the lane is rebuilt");
        } else {
            tracing::warn!(lane, %error, folded, position, "the lane is behind what was trimmed; it is rebuilt");
        }
    }

    fn restart(&mut self, recovered: Recovered) {
        let (now, config) = (Instant::now(), &self.shared.config);
        let Recovered { lane_state, outbox, registrar, aborts, blamed, position, time, target, trimmed, reader } =
            recovered;
        let store = self.maintenance.store.clone();
        (self.lane_state, self.outbox, self.registrar, self.aborts, self.blamed) =
            (lane_state, outbox, registrar, aborts, blamed);
        // What was asked of the bus for the state that is gone is not waited for.
        self.inputs.log = reader;
        self.inputs.views = None;
        (self.inputs.writes, self.inputs.appends) = (FuturesUnordered::new(), FuturesUnordered::new());
        (self.inputs.maintenance, self.inputs.ends) = (FuturesUnordered::new(), FuturesUnordered::new());
        (self.clock, self.ticker) = (LogClock::new(now), Ticker::new(now));
        self.clock_health = ClockHealth::default();
        self.delivered = DeliveredBatch::new(&config.batch);
        self.digests = Digests::starting_at(position).every(config.digest_every);
        self.maintenance = Maintenance::new(config, store, position, trimmed, now);
        self.ownership = OwnershipState::CatchingUp { target };
        (self.rules_wanted, self.claim_failure) = (None, None);
        (self.position, self.wrote_at, self.folded) = (position, position, 0);
        self.last = Bytes::new();
        self.notices.clear();
        self.questions.clear();
        self.begin(time, now);
    }
}

/// [`recover`], again while the bus does not answer.
async fn recover_patiently(lane: Lane, shared: &Shared, store: &CheckpointStore) -> Result<Recovered, RecoveryError> {
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
