//! Acknowledgements acks by an engine that stands by: the owner will log them, unless it ends before it can.

use std::collections::BTreeMap;

use schemas::{AgentId, DeliveryId};

/// Acknowledgements in one of two generations; when the younger is full, the older is forgotten. An owner logs within a
/// second what it acks, so this covers a busy lane; what is forgotten is only sent once more than it need be.
const GENERATION_MAX: usize = 32_768;

/// See the module. Bounded by two generations.
#[derive(Debug, Default)]
pub(crate) struct AckCache {
    young: BTreeMap<DeliveryId, Ack>,
    old: BTreeMap<DeliveryId, Ack>,
}

/// What an acknowledgement did.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ack {
    /// Came from this agent before the delivery was folded. May be anybody's invention until then.
    Early(AgentId),
    /// Settled a delivery, and is not in the log yet.
    Settling,
}

impl AckCache {
    /// An acknowledgement of a delivery that is not, or not yet, known.
    pub(crate) fn note_early(&mut self, id: DeliveryId, from: &AgentId) {
        if self.find(id) != Some(&Ack::Settling) {
            self.note(id, Ack::Early(from.clone()));
        }
    }

    /// An acknowledgement that settled a delivery.
    pub(crate) fn note_settling(&mut self, id: DeliveryId) {
        self.note(id, Ack::Settling);
    }

    /// A delivery turns up: whether its recipient has acknowledged it already.
    pub(crate) fn settles(&mut self, id: DeliveryId, to: &AgentId) -> bool {
        let is_acked = self.find(id).is_some_and(|ack| matches!(ack, Ack::Early(from) if from == to));
        if is_acked {
            self.note_settling(id);
        }
        is_acked
    }

    /// The log says that the delivery is acknowledged.
    pub(crate) fn forget(&mut self, id: DeliveryId) {
        self.young.remove(&id);
        self.old.remove(&id);
    }

    /// Everything that settled a delivery and is not in the log, in the order of the ids.
    pub(crate) fn take_settling(&mut self) -> Vec<DeliveryId> {
        let mut all = std::mem::take(&mut self.old);
        all.append(&mut self.young);
        all.into_iter().filter(|(_, ack)| *ack == Ack::Settling).map(|(id, _)| id).collect()
    }

    fn find(&self, id: DeliveryId) -> Option<&Ack> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }

    fn note(&mut self, id: DeliveryId, ack: Ack) {
        self.old.remove(&id);
        if self.young.len() >= GENERATION_MAX && !self.young.contains_key(&id) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, ack);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::id;
    use super::*;

    #[test]
    fn an_early_acknowledgement_settles_only_for_its_own_recipient() {
        let mut acks = AckCache::default();
        acks.note_early(id(1), &agent("mallory"));
        assert!(!acks.settles(id(1), &agent("bob")));
        acks.note_early(id(1), &agent("bob"));
        assert!(acks.settles(id(1), &agent("bob")));
        acks.note_early(id(1), &agent("mallory"));
        assert_eq!(acks.take_settling(), [id(1)], "what settled stays so");
    }

    #[test]
    fn only_what_settled_a_delivery_and_is_not_logged_is_handed_on() {
        let mut acks = AckCache::default();
        [3, 1, 2].into_iter().for_each(|number| acks.note_settling(id(number)));
        acks.note_early(id(4), &agent("bob"));
        acks.forget(id(2));
        assert_eq!(acks.take_settling(), [id(1), id(3)]);
        assert!(acks.take_settling().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
        let mut acks = AckCache::default();
        let total = 5 * GENERATION_MAX;
        (0..total).for_each(|number| acks.note_settling(id(number as u128)));
        assert!(acks.young.len() + acks.old.len() <= 2 * GENERATION_MAX);
        let kept = acks.take_settling();
        assert!(kept.len() > GENERATION_MAX);
        assert_eq!(kept.last(), Some(&id(total as u128 - 1)));
        assert!(kept.first() > Some(&id(GENERATION_MAX as u128)));
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }
}
