//! What only the NATS backend can get wrong: settings that differ, servers that restart, processes that share one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "nats/cluster.rs"]
mod cluster;
#[path = "nats/full_store.rs"]
mod full_store;
#[path = "nats/lost_tail.rs"]
mod lost_tail;
#[path = "nats/readiness.rs"]
mod readiness;
#[path = "nats/removal.rs"]
mod removal;

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::stream::Config;
use bus::nats::{self, Credentials, LOG_STREAM, NatsOptions, REGISTER_STREAM, TlsFiles};
use bus::{BusError, Registered};
use bytes::Bytes;
use futures_util::StreamExt;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::{AwardNo, Lane, Lot, NegotiationId, RegisterKey};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

#[tokio::test]
async fn a_stream_with_other_settings_is_refused_and_each_difference_is_named() {
    let server = start().await;
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let foreign = Config {
        name: REGISTER_STREAM.to_owned(),
        subjects: vec!["award.>".to_owned(), "closed.*".to_owned()],
        max_age: Duration::from_secs(3600),
        ..Config::default()
    };
    context.create_stream(foreign).await.unwrap();
    let Err(BusError::Mismatch(told)) = nats::open(NatsOptions::new(server.url())).await.map(|_| ()) else {
        panic!("it should be refused")
    };
    for difference in [
        "stream LLMX_REGISTER max_age: found 3600s, needed 0ns, ",
        "stream LLMX_REGISTER discard_new_per_subject: found false, needed true, ",
        "stream LLMX_REGISTER max_msgs_per_subject: found unlimited, needed 1, ",
        "stream LLMX_REGISTER metadata llmx-format: found none, needed 1, ",
    ] {
        assert!(told.contains(difference), "{difference} in {told}");
    }
    assert!(!told.contains("LLMX_LOG"), "what fits is not named: {told}");
}

#[tokio::test]
async fn the_number_of_lanes_is_fixed_when_the_log_is_created() {
    let server = start().await;
    let with_lanes = |lanes| NatsOptions { lanes, ..NatsOptions::new(server.url()) };
    assert_eq!(nats::open(with_lanes(Some(6))).await.unwrap().log.lanes(), 6);
    assert_eq!(nats::open(with_lanes(None)).await.unwrap().log.lanes(), 6);
    assert_eq!(nats::open(with_lanes(Some(6))).await.unwrap().log.lanes(), 6);
    let refused = nats::open(with_lanes(Some(8))).await.map(|_| ());
    let expected = "metadata llmx-lanes: found 6, needed 8, ";
    assert!(matches!(&refused, Err(BusError::Mismatch(told)) if told.contains(expected)), "{refused:?}");
}

#[tokio::test]
async fn processes_that_start_together_agree_on_the_streams() {
    let server = start().await;
    let opens = (0..4).map(|_| nats::open(NatsOptions::new(server.url())));
    for outcome in futures_util::future::join_all(opens).await {
        assert_eq!(outcome.unwrap().log.lanes(), bus::LANES_DEFAULT);
    }
}

