//! A map that remembers the most recent keys and forgets the rest, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;

/// Two generations: when the young one is full it becomes the old one, and the old one is forgotten. At least the last
/// `generation_max` keys are remembered, never more than twice as many; every operation is O(1).
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    generation_max: usize,
}

impl<K: Eq + Hash, V> Recent<K, V> {
    pub(crate) fn new(generation_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation_max: generation_max.max(1) }
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.young.contains_key(key) || self.old.contains_key(key)
    }

    pub(crate) fn value(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.generation_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.old.remove(key);
        self.young.remove(key).or(old)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_keys_are_remembered_and_memory_is_bounded() {
        let mut recent = Recent::new(100);
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
}
