//! What came lately.

use std::collections::HashMap;
use std::hash::Hash;

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
            self.old = std::mem::take(&mut self.young);
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
}
