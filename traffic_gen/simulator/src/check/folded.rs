//! The log, folded anew: what it holds and everything it leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bus::LogRecord;
use policy_core::{Decision, Deliver, Limits, RegisterWrite};
use schemas::delivery::{Delivery, DeliveryEnvelope, EXCHANGE};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, RECORD_BYTES_MAX, RECORD_ENTRIES_MAX, Record};
use schemas::{
    AgentId, DeliveryId, Digest, Lane, MsgId, NegotiationId, Policy, Position, RegisterKey, Timestamp, WireTime,
};

use super::in_lane::InLane;
use super::viewed::Viewed;
use crate::trace::Trace;
use traffic_gen::invariants::{Invariant, Verdict};

/// The code of an abort because of another entry in the register.
const REGISTER_CONFLICT: &str = "register_conflict";

/// A message as it stands in the log.
#[derive(Debug, Clone)]
pub(super) struct Logged {
    pub(super) message: AdmittedMessage,
    /// Absent when the body cannot be read.
    pub(super) msg_id: Option<MsgId>,
    pub(super) time: Timestamp,
}

/// A delivery the log leads to.
#[derive(Debug, Clone)]
pub(super) struct Caused {
    /// Sequence of the record that causes it.
    pub(super) seq: u64,
    pub(super) deliver: Deliver,
}

impl Caused {
    /// What its recipient is to receive.
    pub(super) fn delivery(&self) -> Delivery {
        let deliver = &self.deliver;
        let envelope = DeliveryEnvelope {
            msg_id: deliver.id,
            ts: WireTime(deliver.at),
            from: deliver.from.as_ref().map_or(EXCHANGE.to_owned(), |agent| format!("agent://{agent}")),
            to: [format!("agent://{}", deliver.to)],
            negotiation: deliver.negotiation.clone(),
            in_reply_to: deliver.in_reply_to.clone(),
            traceparent: deliver.traceparent.as_deref().map(str::to_owned),
        };
        Delivery { envelope, payload: (*deliver.told).clone() }
    }
}

/// When offers were collected: from the record that called to the one that closed, or ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Collection {
    pub(super) from_seq: u64,
    pub(super) to_seq: u64,
}

/// One negotiation, as the fold tells it.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    /// The policy its first record pinned.
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) contractors: BTreeSet<AgentId>,
    pub(super) currency: Option<String>,
    /// Whether parties make offers in turn, instead of contractors to be chosen from: nothing is collected then.
    pub(super) is_bargain: bool,
    pub(super) round: u32,
    pub(super) ends_by: Timestamp,
    /// Until when an offer of each round may come.
    pub(super) reply_by: BTreeMap<u32, Timestamp>,
    pub(super) collections: Vec<Collection>,
    /// Sequence of the record that ended it.
    pub(super) ended_by: Option<u64>,
}

/// The whole log.
#[derive(Debug, Default)]
pub(super) struct FoldedLog {
    pub(super) messages: BTreeMap<Position, Logged>,
    pub(super) deliveries: BTreeMap<DeliveryId, Caused>,
    /// Each write the log leads to, in the order of each lane, with the sequence of its record.
    pub(super) writes: Vec<(u64, RegisterWrite)>,
    pub(super) decisions: Vec<Arc<Decision>>,
    pub(super) courses: BTreeMap<NegotiationId, Course>,
    /// Epoch of each lane, as far as its log has been read.
    epochs: BTreeMap<Lane, u64>,
    /// Deliveries the log says were given up, by the engine that owned the lane then.
    pub(super) given_up: BTreeSet<DeliveryId>,
    /// Negotiations the log says were stopped because the register holds another value, by the lane's owner then.
    pub(super) conflicted: BTreeSet<NegotiationId>,
    /// Keys of writes that the register refuses: another history has written there, or under the key they wait for.
    pub(super) refused: BTreeSet<RegisterKey>,
    /// Deliveries the log says were acknowledged.
    pub(super) acknowledged: BTreeSet<DeliveryId>,
    /// State digests after the records for which engines announced one.
    pub(super) digests: BTreeMap<(Lane, u64), Digest>,
}

impl FoldedLog {
    /// The most deliveries that one record leads to.
    pub(super) fn deliveries_per_record_max(&self) -> u64 {
        let mut count_by_seq: BTreeMap<u64, u64> = BTreeMap::new();
        self.deliveries.values().for_each(|caused| *count_by_seq.entry(caused.seq).or_default() += 1);
        count_by_seq.into_values().max().unwrap_or_default()
    }

