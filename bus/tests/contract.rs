//! One contract, two backends: every test of `contract/` runs on the embedded bus and on a real nats-server.
//!
//! The server is started by each test on a free port of 127.0.0.1; `scripts/nats-server` fetches it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "contract/blobs.rs"]
mod blobs;
#[path = "contract/key_value.rs"]
mod key_value;
#[path = "contract/log.rs"]
mod log;
#[path = "contract/pub_sub.rs"]
mod pub_sub;
#[path = "contract/register.rs"]
mod register;
#[path = "contract/trim.rs"]
mod trim;

use std::time::Duration;

use bus::memory::{self, MemoryOptions};
use bus::nats::{self, NatsOptions};
use bus::{Bus, LogRecord, LogStream};
use bytes::Bytes;
use futures_util::StreamExt;
use nats_server::{LocalServer, LocalServerOptions};
use schemas::Lane;

/// Runs each contract on each backend.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::Backend::Memory).await;
            })*
        }
        mod nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::Backend::Nats).await;
            })*
        }
    };
}
pub(crate) use contract;

/// Longest wait for something that must happen; hanging is failing.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Nats,
}

/// A bus and what it lives on.
pub(crate) struct Opened {
    pub(crate) bus: Bus,
    _server: Option<LocalServer>,
}

impl Backend {
    pub(crate) async fn open(self) -> Opened {
        self.open_limited(64 * 1024 * 1024).await
    }

    /// Opens a bus whose log takes about so many bytes.
    pub(crate) async fn open_limited(self, log_bytes_max: usize) -> Opened {
        match self {
            Self::Memory => {
                let options = MemoryOptions { log_bytes_max, ..MemoryOptions::default() };
                Opened { bus: memory::open(options), _server: None }
            }
            Self::Nats => {
                let server = LocalServer::start(LocalServerOptions::default()).await.unwrap();
                let log_bytes_max = Some(u64::try_from(log_bytes_max).unwrap());
                let options = NatsOptions { log_bytes_max, ..NatsOptions::new(server.url()) };
                Opened { bus: nats::open(options).await.unwrap(), _server: Some(server) }
            }
        }
    }
}

/// The next item, or a failure when it does not come.
pub(crate) async fn next<S: futures_util::Stream + Unpin>(stream: &mut S) -> S::Item {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("an item should have come").expect("it ended")
}

/// The next `count` records of a lane.
pub(crate) async fn take(stream: &mut LogStream, count: usize) -> Vec<LogRecord> {
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        records.push(next(stream).await.unwrap());
    }
    records
}

/// Appends numbered records, one after the other, and returns their sequences.
pub(crate) async fn append_numbered(bus: &Bus, lane: Lane, numbers: std::ops::Range<u32>) -> Vec<u64> {
    let mut seqs = Vec::new();
    for number in numbers {
        seqs.push(bus.log.append(lane, numbered(number)).await.unwrap());
    }
    seqs
}

pub(crate) fn numbered(number: u32) -> Bytes {
    Bytes::from(number.to_string())
}

/// The numbers of numbered records.
pub(crate) fn numbers(records: &[LogRecord]) -> Vec<u32> {
    records.iter().map(|record| std::str::from_utf8(&record.bytes).unwrap().parse().unwrap()).collect()
}
