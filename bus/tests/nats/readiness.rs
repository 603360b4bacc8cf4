//! What must be seen on the servers' monitoring ports before the bus is opened.

use async_nats::jetstream;
use async_nats::jetstream::stream::Config;
use bus::nats::{self, NatsOptions, REGISTER_STREAM, SyncMode};
use bus::{Bus, BusError};
use bytes::Bytes;
use futures_util::StreamExt;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::Lane;

use crate::{PATIENCE, start};

#[tokio::test]
async fn a_server_that_flushes_before_it_acknowledges_is_accepted_where_that_is_asked() {
    let server = always().await;
    let bus = open(&server, Some(server.monitor_url())).await.unwrap();
    assert_eq!(bus.log.append(Lane(0), Bytes::from_static(b"x")).await.unwrap(), 1);
}

#[tokio::test]
async fn a_server_that_flushes_later_is_refused_where_that_is_asked_and_everything_wrong_is_told_at_once() {
    let server = start().await;
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let subjects = vec!["award.>".to_owned(), "closed.*".to_owned()];
    let foreign = Config { name: REGISTER_STREAM.to_owned(), subjects, ..Config::default() };
    context.create_stream(foreign).await.unwrap();
    let told = refusal(open(&server, Some(server.monitor_url())).await);
    for difference in [
        " sync: found default, needed always, set `sync_interval: always` in its `jetstream` block and restart it",
        "stream LLMX_REGISTER discard_new_per_subject: found false, needed true, ",
    ] {
        assert!(told.contains(difference), "{difference} in {told}");
    }
    assert!(context.get_stream(nats::LOG_STREAM).await.is_err(), "nothing is created where something does not fit");
}

#[tokio::test]
async fn how_a_server_flushes_must_be_seen_where_it_is_asked_for() {
    let server = always().await;
    let told = refusal(open(&server, None).await);
    let expected = "sync: found no way to see it, needed always, set `http: \"127.0.0.1:8222\"`";
    assert!(told.starts_with(expected), "{told}");
    let told = refusal(open(&server, Some("http://127.0.0.1:9".to_owned())).await);
    assert!(told.starts_with("monitoring port: found http://127.0.0.1:9/varz does not answer"), "{told}");
    let other = always().await;
    let told = refusal(open(&server, Some(other.monitor_url())).await);
    assert!(told.starts_with("monitoring ports: found other servers, needed those connected to"), "{told}");
}

#[tokio::test]
async fn a_server_without_jetstream_is_refused_and_its_leaf_nodes_use_the_hubs() {
    let accepting = LocalServerOptions { accepts_leaves: true, ..LocalServerOptions::default() };
    let hub = LocalServer::start(accepting).await.unwrap();
    let leaf_of = |url: String| LocalServerOptions { leaf_of: Some(url), ..LocalServerOptions::default() };
    let leaf = LocalServer::start(leaf_of(hub.leaf_url())).await.unwrap();
    let here = nats::open(NatsOptions::new(hub.url())).await.unwrap();
    let there = nats::open(NatsOptions::new(leaf.url())).await.unwrap();
    let seq = there.log.append(Lane(0), Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(here.log.record(Lane(0), seq).await.unwrap().unwrap().bytes, "x");
    let mut reader = there.log.read(Lane(0), 1).await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, reader.next()).await.unwrap().unwrap().unwrap().seq, seq);
    let lonely = LocalServer::start(leaf_of("nats-leaf://127.0.0.1:9".to_owned())).await.unwrap();
    let told = refusal(nats::open(NatsOptions::new(lonely.url())).await);
    assert!(told.starts_with("JetStream: found off, needed on"), "{told}");
}

async fn always() -> LocalServer {
    LocalServer::start(LocalServerOptions { sync_always: true, ..LocalServerOptions::default() }).await.unwrap()
}

async fn open(server: &LocalServer, monitor: Option<String>) -> Result<Bus, BusError> {
    nats::open(NatsOptions { sync: Some(SyncMode::Always), monitor, ..NatsOptions::new(server.url()) }).await
}

fn refusal(outcome: Result<Bus, BusError>) -> String {
    match outcome.map(|_| ()) {
        Err(BusError::Mismatch(told)) => told,
        outcome => panic!("it should be refused: {outcome:?}"),
    }
}

#[tokio::test]
async fn the_log_says_the_time_by_the_clock_that_stamps_records() {
    let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
    let log = nats::open(NatsOptions::new(server.url())).await.unwrap().log;
    let seq = log.append(Lane(0), Bytes::from_static(b"{}")).await.unwrap();
    let stamped = log.record(Lane(0), seq).await.unwrap().unwrap().stamped;
    let time = log.time().await.unwrap().unwrap();
    assert!(stamped <= time && time.since_us(stamped) < 60_000_000, "{stamped:?} {time:?}");
}
