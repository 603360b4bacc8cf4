//! The log alone: entries stored per second, one to a record and in groups, each beside bare publishes of such records.
//!
//! A lane has one append in flight at a time, which is what keeps its order when an outcome is unknown. The ceiling therefore
//! has as many publishes in flight as there are lanes, of records of the same size, on the same server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use bus::Bus;
use bus::appender::{Appender, AppenderOptions};
use bus::nats::NatsOptions;
use bytes::Bytes;
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{Act, Lane, NegotiationId, Payload};
use tokio::task::JoinSet;

use scripted::bargain::in_memory::admitted;

use super::rounds::{BenchError, stuck, sum};
use traffic_gen::live::{contractor_name, initiator_name};

/// Senders that wait for their entry at all times: as many as the rounds' benchmark keeps rounds open.
pub const SENDERS: usize = 256;
/// The stream of the bare publishes.
const BARE_STREAM: &str = "BARE";
/// How long the servers of a cluster may take to learn of a new stream; measured: milliseconds.
const STREAM_WAIT: Duration = Duration::from_secs(10);
/// The pause between two tries.
const STREAM_RETRY: Duration = Duration::from_millis(20);

/// Servers to measure on.
#[derive(Debug, Clone)]
pub struct LogPlace {
    /// Their addresses, separated by commas.
    pub servers: String,
    /// Copies of each record.
    pub replicas: usize,
}

/// What the log took.
#[derive(Debug, Clone, Copy)]
pub struct Throughput {
    /// Entries stored.
    pub entries_per_s: f64,
    /// Entries of the same records, published bare.
    pub ceiling: f64,
    /// How many entries shared a record.
    pub entries_per_record: f64,
}

/// Appends from [`SENDERS`] senders, at most `entries_max` entries to a record.
///
/// # Errors
/// [`BenchError`].
pub async fn append(place: &LogPlace, entries_max: usize, duration: Duration) -> Result<Throughput, BenchError> {
    let options = NatsOptions { replicas: place.replicas, ..NatsOptions::new(&place.servers) };
    let bus = bus::nats::open(options).await?;
    let lanes = bus.log.lanes();
    let before = last_seq(&bus).await?;
    let appenders = appenders(&bus, &AppenderOptions { entries_max, ..AppenderOptions::default() });
    let entry = Arc::new(entry()?);
    let started = Instant::now();
    let mut senders = JoinSet::new();
    for number in 0..SENDERS {
        let (appender, entry) = (appenders[number % appenders.len()].clone(), Arc::clone(&entry));
        senders.spawn(async move {
            let mut stored = 0_u64;
            while started.elapsed() < duration {
                appender.append(&entry).await.map_err(stuck)?;
                stored += 1;
            }
            Ok::<u64, BenchError>(stored)
        });
    }
    let entries = sum(senders).await? as f64;
    let elapsed_s = started.elapsed().as_secs_f64();
    let entries_per_record = entries / (last_seq(&bus).await? - before).max(1) as f64;
    let bytes = record_bytes(&entry, entries_per_record.round().max(1.0) as usize)?;
    let bare = publish_bare(place, bytes, usize::from(lanes), duration / 2).await?;
    Ok(Throughput { entries_per_s: entries / elapsed_s, ceiling: bare * entries_per_record, entries_per_record })
}

/// Bare publishes per second of records with one entry, with [`SENDERS`] in flight: what pipelining gives where nobody
/// needs an order.
///
/// # Errors
/// [`BenchError`].
pub async fn pipelined(place: &LogPlace, duration: Duration) -> Result<f64, BenchError> {
    publish_bare(place, record_bytes(&entry()?, 1)?, SENDERS, duration).await
}

/// Acknowledged publishes per second to a stream like the log, always with `in_flight` under way.
async fn publish_bare(place: &LogPlace, bytes: usize, in_flight: usize, duration: Duration) -> Result<f64, BenchError> {
    let servers: Vec<&str> = place.servers.split(',').collect();
    let client = async_nats::connect(servers).await.map_err(stuck)?;
    let context = jetstream::new(client);
    let config = Config {
        name: BARE_STREAM.to_owned(),
        subjects: vec!["bare.*".to_owned()],
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        num_replicas: place.replicas,
        ..Config::default()
    };
    context.create_stream(config).await.map_err(stuck)?;
    let payload = Bytes::from(vec![b'x'; bytes]);
    reached(&context, payload.clone()).await?;
    let started = Instant::now();
    let mut publishers = JoinSet::new();
    for number in 0..in_flight {
        let (context, payload) = (context.clone(), payload.clone());
        publishers.spawn(async move {
            let mut stored = 0_u64;
            while started.elapsed() < duration {
                let stands = context.publish(format!("bare.{number}"), payload.clone()).await.map_err(stuck)?;
                stands.await.map_err(stuck)?;
                stored += 1;
            }
            Ok::<u64, BenchError>(stored)
        });
    }
    let stored = sum(publishers).await? as f64;
    let per_s = stored / started.elapsed().as_secs_f64();
    context.delete_stream(BARE_STREAM).await.map_err(stuck)?;
    Ok(per_s)
}

/// Publishes until the stream acknowledges: of a cluster, the server of this client learns of a new stream's subjects a moment
/// after the stream was made.
async fn reached(context: &jetstream::Context, payload: Bytes) -> Result<(), BenchError> {
    let made = Instant::now();
    loop {
        let stands = context.publish("bare.0", payload.clone()).await.map_err(stuck)?;
        match stands.await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == PublishErrorKind::StreamNotFound && made.elapsed() < STREAM_WAIT => {
                tokio::time::sleep(STREAM_RETRY).await;
            }
            Err(error) => return Err(stuck(error)),
        }
    }
}

/// What appends to each lane.
pub fn appenders(bus: &Bus, options: &AppenderOptions) -> Vec<Appender> {
    let lanes = (0..bus.log.lanes()).map(Lane);
    lanes.map(|lane| Appender::spawn(Arc::clone(&bus.log), lane, "bench", options.clone())).collect()
}

/// The last sequence of the log over all lanes.
async fn last_seq(bus: &Bus) -> Result<u64, BenchError> {
    let mut last = 0;
    for lane in (0..bus.log.lanes()).map(Lane) {
        last = last.max(bus.log.last_seq(lane).await?);
    }
    Ok(last)
}

/// An admitted offer, of the size the rounds' benchmark has.
fn entry() -> Result<Entry, BenchError> {
    let agent = contractor_name(0);
    let negotiation = NegotiationId::form(&initiator_name(), "bench-log-1").map_err(stuck)?;
    let payload = r#"{"act":"offer","terms":{"price":98500000,"delivery_ms":1500},"currency":"EUR"}"#;
    let offer = Payload::decode(Act::Offer, payload).map_err(stuck)?;
    let message = admitted(&agent, &negotiation, ("offer-1", Some(1)), offer).map_err(stuck)?;
    Ok(Entry::Message(AdmittedMessage { receipts_all: false, ..message }))
}

fn record_bytes(entry: &Entry, entries: usize) -> Result<usize, BenchError> {
    Ok(Record::new("bench", vec![entry.clone(); entries]).encode().map_err(stuck)?.len())
}
