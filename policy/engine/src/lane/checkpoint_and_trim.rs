//! What keeps recovery short, the log small and the register bounded: checkpoints, trims behind them, and the removal of
//! register entries.
//!
//! The first engine that stands by makes the checkpoints, so that the owner is not held up; the owner does where nobody
//! stands by. Both are written in the background, one at a time per lane, while the lane goes on. Only the owner trims,
//! and only below what it has read back. Only the owner removes register entries, in turns: each removes what earlier turns
//! have found, as far as that is covered by now, and looks for more.

#[cfg(test)]
mod tests;

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Log, RegisterSize};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use policy_core::LaneState;
use schemas::{Lane, RegisterKey, Timestamp};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::config::{EngineConfig, Trim, WallClock};
use crate::lane::checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
use crate::lane::observer::LaneObserver;
use crate::lane::{Answered, LogClock, expired_name, register_keep};

/// Gap after a checkpoint that could not be stored.
const FAILED_GAP: Duration = Duration::from_secs(10);
/// Longest the owner goes without asking what may be trimmed; each question is two small reads.
const TRIM_GAP_MAX: Duration = Duration::from_secs(10);
/// Fewest sequences worth a trim: each costs the bus a request, and its store a rewrite.
const TRIM_STEP: u64 = 1024;
/// Register entries looked at in one turn: those of every lane, of 500 negotiations a second.
const LOOKED_AT_MAX: usize = 16_384;
/// Of these, read and held at once: a quarter of a megabyte.
const LOOKED_AT_ONCE: usize = 1024;
/// Register entries that wait for archive and checkpoint. Beyond, none are looked for.
const WAITING_MAX: usize = 65_536;
/// Register entries removed at once.
const REMOVED_AT_ONCE: usize = 32;
/// Turns after which the register is looked through from its first entry again: those of negotiations that were open then
/// were passed over.
const TURNS_PER_ROUND: u32 = 6;

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
    expiry: Expiry,
}

/// What became of work in the background.
pub(super) struct MaintenanceDone(WorkDone);

enum WorkDone {
    /// A checkpoint; false when a later one stands there.
    Saved(u64, Result<bool, CheckpointError>),
    /// A trim, with the position of the stored checkpoint.
    Trimmed(Retention, Result<Option<u64>, CheckpointError>),
    /// A turn at the register's entries.
    Expired(Box<ExpiryTurn>, Result<(), CheckpointError>),
    /// The task ended without an answer.
    Lost,
}

