//! What the exchange needs of a message bus, as five small traits, and two backends that keep the same contract.
//!
//! | trait | promise |
//! |---|---|
//! | [`Log`] | an acknowledged append is stored; every reader of a lane sees the same records, in one order, with the same times, which never go back |
//! | [`Register`] | the first value under a key stays until it is removed; later writers learn what it is |
//! | [`KeyValue`] | last value per key, and a watch that sees every key's latest value |
//! | [`PubSub`] | at-most-once messages by subject; nothing binding relies on it |
//! | [`Blobs`] | large documents by name, replaced as a whole |
//!
//! Backends: [`memory`] (one process, nothing installed) and [`nats`] (nats-server with JetStream). `tests/contract.rs`
//! runs the same suite on both. [`fanout`] is what gateways and hosts of agents do alike on top.

pub mod appender;
mod error;
pub mod fanout;
pub mod health;
pub mod memory;
mod name;
pub mod nats;
pub mod observe;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use schemas::{Lane, RegisterKey, Timestamp};

/// The attribute of what implements these traits.
pub use async_trait::async_trait;
pub use error::{BusError, retry_until};

/// Lanes of a new log unless told otherwise: enough for every core of a small machine, few enough to be idle for free.
pub const LANES_DEFAULT: u8 = 4;

/// The time by this machine's clock.
fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}

/// The five services of one bus, shared by handle.
#[derive(Clone)]
pub struct Bus {
    /// The log.
    pub log: Arc<dyn Log>,
    /// The write-once register.
    pub register: Arc<dyn Register>,
    /// Control-plane documents.
    pub key_value: Arc<dyn KeyValue>,
    /// Deliveries, acknowledgements, notices.
    pub pub_sub: Arc<dyn PubSub>,
    /// Checkpoints and archives.
    pub blobs: Arc<dyn Blobs>,
}

/// A record as it stands in the log.
#[derive(Debug, Clone)]
pub struct LogRecord {
    /// Its lane.
    pub lane: Lane,
    /// Its sequence in the whole log, from 1. Rises within a lane, not necessarily by 1.
    pub seq: u64,
    /// Log time; never goes back within a lane (clamped by the reader).
    pub time: Timestamp,
    /// The time as the log stamped it, before the clamp: earlier than `time` when the log's clock went back.
    pub stamped: Timestamp,
    /// Its content.
    pub bytes: Bytes,
}

/// The ordered log.
#[async_trait]
pub trait Log: Send + Sync {
    /// Number of lanes, fixed when the log was created.
    fn lanes(&self) -> u8;

    /// Appends a record and returns its sequence once it is stored.
    ///
    /// # Errors
    /// [`BusError::Full`] and [`BusError::TooLarge`]: not stored. [`BusError::Unknown`]: it may or may not be stored;
    /// append again, the fold drops duplicates.
    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError>;

    /// Reads a lane in order, from the first record whose sequence is at least `from_seq`, and then follows it. The
    /// stream resumes by itself after a lost connection, without a gap or a repeat; an error item ends it. Whenever it
    /// resumes, it checks that the last record it gave still stands in the log with the same content; otherwise the
    /// log has lost what it acknowledged, and the item is [`BusError::Diverged`].
    ///
    /// # Errors
    /// [`BusError::Trimmed`] when records from `from_seq` on are gone already; other [`BusError`]s when the log cannot be
    /// reached.
    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError>;

    /// The last sequence stored in a lane, 0 when it is empty.
    ///
    /// # Errors
    /// [`BusError`] when the log cannot be reached.
    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError>;

    /// The record of a lane with this very sequence; absent when there is none, or no longer.
    ///
    /// # Errors
    /// [`BusError`] when the log cannot be reached.
    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError>;

    /// Removes the records of a lane whose sequence is lower than `below_seq`; the lane's last record always stays.
    ///
    /// # Errors
    /// [`BusError`] when it is not known to be done. Safe to repeat.
    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError>;

    /// Everything up to this sequence may have been trimmed from the lane, 0 when nothing was.
    ///
    /// # Errors
    /// [`BusError`] when the log cannot be reached.
    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError>;

    /// The time now by the clock that stamps records; absent where that is the caller's own.
    ///
    /// # Errors
    /// [`BusError`] when the log cannot be reached.
    async fn time(&self) -> Result<Option<Timestamp>, BusError> {
        Ok(None)
    }
}

/// Large documents by name, each replaced as a whole: a reader sees one version or the other, never a mixture.
///
/// A version is a position in the log. It never goes back, so a writer that was stalled for long, and has been overtaken
/// without knowing it, cannot put an old document in the place of a newer one.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores a document, unless a later version stands under the name; false when one does, which then stays. The same
    /// version is replaced. Names are keys as in [`KeyValue::put`].
    ///
    /// # Errors
    /// [`BusError`] when it is not known to be stored; what stood there before may then still be what is read.
    async fn put(&self, name: String, version: u64, value: Bytes) -> Result<bool, BusError>;

    /// A document.
    ///
    /// # Errors
    /// [`BusError`] when it cannot be read whole.
    async fn value(&self, name: String) -> Result<Option<Bytes>, BusError>;

    /// The version of a document, without reading it.
    ///
    /// # Errors
    /// [`BusError`] when it cannot be read.
    async fn version(&self, name: String) -> Result<Option<u64>, BusError>;
}

/// The records of one lane.
pub type LogStream = BoxStream<'static, Result<LogRecord, BusError>>;

/// What became of a write to the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// Written now.
    Written,
    /// The same value stood there already: success (a take-over, a retry).
    Same,
    /// Another value stands there.
    Different(Bytes),
}

