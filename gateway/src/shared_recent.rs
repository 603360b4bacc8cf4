//! A bounded memory of recent things that many threads share: tokens that were verified, messages that were admitted.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use retry::RecentMap;

/// Locks a memory is spread over, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Remembers at least the latest `capacity / 2` entries and at most `capacity`. A read renews an entry.
pub(crate) struct SharedRecent<K, V> {
    shards: Vec<Mutex<RecentMap<K, V>>>,
    hasher: RandomState,
}

impl<K: Hash + Eq, V: Clone> SharedRecent<K, V> {
    /// A memory of at most `capacity` entries (rounded up to a multiple of twice the number of shards).
    pub(crate) fn new(capacity: usize) -> Self {
        let shard = || Mutex::new(RecentMap::new(capacity.div_ceil(2 * SHARDS)));
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), hasher: RandomState::new() }
    }

    /// The value under a key, if it is still remembered.
    pub(crate) fn value(&self, key: &K) -> Option<V> {
        self.shard(key).renew(key).cloned()
    }

    /// Remembers a value, replacing the one under the key.
    pub(crate) fn put(&self, key: K, value: V) {
        self.shard(&key).insert(key, value);
    }

    /// Remembers a value unless the key has one; returns the one it has.
    pub(crate) fn put_if_absent(&self, key: K, value: V) -> Option<V> {
        let mut shard = self.shard(&key);
        let present = shard.value(&key).cloned();
        if present.is_none() {
            shard.insert(key, value);
        }
        present
    }

    /// Forgets a key.
    pub(crate) fn remove(&self, key: &K) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, RecentMap<K, V>> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let recent: SharedRecent<u32, u32> = SharedRecent::new(320);
        for n in 0..10_000 {
            recent.put(n, n);
        }
        let held: usize = recent.shards.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert!((160..=320).contains(&held), "{held}");
    }

    #[test]
    fn what_is_read_again_and_again_is_not_forgotten() {
        let recent: SharedRecent<u32, u32> = SharedRecent::new(320);
        recent.put(u32::MAX, 7);
        for n in 0..10_000 {
            recent.put(n, n);
            assert_eq!(recent.value(&u32::MAX), Some(7), "after {n}");
        }
    }

    #[test]
    fn the_first_value_under_a_key_stands() {
        let recent: SharedRecent<&str, u8> = SharedRecent::new(32);
        assert_eq!(recent.put_if_absent("a", 1), None);
        assert_eq!(recent.put_if_absent("a", 2), Some(1));
        recent.remove(&"a");
        assert_eq!(recent.put_if_absent("a", 2), None);
    }
}