    /// Folds every lane of a trace, and checks what can be checked record by record.
    pub(super) fn of(trace: &Trace, verdict: &mut Verdict) -> Self {
        let mut folded = Self::default();
        let announced: BTreeSet<(Lane, u64)> =
            trace.digests.iter().map(|announced| (announced.lane, announced.position)).collect();
        for lane in (0..trace.lanes).map(Lane) {
            let mut in_lane = InLane::new(lane, &trace.limits);
            let mut viewed = Viewed::of(trace, lane);
            viewed.compare(0, &in_lane, verdict);
            for found in trace.records.iter().filter(|record| record.lane == lane) {
                let Some(record) = readable(found, verdict) else { continue };
                folded.note_entries(found, &record, verdict);
                in_lane.fold(found.seq, found.time, &record, &mut folded, verdict);
                viewed.compare(found.seq, &in_lane, verdict);
                if announced.contains(&(lane, found.seq)) {
                    folded.digests.insert((lane, found.seq), in_lane.digest());
                }
            }
            viewed.finish(verdict);
            in_lane.finish(trace.is_liveness, &folded, verdict);
        }
        folded.note_refused(trace);
        folded
    }

    fn note_refused(&mut self, trace: &Trace) {
        for (_, RegisterWrite { key, after, .. }) in &self.writes {
            if trace.foreign.contains(key) || after.as_ref().is_some_and(|after| self.refused.contains(after)) {
                self.refused.insert(key.clone());
            }
        }
    }

    fn note_entries(&mut self, found: &LogRecord, record: &Record, verdict: &mut Verdict) {
        for (index, entry) in (0..).zip(&record.entries) {
            match entry {
                Entry::Message(message) => {
                    let computed = Digest::of_bytes(message.body.get().as_bytes());
                    verdict.check(Invariant::Recomputable, computed == message.digest, || {
                        format!(
                            "the body of {}.{index} has digest {computed}, recorded is {}",
                            found.seq, message.digest
                        )
                    });
                    let msg_id = message.message().ok().map(|decoded| decoded.envelope.msg_id);
                    let logged = Logged { message: message.clone(), msg_id, time: found.time };
                    self.messages.insert(Position { seq: found.seq, index }, logged);
                }
                Entry::Engine { epoch, event } => self.note_engine(found.lane, *epoch, event),
                Entry::Tick => {}
            }
        }
    }

    fn note_engine(&mut self, lane: Lane, epoch: u64, event: &EngineEvent) {
        let current = self.epochs.entry(lane).or_default();
        match event {
            EngineEvent::Claim { .. } => *current = epoch.max(*current),
            EngineEvent::Delivered { ids, .. } => self.acknowledged.extend(ids),
            EngineEvent::DeliveryFailed { id, .. } if epoch >= *current => {
                self.given_up.insert(*id);
            }
            EngineEvent::Abort { negotiation, code } if epoch >= *current && code == REGISTER_CONFLICT => {
                self.conflicted.insert(negotiation.clone());
            }
            EngineEvent::DeliveryFailed { .. } | EngineEvent::Abort { .. } | EngineEvent::Rules { .. } => {}
        }
    }

    /// Whether a negotiation is known to be a bargain.
    pub(super) fn is_bargain(&self, negotiation: &NegotiationId) -> bool {
        self.course(negotiation).is_some_and(|course| course.is_bargain)
    }

    /// Whether what a delivery answers is known again when it is said again: of an ended negotiation, only so many messages
    /// of each party are remembered.
    pub(super) fn remembers(&self, agent: &AgentId, caused: &Caused, limits: &Limits) -> bool {
        let negotiation = &caused.deliver.negotiation;
        let has_ended = self.course(negotiation).and_then(|course| course.ended_by).is_some_and(|end| end < caused.seq);
        let said = |logged: &&Logged| logged.message.from == *agent && logged.message.negotiation == *negotiation;
        !has_ended || self.messages.values().filter(said).count() <= limits.messages_per_party_max
    }

    /// The course of a negotiation that is known.
    pub(super) fn course(&self, negotiation: &NegotiationId) -> Option<&Course> {
        self.courses.get(negotiation)
    }
}

impl Course {
    /// Whether a record lies strictly within a collection: after its call and before its close.
    pub(super) fn is_collecting(&self, seq: u64) -> bool {
        self.collections.iter().any(|collection| collection.from_seq < seq && seq < collection.to_seq)
    }
}

/// A record that engines can read; they skip the others.
fn readable(found: &LogRecord, verdict: &mut Verdict) -> Option<Record> {
    let record = Record::decode(&found.bytes).ok()?;
    // An entry larger than a record should be stands alone.
    let fits = record.entries.len() <= 1 || found.bytes.len() <= RECORD_BYTES_MAX;
    verdict.check(Invariant::Bounded, fits && record.entries.len() <= RECORD_ENTRIES_MAX, || {
        format!("record {} has {} entries in {} bytes", found.seq, record.entries.len(), found.bytes.len())
    });
    Some(record)
}
