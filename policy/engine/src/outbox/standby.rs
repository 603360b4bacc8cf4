//! What the outbox does while another engine owns the lane: it holds what the owner sends, hears the acknowledgements,
//! and hands everything on that a successor, or a checkpoint, needs.

use policy_core::Deliver;
use schemas::record::Qos;
use schemas::{AgentId, DeliveryId};

use super::Outbox;
use super::entry::DeliveryState;

impl Outbox {
    /// The deliveries that are neither acknowledged nor given up for good, in the order they were made: for a
    /// checkpoint. [`Outbox::hold`] takes them back in. What is sent only once and is on its way is not among them.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Deliver> {
        let is_kept = |state: DeliveryState, qos: Qos| state == DeliveryState::Held || qos == Qos::AtLeastOnce;
        let mut entries: Vec<_> =
            self.entries.values().filter(|entry| is_kept(entry.state, entry.deliver.qos)).collect();
        entries.sort_unstable_by_key(|entry| entry.made);
        entries.into_iter().map(|entry| &entry.deliver)
    }

    /// An acknowledgement, acks while the lane is not owned: the owner counts and logs it. One that comes before its
    /// delivery is folded is remembered for a while.
    pub(crate) fn handle_ack_heard(&mut self, agent: &AgentId, id: DeliveryId) {
        match self.entries.get(&id) {
            Some(entry) if entry.deliver.to == *agent => {
                self.settle(id);
                self.acks.note_settling(id);
            }
            Some(_) => {}
            None => self.acks.note_early(id, agent),
        }
    }

    /// The lane is owned from now on: what was acknowledged meanwhile and the log does not know yet. Whoever owned the
    /// lane before may have ended before it could log it.
    pub(crate) fn take_heard(&mut self) -> Vec<DeliveryId> {
        self.acks.take_settling()
    }

    /// The lane has another owner: everything not settled is held back again, as on the start. Attempts are kept, so
    /// that a lane that comes back does not begin to count anew. A failure that is not in the log is forgotten, and what
    /// is sent only once is left to the owner.
    pub(crate) fn demote(&mut self) {
        self.gated.clear();
        self.schedule.clear();
        self.queue.clear();
        self.given_up.clear();
        self.take_events();
        self.failed = 0;
        self.unreachable = super::UnreachableAgents::default();
        for entry in self.entries.values_mut() {
            entry.state = DeliveryState::Held;
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
