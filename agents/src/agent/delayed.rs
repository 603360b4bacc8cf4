//! Messages that wait for their delay.

use std::collections::BTreeMap;

use ahash::{HashMap, HashMapExt as _};
use schemas::{NegotiationId, Timestamp};

use crate::session::Origin;
use crate::strategy::Outgoing;

/// A message that waits, and where in a trace it will be sent.
#[derive(Debug)]
pub(crate) struct DelayedMessage {
    pub(crate) outgoing: Box<Outgoing>,
    pub(crate) origin: Option<Origin>,
}

/// Bounded, in the order they are due; equal times keep the order they were given in.
#[derive(Debug)]
pub(crate) struct DelayedMessages {
    planned_by_due: BTreeMap<Due, DelayedMessage>,
    dues_by_negotiation: HashMap<NegotiationId, Vec<Due>>,
    next_order: u64,
    len_max: usize,
}

type Due = (Timestamp, u64);

impl DelayedMessages {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { planned_by_due: BTreeMap::new(), dues_by_negotiation: HashMap::new(), next_order: 0, len_max }
    }

    /// Keeps a message until `at`, or gives it back when there is no room.
    pub(crate) fn insert(&mut self, at: Timestamp, planned: DelayedMessage) -> Result<(), DelayedMessage> {
        if self.planned_by_due.len() >= self.len_max {
            return Err(planned);
        }
        let due = (at, self.next_order);
        self.next_order += 1;
        self.dues_by_negotiation.entry(planned.outgoing.negotiation.clone()).or_default().push(due);
        self.planned_by_due.insert(due, planned);
        Ok(())
    }

    pub(crate) fn poll_due(&self) -> Option<Timestamp> {
        self.planned_by_due.first_key_value().map(|(&(at, _), _)| at)
    }

    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<DelayedMessage> {
        let entry = self.planned_by_due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (due, planned) = entry.remove_entry();
        let negotiation = &planned.outgoing.negotiation;
        if let Some(dues) = self.dues_by_negotiation.get_mut(negotiation) {
            dues.retain(|&other| other != due);
            if dues.is_empty() {
                self.dues_by_negotiation.remove(negotiation);
            }
        }
        Some(planned)
    }

    pub(crate) fn drop_negotiation(&mut self, negotiation: &NegotiationId) {
        for due in self.dues_by_negotiation.remove(negotiation).unwrap_or_default() {
            self.planned_by_due.remove(&due);
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::Payload;
    use schemas::payload::Reasoned;

    use super::*;

    #[test]
    fn messages_come_out_when_due_unless_their_negotiation_was_dropped() {
        let mut schedule = DelayedMessages::new(4);
        for (at, own) in [(30, "a"), (10, "b"), (20, "a"), (10, "c")] {
            schedule.insert(Timestamp(at), planned(own)).unwrap();
        }
        assert!(schedule.insert(Timestamp(1), planned("full")).is_err());
        assert_eq!(schedule.poll_due(), Some(Timestamp(10)));
        assert!(schedule.pop_due(Timestamp(9)).is_none());
        assert_eq!(due(&mut schedule, 15), ["x~b", "x~c"]);
        schedule.drop_negotiation(&negotiation("a"));
        assert_eq!(schedule.poll_due(), None);
        assert!(schedule.dues_by_negotiation.is_empty());
    }

    fn due(schedule: &mut DelayedMessages, now: u64) -> Vec<String> {
        std::iter::from_fn(|| schedule.pop_due(Timestamp(now)))
            .map(|due| due.outgoing.negotiation.to_string())
            .collect()
    }

    fn planned(own: &str) -> DelayedMessage {
        let outgoing = Outgoing::new(negotiation(own), Payload::Refuse(Reasoned::default()));
        DelayedMessage { outgoing: Box::new(outgoing), origin: None }
    }

    fn negotiation(own: &str) -> NegotiationId {
        NegotiationId::try_new(&format!("x~{own}")).unwrap()
    }
}
