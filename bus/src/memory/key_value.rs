//! Buckets: the last value per key, and watchers that look up what is new since they last looked.
//!
//! A watcher has no queue, so it can neither lose a change nor hold memory: it remembers the last revision it saw. Of
//! several changes of one key between two looks it sees the last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ahash::HashMap;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::name::check_key;
use crate::{Bucket, BusError, Change, KeyValue};

/// Most keys of a bucket, with the deleted ones that a watcher has yet to see: ten times the agents one exchange is measured
/// with.
const KEYS_MAX: usize = 1_000_000;
/// Changes a watcher takes under one lock.
const WATCH_BATCH_MAX: usize = 256;

pub(super) struct MemoryKeyValue {
    buckets: [BucketState; Bucket::ALL.len()],
}

struct BucketState {
    entries: Arc<Mutex<Entries>>,
    /// Wakes watchers; holds the last revision.
    revision: watch::Sender<u64>,
}

#[derive(Default)]
struct Entries {
    /// The value is none for a deleted key: watchers that have not looked since must learn of it.
    by_key: HashMap<String, (u64, Option<Bytes>)>,
    key_by_revision: BTreeMap<u64, String>,
    /// Revisions of deletions, the oldest first.
    deletions: VecDeque<u64>,
    /// The last revision that each watcher has seen.
    seen: Vec<Weak<AtomicU64>>,
    last_revision: u64,
}

impl Entries {
    fn value(&self, key: &str) -> Option<&Bytes> {
        self.by_key.get(key)?.1.as_ref()
    }

    /// Stores a value, or none for a deletion, and returns the revision.
    fn store(&mut self, key: String, value: Option<Bytes>) -> Result<u64, BusError> {
        if self.by_key.len() >= KEYS_MAX && !self.by_key.contains_key(&key) {
            return Err(BusError::Full(format!("the bucket holds {KEYS_MAX} keys")));
        }
        self.last_revision += 1;
        self.forget_deletions();
        if value.is_none() {
            self.deletions.push_back(self.last_revision);
        }
        self.key_by_revision.insert(self.last_revision, key.clone());
        if let Some((superseded, _)) = self.by_key.insert(key, (self.last_revision, value)) {
            self.key_by_revision.remove(&superseded);
        }
        Ok(self.last_revision)
    }

    /// Forgets the deletions that every watcher has seen.
    fn forget_deletions(&mut self) {
        self.seen.retain(|seen| seen.strong_count() > 0);
        let seen = self.seen.iter().filter_map(Weak::upgrade).map(|seen| seen.load(Ordering::Relaxed));
        let seen_by_all = seen.min().unwrap_or(u64::MAX);
        while let Some(revision) = self.deletions.pop_front_if(|revision| *revision <= seen_by_all) {
            if let Some(key) = self.key_by_revision.remove(&revision) {
                self.by_key.remove(&key);
            }
        }
    }
}

impl Default for MemoryKeyValue {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| BucketState { entries: Arc::default(), revision: watch::Sender::new(0) }),
        }
    }
}

impl BucketState {
    /// Runs `change` under the lock and wakes the watchers when it stored something.
    fn change<T>(&self, change: impl FnOnce(&mut Entries) -> Result<T, BusError>) -> Result<T, BusError> {
        let mut entries = self.entries.lock();
        let before = entries.last_revision;
        let outcome = change(&mut entries);
        if entries.last_revision > before {
            self.revision.send_replace(entries.last_revision);
        }
        outcome
    }
}

impl MemoryKeyValue {
    fn shelf(&self, bucket: Bucket) -> &BucketState {
        &self.buckets[bucket as usize]
    }
}

#[async_trait]
impl KeyValue for MemoryKeyValue {
    async fn put(&self, bucket: Bucket, key: String, value: Bytes) -> Result<(), BusError> {
        check_key(&key)?;
        self.shelf(bucket).change(|entries| entries.store(key, Some(value)).map(|_| ()))
    }

    async fn create(&self, bucket: Bucket, key: String, value: Bytes) -> Result<bool, BusError> {
        check_key(&key)?;
        self.shelf(bucket).change(|entries| {
            if entries.value(&key).is_some() {
                return Ok(false);
            }
            entries.store(key, Some(value)).map(|_| true)
        })
    }

