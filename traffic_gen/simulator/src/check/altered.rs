//! A log folded once more with something else in it, to see what follows from that and what does not.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use policy_core::{Deliver, Effect, LaneState};
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Record};
use schemas::{Digest, NegotiationId, Position};
use serde_json::Value;
use serde_json::value::RawValue;

use super::in_lane::delivered;
use crate::trace::Trace;

/// The log of the lane of one negotiation, with other messages in some places.
pub(super) struct AlteredLog<'a> {
    pub(super) trace: &'a Trace,
    pub(super) negotiation: &'a NegotiationId,
    pub(super) replaced: BTreeMap<Position, AdmittedMessage>,
}

/// A record of it, and what it leads to.
pub(super) struct AlteredRecord<'a> {
    pub(super) seq: u64,
    record: &'a Record,
    pub(super) effects: &'a [Effect],
}

impl AlteredLog<'_> {
    /// Folds it, and shows every record until it is told to stop.
    pub(super) fn fold(&self, mut show: impl FnMut(AlteredRecord<'_>) -> ControlFlow<()>) {
        let lane = self.negotiation.lane(self.trace.lanes);
        let mut lane_state = LaneState::new(lane, self.trace.limits.clone());
        for found in self.trace.records.iter().filter(|record| record.lane == lane) {
            let Ok(mut record) = Record::decode(&found.bytes) else { continue };
            for (index, entry) in (0..).zip(&mut record.entries) {
                if let Some(message) = self.replaced.get(&Position { seq: found.seq, index }) {
                    *entry = Entry::Message(message.clone());
                }
            }
            lane_state.handle_record(found.seq, found.time, &record);
            let effects: Vec<Effect> = std::iter::from_fn(|| lane_state.poll_effect()).collect();
            if show(AlteredRecord { seq: found.seq, record: &record, effects: &effects }).is_break() {
                return;
            }
        }
    }
}

impl AlteredRecord<'_> {
    /// What it tells in a negotiation.
    pub(super) fn told(&self, negotiation: &NegotiationId) -> impl Iterator<Item = &Deliver> {
        self.effects.iter().filter_map(delivered).filter(move |deliver| deliver.negotiation == *negotiation)
    }

    /// Whether it gives a delivery up. That is said by its id, which depends on how many timers fired and on what else was told:
    /// another log need not know it.
    pub(super) fn fails(&self) -> bool {
        self.record.entries.iter().any(|entry| match entry {
            Entry::Engine { event: EngineEvent::DeliveryFailed { .. }, .. } => true,
            Entry::Engine { .. } | Entry::Message(_) | Entry::Tick => false,
        })
    }
}

/// One of these, drawn by the seed.
pub(super) fn drawn<T>(seed: u64, mut from: Vec<T>) -> Option<T> {
    let which = usize::try_from(seed % u64::try_from(from.len()).ok()?.max(1)).ok()?;
    (which < from.len()).then(|| from.swap_remove(which))
}

/// A message with a change of its body; none where the body cannot be changed so.
pub(super) fn altered(
    message: &AdmittedMessage,
    change: impl FnOnce(&mut Value) -> Option<()>,
) -> Option<AdmittedMessage> {
    let mut document: Value = serde_json::from_str(message.body.get()).ok()?;
    change(document.get_mut("payload")?)?;
    let body = String::from_utf8(canonical(&document).ok()?).ok()?;
    let digest = Digest::of_bytes(body.as_bytes());
    let body = RawValue::from_string(body).ok()?.into();
    Some(AdmittedMessage { digest, body, ..message.clone() })
}
