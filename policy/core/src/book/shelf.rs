//! Where negotiations are put back after an input: open with their next timer, or as tombstones, until those are dropped.

use schemas::Digest;

use super::{Book, Key, Open, weight};
use crate::tombstone::Tombstone;

impl Book {
    /// Puts a negotiation back after an input: open with its next timer, or as a tombstone.
    pub(super) fn keep(&mut self, key: Key, mut open: Box<Open>, chain_before: Digest) {
        self.chains = self.chains.wrapping_sub(weight(chain_before)).wrapping_add(weight(open.negotiation.chain));
        let next = open.negotiation.next_timer();
        if open.armed != next {
            if let Some((deadline, kind)) = open.armed {
                self.timers.remove(&(deadline, kind, key));
            }
            if let Some((deadline, kind)) = next {
                self.timers.insert((deadline, kind, key));
            }
            open.armed = next;
        }
        if open.negotiation.outcome.is_none() {
            self.negotiations_by_key.insert(key, open);
            return;
        }
        self.policies.release(open.negotiation.pinned.digest);
        let tombstone = Tombstone::of(&open.negotiation, &self.limits);
        self.burials.insert((tombstone.forget_at, key));
        self.tombstones_by_key.insert(key, Box::new(tombstone));
        if self.tombstones_by_key.len() > self.limits.tombstones_max {
            self.bury_first();
        }
    }

    pub(super) fn bury_forgotten(&mut self) {
        while self.burials.first().is_some_and(|(forget_at, _)| *forget_at < self.now) {
            self.bury_first();
        }
    }

    fn bury_first(&mut self) {
        if let Some((_, key)) = self.burials.pop_first()
            && let Some(tombstone) = self.tombstones_by_key.remove(&key)
        {
            self.chains = self.chains.wrapping_sub(weight(tombstone.chain));
        }
    }
}
