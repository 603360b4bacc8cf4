//! What keeps recovery short and the log small: checkpoints, and trims behind them.
//!
//! The first engine that stands by makes the checkpoints, so that the owner is not held up; the owner does where nobody
//! stands by. Both are written in the background, one at a time per lane, while the lane goes on. Only the owner trims,
//! and only below what it has read back.

use std::sync::Arc;
use std::time::Duration;

use bus::Log;
use futures_util::future::BoxFuture;
use schemas::Lane;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::config::{EngineConfig, Trim};
use crate::lane::checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
use crate::lane::observer::LaneObserver;
use crate::metrics::Observation;

/// Gap after a checkpoint that could not be stored.
const FAILED_GAP: Duration = Duration::from_secs(10);
/// Longest the owner goes without asking what may be trimmed; each question is two small reads.
const TRIM_GAP_MAX: Duration = Duration::from_secs(10);
/// Fewest sequences worth a trim: each costs the bus a request, and its store a rewrite.
const TRIM_STEP: u64 = 1024;

/// When the next checkpoint and the next trim are due.
pub(super) struct Maintenance {
    lane: Lane,
    log: Arc<dyn Log>,
    store: CheckpointStore,
    every_records: u64,
    every: Option<Duration>,
    /// Position of the last checkpoint known to be stored.
    stored: u64,
    /// Records folded since.
    records: u64,
    /// When it was stored, as far as known.
    stored_at: Instant,
    /// Not before then.
    not_before: Instant,
    is_saving: bool,
    trim: Trim,
    /// Away while a trim is on its way.
    retention: Option<Retention>,
    trim_gap: Duration,
    trim_at: Instant,
}

/// What became of work in the background.
pub(super) enum MaintenanceDone {
    /// A checkpoint; false when a later one stands there.
    Saved(u64, Result<bool, CheckpointError>),
    /// A trim, with the position of the stored checkpoint.
    Trimmed(Retention, Result<Option<u64>, CheckpointError>),
    /// The task ended without an answer.
    Lost,
}

impl Maintenance {
    pub(super) fn new(
        (lane, log): (Lane, Arc<dyn Log>),
        config: &EngineConfig,
        store: CheckpointStore,
        (stored, trimmed): (u64, u64),
        now: Instant,
    ) -> Self {
        let checkpoint = &config.checkpoint;
        let every = (checkpoint.every_ms > 0).then(|| Duration::from_millis(checkpoint.every_ms));
        // Where checkpoints are made more often than trims are worth it, a trim is worth it sooner.
        let step = if checkpoint.every_records > 0 { TRIM_STEP.min(checkpoint.every_records) } else { TRIM_STEP };
        let trim_gap = every.map_or(TRIM_GAP_MAX, |every| every.min(TRIM_GAP_MAX));
        Self {
            lane,
            log,
            store,
            every_records: checkpoint.every_records,
            every,
            stored,
            records: 0,
            stored_at: now,
            not_before: now,
            is_saving: false,
            trim: config.trim,
            retention: Some(Retention::new(config.trim, step, trimmed)),
            trim_gap,
            trim_at: now + trim_gap,
        }
    }

    /// A record was folded.
    pub(super) fn note_record(&mut self) {
        self.records += 1;
    }

    /// When a checkpoint is due; nothing while one is being written, or nothing was folded since the last.
    fn checkpoint_at(&self, position: u64) -> Option<Instant> {
        if self.is_saving || position <= self.stored || self.records == 0 {
            return None;
        }
        let is_many = self.every_records > 0 && self.records >= self.every_records;
        let at = if is_many { Some(self.not_before) } else { self.every.map(|every| self.stored_at + every) };
        at.map(|at| at.max(self.not_before))
    }

    fn trim_at(&self) -> Option<Instant> {
        (self.trim != Trim::Never && self.retention.is_some()).then_some(self.trim_at)
    }

    pub(super) fn store(&self) -> &CheckpointStore {
        &self.store
    }

    /// When maintenance is due at a position.
    pub(super) fn wake_at(
        &self,
        position: u64,
        makes_checkpoints: impl FnOnce() -> bool,
        is_owner: bool,
    ) -> Option<Instant> {
        let checkpoint = self.checkpoint_at(position).filter(|_| makes_checkpoints());
        let trim = self.trim_at().filter(|_| is_owner);
        checkpoint.into_iter().chain(trim).min()
    }

