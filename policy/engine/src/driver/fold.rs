//! Folding: a record of the log into the book, the book's effects into outbox, register and metrics; and what the log
//! says about the lane's ownership.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bus::LogRecord;
use bytes::Bytes;
use policy_core::{Deliver, Effect, Event, PublicNotice, RegisterWrite};
use schemas::record::{EngineEvent, Entry, Qos, Record, RecordError};
use schemas::{Address, NegotiationId, subject};
use tokio::time::Instant;

use super::{Driver, Stage};
use crate::abort::{ABORTS_MAX, AbortCode};
use crate::register::Write;
use crate::status::StopReason;

/// Most claims one start makes: each is outbid only by another engine that starts at the same time.
const CLAIMS_MAX: u32 = 8;
/// Gap after a claim that could not be appended.
const CLAIM_GAP: Duration = Duration::from_millis(250);
/// While a lane is not owned nothing leaves it; at this many times `in_flight_max` held deliveries it gives up.
const HELD_FACTOR: usize = 4;

impl Driver {
    pub(super) fn handle_record(&mut self, record: &LogRecord) -> Result<(), StopReason> {
        if record.seq <= self.position {
            return Ok(());
        }
        let now = Instant::now();
        self.position = record.seq;
        self.clock.observe(record.time, now);
        if let Some(tap) = &self.shared.tap {
            tap.on_record(record);
        }
        match Record::decode(&record.bytes) {
            Ok(decoded) => self.fold(record, &decoded, now)?,
            Err(error @ RecordError::Version { .. }) => return Err(StopReason::NewerVersion(error.to_string())),
            Err(RecordError::Unreadable(error)) => {
                // A foreign writer. Every engine skips the record alike, as if it were not there.
                tracing::error!(lane = self.lane.0, seq = record.seq, %error, "a record is not readable and is skipped");
                self.shared.metrics.record_skipped();
            }
        }
        self.ticker.handle_fold(record.seq, record.time, self.book.poll_deadline(), &mut self.clock, now);
        self.handle_progress()
    }

    fn fold(&mut self, record: &LogRecord, decoded: &Record, now: Instant) -> Result<(), StopReason> {
        let folded = catch_unwind(AssertUnwindSafe(|| self.book.handle_record(record.seq, record.time, decoded)));
        if folded.is_err() {
            self.handle_panic(record.seq, decoded)?;
        }
        for entry in &decoded.entries {
            self.handle_logged(entry);
        }
        while let Some(effect) = self.book.poll_effect() {
            match effect {
                Effect::Deliver(deliver) => self.handle_deliver(deliver, now),
                Effect::Register(write) => self.handle_register_write(write),
                Effect::Notice(notice) => self.handle_notice(&notice),
                Effect::Event(event) => self.handle_event(&event),
            }
        }
        let lag_us = self.is_owner().then(|| self.clock.log_time(now).since_us(record.time));
        self.shared.metrics.record_folded(now.elapsed(), lag_us);
        Ok(())
    }

    /// The fold panicked: a fault of ours, but the same on every engine, since all fold the same record in the same
    /// state. Where the record touches one negotiation, that one is aborted and the lane goes on. Where it touches
    /// several, or the negotiation is already to blame, nothing says what is still sound, and the lane stops.
    fn handle_panic(&mut self, seq: u64, record: &Record) -> Result<(), StopReason> {
        if let Some(lost) = self.shared.metrics.invariant("no_lost_admission") {
            lost.inc();
        }
        match sole_negotiation(record) {
            Some(only) if self.blamed.insert(only.clone()) => {
                tracing::error!(lane = self.lane.0, seq, negotiation = %only, "folding panicked; the negotiation is aborted");
                self.aborts.want(only.clone(), AbortCode::Internal);
                Ok(())
            }
            Some(_) | None => {
                tracing::error!(lane = self.lane.0, seq, "folding panicked; the lane stops");
                Err(StopReason::FoldPanicked { seq })
            }
        }
    }

    /// Takes note of what engines have logged about deliveries and aborts, whatever their epoch: these are facts.
    fn handle_logged(&mut self, entry: &Entry) {
        let Entry::Engine { event, .. } = entry else { return };
        match event {
            EngineEvent::Delivered { ids } => ids.iter().for_each(|id| self.outbox.settle(*id)),
            EngineEvent::DeliveryFailed { id, .. } => self.outbox.settle(*id),
            EngineEvent::Abort { negotiation, .. } => self.aborts.handle_logged(negotiation),
            EngineEvent::Claim { .. } | EngineEvent::Rules { .. } => {}
        }
    }

