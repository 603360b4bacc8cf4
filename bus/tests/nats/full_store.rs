//! A store without room refuses with a remedy, loses nothing, and goes on once there is room again.

use bus::nats::{self, LOG_STREAM, NatsOptions};
use bus::{Bucket, Bus, BusError};
use bytes::Bytes;
use futures_util::StreamExt;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::Lane;

use crate::{PATIENCE, start};

const RECORD_BYTES: usize = 50_000;

#[tokio::test]
async fn a_full_stream_names_the_remedy_and_goes_on_after_a_trim_or_a_raised_limit() {
    let server = start().await;
    let limited = NatsOptions { log_bytes_max: Some(1_000_000), ..NatsOptions::new(server.url()) };
    let bus = nats::open(limited).await.unwrap();
    let (stored, told) = fill(&bus).await;
    for word in ["archive", "checkpoint", "nats stream edit LLMX_LOG --max-bytes"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert_eq!(read(&bus, stored[0], stored.len()).await, stored, "nothing acknowledged is lost");

    bus.log.trim(Lane(0), stored[stored.len() / 2]).await.unwrap();
    let (more, _) = fill(&bus).await;
    assert!(more.len() >= stored.len() / 2 - 1, "{} records after the trim", more.len());

    let context = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let mut config = context.get_stream(LOG_STREAM).await.unwrap().cached_info().config.clone();
    config.max_bytes = 2_000_000;
    context.update_stream(config).await.unwrap();
    let (more, _) = fill(&bus).await;
    assert!(more.len() >= 15, "{} records after the limit was raised", more.len());
}

#[tokio::test]
async fn a_full_server_names_the_remedy_and_goes_on_after_a_trim_or_a_raised_limit() {
    let limit = |bytes| LocalServerOptions { store_bytes_max: Some(bytes), ..LocalServerOptions::default() };
    let mut server = LocalServer::start(limit(3_000_000)).await.unwrap();
    let bus = nats::open(NatsOptions::new(server.url())).await.unwrap();
    let (stored, told) = fill(&bus).await;
    for word in ["archive", "checkpoint", "max_file_store"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    let document = || Bytes::from(vec![b'x'; RECORD_BYTES]);
    let put = bus.key_value.put(Bucket::Agents, "alice".to_owned(), document()).await;
    assert!(matches!(&put, Err(BusError::Full(told)) if told.contains("max_file_store")), "{put:?}");
    let created = bus.key_value.create(Bucket::Policies, "low".to_owned(), document()).await;
    assert!(matches!(created, Err(BusError::Full(_))), "{created:?}");
    assert_eq!(read(&bus, stored[0], stored.len()).await, stored, "nothing acknowledged is lost");

    bus.log.trim(Lane(0), stored[stored.len() / 2]).await.unwrap();
    let (more, _) = fill(&bus).await;
    assert!(more.len() >= stored.len() / 2 - 2, "{} records after the trim", more.len());

    server.kill();
    server.reconfigure(limit(4_000_000));
    server.resume().await.unwrap();
    let (more, _) = fill(&bus).await;
    assert!(more.len() >= 15, "{} records after the limit was raised", more.len());
}

/// Appends until the store is full; returns what was acknowledged, and what was told in the end.
async fn fill(bus: &Bus) -> (Vec<u64>, String) {
    let mut stored = Vec::new();
    loop {
        match bus.log.append(Lane(0), Bytes::from(vec![b'x'; RECORD_BYTES])).await {
            Ok(seq) => stored.push(seq),
            Err(BusError::Full(told)) => return (stored, told),
            // While the server starts again.
            Err(BusError::Unknown(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
        assert!(stored.len() < 200, "it should be full by now");
    }
}

async fn read(bus: &Bus, from: u64, count: usize) -> Vec<u64> {
    let reader = bus.log.read(Lane(0), from).await.unwrap().take(count);
    let seqs = reader.map(|record| record.unwrap().seq).collect();
    tokio::time::timeout(PATIENCE, seqs).await.unwrap()
}
