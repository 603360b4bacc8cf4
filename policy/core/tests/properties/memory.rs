//! What has been said and delivered in a case so far, and how moves become log entries by it.

use std::sync::Arc;

use policy_core::lane::RULES_VERSION;
use policy_core::{Deliver, Effect, Limits};
use schemas::delivery::Notification;
use schemas::record::{AdmittedMessage, EngineEvent, Entry};
use schemas::{Act, AgentId, NegotiationId, Timestamp};
use serde_json::{Value, json};

use crate::case::{ActPlan, Action, Case, Move, SeqPlan};
use crate::documents::{Draft, admitted, document, pinned};
use crate::known::Known;

/// The lane as it is before a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation {
    pub(crate) now: Timestamp,
    /// The next one.
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) epoch: u64,
}

/// See the module.
pub(crate) struct Memory<'a> {
    negotiations: Vec<Known<'a>>,
    messages: Vec<AdmittedMessage>,
    /// Calls and ACCEPTs: deliveries whose failure matters.
    deliveries: Vec<Deliver>,
    grace_ms: u64,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(case: &'a Case, limits: &Limits) -> Self {
        let negotiations = case.plans.iter().enumerate().map(|(number, plan)| Known::new(number, plan)).collect();
        Self { negotiations, messages: Vec::new(), deliveries: Vec::new(), grace_ms: limits.tombstone_grace_ms }
    }

    /// The call of a plan; absent once it would open a second negotiation under the same id.
    pub(crate) fn call(&mut self, number: usize, situation: Situation) -> Option<Entry> {
        let known = &self.negotiations[number];
        if known.is_forgotten(situation.now) {
            return None;
        }
        let initiator = known.initiator.clone();
        Some(self.say(number, &initiator, &ActPlan::Cfp, SeqPlan::Habit, situation))
    }

    /// The entry a move makes, if there is anything to make it of.
    pub(crate) fn resolve(&mut self, one: &Move, situation: Situation) -> Option<Entry> {
        let number = one.negotiation % self.negotiations.len();
        match &one.action {
            Action::Sensible(who, offer) => {
                let from = self.negotiations[number].agent(*who)?;
                let act = self.negotiations[number].sensible(&from, offer)?;
                Some(self.say(number, &from, &act, SeqPlan::Habit, situation))
            }
            Action::Say(who, act, seq) => {
                let from = self.negotiations[number].agent(*who)?;
                if matches!(act, ActPlan::Cfp) && from == self.negotiations[number].initiator {
                    return self.call(number, situation);
                }
                Some(self.say(number, &from, act, *seq, situation))
            }
            Action::Nowhere(who) => Some(nowhere(&self.negotiations[number].agent(*who)?)),
            Action::Repeat(which) => self.again(*which, situation.now, |_| {}),
            Action::Conflict(which) => {
                self.again(*which, situation.now, |body| body["payload"]["reason"] = json!("other"))
            }
            Action::Garble(which) => self.again(*which, situation.now, |body| body["payload"] = json!("garbled")),
            Action::Undelivered(..) | Action::Claim(_) | Action::Abort(_) | Action::Delivered | Action::Rules(_) => {
                let (delta, event) = self.engine_event(number, &one.action)?;
                Some(Entry::Engine { epoch: situation.epoch.checked_add_signed(i64::from(delta))?, event })
            }
            Action::Tick => Some(Entry::Tick),
        }
    }

    /// The next instant after which some negotiation is forgotten.
    pub(crate) fn next_forgotten(&self, now: Timestamp) -> Option<Timestamp> {
        self.negotiations.iter().filter_map(|known| known.recognised_until).filter(|until| *until >= now).min()
    }

    /// Learns what was delivered.
    pub(crate) fn remember(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Deliver(deliver) = effect else { continue };
            if matches!(*deliver.told, Notification::Cfp(_) | Notification::Accept(_)) {
                self.deliveries.push(deliver.clone());
            }
            if let Some(known) = self.negotiations.iter_mut().find(|known| known.id == deliver.negotiation) {
                known.remember(deliver, self.grace_ms);
            }
        }
    }

    fn say(&mut self, number: usize, from: &AgentId, act: &ActPlan, seq: SeqPlan, situation: Situation) -> Entry {
        let known = &mut self.negotiations[number];
        let (act, payload) = known.payload(act, from, situation);
        let (msg_id, seq) = known.number_message(from, seq);
        let envelope = if act == Act::Cfp { known.call_envelope() } else { json!({}) };
        let draft = Draft { from, negotiation: &known.id, msg_id: &msg_id, seq, act, payload, envelope };
        let mut message = draft.admit();
        if act == Act::Cfp {
            message.pinned = Some(Arc::new(pinned(&known.plan.policy, &known.contractors)));
        }
        self.messages.push(message.clone());
        Entry::Message(message)
    }

    /// An earlier message again, perhaps changed.
    fn again(&self, which: usize, now: Timestamp, change: impl FnOnce(&mut Value)) -> Option<Entry> {
        let earlier = self.messages.get(which % self.messages.len().max(1))?;
        let known = self.negotiations.iter().find(|known| known.id == earlier.negotiation)?;
        if earlier.act == Act::Cfp && (!known.is_open() || known.is_forgotten(now)) {
            return None;
        }
        let mut body = document(earlier);
        change(&mut body);
        let again = admitted(&earlier.from, &earlier.negotiation, earlier.act, &body);
        Some(Entry::Message(AdmittedMessage { pinned: earlier.pinned.clone(), ..again }))
    }

    /// What an engine appends, and by how much its epoch differs from the lane's.
    fn engine_event(&self, number: usize, action: &Action) -> Option<(i8, EngineEvent)> {
        match action {
            Action::Undelivered(which, delta) => {
                let index = self.deliveries.len().checked_sub(1 + which)?;
                let Deliver { id, negotiation, to, attempts_max, .. } = self.deliveries[index].clone();
                let may_answer = attempts_max.is_some();
                Some((*delta, EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 3, may_answer }))
            }
            Action::Abort(delta) => {
                let negotiation = self.negotiations[number].id.clone();
                Some((*delta, EngineEvent::Abort { negotiation, code: "internal".to_owned() }))
            }
            Action::Claim(delta) => Some((*delta, EngineEvent::Claim { engine: "engine-1".to_owned() })),
            Action::Rules(delta) => Some((*delta, EngineEvent::Rules { version: RULES_VERSION })),
            Action::Delivered => Some((
                0,
                EngineEvent::Delivered { ids: self.deliveries.iter().map(|one| one.id).collect(), registered: 0 },
            )),
            Action::Sensible(..)
            | Action::Say(..)
            | Action::Repeat(_)
            | Action::Conflict(_)
            | Action::Garble(_)
            | Action::Nowhere(_)
            | Action::Tick => None,
        }
    }
}

/// A message in a negotiation that does not exist.
fn nowhere(from: &AgentId) -> Entry {
    let negotiation = NegotiationId::try_new("nobody~nothing").expect("an id");
    let (payload, envelope) = (json!({}), json!({}));
    let (msg_id, seq, act) = ("m0", None, Act::Refuse);
    Entry::Message(Draft { from, negotiation: &negotiation, msg_id, seq, act, payload, envelope }.admit())
}
