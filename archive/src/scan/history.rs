//! What the records of a lane lead to: the fold, and of every negotiation that ends what an archive says about it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use policy_core::lane::RULES_VERSION;
use policy_core::lane::SnapshotError;
use policy_core::{CHAIN_START, ChainLink, chained};
use policy_core::{Effect, Event, LaneState, Limits};
use schemas::delivery::Outcome;
use schemas::ids::Position;
use schemas::record::{EngineEvent, Entry, Record, RecordError};
use schemas::{Act, Digest, Lane, NegotiationId, OfferId, RegisterValue, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Ending, FoldedRecord};
use crate::{Closed, Expected, Input, NegotiationCourse, RegisterEntry};

/// Tag of the abort an engine logs when the register holds another value than the log leads to.
const CONFLICT_TAG: &[u8] = b"abort:register_conflict";

/// The fold of one lane.
pub(super) struct NegotiationHistory {
    lane_state: LaneState,
    /// Last record taken, readable or not.
    pub(super) position: u64,
    pub(super) time: Timestamp,
    /// Digest of the bytes of that record.
    pub(super) last: Digest,
    pub(super) dossiers: NegotiationRecords,
    /// Whether somebody hears of what ends.
    is_heard: bool,
}

/// What was collected of an open negotiation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NegotiationRecord {
    inputs: Vec<Input>,
    /// Over the inputs.
    chain: Digest,
    is_conflict: bool,
    decisions: Vec<Box<RawValue>>,
    register: Vec<RegisterEntry>,
    #[serde(default)]
    course: NegotiationCourse,
}

/// Dossiers by negotiation. More than one where an id was used again in the very record that ended it.
pub(super) type NegotiationRecords = BTreeMap<NegotiationId, VecDeque<NegotiationRecord>>;

impl NegotiationHistory {
    pub(super) fn new(lane: Lane) -> Self {
        let mut lane_state = LaneState::new(lane, Limits::default());
        lane_state.keep_links();
        let (dossiers, is_heard) = (BTreeMap::new(), false);
        Self { lane_state, position: 0, time: Timestamp(0), last: CHAIN_START, dossiers, is_heard }
    }

    /// The fold's state as bytes.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        self.lane_state.snapshot()
    }

    /// Goes on from a fold's state; position, time and dossiers are the caller's to set.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(super) fn restore(&mut self, snapshot: &[u8], lane: Lane) -> Result<(), SnapshotError> {
        self.lane_state = LaneState::restore(snapshot, lane, Limits::default())?;
        self.lane_state.keep_links();
        Ok(())
    }

    /// Negotiations that have not ended.
    pub(super) fn open_count(&self) -> usize {
        self.lane_state.open_count()
    }

    /// Folds a record; where somebody hears of what ends, the course of negotiations is kept.
    ///
    /// # Errors
    /// What this build cannot follow, because a later version wrote it.
    pub(super) fn handle_record(
        &mut self,
        seq: u64,
        time: Timestamp,
        bytes: &[u8],
        is_heard: bool,
    ) -> Result<FoldedRecord, String> {
        (self.position, self.is_heard) = (seq, is_heard);
        self.time = time;
        self.last = Digest::of_bytes(bytes);
        let mut folded = FoldedRecord::default();
        let record = match Record::decode(bytes) {
            Ok(record) => record,
            Err(RecordError::Unreadable(_)) => return Ok(FoldedRecord { is_unreadable: true, ..folded }),
            Err(error @ RecordError::Version { .. }) => return Err(format!("record {seq}: {error}")),
        };
        folded.messages = record.entries.iter().filter(|entry| matches!(entry, Entry::Message(_))).count() as u64;
        folded.forged = forged(seq, &record);
        folded.answered = record.entries.iter().filter_map(answered).max().unwrap_or(0);
        self.lane_state.handle_record(seq, time, &record);
        if self.lane_state.rules() > RULES_VERSION {
            return Err(format!("record {seq}: from here on its rules are of version {}", self.lane_state.rules()));
        }
        self.handle_links(&record);
        while let Some(effect) = self.lane_state.poll_effect() {
            self.handle_effect(seq, effect, &mut folded.endings);
        }
        Ok(folded)
    }

    fn handle_effect(&mut self, seq: u64, effect: Effect, endings: &mut Vec<Ending>) {
        match effect {
            Effect::Register(write) => {
                if let Some(dossier) = self.dossier(write.key.negotiation()) {
                    dossier.register.push(RegisterEntry { key: write.key.to_string(), value: write.value });
                }
            }
            Effect::Event(Event::Decided(decision)) => self.handle_decision(&decision.negotiation, &*decision),
            Effect::Event(Event::Found(decision)) => self.handle_decision(&decision.negotiation, &*decision),
            Effect::Event(Event::Ended { negotiation, outcome, at, policy, .. }) => {
                let dossiers = self.dossiers.entry(negotiation.clone()).or_default();
                let ended = dossiers.pop_front().unwrap_or_default();
                if dossiers.is_empty() {
                    self.dossiers.remove(&negotiation);
                }
                endings.push(ended.finish(negotiation, seq, at, outcome, &policy));
            }
            Effect::Deliver(told) if self.is_heard && matches!(told.told.act(), Act::Inform | Act::Closed) => {
                if let Some(dossier) = self.dossier(&told.negotiation) {
                    dossier.course.told.push((told.to, told.told));
                }
            }
            Effect::Deliver(_) | Effect::Notice(_) | Effect::Event(_) => {}
        }
    }

    fn handle_decision(&mut self, negotiation: &NegotiationId, decision: &impl Serialize) {
        if let Some(dossier) = self.dossier(negotiation) {
            let document = serde_json::value::to_raw_value(decision);
            dossier.decisions.push(document.expect("integers, texts and digests can all be written"));
        }
    }

    /// The dossier effects belong to: the one that ends first.
    fn dossier(&mut self, negotiation: &NegotiationId) -> Option<&mut NegotiationRecord> {
        self.dossiers.get_mut(negotiation)?.front_mut()
    }

    /// Adds inputs, those of `record`, to the dossiers of their negotiations.
    fn handle_links(&mut self, record: &Record) {
        for link in self.lane_state.take_links() {
            let dossiers = self.dossiers.entry(link.negotiation.clone()).or_default();
            if link.is_first || dossiers.is_empty() {
                dossiers.push_back(NegotiationRecord::default());
            }
            if let Some(last) = dossiers.back_mut() {
                last.chain = chained(last.chain, &link.input, link.position, link.at);
                last.is_conflict |= *link.input == *CONFLICT_TAG;
                last.inputs.push(Input::of(&link));
                if let Some(body) = self.is_heard.then(|| body(record, link.position)).flatten() {
                    last.course.bodies.insert(OfferId(link.position), body);
                }
            }
        }
    }
}

