//! Buckets hold the last value per key, and a watch sees every key's latest.

use std::collections::BTreeMap;

use bus::{Bucket, BusError, Change};
use bytes::Bytes;
use futures_util::future;
use futures_util::stream::BoxStream;

use crate::{Backend, contract, next};

contract!(
    the_last_value_is_read_back_until_it_is_deleted,
    only_one_of_several_creators_succeeds_and_a_deleted_key_can_be_created_again,
    only_one_of_several_removals_at_once_is_told_that_it_removed_the_key,
    a_watch_of_an_empty_bucket_has_caught_up_at_once_and_then_sees_changes,
    a_watch_reports_what_is_present_before_it_has_caught_up,
    buckets_do_not_mix,
    a_malformed_key_is_refused,
);

/// A key with every kind of character keys may have.
const KEY: &str = "alice~job_1-X";

async fn the_last_value_is_read_back_until_it_is_deleted(backend: Backend) {
    let opened = backend.open().await;
    let store = &opened.bus.key_value;
    let read = || store.value(Bucket::Policies, KEY.to_owned());
    assert_eq!(read().await.unwrap(), None);
    store.put(Bucket::Policies, KEY.to_owned(), Bytes::from_static(b"1")).await.unwrap();
    store.put(Bucket::Policies, KEY.to_owned(), Bytes::from_static(b"2")).await.unwrap();
    assert_eq!(read().await.unwrap(), Some(Bytes::from_static(b"2")));
    assert!(store.delete(Bucket::Policies, KEY.to_owned()).await.unwrap());
    assert_eq!(read().await.unwrap(), None);
    for absent in [KEY, "never-was"] {
        assert!(!store.delete(Bucket::Policies, absent.to_owned()).await.unwrap(), "{absent}");
    }
}

async fn only_one_of_several_creators_succeeds_and_a_deleted_key_can_be_created_again(backend: Backend) {
    let opened = backend.open().await;
    for _ in 0..2 {
        let creations = (0..8).map(|_| {
            let store = opened.bus.key_value.clone();
            tokio::spawn(async move { store.create(Bucket::Agents, KEY.to_owned(), Bytes::new()).await.unwrap() })
        });
        let outcomes: Vec<_> = future::join_all(creations).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(outcomes.iter().filter(|&&is_created| is_created).count(), 1, "{outcomes:?}");
        opened.bus.key_value.delete(Bucket::Agents, KEY.to_owned()).await.unwrap();
    }
}

async fn only_one_of_several_removals_at_once_is_told_that_it_removed_the_key(backend: Backend) {
    let opened = backend.open().await;
    opened.bus.key_value.put(Bucket::Documents, KEY.to_owned(), Bytes::new()).await.unwrap();
    let removals = (0..8).map(|_| {
        let store = opened.bus.key_value.clone();
        tokio::spawn(async move { store.delete(Bucket::Documents, KEY.to_owned()).await.unwrap() })
    });
    let outcomes: Vec<_> = future::join_all(removals).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|&&is_removed| is_removed).count(), 1, "{outcomes:?}");
}

async fn a_watch_of_an_empty_bucket_has_caught_up_at_once_and_then_sees_changes(backend: Backend) {
    let opened = backend.open().await;
    let store = &opened.bus.key_value;
    let mut watch = store.watch(Bucket::Agents).await.unwrap();
    assert_eq!(next(&mut watch).await, Change::CaughtUp);
    store.put(Bucket::Agents, KEY.to_owned(), Bytes::from_static(b"1")).await.unwrap();
    assert_eq!(next(&mut watch).await, Change::Put(KEY.to_owned(), Bytes::from_static(b"1")));
    store.delete(Bucket::Agents, KEY.to_owned()).await.unwrap();
    assert_eq!(next(&mut watch).await, Change::Deleted(KEY.to_owned()));
}

async fn a_watch_reports_what_is_present_before_it_has_caught_up(backend: Backend) {
    let opened = backend.open().await;
    let store = &opened.bus.key_value;
    for n in 0..20 {
        store.put(Bucket::Groups, format!("k{n}"), Bytes::from_static(b"old")).await.unwrap();
    }
    store.put(Bucket::Groups, "k3".to_owned(), Bytes::from_static(b"new")).await.unwrap();
    store.delete(Bucket::Groups, "k4".to_owned()).await.unwrap();
    let mut watch = store.watch(Bucket::Groups).await.unwrap();
    let present = until_caught_up(&mut watch).await;
    assert_eq!(present.len(), 19);
    assert_eq!(present["k3"], Bytes::from_static(b"new"));
    assert!(!present.contains_key("k4"));
}

async fn buckets_do_not_mix(backend: Backend) {
    let opened = backend.open().await;
    let store = &opened.bus.key_value;
    store.put(Bucket::Agents, "a".to_owned(), Bytes::from_static(b"agent")).await.unwrap();
    assert_eq!(store.value(Bucket::Groups, "a".to_owned()).await.unwrap(), None);
    let mut watch = store.watch(Bucket::Groups).await.unwrap();
    assert_eq!(until_caught_up(&mut watch).await.len(), 0);
}

async fn a_malformed_key_is_refused(backend: Backend) {
    let opened = backend.open().await;
    let store = &opened.bus.key_value;
    for bad in ["", "a.b", "a b", "a>", "*"] {
        let outcome = store.put(Bucket::Agents, bad.to_owned(), Bytes::new()).await;
        assert!(matches!(outcome, Err(BusError::Invalid(_))), "{bad:?}: {outcome:?}");
    }
}

async fn until_caught_up(watch: &mut BoxStream<'static, Change>) -> BTreeMap<String, Bytes> {
    let mut present = BTreeMap::new();
    loop {
        match next(watch).await {
            Change::Put(key, value) => _ = present.insert(key, value),
            Change::Deleted(key) => _ = present.remove(&key),
            Change::CaughtUp => return present,
        }
    }
}