/// An entry as it stands in the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingEntry {
    /// Its key.
    pub key: RegisterKey,
    /// Its value.
    pub value: Bytes,
    /// Counts the entries ever written; names this one even if its key is written again once it was removed.
    pub seq: u64,
    /// When it was written, by the register's clock.
    pub written_at: Timestamp,
}

/// How much the register holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegisterSize {
    /// Entries.
    pub entries: u64,
    /// Bytes, as far as the store counts them.
    pub bytes: u64,
}

/// The write-once register.
#[async_trait]
pub trait Register: Send + Sync {
    /// Writes a value unless the key has one. Retries unknown outcomes itself: rewriting the same value is harmless.
    ///
    /// # Errors
    /// [`BusError`] when the outcome stays unknown.
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError>;

    /// The value under a key, read with read-your-writes.
    ///
    /// # Errors
    /// [`BusError`] when the register cannot be reached.
    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError>;

    /// Every key and value stored when the call was made.
    ///
    /// # Errors
    /// [`BusError`] when the register cannot be reached.
    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError>;

    /// The entries from a sequence on, in the order they were written, `max` at most. May leave out what was written after
    /// the call was made.
    ///
    /// # Errors
    /// [`BusError`] when the register cannot be reached.
    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError>;

    /// Removes the entry of a key if it is the one of this sequence, or an earlier one. Nothing is removed where the key was
    /// written again since. From then on the key can be written like any other: whoever removes must know that nobody will
    /// (docs/spec/log.md#lg-42).
    ///
    /// # Errors
    /// [`BusError::Unusable`] when this register keeps everything; another when it is not known to be done. Safe to repeat.
    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError>;

    /// How much the register holds.
    ///
    /// # Errors
    /// [`BusError`] when the register cannot be reached.
    async fn size(&self) -> Result<RegisterSize, BusError>;
}

/// The control plane's buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Bucket {
    /// Agent registrations, by agent id.
    Agents,
    /// Groups, by group id.
    Groups,
    /// Policies, by policy name (the current version) and by `name_at_version`.
    Policies,
    /// Protocol documents, by hash, and who supports them, by `hash~agent`.
    Documents,
}

impl Bucket {
    /// Every bucket.
    pub const ALL: [Self; 4] = [Self::Agents, Self::Groups, Self::Policies, Self::Documents];

    /// Its name on the bus.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key now has this value.
    Put(String, Bytes),
    /// The key is gone.
    Deleted(String),
    /// Everything that was stored when the watch began has been reported.
    CaughtUp,
}

/// Last value per key, watchable.
#[async_trait]
pub trait KeyValue: Send + Sync {
    /// Stores a value. Keys are 1 to 200 characters of `A-Z a-z 0-9 _ - ~`.
    ///
    /// # Errors
    /// [`BusError`] when it is not known to be stored.
    async fn put(&self, bucket: Bucket, key: String, value: Bytes) -> Result<(), BusError>;

    /// Stores a value unless the key has one; false when it has.
    ///
    /// # Errors
    /// [`BusError`] when it is not known to be stored.
    async fn create(&self, bucket: Bucket, key: String, value: Bytes) -> Result<bool, BusError>;

    /// The value of a key.
    ///
    /// # Errors
    /// [`BusError`] when the bucket cannot be reached.
    async fn value(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, BusError>;

    /// Removes a key; false when it has no value, and then nothing is written. Of several callers one is told true.
    ///
    /// # Errors
    /// [`BusError`] when it is not known to be removed.
    async fn delete(&self, bucket: Bucket, key: String) -> Result<bool, BusError>;

    /// Reports every key's present value, then [`Change::CaughtUp`], then every change. The stream resumes by itself
    /// after a lost connection (it may then repeat present values). A deletion may be reported of a key that never was.
    ///
    /// # Errors
    /// [`BusError`] when the bucket cannot be reached.
    async fn watch(&self, bucket: Bucket) -> Result<BoxStream<'static, Change>, BusError>;
}

/// A message received from [`PubSub`].
#[derive(Debug, Clone)]
pub struct Received {
    /// Its subject.
    pub subject: String,
    /// Where to answer, when the sender asked.
    pub reply: Option<String>,
    /// The token header, when present.
    pub token: Option<String>,
    /// Its content.
    pub payload: Bytes,
}

/// Messages by subject, at most once. Subscribers that do not keep up lose messages (and the loss is counted).
#[async_trait]
pub trait PubSub: Send + Sync {
    /// Publishes. Returns when the message is handed over, not when it is received.
    ///
    /// # Errors
    /// [`BusError`] when it could not be handed over.
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError>;

    /// Subscribes to a subject, `*` matching one token and `>` the rest. Members of a queue group share its messages.
    /// The subscription is active when the call returns.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    async fn subscribe(&self, subject: String, queue: Option<String>)
    -> Result<BoxStream<'static, Received>, BusError>;

    /// Publishes, optionally with a token header, and waits for one answer.
    ///
    /// # Errors
    /// [`BusError::NoResponder`] when nobody listens, [`BusError::Unknown`] when no answer came in time.
    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError>;

    /// Waits until everything published by this handle has been processed by the bus.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    async fn flush(&self) -> Result<(), BusError>;

    /// Messages lost by slow subscribers of this handle so far.
    fn dropped(&self) -> u64;

    /// Subjects that the bus does not let this process use: nothing is heard, or stored, on them.
    fn denied(&self) -> Vec<String> {
        Vec::new()
    }
}
