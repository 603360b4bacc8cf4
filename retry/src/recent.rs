//! What came lately.

use std::hash::Hash;

use ahash::{HashMap, HashMapExt as _, RandomState};
use parking_lot::{Mutex, MutexGuard};

/// Remembers the latest keys in bounded memory: two generations, of which the old one is forgotten when the young one is
/// full and takes its place. At least the last `generation_max` keys are remembered, never more than twice as many. Every
/// operation takes constant time.
#[derive(Debug, Clone)]
pub struct RecentMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    generation_max: usize,
}

impl<K: Eq + Hash, V> RecentMap<K, V> {
    /// An empty map that remembers at least `generation_max` keys.
    #[must_use]
    pub fn new(generation_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation_max: generation_max.max(1) }
    }

    /// Whether a key is remembered.
    #[must_use]
    pub fn contains(&self, key: &K) -> bool {
        self.value(key).is_some()
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// The value of a key, which counts as new from now on.
    pub fn renew(&mut self, key: &K) -> Option<&V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.insert(key, value);
        }
        self.young.get(key)
    }

    /// Remembers a value in the place of the one the key has.
    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.generation_max && !self.young.contains_key(&key) {
            std::mem::swap(&mut self.old, &mut self.young);
            // It keeps its room: what fills again and again asks for no more memory than it had.
            self.young.clear();
        }
        self.young.insert(key, value);
        debug_assert!(self.young.len() <= self.generation_max && self.old.len() <= self.generation_max);
    }

    /// Forgets a key, and returns the value it had.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Forgets everything, and returns it in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, V)> {
        self.old.drain().chain(self.young.drain())
    }

    /// How many keys are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }
}

/// Locks a shared map is spread over, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// A [`RecentMap`] that many threads share. A read renews an entry.
#[derive(Debug)]
pub struct SharedRecentMap<K, V> {
    shards: Vec<Mutex<RecentMap<K, V>>>,
    /// Spreads the keys over the locks.
    hasher: RandomState,
}

impl<K: Eq + Hash, V: Clone> SharedRecentMap<K, V> {
    /// An empty map of at most `capacity` entries (rounded up to a multiple of twice the number of its locks), which remembers
    /// at least the latest half of them.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let shard = || Mutex::new(RecentMap::new(capacity.div_ceil(2 * SHARDS)));
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), hasher: RandomState::new() }
    }

    /// The value of a key, which counts as new from now on.
    pub fn renew(&self, key: &K) -> Option<V> {
        self.shard(key).renew(key).cloned()
    }

    /// Remembers a value in the place of the one the key has.
    pub fn insert(&self, key: K, value: V) {
        self.shard(&key).insert(key, value);
    }

    /// Remembers a value unless the key has one; returns the one it has.
    pub fn insert_if_absent(&self, key: K, value: V) -> Option<V> {
        let mut shard = self.shard(&key);
        let present = shard.value(&key).cloned();
        if present.is_none() {
            shard.insert(key, value);
        }
        present
    }

    /// Forgets a key.
    pub fn remove(&self, key: &K) {
        self.shard(key).remove(key);
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, RecentMap<K, V>> {
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.shards[index].lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_keys_are_remembered_and_memory_is_bounded() {
        let mut recent = RecentMap::new(100);
        for key in 0..10_000_u32 {
            recent.insert(key, key);
            assert!(recent.len() <= 200);
            for back in 0..100.min(key) {
                assert!(recent.contains(&(key - back)), "{key} - {back}");
            }
        }
        assert!(!recent.contains(&9_700));
        assert_eq!(recent.value(&9_999), Some(&9_999));
        assert_eq!(recent.remove(&9_999), Some(9_999));
        assert!(!recent.contains(&9_999));
    }

    #[test]
    fn what_is_renewed_again_and_again_is_not_forgotten() {
        let mut recent = RecentMap::new(10);
        recent.insert(u32::MAX, 7);
        for key in 0..10_000 {
            recent.insert(key, key);
            assert_eq!(recent.renew(&u32::MAX), Some(&7), "after {key}");
        }
    }

    #[test]
    fn a_key_has_one_value_whichever_generation_it_is_in() {
        let mut recent = RecentMap::new(2);
        for key in ["a", "b", "c"] {
            recent.insert(key, 1);
        }
        recent.insert("a", 2);
        assert_eq!((recent.value(&"a"), recent.len()), (Some(&2), 3));
        let mut all: Vec<_> = recent.drain().collect();
        all.sort_unstable();
        assert_eq!((all, recent.is_empty()), (vec![("a", 2), ("b", 1), ("c", 1)], true));
    }

    #[test]
    fn a_shared_map_never_holds_more_than_its_capacity() {
        let recent: SharedRecentMap<u32, u32> = SharedRecentMap::new(320);
        for n in 0..10_000 {
            recent.insert(n, n);
        }
        let held: usize = recent.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!((160..=320).contains(&held), "{held}");
    }

    #[test]
    fn what_is_read_again_and_again_in_a_shared_map_is_not_forgotten() {
        let recent: SharedRecentMap<u32, u32> = SharedRecentMap::new(320);
        recent.insert(u32::MAX, 7);
        for n in 0..10_000 {
            recent.insert(n, n);
            assert_eq!(recent.renew(&u32::MAX), Some(7), "after {n}");
        }
    }

    #[test]
    fn the_first_value_under_a_key_of_a_shared_map_stands() {
        let recent: SharedRecentMap<&str, u8> = SharedRecentMap::new(32);
        assert_eq!(recent.insert_if_absent("a", 1), None);
        assert_eq!(recent.insert_if_absent("a", 2), Some(1));
        recent.remove(&"a");
        assert_eq!(recent.insert_if_absent("a", 2), None);
    }
}
