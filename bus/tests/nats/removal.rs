//! What removing keys of a bucket leaves in its stream, and how watches learn of it.

use std::collections::BTreeSet;

use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, Context};
use bus::nats::{self, NatsOptions};
use bus::{Bucket, Bus, Change};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::time::{Instant, sleep, timeout};

use crate::{PATIENCE, start};

const REMOVED: u32 = 10_000;
/// Removals under way at a time.
const WIDTH: usize = 64;
/// Messages that may remain beside those that are alive.
const REMAINING_MAX: u64 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_removed_keys_of_each_bucket_leave_what_is_alive_and_absent_keys_write_nothing() {
    let server = start().await;
    let (bus, context) = (open(&server.url()).await, context(&server.url()).await);
    for bucket in Bucket::ALL {
        put(&bus, bucket, "alive").await;
        let last = state(&context, bucket).await.1;
        each(|n| bus.key_value.delete(bucket, format!("absent-{n}"))).await;
        assert_eq!(state(&context, bucket).await.1, last, "{bucket:?}: nothing was there, and something was written");
        each(|n| bus.key_value.put(bucket, format!("k{n}"), Bytes::from_static(b"x"))).await;
        each(|n| bus.key_value.delete(bucket, format!("k{n}"))).await;
    }
    for bucket in Bucket::ALL {
        until_few(&context, bucket, 1).await;
        assert_eq!(present(&bus, bucket).await, BTreeSet::from(["alive".to_owned()]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_was_away_until_the_marker_had_ended_reports_the_removal_and_repeats_nothing() {
    let mut server = start().await;
    let bus = open(&server.url()).await;
    for key in ["goes", "stays"] {
        put(&bus, Bucket::Agents, key).await;
    }
    let mut watch = bus.key_value.watch(Bucket::Agents).await.unwrap();
    assert_eq!(until_caught_up(&mut watch).await.len(), 2);
    let raw = context(&server.url()).await;
    let stream = raw.get_stream("KV_agents").await.unwrap();
    // No message of the watch: as if the marker had come and gone.
    stream.purge().filter("$KV.agents.goes").await.unwrap();
    server.kill();
    server.resume().await.unwrap();
    assert_eq!(next(&mut watch).await, Change::Deleted("goes".to_owned()));
    put(&bus, Bucket::Agents, "comes").await;
    assert_eq!(next(&mut watch).await, Change::Put("comes".to_owned(), Bytes::from_static(b"x")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_of_an_earlier_build_is_extended_and_its_markers_are_removed_at_the_start() {
    let (template, server) = (start().await, start().await);
    let _newest = open(&template.url()).await;
    let stream = context(&template.url()).await.get_stream("KV_documents").await.unwrap();
    let context = context(&server.url()).await;
    let earlier = Config { allow_message_ttl: false, ..stream.cached_info().config.clone() };
    context.create_stream(earlier).await.unwrap();
    let store = context.get_key_value("documents").await.unwrap();
    store.put("alive", Bytes::from_static(b"x")).await.unwrap();
    for n in 0..100 {
        store.delete(format!("k{n}")).await.unwrap();
    }
    let bus = open(&server.url()).await;
    assert_eq!(present(&bus, Bucket::Documents).await, BTreeSet::from(["alive".to_owned()]));
    until_few(&context, Bucket::Documents, 1).await;
}

async fn open(url: &str) -> Bus {
    nats::open(NatsOptions::new(url)).await.unwrap()
}

async fn context(url: &str) -> Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

async fn put(bus: &Bus, bucket: Bucket, key: &str) {
    bus.key_value.put(bucket, key.to_owned(), Bytes::from_static(b"x")).await.unwrap();
}

/// Does this for every number, some at a time.
async fn each<T, F: Future<Output = Result<T, bus::BusError>>>(operation: impl Fn(u32) -> F) {
    stream::iter(0..REMOVED)
        .map(operation)
        .buffer_unordered(WIDTH)
        .for_each(async |outcome| _ = outcome.unwrap())
        .await;
}

/// Messages of a bucket's stream, and its last sequence.
async fn state(context: &Context, bucket: Bucket) -> (u64, u64) {
    let stream = context.get_stream(format!("KV_{}", bucket.as_str())).await.unwrap();
    let state = &stream.cached_info().state;
    (state.messages, state.last_sequence)
}

async fn until_few(context: &Context, bucket: Bucket, alive: u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (messages, _) = state(context, bucket).await;
        if messages <= alive + REMAINING_MAX {
            return;
        }
        assert!(Instant::now() < deadline, "{bucket:?}: {messages} messages remain, {alive} keys are alive");
        sleep(std::time::Duration::from_millis(200)).await;
    }
}

async fn next(watch: &mut BoxStream<'static, Change>) -> Change {
    timeout(PATIENCE, watch.next()).await.expect("a change is reported").unwrap()
}

async fn until_caught_up(watch: &mut BoxStream<'static, Change>) -> BTreeSet<String> {
    let mut present = BTreeSet::new();
    loop {
        match next(watch).await {
            Change::Put(key, _) => _ = present.insert(key),
            Change::Deleted(key) => _ = present.remove(&key),
            Change::CaughtUp => return present,
        }
    }
}

async fn present(bus: &Bus, bucket: Bucket) -> BTreeSet<String> {
    until_caught_up(&mut bus.key_value.watch(bucket).await.unwrap()).await
}
