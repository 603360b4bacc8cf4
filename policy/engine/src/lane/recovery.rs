//! How a lane gets its state back: from its checkpoint and the log behind it, or from the whole log.
//!
//! A checkpoint is used only if it is of this log, whole, and of a format, rules and limits this engine knows. Otherwise
//! the log is read from its first record; where that has been trimmed, nobody can tell the state, and the lane stops.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Log};
use policy_core::LaneState;
use schemas::{Lane, Timestamp};
use tokio::time::{Instant, sleep};

use super::{Beginning, Recovered, Shared, at_length};
use crate::config::EngineConfig;
use crate::lane::abort::Aborts;
use crate::lane::checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
use crate::lane::log_reader::LogReader;
use crate::lane::outbox::Outbox;
use crate::lane::register::Registrar;
use crate::metrics::EngineMetrics;
use crate::status::StopReason;

/// Most attempts at building a lane while the bus does not answer, and the gap between them: half a minute. A cluster
/// that has just started elects for some seconds.
const BUILDS_MAX: u32 = 30;
const BUILD_GAP: Duration = Duration::from_secs(1);
/// Most beginnings: another engine may store a checkpoint and trim the log between two steps of one.
const BEGINNINGS_MAX: u32 = 4;

/// Why a lane did not get its state back.
#[derive(Debug)]
pub(super) enum RecoveryError {
    /// The bus did not answer: worth trying again.
    Bus(BusError),
    /// Trying again does not help.
    Stop(StopReason),
}

impl From<BusError> for RecoveryError {
    fn from(error: BusError) -> Self {
        Self::Bus(error)
    }
}

impl From<RecoveryError> for StopReason {
    fn from(error: RecoveryError) -> Self {
        match error {
            RecoveryError::Bus(error) => Self::LogUnreadable(error.to_string()),
            RecoveryError::Stop(reason) => reason,
        }
    }
}

/// Gives a lane its state, again while the bus does not answer.
///
/// # Errors
/// [`RecoveryError`]: the last of [`BUILDS_MAX`] failures in a row, or what trying again does not help.
pub(super) async fn recover_with_retries(lane: Lane, shared: &Shared) -> Result<Recovered, RecoveryError> {
    let Shared { bus, config, metrics, .. } = shared;
    let store = &CheckpointStore::new(Arc::clone(&bus.blobs));
    let mut failures = 0;
    loop {
        let recovery = Recovery { lane, log: &bus.log, store, config, metrics };
        let failure = match recovery.run().await {
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

/// What recovery needs of an engine.
struct Recovery<'a> {
    lane: Lane,
    log: &'a Arc<dyn Log>,
    store: &'a CheckpointStore,
    config: &'a EngineConfig,
    metrics: &'a Arc<EngineMetrics>,
}

impl Recovery<'_> {
    /// The lane's state, from its checkpoint if that can be used.
    ///
    /// # Errors
    /// [`RecoveryError`].
    async fn run(&self) -> Result<Recovered, RecoveryError> {
        let mut last = BusError::Trimmed(0);
        for _ in 0..BEGINNINGS_MAX {
            match self.begin().await {
                Err(RecoveryError::Bus(error @ BusError::Trimmed(_))) => last = error,
                done => return done,
            }
        }
        Err(RecoveryError::Bus(last))
    }

    async fn begin(&self) -> Result<Recovered, RecoveryError> {
        let trimmed = self.log.trimmed(self.lane).await?;
        let unusable = match self.restored(trimmed).await? {
            Ok(recovered) => return Ok(recovered),
            Err(unusable) => unusable,
        };
        if trimmed > 0 {
            let found = unusable.unwrap_or_else(|| "there is none".to_owned());
            return Err(RecoveryError::Stop(StopReason::Unrecoverable { trimmed, checkpoint: found }));
        }
        if let Some(unusable) = unusable {
            tracing::warn!(lane = self.lane.0, "the checkpoint is not used ({unusable}); the whole log is read");
        }
        let (lane, limits) = (self.lane, self.config.limits.clone());
        self.at(LaneState::new(lane, limits), 0, Timestamp(0), trimmed).await
    }

    /// From the checkpoint; or why it cannot be used, if there is one.
    async fn restored(&self, trimmed: u64) -> Result<Result<Recovered, Option<String>>, RecoveryError> {
        let checkpoint = match self.store.load(self.lane).await {
            Ok(Some(checkpoint)) => checkpoint,
            Ok(None) => return Ok(Err(None)),
            Err(CheckpointError::Bus(error)) => return Err(RecoveryError::Bus(error)),
            Err(error) => return Ok(Err(Some(error.to_string()))),
        };
        let rules = checkpoint.head.rules;
        if rules > self.config.rules_newest {
            let newer = format!("its checkpoint is of rules version {rules}");
            return Err(RecoveryError::Stop(StopReason::NewerVersion(newer)));
        }
        if !checkpoint.head.is_of(&**self.log).await? {
            return Ok(Err(Some("it is of another log, or of records this log has lost".to_owned())));
        }
        let limits = self.config.limits.clone();
        match at_length(|| LaneState::restore(&checkpoint.lane_state, self.lane, limits)) {
            Ok(lane_state) => Ok(Ok(self.filled(lane_state, checkpoint, trimmed).await?)),
            Err(error) => Ok(Err(Some(error.to_string()))),
        }
    }

    async fn filled(
        &self,
        lane_state: LaneState,
        checkpoint: Checkpoint,
        trimmed: u64,
    ) -> Result<Recovered, RecoveryError> {
        let Checkpoint { head, lane_state: _, deliveries, writes, refused, aborts, blamed } = checkpoint;
        let mut recovered = self.at(lane_state, head.position, head.time, trimmed).await?;
        let now = Instant::now();
        for deliver in deliveries {
            recovered.outbox.hold(deliver, None, now);
        }
        refused.into_iter().for_each(|key| recovered.registrar.refuse(key, 0, true));
        writes.into_iter().for_each(|pending| recovered.registrar.restore(pending));
        for (negotiation, code) in aborts {
            recovered.aborts.want(negotiation, code);
        }
        recovered.beginning.blamed.extend(blamed);
        let position = head.position;
        tracing::info!(
            lane = self.lane.0,
            position,
            open = recovered.beginning.state.open_count(),
            "the checkpoint is restored"
        );
        Ok(recovered)
    }

    /// A state that stands at a record, with nothing to do yet.
    async fn at(
        &self,
        lane_state: LaneState,
        position: u64,
        time: Timestamp,
        trimmed: u64,
    ) -> Result<Recovered, RecoveryError> {
        let now = Instant::now();
        let target = self.log.last_seq(self.lane).await?;
        let reader = LogReader::open(Arc::clone(self.log), self.lane, position + 1).await?;
        Ok(Recovered {
            beginning: Beginning { state: lane_state, position, time, blamed: BTreeSet::new() },
            outbox: Outbox::new(self.config.outbox.clone(), Arc::clone(self.metrics), now),
            registrar: Registrar::default(),
            aborts: Aborts::new(now),
            target,
            trimmed,
            reader,
        })
    }
}