impl Maintenance {
    pub(super) fn new(
        (lane, bus): (Lane, &Bus),
        config: &EngineConfig,
        (stored, trimmed): (u64, u64),
        now: Instant,
    ) -> Self {
        let store = CheckpointStore::new(Arc::clone(&bus.blobs));
        let checkpoint = &config.checkpoint;
        let every = (checkpoint.every_ms > 0).then(|| Duration::from_millis(checkpoint.every_ms));
        // Where checkpoints are made more often than trims are worth it, a trim is worth it sooner.
        let step = if checkpoint.every_records > 0 { TRIM_STEP.min(checkpoint.every_records) } else { TRIM_STEP };
        let trim_gap = every.map_or(TRIM_GAP_MAX, |every| every.min(TRIM_GAP_MAX));
        Self {
            lane,
            log: Arc::clone(&bus.log),
            expiry: Expiry::new((lane, bus), config, store.clone(), trim_gap, now),
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

    /// When maintenance is due at a position.
    pub(super) fn wake_at(
        &self,
        position: u64,
        makes_checkpoints: impl FnOnce() -> bool,
        is_owner: bool,
    ) -> Option<Instant> {
        let checkpoint = self.checkpoint_at(position).filter(|_| makes_checkpoints());
        let trim = self.trim_at().filter(|_| is_owner);
        let expiry = self.expiry.wake_at().filter(|_| is_owner);
        checkpoint.into_iter().chain(trim).chain(expiry).min()
    }

    /// Stores a checkpoint in the background.
    pub(super) fn save(&mut self, checkpoint: Checkpoint) -> BoxFuture<'static, MaintenanceDone> {
        debug_assert!(!self.is_saving, "one checkpoint is stored at a time");
        self.is_saving = true;
        let (store, position) = (self.store.clone(), checkpoint.head.position);
        in_background(async move { WorkDone::Saved(position, store.save(checkpoint).await) })
    }

    /// What only the owner does and is due, in the background: a trim of the log, and a turn at the register's entries.
    /// `state` stands at `position`.
    pub(super) fn poll_as_owner<'a>(
        &mut self,
        (state, position): (&LaneState, u64),
        clock: &LogClock,
        answered: impl FnOnce() -> Answered<'a>,
    ) -> impl Iterator<Item = BoxFuture<'static, MaintenanceDone>> {
        let now = Instant::now();
        let turn = self.expiry.is_due(position, now).then(|| {
            let answered = answered();
            self.expiry.judge((state, position), &answered);
            self.expiry.poll(now, clock.log_time(now), answered.logged)
        });
        self.poll_trim(now).into_iter().chain(turn.flatten())
    }

    /// Trims the log in the background, when that is due.
    fn poll_trim(&mut self, now: Instant) -> Option<BoxFuture<'static, MaintenanceDone>> {
        self.trim_at().filter(|at| *at <= now)?;
        let mut retention = self.retention.take()?;
        self.trim_at = now + self.trim_gap;
        let (store, log, lane) = (self.store.clone(), Arc::clone(&self.log), self.lane);
        Some(in_background(async move {
            let outcome = trim_below(&mut retention, &store, &*log, lane).await;
            WorkDone::Trimmed(retention, outcome)
        }))
    }

    /// Work in the background is done.
    pub(super) fn handle(&mut self, MaintenanceDone(done): MaintenanceDone, observer: &LaneObserver) {
        let now = Instant::now();
        match done {
            WorkDone::Saved(position, outcome) => {
                self.is_saving = false;
                let result = outcome.as_ref().map_or("failed", |is_last| if *is_last { "stored" } else { "outdated" });
                observer.metrics.engines.checkpoints.of(result).inc();
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
            WorkDone::Trimmed(retention, outcome) => {
                self.retention = Some(retention);
                match outcome {
                    Ok(Some(stored)) => self.note_stored(stored, now),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(lane = self.lane.0, %error, "the log could not be trimmed"),
                }
            }
            WorkDone::Expired(turn, outcome) => self.expiry.handle_turn(turn, outcome, observer),
            WorkDone::Lost => {
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

/// Does work on a task of its own, which ends with whoever waits for it.
fn in_background(work: impl Future<Output = WorkDone> + Send + 'static) -> BoxFuture<'static, MaintenanceDone> {
    let task = AbortOnDropHandle::new(tokio::spawn(work));
    Box::pin(async move { MaintenanceDone(task.await.unwrap_or(WorkDone::Lost)) })
}

/// Trims what may go, if that is worth it, and tells the position of the stored checkpoint.
async fn trim_below(
    retention: &mut Retention,
    store: &CheckpointStore,
    log: &dyn Log,
    lane: Lane,
) -> Result<Option<u64>, CheckpointError> {
    let stored = store.position(lane).await?;
    let archived = store.archived(lane).await?.map(|(position, _)| position);
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
struct Retention {
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

/// Removes register entries whose negotiation has ended and is covered (docs/spec/log.md#lg-42).
struct Expiry {
    /// Entries stay at least so long; absent where they stay for ever.
    keep: Option<Duration>,
    clock: WallClock,
    gap: Duration,
    due_at: Instant,
    /// Away while a turn is on its way.
    turn: Option<Box<ExpiryTurn>>,
}

/// What goes from turn to turn.
struct ExpiryTurn {
    lane: Lane,
    bus: Bus,
    store: CheckpointStore,
    /// The position of a checkpoint that was read back whole.
    proven: u64,
    /// What may go once it is covered, in the order of the positions.
    ended: Vec<EndedEntries>,
    found: FoundEntries,
    /// The next entry to look at.
    next: u64,
    /// Turns since the register was looked through from its first entry.
    turns: u32,
    /// Entries written later stay.
    written_before: Timestamp,
    /// Up to this record the log says that every write is answered.
    answered: u64,
    removed: u64,
    size: Option<RegisterSize>,
}

/// Entries of a lane that are old enough, and where its log ended after they were read. Whatever caused them is folded by
/// whoever has folded that far.
#[derive(Default)]
struct FoundEntries {
    entries: Vec<(RegisterKey, u64)>,
    end: u64,
}

/// Entries of negotiations that had ended at a position.
struct EndedEntries {
    position: u64,
    time: Timestamp,
    /// The last record up to there that led to a write.
    wrote_at: u64,
    entries: Vec<(RegisterKey, u64)>,
}

impl FoundEntries {
    fn is_folded(&self, position: u64) -> bool {
        !self.entries.is_empty() && position >= self.end
    }
}

impl Expiry {
    fn new(
        (lane, bus): (Lane, &Bus),
        config: &EngineConfig,
        store: CheckpointStore,
        gap: Duration,
        now: Instant,
    ) -> Self {
        let turn = ExpiryTurn {
            lane,
            bus: bus.clone(),
            store,
            proven: 0,
            ended: Vec::new(),
            found: FoundEntries::default(),
            next: 0,
            turns: 0,
            written_before: Timestamp(0),
            answered: 0,
            removed: 0,
            size: None,
        };
        let clock = Arc::clone(&config.clock.now);
        Self { keep: register_keep(config), clock, gap, due_at: now + gap, turn: Some(Box::new(turn)) }
    }

    /// When the next turn is due; nothing while one is on its way, or what it found is still to be judged.
    fn wake_at(&self) -> Option<Instant> {
        let turn = self.turn.as_ref().filter(|turn| turn.found.entries.is_empty());
        (self.keep.is_some() && turn.is_some()).then_some(self.due_at)
    }

    fn is_due(&self, position: u64, now: Instant) -> bool {
        let is_found = self.turn.as_ref().is_some_and(|turn| turn.found.is_folded(position));
        is_found || self.wake_at().is_some_and(|at| at <= now)
    }

    /// Takes what was found of negotiations that have ended, and of which nothing is on its way any more. The rest is found
    /// again later.
    fn judge(&mut self, (state, position): (&LaneState, u64), answered: &Answered<'_>) {
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.found.is_folded(position)) else { return };
        let mut entries = take(&mut turn.found).entries;
        entries.retain(|(key, _)| {
            let negotiation = key.negotiation();
            !state.is_open(negotiation) && !answered.unsettled.contains(negotiation)
        });
        if !entries.is_empty() {
            turn.ended.push(EndedEntries { position, time: state.now(), wrote_at: answered.wrote_at, entries });
        }
    }

    /// Begins a turn that is due. Entries are old enough only by the log's clock and by the engine's own, so that neither
    /// alone can make them so.
    fn poll(
        &mut self,
        now: Instant,
        log_time: Timestamp,
        answered: u64,
    ) -> Option<BoxFuture<'static, MaintenanceDone>> {
        self.wake_at().filter(|at| *at <= now)?;
        let keep_us = u64::try_from(self.keep?.as_micros()).unwrap_or(u64::MAX);
        let mut turn = self.turn.take()?;
        self.due_at = now + self.gap;
        turn.written_before = Timestamp(log_time.min((self.clock)()).0.saturating_sub(keep_us));
        turn.answered = answered;
        Some(in_background(turn.run()))
    }

    fn handle_turn(
        &mut self,
        mut turn: Box<ExpiryTurn>,
        outcome: Result<(), CheckpointError>,
        observer: &LaneObserver,
    ) {
        let (lane, removed) = (turn.lane.0, take(&mut turn.removed));
        if removed > 0 {
            tracing::info!(lane, removed, "register entries of archived negotiations are removed");
            observer.metrics.register.expired.inc_by(removed);
        }
        if let Some(size) = turn.size.take() {
            let register = &observer.metrics.register;
            register.entries.set(i64::try_from(size.entries).unwrap_or(i64::MAX));
            register.bytes.set(i64::try_from(size.bytes).unwrap_or(i64::MAX));
        }
        self.turn = Some(turn);
        match outcome {
            Ok(()) => {}
            Err(CheckpointError::Bus(error @ BusError::Unusable(_))) => {
                tracing::warn!(lane, %error, "no entry of the register is removed");
                self.keep = None;
            }
            Err(error) => tracing::warn!(lane, %error, "register entries could not be removed; it is tried again"),
        }
    }
}

impl ExpiryTurn {
    async fn run(mut self: Box<Self>) -> WorkDone {
        let outcome = match self.sweep().await {
            Ok(()) => self.look().await.map_err(CheckpointError::from),
            failed => failed,
        };
        WorkDone::Expired(self, outcome)
    }

    /// Removes what checkpoint and archive cover, and whose writes the log says are answered.
    async fn sweep(&mut self) -> Result<(), CheckpointError> {
        while let Some(first) = self.ended.first() {
            let (position, is_answered) = (first.position, first.wrote_at <= self.answered);
            let archived = self.store.archived(self.lane).await?.map_or(0, |(_, registered)| registered);
            if !is_answered || archived < position || !self.is_proven(position).await? {
                return Ok(());
            }
            // Whoever writes later than this reads that it is too late; see `publish::Fence`.
            let Some(EndedEntries { time, entries, .. }) = self.ended.first() else { return Ok(()) };
            let document = Bytes::from(format!("{{\"time\":{}}}", time.0));
            self.bus.blobs.put(expired_name(self.lane), time.0, document).await?;
            let removing = stream::iter(entries.clone()).map(|(key, seq)| self.bus.register.remove(key, seq));
            removing.buffer_unordered(REMOVED_AT_ONCE).try_collect::<()>().await?;
            self.removed += entries.len() as u64;
            self.ended.remove(0);
        }
        Ok(())
    }

    /// Whether a checkpoint at this position or behind it was read back whole, and is of this log.
    async fn is_proven(&mut self, position: u64) -> Result<bool, CheckpointError> {
        let is_stored = self.store.position(self.lane).await?.is_some_and(|stored| stored >= position);
        if self.proven < position && is_stored {
            self.proven = self.store.proven(self.lane, &*self.bus.log).await?.unwrap_or(0);
        }
        Ok(self.proven >= position)
    }

    /// Looks at the entries that come next, and from the first again once in a while, as long as nothing waits.
    async fn look(&mut self) -> Result<(), BusError> {
        self.size = Some(self.bus.register.size().await?);
        self.turns += 1;
        if self.turns >= TURNS_PER_ROUND && self.ended.is_empty() {
            (self.turns, self.next) = (0, 0);
        }
        let waiting: usize = self.ended.iter().map(|ended| ended.entries.len()).sum();
        if waiting >= WAITING_MAX {
            return Ok(());
        }
        let (lane, lanes) = (self.lane, self.bus.log.lanes());
        let (mut entries, mut next) = (Vec::new(), self.next);
        for part in 0..LOOKED_AT_MAX / LOOKED_AT_ONCE {
            // One entry says that what comes next is too young, which most turns find.
            let wanted = if part == 0 { 1 } else { LOOKED_AT_ONCE };
            let mut old = self.bus.register.entries_from(next, wanted).await?;
            let first_young = old.iter().position(|entry| entry.written_at >= self.written_before);
            old.truncate(first_young.unwrap_or(wanted));
            next = old.last().map_or(next, |last| last.seq + 1);
            let is_last = old.len() < wanted;
            let ours = old.into_iter().filter(|entry| entry.key.negotiation().lane(lanes) == lane);
            entries.extend(ours.map(|entry| (entry.key, entry.seq)));
            if is_last {
                break;
            }
        }
        // Both or neither: what a fault leaves out is looked at again.
        self.found = FoundEntries { entries, end: self.bus.log.last_seq(lane).await? };
        self.next = next;
        Ok(())
    }
}
