//! Folding: a record of the log into the lane's state, the state's effects to whoever carries them out; when time alone moves
//! the state on (a tick, a record that carries time and nothing else), and whether the log's clock can be trusted.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bus::LogRecord;
use bytes::Bytes;
use policy_core::lane::RULES_VERSION;
use policy_core::{Effect, Event, LaneState};
use schemas::admission::LaneQueue;
use schemas::ids::FamilyPlace;
use schemas::record::{EngineEvent, Entry, Record, RecordError};
use schemas::{Digest, Lane, NegotiationId, Timestamp};
use tokio::time::Instant;

use super::{Beginning, Sinks};
use crate::config::{ClockConfig, EngineConfig};
use crate::lane::AbortCode;
use crate::lane::LogClock;
use crate::lane::checkpoint::{Checkpoint, Head};
use crate::lane::observer::LaneObserver;
use crate::status::{DigestPoint, Digests};
use crate::status::{LaneStatus, StopReason};

/// Digests in each heartbeat: those of the last few seconds of a busy lane, and more than one in case one is lost.
const HEARTBEAT_DIGESTS: usize = 4;

/// The state of a lane, and how far the log is folded into it.
pub(super) struct Fold {
    lane: Lane,
    config: EngineConfig,
    state: LaneState,
    /// Last record read.
    position: u64,
    /// Content of the last record read; empty before the first.
    last: Bytes,
    /// Records folded since the lane was opened or rebuilt.
    folded: u64,
    clock: LogClock,
    clock_health: ClockHealth,
    ticker: Ticker,
    digests: Digests,
    /// Negotiations whose messages made the fold panic.
    blamed: BTreeSet<NegotiationId>,
}

impl Fold {
    pub(super) fn new(lane: Lane, config: &EngineConfig, beginning: Beginning, now: Instant) -> Self {
        let Beginning { state, position, time, blamed } = beginning;
        let mut clock = LogClock::new(now);
        clock.observe(time, now);
        Self {
            lane,
            config: config.clone(),
            state,
            position,
            last: Bytes::new(),
            folded: 0,
            clock,
            clock_health: ClockHealth::default(),
            ticker: Ticker::new(now),
            digests: Digests::new(position, config.digest_every),
            blamed,
        }
    }

    pub(super) fn state(&self) -> &LaneState {
        &self.state
    }

    /// Sequence of the last record folded.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Records folded since the lane was opened or rebuilt.
    pub(super) fn folded(&self) -> u64 {
        self.folded
    }

    pub(super) fn clock(&self) -> &LogClock {
        &self.clock
    }

    /// A checkpoint of the state, but for what is not settled yet.
    pub(super) fn checkpoint(&self) -> Checkpoint {
        let head = Head {
            lane: self.lane,
            position: self.position,
            time: self.state.now(),
            record: Digest::of_bytes(&self.last),
            rules: self.state.rules(),
        };
        let (deliveries, writes, refused, aborts) = Default::default();
        let (lane_state, blamed) = (Bytes::from(self.state.snapshot()), self.blamed.iter().cloned().collect());
        Checkpoint { head, lane_state, deliveries, writes, refused, aborts, blamed }
    }

    /// Fills in what the fold says of itself.
    pub(super) fn fill_status(&self, status: &mut LaneStatus) {
        status.position = self.position;
        status.epoch = self.state.epoch();
        status.rules = self.state.rules();
        status.now = self.state.now();
        status.open = self.state.open_count();
        status.digests = self.digests.recent(HEARTBEAT_DIGESTS);
        let faults = self.clock_health.faults(&self.config.clock);
        status.faults.extend(faults.map(|fault| format!("lane {}: {fault}", self.lane)));
    }

    /// Refuses a lane whose rules this engine does not fold. Before the first record it is not known under which rules the
    /// lane runs.
    pub(super) fn check_rules(&self) -> Result<(), StopReason> {
        if self.position > 0 && self.state.rules() > self.config.rules_newest.min(RULES_VERSION) {
            return Err(StopReason::NewerVersion(format!("its rules are of version {}", self.state.rules())));
        }
        Ok(())
    }

