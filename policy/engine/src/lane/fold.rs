//! Folding: a record of the log into the lane's state, the state's effects to whoever carries them out.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bus::LogRecord;
use bytes::Bytes;
use policy_core::lane::RULES_VERSION;
use policy_core::{Effect, Event, LaneState};
use schemas::record::{EngineEvent, Entry, Record, RecordError};
use schemas::{Digest, Lane, NegotiationId, Timestamp};
use tokio::time::Instant;

use super::ownership::Ownership;
use super::publish::Publisher;
use crate::config::EngineConfig;
use crate::digests::{DigestPoint, Digests, Mismatch};
use crate::lane::abort::AbortCode;
use crate::lane::checkpoint::Head;
use crate::lane::clock_health::ClockHealth;
use crate::lane::observer::LaneObserver;
use crate::lane::tick::{LogClock, Ticker};
use crate::metrics::Observation;
use crate::status::{LaneStatus, StopReason};

/// Digests in each heartbeat: those of the last few seconds of a busy lane, and more than one in case one is lost.
const HEARTBEAT_DIGESTS: usize = 4;

/// Where the effects of a fold go.
pub(super) struct Sinks<'a> {
    pub(super) ownership: &'a Ownership,
    pub(super) publisher: &'a mut Publisher,
    pub(super) observer: &'a mut LaneObserver,
}

/// Where a lane's state comes from: a checkpoint, or the beginning.
pub(super) struct Beginning {
    pub(super) state: LaneState,
    /// Sequence of the last record folded, 0 at the beginning.
    pub(super) position: u64,
    /// Its log time.
    pub(super) time: Timestamp,
    /// Negotiations whose messages made the fold panic.
    pub(super) blamed: BTreeSet<NegotiationId>,
}

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
            digests: Digests::starting_at(position).every(config.digest_every),
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

    /// Negotiations whose messages made the fold panic.
    pub(super) fn blamed(&self) -> &BTreeSet<NegotiationId> {
        &self.blamed
    }

    /// What a checkpoint of the state is of.
    pub(super) fn head(&self) -> Head {
        Head {
            lane: self.lane,
            position: self.position,
            time: self.state.now(),
            record: Digest::of_bytes(&self.last),
            rules: self.state.rules(),
        }
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
        self.clock_health.observe(record);
        sinks.observer.handle_record(record);
        match Record::decode(&record.bytes) {
            Ok(decoded) => self.fold(record, &decoded, sinks, now)?,
            Err(error @ RecordError::Version { .. }) => return Err(StopReason::NewerVersion(error.to_string())),
            Err(RecordError::Unreadable(error)) => {
                // A foreign writer. Every engine skips the record alike, as if it were not there.
                tracing::error!(lane = self.lane.0, seq = record.seq, %error, "a record is not readable and is skipped");
                sinks.observer.observe(Observation::RecordSkipped);
            }
        }
        self.ticker.handle_fold(record.seq, record.time, self.state.poll_deadline(), &mut self.clock, now);
        match self.note_digest(record) {
            Some(mismatch) => Err(stopped_by(mismatch, sinks.observer)),
            None => Ok(()),
        }
    }

    fn note_digest(&mut self, record: &LogRecord) -> Option<Mismatch> {
        let point = self.digests.is_due(record.seq).then(|| DigestPoint {
            position: record.seq,
            stamped: record.stamped,
            rules: self.state.rules(),
            digest: self.state.digest(),
        });
        self.digests.note(record.seq, point)
    }

    /// Compares the digests of another engine.
    pub(super) fn handle_digests(
        &mut self,
        engine: &str,
        points: &[DigestPoint],
        observer: &LaneObserver,
    ) -> Result<(), StopReason> {
        match self.digests.compare(engine, points) {
            Some(mismatch) => Err(stopped_by(mismatch, observer)),
            None => Ok(()),
        }
    }

    fn fold(
        &mut self,
        record: &LogRecord,
        decoded: &Record,
        sinks: &mut Sinks<'_>,
        now: Instant,
    ) -> Result<(), StopReason> {
        let (epoch, is_owner) = (self.state.epoch(), sinks.ownership.is_owner());
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
                    sinks.observer.handle_event(&event, decoded, &self.state, is_owner);
                }
            }
        }
        let lag_us = is_owner.then(|| self.clock.log_time(now).since_us(record.time));
        sinks.observer.handle_record_done(now.elapsed(), lag_us);
        Ok(())
    }

    /// The fold panicked: a fault of ours, but the same on every engine, since all fold the same record in the same
    /// state. Where the record touches one negotiation, that one is aborted and the lane goes on. Where it touches
    /// several, or the negotiation is already to blame, nothing says what is still sound, and the lane stops.
    fn handle_panic(&mut self, seq: u64, record: &Record, sinks: &mut Sinks<'_>) -> Result<(), StopReason> {
        sinks.observer.observe(Observation::FoldPanicked);
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

    /// The log has no further record for now.
    pub(super) fn handle_log_end(&mut self) {
        self.clock_health.handle_end(&self.config.clock);
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

/// Emission stops: one of two engines is wrong, and nobody knows which.
fn stopped_by(mismatch: Mismatch, observer: &LaneObserver) -> StopReason {
    observer.observe(Observation::DigestMismatch);
    let Mismatch { engine, position, ours, theirs } = mismatch;
    StopReason::DigestMismatch { engine, position, ours: ours.to_string(), theirs: theirs.to_string() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_of_one_negotiation_says_which_is_to_blame() {
        let abort = |own: &str| Entry::Engine {
            epoch: 1,
            event: EngineEvent::Abort { negotiation: negotiation(own), code: "internal".to_owned() },
        };
        let claim = Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } };
        let blamed = |entries: &[Entry]| sole_negotiation(&Record::new("test", entries.to_vec())).cloned();
        assert_eq!(blamed(&[]), None);
        assert_eq!(blamed(&[Entry::Tick, claim.clone()]), None);
        assert_eq!(blamed(&[abort("a"), Entry::Tick, claim, abort("a")]), Some(negotiation("a")));
        assert_eq!(blamed(&[abort("a"), abort("b"), abort("a")]), None);
    }

    fn negotiation(own: &str) -> NegotiationId {
        NegotiationId::try_new(&format!("alice~{own}")).unwrap()
    }
}
