//! Folding: a record of the log into the lane's state, the fold's effects into outbox, register and metrics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bus::LogRecord;
use bytes::Bytes;
use policy_core::{Deliver, Effect, Event, PublicNotice, RegisterWrite};
use schemas::record::{EngineEvent, Entry, Qos, Record, RecordError};
use schemas::{Address, DeliveryId, NegotiationId, subject};
use tokio::time::Instant;

use super::Driver;
use crate::abort::AbortCode;
use crate::digests::DigestPoint;
use crate::register::Write;
use crate::status::StopReason;
use crate::trace::{Finished, Folded};

impl Driver {
    pub(super) fn handle_record(&mut self, record: &LogRecord) -> Result<(), StopReason> {
        if record.seq <= self.position {
            return Ok(());
        }
        let now = Instant::now();
        self.position = record.seq;
        self.last = record.bytes.clone();
        self.folded += 1;
        self.maintenance.note_record();
        self.clock.observe(record.time, now);
        self.clock_health.observe(record);
        if let Some(observer) = &self.shared.observer {
            observer.on_record(record);
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
        self.ticker.handle_fold(record.seq, record.time, self.lane_state.poll_deadline(), &mut self.clock, now);
        self.note_digest(record)?;
        self.handle_progress()
    }

    fn note_digest(&mut self, record: &LogRecord) -> Result<(), StopReason> {
        let point = self.digests.is_due(record.seq).then(|| DigestPoint {
            position: record.seq,
            stamped: record.stamped,
            rules: self.lane_state.rules(),
            digest: self.lane_state.digest(),
        });
        match self.digests.note(record.seq, point) {
            Some(mismatch) => Err(self.handle_mismatch(mismatch)),
            None => Ok(()),
        }
    }

    fn fold(&mut self, record: &LogRecord, decoded: &Record, now: Instant) -> Result<(), StopReason> {
        let epoch = self.lane_state.epoch();
        self.uncounted.handle_record(decoded, &self.shared.config.id);
        let folded = catch_unwind(AssertUnwindSafe(|| self.lane_state.handle_record(record.seq, record.time, decoded)));
        if folded.is_err() {
            self.handle_panic(record.seq, decoded)?;
        }
        self.handle_logged(epoch, &decoded.entries);
        while let Some((position, effect)) = self.lane_state.poll_effect_at() {
            self.traces.handle_cause(position, decoded);
            match effect {
                Effect::Deliver(deliver) => self.handle_deliver(deliver, now),
                Effect::Register(write) => self.handle_register_write(write),
                Effect::Notice(notice) => self.handle_notice(&notice),
                Effect::Event(event) => self.handle_event(&event, decoded),
            }
        }
        self.traces.handle_record_done();
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
                let trace_id = self.trace_id(only);
                tracing::error!(lane = self.lane.0, seq, negotiation = %only, %trace_id, "folding panicked; the negotiation is aborted");
                self.aborts.want(only.clone(), AbortCode::Internal);
                Ok(())
            }
            Some(_) | None => {
                tracing::error!(lane = self.lane.0, seq, "folding panicked; the lane stops");
                Err(StopReason::FoldPanicked { seq })
            }
        }
    }

    /// Takes note of what engines have logged. That something was acknowledged or registered is a fact, whoever says so;
    /// a failure or an abort counts only if the fold accepted it: not under an older epoch than the lane's, which was
    /// `epoch` before the record.
    fn handle_logged(&mut self, mut epoch: u64, entries: &[Entry]) {
        for entry in entries {
            let Entry::Engine { epoch: of, event } = entry else { continue };
            match event {
                EngineEvent::Claim { .. } => epoch = epoch.max(*of),
                EngineEvent::Delivered { ids, registered } => self.handle_delivered(ids, *registered),
                EngineEvent::DeliveryFailed { id, .. } if *of >= epoch => self.outbox.settle(*id),
                EngineEvent::Abort { negotiation, .. } if *of >= epoch => {
                    self.aborts.handle_logged(negotiation);
                    self.registrar.handle_abort_logged(negotiation);
                }
                EngineEvent::DeliveryFailed { .. } | EngineEvent::Abort { .. } | EngineEvent::Rules { .. } => {}
            }
        }
    }

    fn handle_delivered(&mut self, ids: &[DeliveryId], registered: u64) {
        ids.iter().for_each(|id| self.outbox.settle(*id));
        self.delivered.handle_logged(registered);
        if !self.is_owner() {
            self.registrar.settle_through(registered);
        }
    }

    fn handle_deliver(&mut self, deliver: Deliver, now: Instant) {
        // Best effort is sent once. An earlier owner may have done so before this engine takes the lane.
        if deliver.qos == Qos::BestEffort && !self.is_owner() && self.lane_state.epoch() > 0 {
            return;
        }
        let id = deliver.id;
        let gate = self.is_owner().then(|| self.registrar.gate(deliver.after.as_ref()));
        let trace = self.traces.of_delivery(&deliver);
        self.outbox.hold_traced(deliver, trace, now);
        if let Some(gate) = gate {
            self.outbox.release(id, gate);
        }
    }

    fn handle_register_write(&mut self, write: RegisterWrite) {
        let RegisterWrite { key, value, after } = write;
        if self.is_owner() {
            self.traces.handle_write(&key);
        }
        let value = match schemas::digest::canonical(&value) {
            Ok(value) => Bytes::from(value),
            Err(error) => {
                // Digests, ids and names always have a canonical form; without one the gate must stay shut.
                let negotiation = key.negotiation();
                let trace_id = self.trace_id(negotiation);
                tracing::error!(%negotiation, %trace_id, %key, %error, "a register value cannot be written");
                self.aborts.want(key.negotiation().clone(), AbortCode::Internal);
                self.registrar.refuse(key, self.position);
                return;
            }
        };
        let refused = self.registrar.add(Write { key: key.clone(), value }, after, self.position);
        if !refused.is_empty() {
            let negotiation = key.negotiation();
            let trace_id = self.trace_id(negotiation);
            tracing::error!(%negotiation, %trace_id, %key, "the log leads to two values for one key of the register; the negotiation is aborted");
            self.shared.metrics.register_conflict(self.protocol(key.negotiation()));
            self.aborts.want(key.negotiation().clone(), AbortCode::RegisterConflict);
            refused.iter().for_each(|key| self.outbox.handle_register(key, true));
        }
        self.wrote_at = self.position;
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

    fn handle_event(&mut self, event: &Event, record: &Record) {
        self.gauges.follow(event, self.lane_state.now(), self.is_owner());
        if let Event::Claimed { engine, .. } = event {
            self.note_claim(engine);
        }
        if self.is_owner() {
            self.shared.metrics.count(event);
            if let Event::InvariantViolated { negotiation, invariant, offer } = event {
                let trace_id = self.trace_id(negotiation);
                tracing::error!(%negotiation, %trace_id, invariant = invariant.as_str(), ?offer, "an invariant is broken");
            }
            self.remember(event);
            self.trace(event, record);
        } else {
            self.uncounted.add(event);
        }
        if let Some(observer) = &self.shared.observer {
            observer.on_event(self.lane, event);
        }
    }
}

impl Driver {
    /// Records the spans that end with a fact of the core.
    fn trace(&mut self, event: &Event, record: &Record) {
        if !self.traces.is_on() {
            return;
        }
        if let Some(folded) = Folded::of(event, self.lane_state.now()) {
            self.traces.handle_folded(&folded, record);
        }
        if let Some(finished) = Finished::of(event) {
            self.traces.handle_end(finished);
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