    /// Folds a record; one that was folded before is passed over.
    pub(super) fn handle_record(&mut self, record: &LogRecord, sinks: &mut Sinks<'_>) -> Result<(), StopReason> {
        if record.seq <= self.position {
            return Ok(());
        }
        let now = Instant::now();
        self.position = record.seq;
        self.last = record.bytes.clone();
        self.folded += 1;
        self.clock.observe(record.time, now);
        self.clock_health.observe(record, &self.config.clock);
        sinks.observer.handle_record(record);
        match Record::decode(&record.bytes) {
            Ok(decoded) => self.fold(record, &decoded, sinks, now)?,
            Err(error @ RecordError::Version { .. }) => return Err(StopReason::NewerVersion(error.to_string())),
            Err(RecordError::Unreadable(error)) => {
                // A foreign writer. Every engine skips the record alike, as if it were not there.
                tracing::error!(lane = self.lane.0, seq = record.seq, %error, "a record is not readable and is skipped");
                sinks.observer.metrics.engines.records_skipped.inc();
            }
        }
        self.ticker.handle_fold(record.seq, record.time, self.state.poll_deadline(), &mut self.clock, now);
        let mismatch = self.digests.note(record, &self.state);
        self.check_digests(mismatch, sinks.observer)
    }

    /// Compares the digests of another engine.
    pub(super) fn handle_digests(
        &mut self,
        engine: &str,
        points: &[DigestPoint],
        observer: &LaneObserver,
    ) -> Result<(), StopReason> {
        let mismatch = self.digests.compare(engine, points);
        self.check_digests(mismatch, observer)
    }

    /// Emission stops where two engines differ: one of them is wrong, and nobody knows which.
    fn check_digests(&self, mismatch: Option<StopReason>, observer: &LaneObserver) -> Result<(), StopReason> {
        let Some(mismatch) = mismatch else { return Ok(()) };
        observer.metrics.engines.mismatches.inc();
        Err(mismatch)
    }

    fn fold(
        &mut self,
        record: &LogRecord,
        decoded: &Record,
        sinks: &mut Sinks<'_>,
        now: Instant,
    ) -> Result<(), StopReason> {
        let (epoch, is_owner) = (self.state.epoch(), sinks.ownership.is_owner());
        let (mut openings, mut tasks) = (0, 0);
        sinks.observer.handle_decoded(decoded);
        let folded = catch_unwind(AssertUnwindSafe(|| self.state.handle_record(record.seq, record.time, decoded)));
        if folded.is_err() {
            self.handle_panic(record.seq, decoded, sinks)?;
        }
        sinks.publisher.handle_logged(epoch, &decoded.entries, is_owner);
        while let Some((position, effect)) = self.state.poll_effect_at() {
            sinks.observer.handle_cause(position, decoded);
            match effect {
                Effect::Deliver(deliver) => {
                    sinks.publisher.handle_deliver(deliver, &self.state, is_owner, sinks.observer, now);
                }
                Effect::Register(write) => {
                    sinks.publisher.handle_register_write(write, self.position, &self.state, is_owner, sinks.observer);
                }
                Effect::Notice(notice) if is_owner => sinks.publisher.handle_notice(&notice),
                Effect::Notice(_) => {}
                Effect::Event(event) => {
                    if let Event::Claimed { engine, .. } = &event {
                        sinks.ownership.handle_claim_folded(engine);
                    }
                    if let Event::Started { negotiation, .. } = &event {
                        let is_task = matches!(negotiation.place(), FamilyPlace::Task(_));
                        *(if is_task { &mut tasks } else { &mut openings }) += 1;
                    }
                    sinks.observer.handle_event(event, decoded, &self.state, is_owner);
                }
            }
        }
        sinks.admission.handle_tasks(tasks);
        if openings > 0 {
            sinks.admission.handle_opened(&decoded.by, openings, now);
        }
        let lag_us = is_owner.then(|| self.clock.log_time(now).since_us(record.time));
        sinks.admission.note_wait(LaneQueue::Records, Duration::from_micros(lag_us.unwrap_or(0)));
        sinks.observer.handle_record_done(now.elapsed(), lag_us);
        Ok(())
    }