    async fn value(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, BusError> {
        check_key(&key)?;
        Ok(self.shelf(bucket).entries.lock().value(&key).cloned())
    }

    async fn delete(&self, bucket: Bucket, key: String) -> Result<bool, BusError> {
        check_key(&key)?;
        self.shelf(bucket).change(|entries| {
            let has_value = entries.value(&key).is_some();
            if has_value {
                entries.store(key, None)?;
            }
            Ok(has_value)
        })
    }

    async fn watch(&self, bucket: Bucket) -> Result<BoxStream<'static, Change>, BusError> {
        let shelf = self.shelf(bucket);
        let revision = shelf.revision.subscribe();
        let seen = Arc::default();
        shelf.entries.lock().seen.push(Arc::downgrade(&seen));
        let watcher = MemoryWatcher {
            entries: Arc::clone(&shelf.entries),
            revision,
            seen,
            is_caught_up: false,
            ready: VecDeque::new(),
        };
        Ok(stream::unfold(watcher, MemoryWatcher::next).boxed())
    }
}

struct MemoryWatcher {
    entries: Arc<Mutex<Entries>>,
    revision: watch::Receiver<u64>,
    /// The last revision reported.
    seen: Arc<AtomicU64>,
    is_caught_up: bool,
    ready: VecDeque<Change>,
}

impl MemoryWatcher {
    async fn next(mut self) -> Option<(Change, Self)> {
        loop {
            tokio::task::consume_budget().await;
            if let Some(change) = self.ready.pop_front() {
                return Some((change, self));
            }
            self.revision.borrow_and_update();
            self.refill();
            if self.ready.is_empty() && self.revision.changed().await.is_err() {
                return None;
            }
        }
    }

    fn refill(&mut self) {
        let entries = self.entries.lock();
        let mut seen = self.seen.load(Ordering::Relaxed);
        for (&revision, key) in entries.key_by_revision.range(seen + 1..).take(WATCH_BATCH_MAX) {
            seen = revision;
            let change = match entries.by_key.get(key) {
                Some((_, Some(value))) => Change::Put(key.clone(), value.clone()),
                Some((_, None)) | None => Change::Deleted(key.clone()),
            };
            self.ready.push_back(change);
        }
        self.seen.store(seen, Ordering::Relaxed);
        // Only now is every key that stood here at the start reported: one that changed meanwhile moved to the end.
        if !self.is_caught_up && seen == entries.last_revision {
            self.is_caught_up = true;
            self.ready.push_back(Change::CaughtUp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_of_more_keys_than_one_batch_reports_each_once_before_it_has_caught_up() {
        let store = MemoryKeyValue::default();
        let count = 3 * WATCH_BATCH_MAX;
        for n in 0..count {
            store.put(Bucket::Groups, format!("g{n}"), Bytes::from_static(b"x")).await.unwrap();
        }
        let watch = store.watch(Bucket::Groups).await.unwrap();
        let changes: Vec<_> = watch.take(count + 1).collect().await;
        let keys: std::collections::HashSet<_> = changes[..count]
            .iter()
            .map(|change| match change {
                Change::Put(key, _) => key.clone(),
                Change::Deleted(_) | Change::CaughtUp => panic!("{change:?} too early"),
            })
            .collect();
        assert_eq!(keys.len(), count);
        assert_eq!(changes[count], Change::CaughtUp);
    }
    #[tokio::test]
    async fn a_removed_key_is_forgotten_once_every_watcher_has_seen_it_go() {
        let store = MemoryKeyValue::default();
        let mut watch = store.watch(Bucket::Groups).await.unwrap();
        let held = || store.shelf(Bucket::Groups).entries.lock().by_key.len();
        for n in 0..10_000 {
            store.put(Bucket::Groups, format!("g{n}"), Bytes::new()).await.unwrap();
            store.delete(Bucket::Groups, format!("g{n}")).await.unwrap();
        }
        assert_eq!(held(), 10_000, "the watcher has not looked yet");
        while watch.next().await != Some(Change::CaughtUp) {}
        store.put(Bucket::Groups, "alive".to_owned(), Bytes::new()).await.unwrap();
        assert_eq!(held(), 1);
        assert_eq!(watch.next().await, Some(Change::Put("alive".to_owned(), Bytes::new())));
        drop(watch);
        for n in 0..100 {
            store.put(Bucket::Groups, format!("g{n}"), Bytes::new()).await.unwrap();
            store.delete(Bucket::Groups, format!("g{n}")).await.unwrap();
        }
        assert!(held() <= 2, "nobody watches");
    }
}
