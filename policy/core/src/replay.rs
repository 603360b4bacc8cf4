//! Recomputing every decision from the log, to compare with what was registered (invariant "recomputable").

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::digest::canonical;
use schemas::record::{Entry, Record};
use schemas::{Digest, Lane, NegotiationId, RegisterKey, Timestamp};

use crate::acceptance::decision::Decision;
use crate::effect::{Effect, Event, RegisterWrite};
use crate::lane::LaneState;
use crate::limits::Limits;
use crate::panel::decision::PanelDecision;

/// Folds the records of any number of lanes and collects what they decide.
///
/// Feed each lane's records in order with [`Replay::handle_record`]; lanes may be mixed.
#[derive(Debug)]
pub struct Replay {
    limits: Limits,
    states_by_lane: BTreeMap<Lane, LaneState>,
    writes: Vec<Recomputed>,
    decisions: Vec<RecomputedDecision>,
    forgeries: Vec<Forgery>,
}

/// A register write the log leads to.
#[derive(Debug, Clone)]
pub struct Recomputed {
    /// Sequence of the record that caused it.
    pub seq: u64,
    /// The write.
    pub write: RegisterWrite,
}

/// A decision record the log leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecomputedDecision {
    /// Awards of a contract net, or the formation of a team.
    Award(Arc<Decision>),
    /// The finding of a panel.
    Finding(Arc<PanelDecision>),
}

impl RecomputedDecision {
    /// Whose decision it is.
    #[must_use]
    pub fn negotiation(&self) -> &NegotiationId {
        match self {
            Self::Award(decision) => &decision.negotiation,
            Self::Finding(decision) => &decision.negotiation,
        }
    }

    /// The digest that stands in the register.
    #[must_use]
    pub fn digest(&self) -> Digest {
        match self {
            Self::Award(decision) => decision.digest(),
            Self::Finding(decision) => decision.digest(),
        }
    }

    /// The record in canonical form.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = match self {
            Self::Award(decision) => canonical(&**decision),
            Self::Finding(decision) => canonical(&**decision),
        };
        // Integers and texts always have a canonical form.
        text(&bytes.unwrap_or_default())
    }
}

/// A logged message whose body does not have the digest recorded beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forgery {
    /// Sequence of its record.
    pub seq: u64,
    /// Its index in the record.
    pub index: usize,
    /// The digest recorded.
    pub recorded: Digest,
    /// The digest of the body.
    pub computed: Digest,
}

/// The first difference between what the log leads to and what is registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The register key.
    pub key: RegisterKey,
    /// Sequence of the record that leads to it; absent when the log leads to no such key.
    pub seq: Option<u64>,
    /// The value the log leads to, in canonical form.
    pub recomputed: Option<String>,
    /// The value registered.
    pub registered: Option<String>,
}

impl Replay {
    /// Nothing folded yet. The limits must be those of the engines.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            states_by_lane: BTreeMap::new(),
            writes: Vec::new(),
            decisions: Vec::new(),
            forgeries: Vec::new(),
        }
    }

    /// Folds one record of one lane.
    pub fn handle_record(&mut self, lane: Lane, seq: u64, time: Timestamp, record: &Record) {
        for (index, entry) in record.entries.iter().enumerate() {
            if let Entry::Message(message) = entry {
                let computed = Digest::of_bytes(message.body.get().as_bytes());
                if computed != message.digest {
                    self.forgeries.push(Forgery { seq, index, recorded: message.digest, computed });
                }
            }
        }
        let limits = &self.limits;
        let lane_state = self.states_by_lane.entry(lane).or_insert_with(|| LaneState::new(lane, limits.clone()));
        lane_state.handle_record(seq, time, record);
        while let Some(effect) = lane_state.poll_effect() {
            match effect {
                Effect::Register(write) => self.writes.push(Recomputed { seq, write }),
                Effect::Event(Event::Decided(decision)) => self.decisions.push(RecomputedDecision::Award(decision)),
                Effect::Event(Event::Found(decision)) => self.decisions.push(RecomputedDecision::Finding(decision)),
                Effect::Deliver(_) | Effect::Notice(_) | Effect::Event(_) => {}
            }
        }
    }

    /// Every register write, in the order of the log.
    #[must_use]
    pub fn writes(&self) -> &[Recomputed] {
        &self.writes
    }

    /// Every decision, in the order of the log.
    #[must_use]
    pub fn decisions(&self) -> &[RecomputedDecision] {
        &self.decisions
    }

    /// Every message whose body was altered, in the order of the log.
    #[must_use]
    pub fn forgeries(&self) -> &[Forgery] {
        &self.forgeries
    }

    /// The state after the last record of a lane.
    #[must_use]
    pub fn lane_state(&self, lane: Lane) -> Option<&LaneState> {
        self.states_by_lane.get(&lane)
    }

    /// Compares, byte for byte, with the entries of the register. A write the log leads to may be missing from the
    /// register only when `is_complete` is false (the engine may not have come to it yet).
    #[must_use]
    pub fn first_difference(
        &self,
        registered: &BTreeMap<RegisterKey, Vec<u8>>,
        is_complete: bool,
    ) -> Option<Difference> {
        let mut unexplained: BTreeMap<&RegisterKey, &Vec<u8>> = registered.iter().collect();
        for Recomputed { seq, write } in &self.writes {
            let recomputed = canonical(&write.value).unwrap_or_default();
            let found = unexplained.remove(&write.key);
            if found.is_some_and(|found| *found == recomputed) || (found.is_none() && !is_complete) {
                continue;
            }
            return Some(Difference {
                key: write.key.clone(),
                seq: Some(*seq),
                recomputed: Some(text(&recomputed)),
                registered: found.map(|found| text(found)),
            });
        }
        let (key, found) = unexplained.pop_first()?;
        Some(Difference { key: key.clone(), seq: None, recomputed: None, registered: Some(text(found)) })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
