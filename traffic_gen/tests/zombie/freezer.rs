//! A bus handle that freezes as a stopped process does: at a chosen call, and with everything it reads.
//!
//! What it writes thaws before what it reads: a process that wakes sends what it was about to send before it learns
//! what has happened since.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::{
    Bus, BusError, Log, LogRecord, LogStream, PubSub, Received, Register, RegisterSize, Registered, StandingEntry,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
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
        self.state.lock().unwrap().armed = Some(point);
    }

    pub(crate) async fn until_frozen(&self) {
        self.writes_frozen.subscribe().wait_for(|frozen| *frozen).await.unwrap();
    }

    /// Lets the writes go on, and the reads after `blind`. Inbox messages sent in between come from a zombie.
    pub(crate) async fn thaw(&self, blind: Duration) {
        self.state.lock().unwrap().is_stale = true;
        self.writes_frozen.send_replace(false);
        tokio::time::sleep(blind).await;
        self.state.lock().unwrap().is_stale = false;
        self.reads_frozen.send_replace(false);
    }

    /// Every delivery a zombie has sent.
    pub(crate) fn stale(&self) -> BTreeSet<DeliveryId> {
        self.state.lock().unwrap().stale.clone()
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
            let mut state = self.state.lock().unwrap();
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
        let mut state = self.state.lock().unwrap();
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

impl Log for Frozen<dyn Log> {
    fn lanes(&self) -> u8 {
        self.inner.lanes()
    }

    fn append(&self, lane: Lane, record: Bytes) -> BoxFuture<'_, Result<u64, BusError>> {
        async move {
            self.freezer.write(Some(Point::Append)).await;
            self.inner.append(lane, record).await
        }
        .boxed()
    }

    fn read(&self, lane: Lane, from_seq: u64) -> BoxFuture<'_, Result<LogStream, BusError>> {
        async move { Ok(self.freezer.read(self.inner.read(lane, from_seq).await?)) }.boxed()
    }

    fn last_seq(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        self.inner.last_seq(lane)
    }

    fn record(&self, lane: Lane, seq: u64) -> BoxFuture<'_, Result<Option<LogRecord>, BusError>> {
        self.inner.record(lane, seq)
    }

    fn trim(&self, lane: Lane, below_seq: u64) -> BoxFuture<'_, Result<(), BusError>> {
        self.inner.trim(lane, below_seq)
    }

    fn trimmed(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        self.inner.trimmed(lane)
    }
}

impl Register for Frozen<dyn Register> {
    fn write(&self, key: RegisterKey, value: Bytes) -> BoxFuture<'_, Result<Registered, BusError>> {
        async move {
            self.freezer.write(Some(Point::Register)).await;
            self.inner.write(key, value).await
        }
        .boxed()
    }

    fn value(&self, key: RegisterKey) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.inner.value(key)
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<(RegisterKey, Bytes)>, BusError>> {
        self.inner.entries()
    }

    fn entries_from(&self, seq: u64, max: usize) -> BoxFuture<'_, Result<Vec<StandingEntry>, BusError>> {
        self.inner.entries_from(seq, max)
    }

    fn remove(&self, key: RegisterKey, seq: u64) -> BoxFuture<'_, Result<(), BusError>> {
        self.inner.remove(key, seq)
    }

    fn size(&self) -> BoxFuture<'_, Result<RegisterSize, BusError>> {
        self.inner.size()
    }
}

impl PubSub for Frozen<dyn PubSub> {
    fn publish(&self, subject: String, payload: Bytes) -> BoxFuture<'_, Result<(), BusError>> {
        async move {
            let is_inbox = subject.ends_with(".inbox") || subject::is_gateway_deliveries(&subject);
            self.freezer.write(is_inbox.then_some(Point::Send)).await;
            if is_inbox {
                self.freezer.note_sent(&subject, &payload);
            }
            self.inner.publish(subject, payload).await
        }
        .boxed()
    }

    fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Received>, BusError>> {
        async move { Ok(self.freezer.read(self.inner.subscribe(subject, queue).await?)) }.boxed()
    }

    fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, BusError>> {
        self.inner.request(subject, token, payload, timeout)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BusError>> {
        self.inner.flush()
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }
}
