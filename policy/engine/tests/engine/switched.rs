//! A log that can be replaced under its readers, as a server does that comes back with an older store.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, Log, LogRecord, LogStream};
use bytes::Bytes;
use futures_util::StreamExt;
use parking_lot::Mutex;
use schemas::Lane;
use tokio::sync::watch;

/// Stands before the log of a bus.
pub(crate) struct SwitchedLog {
    current: Mutex<Arc<dyn Log>>,
    interruption: watch::Sender<Option<BusError>>,
    /// Gap before each record that is read.
    gap: Duration,
}

impl SwitchedLog {
    /// Puts itself before the log of a bus.
    pub(crate) fn install(bus: &mut Bus) -> Arc<Self> {
        Self::install_slow(bus, Duration::ZERO)
    }

    /// The same, and gives records one by one, each after a gap.
    pub(crate) fn install_slow(bus: &mut Bus, gap: Duration) -> Arc<Self> {
        let (current, interruption) = (Mutex::new(Arc::clone(&bus.log)), watch::Sender::new(None));
        let switched = Arc::new(Self { current, interruption, gap });
        bus.log = Arc::clone(&switched) as Arc<dyn Log>;
        switched
    }

    /// Puts another log in its place.
    pub(crate) fn switch(&self, log: Arc<dyn Log>) {
        *self.current.lock() = log;
    }

    /// Everyone who reads now gets an error.
    pub(crate) fn interrupt(&self, error: BusError) {
        self.interruption.send_replace(Some(error));
    }

    fn current(&self) -> Arc<dyn Log> {
        Arc::clone(&self.current.lock())
    }
}

#[bus::async_trait]
impl Log for SwitchedLog {
    fn lanes(&self) -> u8 {
        self.current().lanes()
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        self.current().append(lane, record).await
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        let mut interruption = self.interruption.subscribe();
        let gap = self.gap;
        let records = self.current().read(lane, from_seq).await?.then(move |record| async move {
            if !gap.is_zero() {
                tokio::time::sleep(gap).await;
            }
            record
        });
        let records = records.boxed();
        let interrupted = async move {
            let _ = interruption.changed().await;
            Err(interruption.borrow().clone().unwrap_or(BusError::Closed))
        };
        let interrupted = futures_util::stream::once(interrupted);
        Ok(futures_util::stream::select(records, interrupted).boxed())
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        self.current().last_seq(lane).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        self.current().record(lane, seq).await
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        self.current().trim(lane, below_seq).await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        self.current().trimmed(lane).await
    }
}