    /// The fold panicked: a fault of ours, but the same on every engine, since all fold the same record in the same
    /// state. Where the record touches one negotiation, that one is aborted and the lane goes on. Where it touches
    /// several, or the negotiation is already to blame, nothing says what is still sound, and the lane stops.
    fn handle_panic(&mut self, seq: u64, record: &Record, sinks: &mut Sinks<'_>) -> Result<(), StopReason> {
        sinks.observer.metrics.register.invariants.of("no_lost_admission").inc();
        match sole_negotiation(record) {
            Some(only) if self.blamed.insert(only.clone()) => {
                let trace_id = sinks.observer.trace_id(only, &self.state);
                tracing::error!(lane = self.lane.0, seq, negotiation = %only, %trace_id, "folding panicked; the negotiation is aborted");
                sinks.publisher.abort(only.clone(), AbortCode::Internal);
                Ok(())
            }
            Some(_) | None => {
                tracing::error!(lane = self.lane.0, seq, "folding panicked; the lane stops");
                Err(StopReason::FoldPanicked { seq })
            }
        }
    }

    /// The log has just stored an entry of this engine.
    pub(super) fn handle_stored(&mut self, seq: u64) {
        self.clock_health.handle_stored(seq, &self.config.clock);
    }

    /// When a tick is due.
    pub(super) fn tick_wake_at(&self) -> Option<Instant> {
        self.ticker.wake_at(self.state.poll_deadline(), &self.clock)
    }

    /// Whether a tick must be appended now; the caller appends it.
    pub(super) fn poll_tick(&mut self, now: Instant) -> bool {
        self.ticker.poll_tick(self.state.poll_deadline(), &self.clock, now)
    }

    /// The append of a tick was answered.
    pub(super) fn handle_tick_append(&mut self, seq: Option<u64>, now: Instant) {
        self.ticker.handle_append(seq, self.position, now);
    }
}

/// The one negotiation a record touches; nothing when it touches none or several.
fn sole_negotiation(record: &Record) -> Option<&NegotiationId> {
    let mut touched = record.entries.iter().filter_map(negotiation_of);
    let first = touched.next()?;
    touched.all(|other| other == first).then_some(first)
}

/// The negotiation an entry touches.
fn negotiation_of(entry: &Entry) -> Option<&NegotiationId> {
    match entry {
        Entry::Message(message) => Some(&message.negotiation),
        Entry::Engine { event, .. } => match event {
            EngineEvent::DeliveryFailed { negotiation, .. } | EngineEvent::Abort { negotiation, .. } => {
                Some(negotiation)
            }
            EngineEvent::Claim { .. } | EngineEvent::Delivered { .. } | EngineEvent::Rules { .. } => None,
        },
        Entry::Tick => None,
    }
}

/// A timer is due when a record's time is later than its deadline; this much later covers the estimate's rounding and
/// leaves a busy log the chance to bring a record of its own.
const MARGIN: Duration = Duration::from_millis(1);
/// Gap after a tick that came early: the estimate was ahead, and has been corrected by that tick.
const EARLY_GAP: Duration = Duration::from_millis(2);
/// Gap after a tick that could not be appended.
const REFUSED_GAP: Duration = Duration::from_millis(100);

/// The lane's one outstanding tick.
#[derive(Debug)]
struct Ticker {
    state: TickState,
    not_before: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TickState {
    Idle,
    Appending,
    /// Appended; not folded yet.
    Appended(u64),
}

impl Ticker {
    fn new(now: Instant) -> Self {
        Self { state: TickState::Idle, not_before: now }
    }

    /// When to ask again; nothing while a tick is outstanding or no timer is armed.
    fn wake_at(&self, deadline: Option<Timestamp>, clock: &LogClock) -> Option<Instant> {
        match self.state {
            TickState::Idle => deadline.map(|deadline| (clock.instant_of(deadline) + MARGIN).max(self.not_before)),
            TickState::Appending | TickState::Appended(_) => None,
        }
    }

    /// Whether a tick must be appended now; the caller appends it.
    fn poll_tick(&mut self, deadline: Option<Timestamp>, clock: &LogClock, now: Instant) -> bool {
        let is_due = self.wake_at(deadline, clock).is_some_and(|at| at <= now);
        if is_due {
            self.state = TickState::Appending;
        }
        is_due
    }

