//! A naive contract net: plain maps, every question answered by counting through everything, written from
//! spec/negotiation.md alone. It tells, for each record, every fact the book should have produced.
//!
//! Where the spec is silent it follows the contract in the docs of `Book::handle_record`: a timer is evaluated at its
//! deadline, what it arms counts from the record's time, and the k-th timer of a record stands at `u32::MAX - k`.

#[path = "reference/awarding.rs"]
mod awarding;
#[path = "reference/collecting.rs"]
mod collecting;
#[path = "reference/ending.rs"]
mod ending;
#[path = "reference/hearing.rs"]
mod hearing;
#[path = "reference/judging.rs"]
mod judging;
#[path = "reference/negotiation.rs"]
mod negotiation;
#[path = "reference/opening.rs"]
mod opening;

use std::collections::BTreeMap;

use policy_core::{Deliver, Effect, Limits};
use schemas::delivery::{Disposition, Receipt, Told};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Record};
use schemas::{Act, AgentId, DeliveryId, Digest, MsgId, NegotiationId, Position, Timestamp};

use crate::documents::msg_id;
use crate::fact;
use negotiation::{Negotiation, Timer};

/// Where each contractor last won.
type Wins = BTreeMap<AgentId, Position>;

/// The instant and place of one input.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// What it is evaluated at.
    now: Timestamp,
    /// The record's time.
    clock: Timestamp,
    position: Position,
}

/// The naive lane.
pub(crate) struct Reference {
    limits: Limits,
    now: Timestamp,
    epoch: u64,
    /// In the order in which the book fires timers that are due together: by the hash of the id.
    negotiations: BTreeMap<[u8; 16], Negotiation>,
    wins: Wins,
    /// The calls and ACCEPTs the book delivered: their failure is logged by delivery id.
    deliveries: BTreeMap<DeliveryId, Deliver>,
}

impl Reference {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            now: Timestamp(0),
            epoch: 0,
            negotiations: BTreeMap::new(),
            wins: BTreeMap::new(),
            deliveries: BTreeMap::new(),
        }
    }

    /// The facts of one record, sorted.
    pub(crate) fn fold(&mut self, seq: u64, time: Timestamp, record: &Record) -> Vec<String> {
        self.now = self.now.max(time);
        let mut facts = Vec::new();
        self.fire_timers(seq, &mut facts);
        let now = self.now;
        let grace_ms = self.limits.tombstone_grace_ms;
        self.negotiations.retain(|_, one| one.outcome.is_none() || one.ends_by.plus_ms(grace_ms) >= now);
        for (index, entry) in (0..).zip(&record.entries) {
            let moment = Moment { now, clock: now, position: Position { seq, index } };
            self.take(entry, moment, &mut facts);
        }
        facts.sort();
        facts
    }

    /// Learns the ids of the book's deliveries.
    pub(crate) fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Deliver(deliver) = effect
                && matches!(*deliver.told, Told::Cfp(_) | Told::Accept(_))
            {
                self.deliveries.insert(deliver.id, deliver.clone());
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.next_timer().map(|(at, _, _)| at)
    }

    /// Negotiations that are open, and that have ended but are still recognised.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let open = self.negotiations.values().filter(|one| one.outcome.is_none()).count();
        (open, self.negotiations.len() - open)
    }

    fn next_timer(&self) -> Option<(Timestamp, Timer, [u8; 16])> {
        let timers = self
            .negotiations
            .iter()
            .flat_map(|(key, one)| one.timers().into_iter().map(|(at, timer)| (at, timer, *key)));
        timers.min()
    }

    fn fire_timers(&mut self, seq: u64, facts: &mut Vec<String>) {
        let mut index = u32::MAX;
        while let Some((at, timer, key)) = self.next_timer().filter(|(at, _, _)| *at < self.now) {
            let moment = Moment { now: at, clock: self.now, position: Position { seq, index } };
            let one = self.negotiations.get_mut(&key).expect("it has a timer");
            one.fire(timer, moment, &mut self.wins);
            facts.append(&mut one.facts);
            index -= 1;
        }
    }

    fn take(&mut self, entry: &Entry, moment: Moment, facts: &mut Vec<String>) {
        match entry {
            Entry::Message(message) => self.hear(message, moment, facts),
            Entry::Tick => {}
            Entry::Engine { epoch, event } => self.take_engine_event(*epoch, event, moment, facts),
        }
    }

    fn take_engine_event(&mut self, epoch: u64, event: &EngineEvent, moment: Moment, facts: &mut Vec<String>) {
        if let EngineEvent::Claim { .. } = event {
            self.epoch = self.epoch.max(epoch);
        }
        if epoch < self.epoch {
            return;
        }
        let negotiation = match event {
            EngineEvent::DeliveryFailed { negotiation, .. } | EngineEvent::Abort { negotiation, .. } => negotiation,
            EngineEvent::Claim { .. } | EngineEvent::Delivered { .. } | EngineEvent::Rules { .. } => return,
        };
        let Some(one) = self.negotiations.get_mut(&key(negotiation)).filter(|one| one.outcome.is_none()) else {
            return;
        };
        match event {
            EngineEvent::DeliveryFailed { id, .. } => {
                if let Some(deliver) = self.deliveries.get(id) {
                    one.delivery_failed(deliver, moment, &mut self.wins);
                }
            }
            EngineEvent::Abort { .. } => one.abort(moment),
            EngineEvent::Claim { .. } | EngineEvent::Delivered { .. } | EngineEvent::Rules { .. } => {}
        }
        facts.append(&mut one.facts);
    }

    fn hear(&mut self, message: &AdmittedMessage, moment: Moment, facts: &mut Vec<String>) {
        let stranger = |msg_id: MsgId, disposition| {
            let receipt = Receipt {
                ack_of: msg_id,
                disposition,
                first: None,
                offer_id: None,
                invited: None,
                left_out: None,
                award_no: None,
            };
            fact::ack(&message.negotiation, &message.from, &receipt)
        };
        let Ok(decoded) = message.message() else {
            facts.push(stranger(msg_id(message), Disposition::Malformed));
            return;
        };
        let msg_id = decoded.envelope.msg_id.clone();
        let key = key(&message.negotiation);
        match self.negotiations.get_mut(&key) {
            Some(one) if one.is_party(&message.from) => {
                one.hear(&message.from, message.digest, decoded, moment, &mut self.wins, &self.limits);
                facts.append(&mut one.facts);
            }
            None if is_own_call(message) => match Negotiation::open(message, &decoded, moment) {
                Ok(mut one) => {
                    facts.append(&mut one.facts);
                    self.negotiations.insert(key, one);
                }
                Err(reason) => {
                    facts.push(stranger(msg_id, Disposition::Malformed));
                    facts.push(fact::not_understood(&message.negotiation, &message.from, reason));
                }
            },
            Some(_) | None => facts.push(stranger(msg_id, Disposition::Unauthorized)),
        }
    }
}

fn key(negotiation: &NegotiationId) -> [u8; 16] {
    Digest::of_bytes(negotiation.as_str().as_bytes()).short()
}

/// Only its initiator can open a negotiation: its name is part of the id.
fn is_own_call(message: &AdmittedMessage) -> bool {
    message.act == Act::Cfp && message.negotiation.initiator() == message.from.as_str()
}