    pub(super) fn is_checkpoint_due(&self, position: u64, now: Instant) -> bool {
        self.checkpoint_at(position).is_some_and(|at| at <= now)
    }

    /// Stores a checkpoint in the background.
    pub(super) fn save(&mut self, checkpoint: Checkpoint) -> BoxFuture<'static, MaintenanceDone> {
        debug_assert!(!self.is_saving, "one checkpoint is stored at a time");
        self.is_saving = true;
        let (store, position) = (self.store.clone(), checkpoint.head.position);
        let task = AbortOnDropHandle::new(tokio::spawn(async move { store.save(checkpoint).await }));
        Box::pin(async move {
            task.await.map_or(MaintenanceDone::Lost, |outcome| MaintenanceDone::Saved(position, outcome))
        })
    }

    /// Trims the log in the background, when that is due.
    pub(super) fn poll_trim(&mut self, now: Instant) -> Option<BoxFuture<'static, MaintenanceDone>> {
        self.trim_at().filter(|at| *at <= now)?;
        let retention = self.retention.take()?;
        self.trim_at = now + self.trim_gap;
        let (store, log, lane) = (self.store.clone(), Arc::clone(&self.log), self.lane);
        let task = AbortOnDropHandle::new(tokio::spawn(trim(retention, store, log, lane)));
        Some(Box::pin(async move {
            let lost = MaintenanceDone::Lost;
            task.await.map_or(lost, |(retention, outcome)| MaintenanceDone::Trimmed(retention, outcome))
        }))
    }

    /// Work in the background is done.
    pub(super) fn handle(&mut self, done: MaintenanceDone, observer: &LaneObserver) {
        let now = Instant::now();
        match done {
            MaintenanceDone::Saved(position, outcome) => {
                self.is_saving = false;
                observer.observe(Observation::Checkpoint(outcome.as_ref().ok().copied()));
                match outcome {
                    // A later one serves as well; its position is learned with the next trim.
                    Ok(_) => {
                        tracing::debug!(lane = self.lane.0, position, "a checkpoint is stored");
                        self.note_stored(position, now);
                        observer.handle_checkpoint_stored(position);
                    }
                    Err(error) => {
                        tracing::warn!(lane = self.lane.0, %error, "a checkpoint could not be stored");
                        self.not_before = now + FAILED_GAP;
                    }
                }
            }
            MaintenanceDone::Trimmed(retention, outcome) => {
                self.retention = Some(retention);
                match outcome {
                    Ok(Some(stored)) => self.note_stored(stored, now),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(lane = self.lane.0, %error, "the log could not be trimmed"),
                }
            }
            MaintenanceDone::Lost => {
                tracing::error!(lane = self.lane.0, "maintenance ended unexpectedly");
                self.is_saving = false;
                self.not_before = now + FAILED_GAP;
            }
        }
    }

    fn note_stored(&mut self, position: u64, now: Instant) {
        if position > self.stored {
            (self.stored, self.records, self.stored_at) = (position, 0, now);
        }
    }
}

/// Trims what may go, if that is worth it, and tells the position of the stored checkpoint.
async fn trim(
    mut retention: Retention,
    store: CheckpointStore,
    log: Arc<dyn Log>,
    lane: Lane,
) -> (Retention, Result<Option<u64>, CheckpointError>) {
    let outcome = trim_below(&mut retention, &store, &*log, lane).await;
    (retention, outcome)
}

async fn trim_below(
    retention: &mut Retention,
    store: &CheckpointStore,
    log: &dyn Log,
    lane: Lane,
) -> Result<Option<u64>, CheckpointError> {
    let stored = store.position(lane).await?;
    let archived = store.archived(lane).await?;
    if retention.poll_trim(stored, archived).is_none() {
        return Ok(stored);
    }
    // The whole document is read back only where something would be trimmed below it.
    let proven = store.proven(lane, log).await?;
    if let Some(below_seq) = retention.poll_trim(proven, archived) {
        log.trim(lane, below_seq).await?;
        retention.handle_trimmed(below_seq);
        tracing::info!(lane = lane.0, below_seq, "the log is trimmed");
    }
    Ok(proven)
}

/// How far a lane's log may be trimmed (docs/spec/log.md#lg-33).
#[derive(Debug)]
pub(super) struct Retention {
    trim: Trim,
    step: u64,
    below_seq: u64,
}

impl Retention {
    /// `step`: fewest sequences worth a trim, [`TRIM_STEP`] or less; `trimmed`: what the log says is gone.
    fn new(trim: Trim, step: u64, trimmed: u64) -> Self {
        Self { trim, step: step.max(1), below_seq: trimmed.saturating_add(1) }
    }

