//! Which negotiations have been: of those whose tombstones are gone, the key is kept, so that a call which arrives late
//! cannot open one again. A negotiation has one end.

use std::collections::{BTreeSet, VecDeque};

use super::table::Key;

/// Keys kept; the oldest goes first. At some 40 bytes each they take 40 MiB of a lane, and at 250 negotiations a second
/// last for more than an hour after their tombstones: no retry of a call takes that long.
const EXPIRED_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ExpiredIds {
    keys: BTreeSet<Key>,
    /// The same, oldest first.
    order: VecDeque<Key>,
}

impl ExpiredIds {
    pub(super) fn add(&mut self, key: Key) {
        if self.keys.insert(key) {
            self.order.push_back(key);
        }
        if self.order.len() > EXPIRED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.keys.contains(&key)
    }

    /// Oldest first.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = Key> + '_ {
        self.order.iter().copied()
    }
}
