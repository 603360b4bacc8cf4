//! What waits while another engine owns the lane, and what is not settled when a checkpoint is made.

use policy_core::Deliver;
use schemas::record::Qos;
use schemas::{AgentId, DeliveryId, RegisterKey};

use super::{Ack, DeliveryState, Outbox, UnreachableAgents};
use crate::lane::{DeliveryStep, Gate};

impl Outbox {
    /// Lets go everything that is held back, in the order it was made, as far as the gates allow.
    pub(crate) fn release_held(&mut self, gate: impl Fn(Option<&RegisterKey>) -> Gate) {
        for id in self.held() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.may_have_left = true;
            let gate = gate(entry.deliver.after.as_ref());
            self.release(id, gate);
        }
    }

    /// The deliveries that are neither acknowledged nor given up for good, in the order they were made: for a
    /// checkpoint. [`Outbox::hold`] takes them back in. What is sent only once and is on its way is not among them.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Deliver> {
        let is_kept = |state: DeliveryState, qos: Qos| state == DeliveryState::Held || qos == Qos::AtLeastOnce;
        let mut entries: Vec<_> =
            self.entries.values().filter(|entry| is_kept(entry.state, entry.deliver.qos)).collect();
        entries.sort_unstable_by_key(|entry| entry.made);
        entries.into_iter().map(|entry| &entry.deliver)
    }

    /// An acknowledgement while the lane is not owned: the owner counts and logs it. One that comes before its delivery is
    /// folded is remembered for a while.
    pub(crate) fn handle_ack_heard(&mut self, agent: &AgentId, id: DeliveryId) {
        match self.entries.get(&id) {
            Some(entry) if entry.deliver.to == *agent => {
                self.settle(id);
                self.acks.insert(id, Ack::Settling);
            }
            Some(_) => {}
            None => self.remember_early(agent, id),
        }
    }

    /// Remembers for a while who acknowledged a delivery that is not known here: its record may be on the way. An owner hears
    /// such a one where another engine folds ahead of it, an owner that was replaced and has not read so above all.
    pub(crate) fn remember_early(&mut self, agent: &AgentId, id: DeliveryId) {
        if !self.entries.contains_key(&id) && self.acks.value(&id) != Some(&Ack::Settling) {
            self.acks.insert(id, Ack::Early(agent.clone()));
        }
    }

    /// The lane is owned from now on: what was acknowledged meanwhile and the log does not know yet, in the order of the
    /// ids. Whoever owned the lane before may have ended before it could log it.
    pub(crate) fn take_heard(&mut self) -> Vec<DeliveryId> {
        let mut settling: Vec<_> =
            self.acks.drain().filter(|(_, ack)| *ack == Ack::Settling).map(|(id, _)| id).collect();
        settling.sort_unstable();
        settling
    }

    /// The lane has another owner: everything not settled is held back again, as on the start. Attempts are kept, so
    /// that a lane that comes back does not begin to count anew. A failure that is not in the log is forgotten, and what
    /// is sent only once is left to the owner.
    pub(crate) fn demote(&mut self) {
        self.gated.clear();
        self.schedule.clear();
        self.queue.clear();
        self.opened.clear();
        self.greeted.clear();
        self.given_up.clear();
        self.events.retain(|event| matches!(event.step, DeliveryStep::GivenUp(_)));
        self.failed = 0;
        self.unreachable = UnreachableAgents::default();
        for recipient in self.recipients.values_mut() {
            recipient.under_way = 0;
            recipient.is_silent = false;
            recipient.waiting.clear();
        }
        for entry in self.entries.values_mut() {
            entry.state = DeliveryState::Held;
            entry.is_under_way = false;
            entry.due = None;
            // The message it was cut from is many times its size.
            entry.document = None;
        }
        let once = self.entries.iter().filter(|(_, entry)| entry.deliver.qos == Qos::BestEffort).map(|(id, _)| *id);
        for id in once.collect::<Vec<_>>() {
            self.settle(id);
        }
    }
}
