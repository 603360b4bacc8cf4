//! The running hash of what a lane has decided and told: a part of [`super::LaneState::digest`].
//!
//! What goes in is chosen so that two folds that come to differ in anything they tell or register differ here at the same
//! record: every delivery by its id (negotiation, position, ordinal and recipient) and the receipts it carries, every register write by its value (an
//! award's holds the digest of its decision, and so the ranking, the last wins, the policy and the payments), every turn of
//! a bargain with the offer that stands in it, every disposition and score. It belongs to the rules version: engines compare it, and the golden logs pin it.

use schemas::delivery::{Ask, Notification, Turn};
use schemas::digest::{FNV_START, fnv};
use schemas::team::Spoken;
use schemas::{Digest, RegisterValue};

use crate::effect::{Effect, Event};

/// The hash of nothing.
pub(super) const START: u64 = FNV_START;

/// Continues a hash with the effects of one input.
pub(super) fn extend<'a>(state_hash: u64, effects: impl Iterator<Item = &'a Effect>) -> u64 {
    let mut state_hash = StateHash(state_hash);
    effects.for_each(|effect| state_hash.note(effect));
    state_hash.0
}

/// FNV-1a, 64 bit.
struct StateHash(u64);

impl StateHash {
    fn note(&mut self, effect: &Effect) {
        match effect {
            Effect::Deliver(deliver) => {
                self.bytes(&[1, deliver.told.act() as u8]);
                self.bytes(&deliver.id.to_bytes());
                for receipt in &deliver.receipts {
                    self.bytes(&[8]);
                    self.bytes(receipt.ack_of.as_str().as_bytes());
                }
                self.note_content(&deliver.told);
            }
            Effect::Register(write) => self.note_value(&write.value),
            Effect::Notice(_) => self.bytes(&[3]),
            Effect::Event(event) => self.note_event(event),
        }
    }

    /// What a turn or an ask says, and whether a say is told by reference, does not show in the id of its delivery.
    fn note_content(&mut self, told: &Notification) {
        if let Notification::Turn(turn) = told {
            self.note_turn(turn);
        } else if let Notification::Ask(ask) = told {
            self.note_ask(ask);
        } else if let Notification::Floor(floor) = told
            && let Some(Spoken::Repeats { repeats }) = &floor.said
        {
            self.bytes(&repeats.to_be_bytes());
        }
    }

    /// Lengths stand for texts: those are in the hash chain already.
    fn note_ask(&mut self, ask: &Ask) {
        self.bytes(&ask.round.to_be_bytes());
        self.bytes(&ask.answer_by.0.0.to_be_bytes());
        for shown in ask.own.iter().chain(ask.peers.iter().flatten()) {
            let length = shown.answer.as_ref().map_or(u64::MAX, |answer| answer.len() as u64);
            self.bytes(&length.to_be_bytes());
        }
    }

    fn note_turn(&mut self, turn: &Turn) {
        self.bytes(&turn.step.to_be_bytes());
        self.bytes(&turn.t_ppm.to_be_bytes());
        self.bytes(&turn.act_by.0.0.to_be_bytes());
        if let Some(standing) = &turn.standing {
            self.bytes(&standing.terms_digest.short());
            self.bytes(&[u8::try_from(standing.accepted_by.len()).unwrap_or(u8::MAX)]);
        }
    }

    fn note_value(&mut self, value: &RegisterValue) {
        match value {
            RegisterValue::Award { decision, offer_id: _, chain } => self.note_entry(0, &decision.0, chain),
            RegisterValue::AwardEnd { end, chain } => self.note_entry(1, &[*end as u8], chain),
            RegisterValue::Closed { outcome, chain } => self.note_entry(2, &[*outcome as u8], chain),
            RegisterValue::Agreement { offer_id: _, terms_digest, chain } => {
                self.note_entry(3, &terms_digest.short(), chain);
            }
            RegisterValue::Formed { decision, chain } => self.note_entry(4, &decision.0, chain),
            RegisterValue::Finding { decision, chain } => self.note_entry(5, &decision.0, chain),
        }
    }

    fn note_entry(&mut self, kind: u8, about: &[u8], chain: &Digest) {
        self.bytes(&[2, kind]);
        self.bytes(about);
        self.bytes(&chain.short());
    }

    fn note_event(&mut self, event: &Event) {
        match event {
            Event::Disposed { disposition, score, .. } => {
                self.bytes(&[4, *disposition as u8]);
                self.bytes(&score.unwrap_or(u32::MAX).to_be_bytes());
            }
            Event::Transition { to, .. } => self.bytes(&[5, *to as u8]),
            Event::Ended { outcome, .. } => self.bytes(&[6, *outcome as u8]),
            // What is counted only.
            Event::TurnTaken { .. } | Event::TaskEnded { .. } => {}
            Event::Started { .. }
            | Event::Closed { .. }
            | Event::Decided(_)
            | Event::Asked { .. }
            | Event::Found(_)
            | Event::Excluded { .. }
            | Event::Committed { .. }
            | Event::AwardLost { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => self.bytes(&[7]),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 = fnv(self.0, bytes);
    }
}
