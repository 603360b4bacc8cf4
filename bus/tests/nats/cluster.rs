//! Three servers, one of which is killed and comes back while everything is in use: what a cluster adds to the contract.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::appender::{Appender, AppenderOptions};
use bus::nats::{self, DOCUMENT_STREAM, LOG_STREAM, NatsOptions, REGISTER_STREAM, SyncMode};
use bus::{Bus, BusError, LogRecord, LogStream, Registered, retry_until};
use bytes::Bytes;
use futures_util::StreamExt;
use nats_server::{CLUSTER_NODES, LocalCluster, LocalServerOptions};
use schemas::record::Entry;
use schemas::{AwardNo, Lane, Lot, NegotiationId, RegisterKey};
use tokio::task::JoinHandle;

use crate::PATIENCE;

/// The lane of numbered records.
const WRITTEN: Lane = Lane(2);
/// Its last record.
const LAST: &[u8] = b"the last one";
/// Appends acknowledged before and after each fault.
const APPENDS_BETWEEN: u64 = 200;
/// Attempts at a document, each of which is three and more than a second apart from the one before.
const DOCUMENT_ATTEMPTS_MAX: u32 = 20;
/// Longest time without an acknowledged append when a stream's leader is killed: the servers elect another after 4 to 9 s,
/// and on a machine that is busy otherwise may need several elections. What is asked here is that it ends; how long it
/// takes is measured by `llmx-lab chaos --kill nats`.
const GAP_MAX: Duration = Duration::from_secs(80);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_or_reordered_while_each_leader_in_turn_is_killed() {
    let mut cluster = LocalCluster::start(LocalServerOptions::default()).await.unwrap();
    let load = Load::start(open(&cluster).await).await;
    for stream in [LOG_STREAM, REGISTER_STREAM] {
        load.until_acknowledged(APPENDS_BETWEEN).await;
        let leader = cluster.leader_of(stream).await.expect("a healthy stream has a leader");
        cluster.kill(leader);
        tokio::time::sleep(Duration::from_secs(3)).await;
        if stream == REGISTER_STREAM {
            // It lost its disk too.
            std::fs::remove_dir_all(cluster.node(leader).store_folder()).unwrap();
        }
        cluster.resume(leader).await.unwrap();
        cluster.until_healthy().await.unwrap();
    }
    load.until_acknowledged(APPENDS_BETWEEN).await;
    let acknowledged = load.end().await;
    crash_all(&mut cluster, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_stopped_and_wakes_up_again_changes_nothing() {
    let options = LocalServerOptions { sync_always: true, ..LocalServerOptions::default() };
    let mut cluster = LocalCluster::start(options).await.unwrap();
    let urls = cluster.urls();
    let asked = |monitor: String| NatsOptions {
        replicas: CLUSTER_NODES,
        sync: Some(SyncMode::Always),
        monitor: Some(monitor),
        open_timeout: PATIENCE,
        ..NatsOptions::new(urls.clone())
    };
    let refused = nats::open(asked(cluster.node(0).monitor_url())).await.map(|_| ());
    let expected = "monitoring ports: found 1 of 3 servers, needed every server, ";
    assert!(matches!(&refused, Err(BusError::Mismatch(told)) if told.starts_with(expected)), "{refused:?}");

    let load = Load::start(nats::open(asked(cluster.monitor_urls())).await.unwrap()).await;
    load.until_acknowledged(APPENDS_BETWEEN).await;
    let leader = cluster.leader_of(LOG_STREAM).await.expect("a healthy stream has a leader");
    cluster.node(leader).pause().unwrap();
    // Longer than an election takes: it wakes up as a leader of the past.
    tokio::time::sleep(Duration::from_secs(11)).await;
    cluster.node(leader).unpause().unwrap();
    cluster.until_healthy().await.unwrap();
    load.until_acknowledged(APPENDS_BETWEEN).await;
    let acknowledged = load.end().await;
    crash_all(&mut cluster, &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_and_trimming_outlast_the_leader_of_their_stream() {
    let mut cluster = LocalCluster::start(LocalServerOptions::default()).await.unwrap();
    let bus = open(&cluster).await;
    let mut seqs = Vec::new();
    for number in 0..20_u8 {
        seqs.push(surely(|| bus.log.append(Lane(0), Bytes::from(vec![number]))).await);
    }
    let document = |version: u8| Bytes::from(vec![version; 3_000_000]);
    let put = async |version: u8| {
        let name = || "checkpoint-0".to_owned();
        for _ in 0..DOCUMENT_ATTEMPTS_MAX {
            match bus.blobs.put(name(), u64::from(version), document(version)).await {
                Ok(is_stored) => return is_stored,
                Err(BusError::Unknown(_)) => tokio::time::sleep(Duration::from_secs(1)).await,
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("the document should be stored by now")
    };
    assert!(put(1).await);
    surely(|| bus.log.trim(Lane(0), seqs[10])).await;
    let leader = cluster.leader_of(DOCUMENT_STREAM).await.expect("a healthy stream has a leader");
    cluster.kill(leader);
    assert!(put(2).await);
    assert!(!put(1).await, "versions do not go back");
    assert!(surely(|| bus.blobs.value("checkpoint-0".to_owned())).await == Some(document(2)));
    let refused = bus.log.read(Lane(0), seqs[9]).await.map(|_| ());
    assert!(matches!(refused, Err(BusError::Trimmed(seq)) if seq == seqs[9]), "{refused:?}");
    cluster.resume(leader).await.unwrap();
}

/// All servers crash at the same moment, and what was acknowledged is there when they are back.
async fn crash_all(cluster: &mut LocalCluster, acknowledged: &Acknowledged) {
    (0..CLUSTER_NODES).for_each(|index| cluster.kill(index));
    for index in 0..CLUSTER_NODES {
        cluster.resume(index).await.unwrap();
    }
    cluster.until_healthy().await.unwrap();
    let standing = read_to(&open(cluster).await, acknowledged.end).await;
    acknowledged.assert_stand_in(&standing);
}

/// What runs while servers fail.
struct Load {
    bus: Bus,
    is_over: Arc<AtomicBool>,
    /// Appends acknowledged to the writers.
    count: Arc<AtomicU64>,
    writers: Vec<JoinHandle<Vec<(u64, Bytes)>>>,
    committers: Vec<JoinHandle<Duration>>,
    racers: JoinHandle<u32>,
    follower: JoinHandle<Vec<LogRecord>>,
}

/// What was acknowledged under it.
struct Acknowledged {
    bytes_by_seq: BTreeMap<u64, Bytes>,
    /// The end of the lane.
    end: u64,
}

impl Load {
    async fn start(bus: Bus) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let reader = bus.log.read(WRITTEN, 1).await.unwrap();
        let writer = |writer| tokio::spawn(write(bus.clone(), writer, Arc::clone(&is_over), Arc::clone(&count)));
        Self {
            writers: (0..8).map(writer).collect(),
            committers: (0..2)
                .map(|lane| tokio::spawn(commit(bus.clone(), Lane(lane), Arc::clone(&is_over))))
                .collect(),
            racers: tokio::spawn(race(bus.clone(), Arc::clone(&is_over))),
            follower: tokio::spawn(follow(reader)),
            bus,
            is_over,
            count,
        }
    }

    /// Waits until so many more appends are acknowledged.
    async fn until_acknowledged(&self, more: u64) {
        let goal = self.count.load(Ordering::Relaxed) + more;
        let reached = async {
            while self.count.load(Ordering::Relaxed) < goal {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("appends should be acknowledged");
    }

    /// Ends it and checks what came of it.
    async fn end(self) -> Acknowledged {
        self.is_over.store(true, Ordering::Relaxed);
        let mut bytes_by_seq = BTreeMap::new();
        for writer in self.writers {
            bytes_by_seq.extend(writer.await.unwrap());
        }
        for committer in self.committers {
            let gap = committer.await.unwrap();
            assert!(gap <= GAP_MAX, "{gap:?} without an acknowledged append");
        }
        assert!(self.racers.await.unwrap() > 0);
        surely(|| self.bus.log.append(WRITTEN, Bytes::from_static(LAST))).await;
        let followed = self.follower.await.unwrap();
        // Where an acknowledgement was lost there are two last ones; the follower stopped at the first.
        let end = followed.last().expect("it holds the last one").seq;
        let acknowledged = Acknowledged { bytes_by_seq, end };
        acknowledged.assert_stand_in(&followed);
        let read = read_to(&self.bus, end).await;
        assert_eq!(followed.len(), read.len());
        for (one, other) in followed.iter().zip(&read) {
            assert_eq!((one.seq, one.stamped, &one.bytes), (other.seq, other.stamped, &other.bytes));
        }
        acknowledged
    }
}

impl Acknowledged {
    fn assert_stand_in(&self, records: &[LogRecord]) {
        assert!(records.is_sorted_by(|one, other| one.seq < other.seq), "a record came twice or out of order");
        let standing: BTreeMap<u64, &Bytes> = records.iter().map(|record| (record.seq, &record.bytes)).collect();
        for (seq, bytes) in &self.bytes_by_seq {
            assert_eq!(standing.get(seq), Some(&bytes), "record {seq} was acknowledged");
        }
    }
}

async fn open(cluster: &LocalCluster) -> Bus {
    let options = NatsOptions { replicas: CLUSTER_NODES, open_timeout: PATIENCE, ..NatsOptions::new(cluster.urls()) };
    nats::open(options).await.unwrap()
}

/// Repeats what a cluster that elects does not answer; an append may then stand twice.
async fn surely<T, F: Future<Output = Result<T, BusError>>>(attempt: impl FnMut() -> F) -> T {
    retry_until(tokio::time::Instant::now() + PATIENCE, attempt).await.unwrap()
}

/// Appends until it is over; returns what was acknowledged.
async fn write(bus: Bus, writer: u32, is_over: Arc<AtomicBool>, count: Arc<AtomicU64>) -> Vec<(u64, Bytes)> {
    let mut acknowledged = Vec::new();
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        let record = Bytes::from(format!("{writer} {number}"));
        match bus.log.append(WRITTEN, record.clone()).await {
            Ok(seq) => {
                acknowledged.push((seq, record));
                number += 1;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(BusError::Unknown(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
    acknowledged
}

/// Appends as gateways and engines do, without ever being told that an outcome is unknown; returns the longest time
/// without an acknowledgement.
async fn commit(bus: Bus, lane: Lane, is_over: Arc<AtomicBool>) -> Duration {
    // An election on a busy machine may take longer than the default.
    let patient = AppenderOptions { deadline: GAP_MAX, ..AppenderOptions::default() };
    let appender = Appender::spawn(Arc::clone(&bus.log), lane, "test", patient);
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        appender.append(&Entry::Tick).await.unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    longest
}

/// Eight writers at a time for one key after the other; returns how many keys.
async fn race(bus: Bus, is_over: Arc<AtomicBool>) -> u32 {
    let mut round = 0;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        let key = || RegisterKey::Award(NegotiationId::try_new("alice~job").unwrap(), Lot(0), AwardNo(round));
        let value = |writer: u8| Bytes::from(vec![b'a' + writer]);
        let writes = (0..8).map(|writer| {
            let (register, key) = (Arc::clone(&bus.register), key());
            tokio::spawn(async move { (writer, register.write(key, value(writer)).await) })
        });
        let outcomes: Vec<_> = futures_util::future::join_all(writes).await.into_iter().map(Result::unwrap).collect();
        let Ok(Some(standing)) = bus.register.value(key()).await else { continue };
        let mut winners = 0;
        for (writer, outcome) in outcomes {
            match outcome {
                // A write whose first answer was lost finds its own value.
                Ok(Registered::Written | Registered::Same) => {
                    winners += 1;
                    assert_eq!(standing, value(writer), "round {round}");
                }
                Ok(Registered::Different(other)) => assert_eq!(other, standing, "round {round}"),
                Err(BusError::Unknown(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(winners <= 1, "round {round}");
    }
    round
}

/// Reads, however often reading must resume, up to the last record.
async fn follow(mut reader: LogStream) -> Vec<LogRecord> {
    let mut records = Vec::new();
    loop {
        let next = tokio::time::timeout(PATIENCE, reader.next()).await.expect("a record should have come");
        let record = next.expect("it ended").unwrap();
        let is_last = record.bytes == LAST;
        records.push(record);
        if is_last {
            return records;
        }
    }
}

async fn read_to(bus: &Bus, end: u64) -> Vec<LogRecord> {
    let mut reader = bus.log.read(WRITTEN, 1).await.unwrap();
    let mut records: Vec<LogRecord> = Vec::new();
    while records.last().is_none_or(|record| record.seq < end) {
        let next = tokio::time::timeout(PATIENCE, reader.next()).await.expect("a record should have come");
        records.push(next.expect("it ended").unwrap());
    }
    records
}