    fn handle_deliver(&mut self, deliver: Deliver, now: Instant) {
        // Best effort is sent once. An earlier owner may have done so before this engine takes the lane.
        if deliver.qos == Qos::BestEffort && !self.is_owner() && self.book.epoch() > 0 {
            return;
        }
        let id = deliver.id;
        let gate = self.is_owner().then(|| self.registrar.gate(deliver.after.as_ref()));
        self.outbox.hold(deliver, now);
        if let Some(gate) = gate {
            self.outbox.release(id, gate);
        }
    }

    fn handle_register_write(&mut self, write: RegisterWrite) {
        let RegisterWrite { key, value, after } = write;
        let value = match schemas::digest::canonical(&value) {
            Ok(value) => Bytes::from(value),
            Err(error) => {
                // Digests, ids and names always have a canonical form; without one the gate must stay shut.
                tracing::error!(%key, %error, "a register value cannot be written");
                self.aborts.want(key.negotiation().clone(), AbortCode::Internal);
                self.registrar.refuse(key);
                return;
            }
        };
        match self.registered.remove(&key) {
            Some(stored) if stored == value => {}
            Some(_) => {
                tracing::error!(%key, "register conflict: another value stands there; the negotiation is aborted");
                self.shared.metrics.register_conflict();
                self.aborts.want(key.negotiation().clone(), AbortCode::RegisterConflict);
                self.registrar.refuse(key);
            }
            None => self.registrar.add(Write { key, value }, after),
        }
    }

    fn handle_notice(&mut self, notice: &PublicNotice) {
        if !self.is_owner() {
            return;
        }
        let Ok(payload) = serde_json::to_vec(&notice.notice).map(Bytes::from) else { return };
        let subjects = notice.to.iter().filter_map(|address| match address {
            Address::Topic(topic) => Some(subject::topic(topic)),
            Address::Group(group) => Some(subject::group(group)),
            Address::Agent(_) => None,
        });
        self.notices.extend(subjects.map(|subject| (subject, payload.clone())));
    }

    fn handle_event(&mut self, event: &Event) {
        self.gauges.follow(event);
        if self.is_owner() {
            self.shared.metrics.count(event);
        }
        if let Some(tap) = &self.shared.tap {
            tap.on_event(self.lane, event);
        }
    }

    /// Moves from catching up to claiming to owning, as far as what is folded allows; and notices a lost lane.
    pub(super) fn handle_progress(&mut self) -> Result<(), StopReason> {
        if self.book.rules() > policy_core::book::RULES_VERSION {
            return Err(StopReason::NewerVersion(format!("its rules are of version {}", self.book.rules())));
        }
        if self.aborts.len() > ABORTS_MAX {
            return Err(StopReason::RegisterForeign(self.aborts.len()));
        }
        let owns = self.book.is_owner(&self.shared.config.id);
        match self.stage {
            Stage::CatchingUp { target } if self.position >= target => {
                self.registered.clear();
                self.registered.shrink_to_fit();
                self.claim(1)
            }
            Stage::Claiming { epoch, .. } if owns && self.book.epoch() == epoch => {
                self.become_owner(epoch);
                Ok(())
            }
            Stage::Claiming { epoch, claims, .. } if self.book.epoch() >= epoch => self.claim(claims + 1),
            Stage::Owner { epoch } if !owns || self.book.epoch() != epoch => {
                Err(StopReason::Outbid { epoch: self.book.epoch() })
            }
            Stage::CatchingUp { .. } | Stage::Claiming { .. } => self.bound_held(),
            Stage::Owner { .. } => Ok(()),
        }
    }

    fn bound_held(&self) -> Result<(), StopReason> {
        let (held, limit) = (self.outbox.len(), HELD_FACTOR.saturating_mul(self.shared.config.outbox.in_flight_max));
        if held > limit { Err(StopReason::BacklogTooLarge { held, limit }) } else { Ok(()) }
    }

    fn claim(&mut self, claims: u32) -> Result<(), StopReason> {
        if claims > CLAIMS_MAX {
            return Err(StopReason::Unclaimed(format!(
                "outbid {CLAIMS_MAX} times by engines starting at the same time"
            )));
        }
        let epoch = self.book.epoch() + 1;
        self.stage = Stage::Claiming { epoch, claims, retry_at: None };
        self.append_claim(epoch);
        Ok(())
    }

    /// The log answered a claim; one that was not appended is made again.
    pub(super) fn handle_claim_append(&mut self, seq: Option<u64>, now: Instant) {
        if let (Stage::Claiming { epoch, claims, .. }, None) = (self.stage, seq) {
            self.stage = Stage::Claiming { epoch, claims: claims + 1, retry_at: Some(now + CLAIM_GAP) };
        }
    }

    fn become_owner(&mut self, epoch: u64) {
        self.stage = Stage::Owner { epoch };
        let held = self.outbox.held();
        tracing::info!(lane = self.lane.0, epoch, unacknowledged = held.len(), "the lane is owned");
        for id in held {
            let gate = self.registrar.gate(self.outbox.after(id));
            self.outbox.release(id, gate);
        }
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
