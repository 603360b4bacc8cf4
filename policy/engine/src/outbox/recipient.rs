//! The deliveries that wait for one agent, in the order they were made.

use std::collections::VecDeque;

use schemas::DeliveryId;

/// Ids in order. Removal from the middle is lazy: the outbox knows which ids still live.
#[derive(Debug, Default)]
pub(crate) struct Recipient {
    order: VecDeque<DeliveryId>,
    live: usize,
}

impl Recipient {
    /// Ids that may be stale before they are swept, beyond as many as live; keeps sweeping linear in what is added.
    const SLACK: usize = 16;

    pub(crate) fn push(&mut self, id: DeliveryId) {
        self.order.push_back(id);
        self.live += 1;
    }

    /// Notes that one id no longer lives; `lives` tells which still do. Returns whether any is left.
    pub(crate) fn note_gone(&mut self, lives: impl Fn(&DeliveryId) -> bool) -> bool {
        self.live = self.live.saturating_sub(1);
        while self.order.front().is_some_and(|id| !lives(id)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.live + Self::SLACK {
            self.order.retain(|id| lives(id));
        }
        self.live > 0
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// The ids, stale ones included.
    pub(crate) fn ids(&self) -> impl Iterator<Item = DeliveryId> + '_ {
        self.order.iter().copied()
    }
}
