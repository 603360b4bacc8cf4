//! A bounded memory of recent things: the one structure behind the token cache and the recent-duplicates memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a memory is spread over, so that threads seldom wait for each other.
const SHARDS: usize = 16;

/// Remembers at least the latest `capacity / 2` entries and at most `capacity`, in two generations: when the young
/// one is full it becomes the old one, and the old one is forgotten. A read renews an entry. Constant time, no list.
pub(crate) struct Recent<K, V> {
    shards: Vec<Mutex<Generations<K, V>>>,
    hasher: RandomState,
    generation_len_max: usize,
}

struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// A memory of at most `capacity` entries (rounded up to a multiple of twice the number of shards).
    pub(crate) fn new(capacity: usize) -> Self {
        let shard = || Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() });
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            hasher: RandomState::new(),
            generation_len_max: capacity.div_ceil(2 * SHARDS).max(1),
        }
    }

    /// The value under a key, if it is still remembered.
    pub(crate) fn value(&self, key: &K) -> Option<V> {
        let mut generations = self.shard(key);
        if let Some(value) = generations.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = generations.old.remove_entry(key)?;
        generations.insert(key, value.clone(), self.generation_len_max);
        Some(value)
    }

    /// Remembers a value, replacing the one under the key.
    pub(crate) fn put(&self, key: K, value: V) {
        let mut generations = self.shard(&key);
        generations.old.remove(&key);
        generations.insert(key, value, self.generation_len_max);
    }

    /// Remembers a value unless the key has one; returns the one it has.
    pub(crate) fn put_if_absent(&self, key: K, value: V) -> Option<V> {
        let mut generations = self.shard(&key);
        if let Some(present) = generations.young.get(&key).or_else(|| generations.old.get(&key)) {
            return Some(present.clone());
        }
        generations.insert(key, value, self.generation_len_max);
        None
    }

    /// Forgets a key.
    pub(crate) fn remove(&self, key: &K) {
        let mut generations = self.shard(key);
        generations.young.remove(key);
        generations.old.remove(key);
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Generations<K, V>> {
        let hash = self.hasher.hash_one(key);
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> Generations<K, V> {
    fn insert(&mut self, key: K, value: V, len_max: usize) {
        if self.young.len() >= len_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_than_its_capacity() {
        let recent: Recent<u32, u32> = Recent::new(320);
        for n in 0..10_000 {
            recent.put(n, n);
        }
        assert!(held(&recent) <= 320);
    }

    #[test]
    fn what_is_read_again_and_again_is_not_forgotten() {
        let recent: Recent<u32, u32> = Recent::new(320);
        recent.put(u32::MAX, 7);
        for n in 0..10_000 {
            recent.put(n, n);
            assert_eq!(recent.value(&u32::MAX), Some(7), "after {n}");
        }
    }

    #[test]
    fn the_first_value_under_a_key_stands() {
        let recent: Recent<&str, u8> = Recent::new(32);
        assert_eq!(recent.put_if_absent("a", 1), None);
        assert_eq!(recent.put_if_absent("a", 2), Some(1));
        recent.remove(&"a");
        assert_eq!(recent.put_if_absent("a", 2), None);
    }

    fn held(recent: &Recent<u32, u32>) -> usize {
        recent
            .shards
            .iter()
            .map(|shard| {
                let generations = shard.lock().unwrap();
                generations.young.len() + generations.old.len()
            })
            .sum()
    }
}