    /// The append was answered.
    fn handle_append(&mut self, seq: Option<u64>, folded: u64, now: Instant) {
        debug_assert_eq!(self.state, TickState::Appending, "one tick is outstanding");
        match seq {
            Some(seq) if seq > folded => self.state = TickState::Appended(seq),
            Some(_) => self.state = TickState::Idle,
            None => {
                self.state = TickState::Idle;
                self.not_before = now + REFUSED_GAP;
            }
        }
    }

    /// A record was folded. Corrects the clock when it is the outstanding tick and the timer has still not fired.
    fn handle_fold(
        &mut self,
        seq: u64,
        time: Timestamp,
        deadline: Option<Timestamp>,
        clock: &mut LogClock,
        now: Instant,
    ) {
        let TickState::Appended(tick) = self.state else { return };
        if seq < tick {
            return;
        }
        self.state = TickState::Idle;
        let still_due = deadline.is_some_and(|deadline| deadline <= clock.log_time(now) && deadline >= time);
        if still_due {
            clock.reset(time, now);
            self.not_before = now + EARLY_GAP;
        }
    }
}

/// Judges the log's clock by its records. Nothing is decided by it: it refuses readiness, because every deadline is kept
/// by that clock.
#[derive(Debug, Default)]
struct ClockHealth {
    /// How far the log's clock stands behind log time, in milliseconds.
    back_ms: u64,
    /// The last record read.
    read: (u64, Timestamp),
    /// A record of this engine's that the log stored, with the engine's own time then, until it is judged.
    stored: Option<(u64, Timestamp)>,
    /// The last record that was judged.
    judged: u64,
    /// How far the log's clock is from the engine's own, in milliseconds, by that record: only of what was appended just now
    /// is it known when it was stamped.
    skew_ms: i64,
    /// Such records in a row beyond the bound.
    beyond: u32,
}

/// Records in a row that must lie beyond the bound: one may have been held up on its way.
const SKEWED_MIN: u32 = 3;

impl ClockHealth {
    /// A record was read.
    fn observe(&mut self, record: &LogRecord, config: &ClockConfig) {
        self.back_ms = record.time.since_us(record.stamped) / 1000;
        self.read = (record.seq, record.stamped);
        self.judge(config);
    }

    /// The log has stored a record of this engine's.
    fn handle_stored(&mut self, seq: u64, config: &ClockConfig) {
        // Several entries of one record are answered one by one, and a backlog is read behind what is stored meanwhile.
        if seq > self.judged {
            self.stored.get_or_insert_with(|| (seq, (config.now)()));
            self.judge(config);
        }
    }

    /// Compares both clocks, once the record that was stored last is read.
    fn judge(&mut self, config: &ClockConfig) {
        let (read, stamped) = self.read;
        let Some((stored, now)) = self.stored.take_if(|(stored, _)| *stored <= read) else { return };
        self.judged = stored;
        let ahead_ms = |one: Timestamp, other: Timestamp| i64::try_from(one.since_us(other) / 1000).unwrap_or(i64::MAX);
        self.skew_ms = ahead_ms(stamped, now) - ahead_ms(now, stamped);
        let is_beyond = self.skew_ms.unsigned_abs() > config.skew_ms_max;
        self.beyond = if is_beyond { self.beyond.saturating_add(1) } else { 0 };
    }

    /// What is wrong, each with its remedy.
    fn faults(&self, config: &ClockConfig) -> impl Iterator<Item = String> {
        let back = (self.back_ms > config.back_ms_max).then(|| {
            format!(
                "the log's clock went back by {} ms (at most {} are allowed), and log time stands still until it has \
                 caught up; see to the clock of the NATS leader",
                self.back_ms, config.back_ms_max
            )
        });
        let skewed = (self.beyond >= SKEWED_MIN).then(|| {
            format!(
                "the log's clock is {} ms {} this engine's (at most {} are allowed); synchronise the clocks of both \
                 machines (NTP)",
                self.skew_ms.unsigned_abs(),
                if self.skew_ms > 0 { "ahead of" } else { "behind" },
                config.skew_ms_max
            )
        });
        back.into_iter().chain(skewed)
    }
}

#[cfg(test)]
mod tests;