/// The body of the call or offer that stands there.
fn body(record: &Record, at: Position) -> Option<Arc<RawValue>> {
    match record.entries.get(usize::try_from(at.index).ok()?)? {
        Entry::Message(message) => matches!(message.act, Act::Cfp | Act::Offer).then(|| Arc::clone(&message.body)),
        Entry::Engine { .. } | Entry::Tick => None,
    }
}

/// How far an entry says that the register is answered.
fn answered(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Engine { event: EngineEvent::Delivered { registered, .. }, .. } => Some(*registered),
        Entry::Engine { .. } | Entry::Message(_) | Entry::Tick => None,
    }
}

/// The first message whose body does not have the digest beside it, in words.
fn forged(seq: u64, record: &Record) -> Option<String> {
    record.entries.iter().enumerate().find_map(|(index, entry)| {
        let Entry::Message(message) = entry else { return None };
        let (computed, recorded) = (Digest::of_bytes(message.body.get().as_bytes()), message.digest);
        (computed != recorded)
            .then(|| format!("message {seq}.{index}: its body has digest {computed}, recorded is {recorded}"))
    })
}

impl Default for NegotiationRecord {
    fn default() -> Self {
        let (decisions, register, course) = (Vec::new(), Vec::new(), NegotiationCourse::default());
        Self { inputs: Vec::new(), chain: CHAIN_START, is_conflict: false, decisions, register, course }
    }
}

impl NegotiationRecord {
    fn finish(self, negotiation: NegotiationId, seq: u64, at: Timestamp, outcome: Outcome, policy: &str) -> Ending {
        let Self { inputs, chain: recomputed, is_conflict, decisions, register, course } = self;
        let registered = register
            .iter()
            .find_map(|entry| if let RegisterValue::Closed { chain, .. } = entry.value { Some(chain) } else { None });
        let chain = registered.unwrap_or(recomputed);
        let expected = Expected { entries: register.clone(), is_conflict };
        let course = NegotiationCourse { policy: policy.to_owned(), is_conflict, ..course };
        Ending {
            closed: Closed { negotiation, seq, at, outcome, chain, inputs, decisions, register, course },
            expected,
            is_broken: chain != recomputed,
        }
    }
}

impl Input {
    fn of(link: &ChainLink) -> Self {
        let Position { seq, index } = link.position;
        let digest = <[u8; 32]>::try_from(&*link.input).ok().map(Digest);
        let tag = digest.is_none().then(|| HEXLOWER.encode(&link.input));
        Self { seq, index, at: link.at, digest, tag }
    }
}
