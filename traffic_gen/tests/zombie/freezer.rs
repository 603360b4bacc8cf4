//! A bus handle that freezes as a stopped process does: at a chosen call, and with everything it reads.
//!
//! What it writes thaws before what it reads: a process that wakes sends what it was about to send before it learns
//! what has happened since.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::{
    Bus, BusError, Log, LogRecord, LogStream, PubSub, Received, Register, RegisterSize, Registered, StandingEntry,
};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use schemas::{DeliveryId, Lane, RegisterKey, routed, subject};
use tokio::sync::watch;

/// Where it freezes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Between folding a record and writing the register.
    Register,
    /// Between the register's answer and sending.
    Send,
    /// Before an engine's entry is appended.
    Append,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Freezer {
    writes_frozen: watch::Sender<bool>,
    reads_frozen: watch::Sender<bool>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    armed: Option<Point>,
    is_stale: bool,
    stale: BTreeSet<DeliveryId>,
}

impl Freezer {
    pub(crate) fn new() -> Self {
        Self {
            writes_frozen: watch::Sender::new(false),
            reads_frozen: watch::Sender::new(false),
            state: Arc::default(),
        }
    }

    /// Freezes at the next call of this kind.
    pub(crate) fn arm(&self, point: Point) {
        self.state.lock().armed = Some(point);
    }

    pub(crate) async fn until_frozen(&self) {
        self.writes_frozen.subscribe().wait_for(|frozen| *frozen).await.unwrap();
    }

    /// Lets the writes go on, and the reads after `blind`. Inbox messages sent in between come from a zombie.
    pub(crate) async fn thaw(&self, blind: Duration) {
        self.state.lock().is_stale = true;
        self.writes_frozen.send_replace(false);
        tokio::time::sleep(blind).await;
        self.state.lock().is_stale = false;
        self.reads_frozen.send_replace(false);
    }

    /// Every delivery a zombie has sent.
    pub(crate) fn stale(&self) -> BTreeSet<DeliveryId> {
        self.state.lock().stale.clone()
    }

    /// The handle of the engine that is to be frozen.
    pub(crate) fn wrap(&self, bus: &Bus) -> Bus {
        Bus {
            log: Arc::new(Frozen { inner: Arc::clone(&bus.log), freezer: self.clone() }),
            register: Arc::new(Frozen { inner: Arc::clone(&bus.register), freezer: self.clone() }),
            pub_sub: Arc::new(Frozen { inner: Arc::clone(&bus.pub_sub), freezer: self.clone() }),
            ..bus.clone()
        }
    }

    async fn write(&self, point: Option<Point>) {
        let trips = {
            let mut state = self.state.lock();
            let trips = point.is_some() && state.armed == point;
            if trips {
                state.armed = None;
            }
            trips
        };
        if trips {
            self.reads_frozen.send_replace(true);
            self.writes_frozen.send_replace(true);
        }
        self.writes_frozen.subscribe().wait_for(|frozen| !frozen).await.unwrap();
    }

    /// Items of a stream, none of which passes while reads are frozen.
    fn read<T: Send + 'static>(&self, items: BoxStream<'static, T>) -> BoxStream<'static, T> {
        let frozen = self.reads_frozen.subscribe();
        items
            .then(move |item| {
                let mut frozen = frozen.clone();
                async move {
                    frozen.wait_for(|frozen| !frozen).await.unwrap();
                    item
                }
            })
            .boxed()
    }

    fn note_sent(&self, subject: &str, payload: &[u8]) {
        let mut state = self.state.lock();
        if state.is_stale {
            let deliveries = routed::read_deliveries(subject, payload);
            assert!(!deliveries.is_empty());
            state.stale.extend(deliveries.iter().map(|(_, delivery)| delivery.envelope.msg_id));
        }
    }
}

struct Frozen<T: ?Sized> {
    inner: Arc<T>,
    freezer: Freezer,
}

#[bus::async_trait]
impl Log for Frozen<dyn Log> {
    fn lanes(&self) -> u8 {
        self.inner.lanes()
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        self.freezer.write(Some(Point::Append)).await;
        self.inner.append(lane, record).await
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        Ok(self.freezer.read(self.inner.read(lane, from_seq).await?))
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        self.inner.last_seq(lane).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        self.inner.record(lane, seq).await
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        self.inner.trim(lane, below_seq).await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        self.inner.trimmed(lane).await
    }
}

#[bus::async_trait]
impl Register for Frozen<dyn Register> {
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        self.freezer.write(Some(Point::Register)).await;
        self.inner.write(key, value).await
    }

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        self.inner.value(key).await
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        self.inner.entries().await
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError> {
        self.inner.entries_from(seq, max).await
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        self.inner.remove(key, seq).await
    }

    async fn size(&self) -> Result<RegisterSize, BusError> {
        self.inner.size().await
    }
}

#[bus::async_trait]
impl PubSub for Frozen<dyn PubSub> {
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError> {
        let is_inbox = subject.ends_with(".inbox") || subject::is_gateway_deliveries(&subject);
        self.freezer.write(is_inbox.then_some(Point::Send)).await;
        if is_inbox {
            self.freezer.note_sent(&subject, &payload);
        }
        self.inner.publish(subject, payload).await
    }

    async fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> Result<BoxStream<'static, Received>, BusError> {
        Ok(self.freezer.read(self.inner.subscribe(subject, queue).await?))
    }

    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        self.inner.request(subject, token, payload, timeout).await
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.inner.flush().await
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }
}