/// What nobody else listens to is refused by the server at once; where somebody listens to everything, nothing ever is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_listens_to_everything_holds_up_no_subscription_and_no_flush() {
    let server = start().await;
    let listener = async_nats::connect(server.url()).await.unwrap();
    let mut everything = listener.subscribe(">").await.unwrap();
    listener.flush().await.unwrap();
    let request_timeout = Duration::from_secs(3600);
    let opening = nats::open(NatsOptions { request_timeout, ..NatsOptions::new(server.url()) });
    let bus = timeout(PATIENCE, opening).await.expect("it opens").unwrap();
    let subscribing = bus.pub_sub.subscribe("view.0".to_owned(), None);
    let mut views = timeout(PATIENCE, subscribing).await.expect("it subscribes").unwrap();
    bus.pub_sub.publish("view.0".to_owned(), Bytes::from_static(b"x")).await.unwrap();
    timeout(PATIENCE, bus.pub_sub.flush()).await.expect("it flushes").unwrap();
    let seen = timeout(PATIENCE, views.next()).await.expect("it is delivered").unwrap();
    assert_eq!(seen.payload, "x");
    let heard = timeout(PATIENCE, everything.next()).await.expect("the listener hears what passes");
    assert!(heard.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_every_record_once_across_crashes_of_the_server() {
    across_crashes(LocalServerOptions::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_every_record_once_across_crashes_of_a_server_that_waits_for_the_disk() {
    across_crashes(LocalServerOptions { sync_always: true, ..LocalServerOptions::default() }).await;
}

async fn across_crashes(options: LocalServerOptions) {
    let mut server = LocalServer::start(options).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let mut from_start = bus.log.read(Lane(0), 1).await.unwrap();
    // Recreated before it has seen anything, this one must not fall back to the first record of the lane.
    let mut from_later = bus.log.read(Lane(0), 151).await.unwrap();
    let writer = tokio::spawn({
        let bus = bus.clone();
        async move {
            let mut seqs = Vec::new();
            for number in 0..300_u32 {
                seqs.push(append_until_known(&bus, number).await);
            }
            seqs
        }
    });
    let mut seen = Vec::new();
    for restart_at in [40, 120, 200] {
        while seen.len() < restart_at {
            seen.push(next_number(&mut from_start).await);
        }
        server.kill();
        server.resume().await.unwrap();
    }
    let seqs = writer.await.unwrap();
    while seen.last().map(|&(seq, _)| seq) < seqs.last().copied() {
        seen.push(next_number(&mut from_start).await);
    }
    assert!(seen.is_sorted_by(|one, other| one.0 < other.0), "a record came twice or out of order");
    let by_seq: HashMap<u64, u32> = seen.iter().copied().collect();
    for (number, seq) in (0..).zip(&seqs) {
        assert_eq!(by_seq.get(seq), Some(&number), "record {seq} was acknowledged");
    }
    let expected: Vec<_> = seen.iter().copied().filter(|&(seq, _)| seq >= 151).collect();
    let mut later = Vec::new();
    while later.len() < expected.len() {
        later.push(next_number(&mut from_later).await);
    }
    assert_eq!(later, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_write_outlasts_a_restart_of_the_server() {
    let mut server = start().await;
    let options = NatsOptions { request_timeout: Duration::from_millis(500), ..NatsOptions::new(server.url()) };
    let bus = nats::open(options).await.unwrap();
    server.kill();
    let key = RegisterKey::Award(NegotiationId::try_new("alice~job").unwrap(), Lot(0), AwardNo(1));
    let write = tokio::spawn({
        let (bus, key) = (bus.clone(), key.clone());
        async move { bus.register.write(key, Bytes::from_static(b"x")).await }
    });
    server.resume().await.unwrap();
    let outcome = write.await.unwrap().unwrap();
    assert!(matches!(outcome, Registered::Written | Registered::Same), "{outcome:?}");
    assert_eq!(bus.register.value(key).await.unwrap(), Some(Bytes::from_static(b"x")));
}

#[tokio::test]
async fn an_append_to_a_server_that_is_gone_is_unknown_and_not_forever() {
    let mut server = start().await;
    let options = NatsOptions { request_timeout: Duration::from_millis(200), ..NatsOptions::new(server.url()) };
    let status = options.status.clone();
    let bus = nats::open(options).await.unwrap();
    assert_eq!(status.read().connects, 4);
    server.kill();
    let outcome = bus.log.append(Lane(0), Bytes::from_static(b"x")).await;
    assert!(matches!(outcome, Err(BusError::Unknown(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_reported_in_time_with_its_address() {
    let options = NatsOptions { open_timeout: Duration::from_millis(300), ..NatsOptions::new("nats://127.0.0.1:9") };
    let outcome = nats::open(options).await.map(|_| ());
    assert!(matches!(&outcome, Err(BusError::Unreachable(reason)) if reason.contains("127.0.0.1:9")), "{outcome:?}");
}

#[tokio::test]
async fn credentials_are_checked_and_given() {
    let extra_config = "authorization { user: exchange, password: \"s3cret\" }".to_owned();
    let server =
        LocalServer::start(LocalServerOptions { extra_config, ..LocalServerOptions::default() }).await.unwrap();
    let with_password = |password: &str| NatsOptions {
        credentials: Credentials::UserPassword { user: "exchange".to_owned(), password: password.to_owned() },
        ..NatsOptions::new(server.url())
    };
    assert!(nats::open(with_password("s3cret")).await.is_ok());
    let refused = nats::open(with_password("wrong")).await.map(|_| ());
    assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");
    assert!(!format!("{:?}", with_password("s3cret")).contains("s3cret"));
    let in_url = server.url().replacen("nats://", "nats://exchange:s3cret@", 1);
    assert!(nats::open(NatsOptions::new(in_url)).await.is_ok());
}

#[tokio::test]
async fn a_connection_over_tls_trusts_the_given_authority_and_shows_a_certificate_or_fails_at_once() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let [authorities, server_pem, client_pem] = ["ca.pem", "server.pem", "client.pem"].map(|name| data.join(name));
    let extra_config = format!(
        "tls {{ cert_file: {server_pem:?}, key_file: {server_pem:?}, ca_file: {authorities:?}, verify: true, timeout: 5 }}"
    );
    let server =
        LocalServer::start(LocalServerOptions { extra_config, ..LocalServerOptions::default() }).await.unwrap();
    let identity = Some((client_pem.clone(), client_pem));
    let whole = TlsFiles { authorities: Some(authorities.clone()), identity: identity.clone() };
    let missing = TlsFiles { authorities: Some(data.join("none.pem")), identity: None };
    for url in [server.url(), server.url().replacen("nats://", "tls://", 1)] {
        let open = |tls: &TlsFiles| nats::open(NatsOptions { tls: tls.clone(), ..NatsOptions::new(url.clone()) });
        assert!(open(&whole).await.is_ok(), "{url}");
        for (tls, told) in [
            (TlsFiles { authorities: None, identity: identity.clone() }, "invalid peer certificate"),
            (TlsFiles { authorities: Some(authorities.clone()), identity: None }, "CertificateRequired"),
        ] {
            let began = Instant::now();
            let refused = open(&tls).await.map(|_| ());
            assert!(matches!(&refused, Err(BusError::Unreachable(why)) if why.contains(told)), "{url}: {refused:?}");
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        }
        let refused = open(&missing).await.map(|_| ());
        assert!(matches!(&refused, Err(BusError::Unusable(why)) if why.contains("none.pem")), "{refused:?}");
    }
    let plain = start().await;
    let url = plain.url().replacen("nats://", "tls://", 1);
    let began = Instant::now();
    let refused = nats::open(NatsOptions { tls: whole, ..NatsOptions::new(url) }).await.map(|_| ());
    assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{refused:?} after {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_is_active_for_other_processes_when_the_call_returns() {
    let server = start().await;
    let subscriber = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let publisher = nats::open(NatsOptions::new(server.url())).await.unwrap();
    // Often, because a subscription that is late by a moment would be in time now and then.
    for n in 0..200 {
        let subject = format!("hello.a{n}");
        let mut messages = subscriber.pub_sub.subscribe(subject.clone(), None).await.unwrap();
        publisher.pub_sub.publish(subject.clone(), Bytes::new()).await.unwrap();
        let received = tokio::time::timeout(PATIENCE, messages.next()).await;
        assert_eq!(received.expect("it was subscribed to").unwrap().subject, subject);
    }
}

#[tokio::test]
async fn single_records_and_register_entries_cannot_be_deleted() {
    let server = start().await;
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let seq = bus.log.append(Lane(0), Bytes::from_static(b"x")).await.unwrap();
    let key = RegisterKey::Closed(NegotiationId::try_new("alice~job").unwrap());
    bus.register.write(key, Bytes::from_static(b"x")).await.unwrap();
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let log = context.get_stream(LOG_STREAM).await.unwrap();
    let register = context.get_stream(REGISTER_STREAM).await.unwrap();
    assert!(log.delete_message(seq).await.is_err());
    assert!(register.delete_message(1).await.is_err());
}

#[tokio::test]
async fn a_register_of_a_build_that_kept_everything_is_taken_as_it_is() {
    let server = start().await;
    drop(nats::open(NatsOptions::new(server.url())).await.unwrap());
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = context.get_stream(REGISTER_STREAM).await.unwrap().cached_info().config.clone();
    context.delete_stream(REGISTER_STREAM).await.unwrap();
    context.create_stream(Config { deny_purge: true, ..config }).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let key = RegisterKey::Closed(NegotiationId::try_new("alice~job").unwrap());
    bus.register.write(key.clone(), Bytes::from_static(b"x")).await.unwrap();
    let refused = bus.register.remove(key.clone(), 1).await;
    assert!(matches!(&refused, Err(BusError::Unusable(told)) if told.contains("deny_purge")), "{refused:?}");
    assert_eq!(bus.register.value(key).await.unwrap(), Some(Bytes::from_static(b"x")));
}

#[tokio::test]
async fn documents_are_readable_with_the_object_stores_of_nats() {
    let server = start().await;
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let value = Bytes::from(vec![7; 1_000_000]);
    assert!(bus.blobs.put("checkpoint-0".to_owned(), 1, value.clone()).await.unwrap());
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let store = context.get_object_store(nats::DOCUMENT_BUCKET).await.unwrap();
    let mut read = Vec::new();
    store.get("checkpoint-0").await.unwrap().read_to_end(&mut read).await.unwrap();
    assert!(read == value);
    assert_eq!(store.info("checkpoint-0").await.unwrap().metadata["llmx-version"], "1");
}

/// Longest wait for a record: beyond every reconnection and missed heartbeat.
const PATIENCE: Duration = Duration::from_secs(90);

async fn start() -> LocalServer {
    LocalServer::start(LocalServerOptions::default()).await.unwrap()
}

/// Appends a number, again while the outcome is unknown, and returns the sequence of the attempt acknowledged.
async fn append_until_known(bus: &bus::Bus, number: u32) -> u64 {
    loop {
        match bus.log.append(Lane(0), Bytes::from(number.to_string())).await {
            Ok(seq) => return seq,
            Err(BusError::Unknown(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn next_number(stream: &mut bus::LogStream) -> (u64, u32) {
    let record = tokio::time::timeout(PATIENCE, stream.next()).await.expect("a record should have come");
    let record = record.expect("it ended").unwrap();
    (record.seq, std::str::from_utf8(&record.bytes).unwrap().parse().unwrap())
}