    /// The sequence below which records may go now, if that is worth it. Both positions must have been read back from
    /// where they are durable. The records they name stay: they prove that checkpoint and archive are of this log.
    fn poll_trim(&self, checkpoint: Option<u64>, archived: Option<u64>) -> Option<u64> {
        let below_seq = match self.trim {
            Trim::Never => return None,
            Trim::AfterCheckpoint => checkpoint?,
            Trim::AfterArchive => checkpoint?.min(archived?),
        };
        below_seq.checked_sub(self.below_seq).filter(|gone| *gone >= self.step).map(|_| below_seq)
    }

    /// The log has trimmed.
    fn handle_trimmed(&mut self, below_seq: u64) {
        self.below_seq = self.below_seq.max(below_seq);
    }
}

#[cfg(test)]
mod tests {
    use bus::memory::{self, MemoryOptions};
    use bytes::Bytes;
    use schemas::{Digest, Timestamp};

    use super::*;
    use crate::lane::checkpoint::Head;

    #[tokio::test]
    async fn nothing_is_trimmed_below_a_checkpoint_that_is_stored_and_not_proven() {
        let bus = memory::open(MemoryOptions::default());
        let store = CheckpointStore::new(bus.blobs.clone());
        let mut seqs = Vec::new();
        for number in 0..10 {
            seqs.push(bus.log.append(Lane(0), Bytes::from(format!("record {number}"))).await.unwrap());
        }
        for (position, record, below_seq) in [(seqs[5], "of another log", 0), (seqs[7], "record 7", seqs[7] - 1)] {
            assert!(store.save(at(position, record)).await.unwrap());
            let mut retention = Retention::new(Trim::AfterCheckpoint, 1, 0);
            let proven = trim_below(&mut retention, &store, &*bus.log, Lane(0)).await.unwrap();
            assert_eq!(proven, (below_seq > 0).then_some(position), "{record}");
            assert_eq!(bus.log.trimmed(Lane(0)).await.unwrap(), below_seq, "{record}");
        }
    }

    /// A checkpoint of a lane with nothing in it.
    fn at(position: u64, record: &str) -> Checkpoint {
        let record = Digest::of_bytes(record.as_bytes());
        let head = Head { lane: Lane(0), position, time: Timestamp(0), record, rules: 1 };
        let (deliveries, writes, refused, aborts, blamed) = Default::default();
        Checkpoint { head, lane_state: Bytes::new(), deliveries, writes, refused, aborts, blamed }
    }

    #[test]
    fn the_log_is_trimmed_below_the_lower_of_what_must_be_durable() {
        use Trim::{AfterArchive, AfterCheckpoint, Never};
        for (trim, checkpoint, archived, expected) in [
            (Never, Some(9_000), Some(9_000), None),
            (AfterCheckpoint, Some(9_000), None, Some(9_000)),
            (AfterCheckpoint, Some(9_000), Some(5_000), Some(9_000)),
            (AfterCheckpoint, None, Some(9_000), None),
            (AfterArchive, Some(9_000), None, None),
            (AfterArchive, None, Some(9_000), None),
            (AfterArchive, Some(9_000), Some(5_000), Some(5_000)),
            (AfterArchive, Some(5_000), Some(9_000), Some(5_000)),
        ] {
            let retention = Retention::new(trim, TRIM_STEP, 0);
            assert_eq!(retention.poll_trim(checkpoint, archived), expected, "{trim:?} {checkpoint:?} {archived:?}");
        }
    }

    #[test]
    fn a_trim_waits_until_it_is_worth_it_and_never_goes_back() {
        let mut retention = Retention::new(Trim::AfterCheckpoint, 100, 50);
        let due = |retention: &Retention, at| retention.poll_trim(Some(at), None);
        assert_eq!(due(&retention, 150), None, "51 to 149 are 99 records");
        assert_eq!(due(&retention, 151), Some(151));
        assert_eq!(due(&retention, 151), Some(151), "again, until the log has done it");
        retention.handle_trimmed(151);
        retention.handle_trimmed(20);
        assert_eq!((due(&retention, 151), due(&retention, 250), due(&retention, 251)), (None, None, Some(251)));
        assert_eq!(due(&Retention::new(Trim::AfterCheckpoint, 0, u64::MAX), u64::MAX), None);
    }
}
