//! Buckets: NATS key-value stores, readable with `nats kv`.
//!
//! A removal leaves a marker that the server removes after [`MARKER_LIFETIME`]. A watch therefore reads the whole bucket again
//! after every interruption, and reports what is gone by what it does not find.

use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

use ahash::HashMap;
use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_TTL;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::context::{KeyValueErrorKind, PublishError};
use async_nats::jetstream::kv::{CreateErrorKind, Store};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use schemas::Timestamp;

use super::consumer::OrderedReader;
use super::stored;
use super::{ConsumerEvent, Selection, StoredMessage, StreamSource};
use crate::name::check_key;
use crate::{Bucket, BusError, Change, KeyValue};

/// Header that marks a deletion, and its values (NATS ADR-8).
const OPERATION_HEADER: &str = "KV-Operation";
const DELETIONS: [&str; 2] = ["DEL", "PURGE"];
/// How long a marker of a removal stays. A watch that is connected reads it within milliseconds, and one that was not listened
/// to for 3 s begins again.
const MARKER_LIFETIME: Duration = Duration::from_secs(30);
/// Attempts at a removal, each after another writer's value.
const REMOVAL_ATTEMPTS_MAX: u32 = 8;
/// Pause before a watch that ended is started again.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for the next of the values that stand there: the last of them may be removed before it is sent.
const READING_PAUSE_MAX: Duration = Duration::from_secs(3);

pub(super) struct NatsKeyValue {
    /// Boxed: a handle has more than a kilobyte, and futures that open a bus hold all of them.
    stores: [Box<Store>; Bucket::ALL.len()],
    read: StreamSource,
}

impl NatsKeyValue {
    pub(super) async fn new(write: &Context, read: StreamSource) -> Result<Self, BusError> {
        let store = async |bucket: Bucket| {
            write.get_key_value(bucket.as_str()).await.map(Box::new).map_err(|error| match error.kind() {
                KeyValueErrorKind::InvalidStoreName | KeyValueErrorKind::GetBucket | KeyValueErrorKind::JetStream => {
                    BusError::Unknown(format!("bucket {}: {error}", bucket.as_str()))
                }
            })
        };
        let [agents, groups, policies, documents] = Bucket::ALL;
        let stores = [store(agents).await?, store(groups).await?, store(policies).await?, store(documents).await?];
        Ok(Self { stores, read })
    }

    fn store(&self, bucket: Bucket) -> &Store {
        &self.stores[bucket as usize]
    }

    /// The message that holds the value of a key.
    async fn standing(&self, bucket: Bucket, key: &str) -> Result<Option<StreamMessage>, BusError> {
        check_key(key)?;
        let last = stored::last_on(&self.read.context, &stream_name(bucket), &subject(bucket, &to_token(key))).await?;
        Ok(last.filter(|message| !is_deletion(&message.headers)))
    }
}

#[async_trait]
impl KeyValue for NatsKeyValue {
    async fn put(&self, bucket: Bucket, key: String, value: Bytes) -> Result<(), BusError> {
        check_key(&key)?;
        let stored = self.store(bucket).put(to_token(&key), value).await;
        stored.map(|_| ()).map_err(|error| not_stored(bucket, &key, &error))
    }

    async fn create(&self, bucket: Bucket, key: String, value: Bytes) -> Result<bool, BusError> {
        check_key(&key)?;
        match self.store(bucket).create(to_token(&key), value).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists || lost_race(&error) => Ok(false),
            Err(error) => Err(not_stored(bucket, &key, &error)),
        }
    }

    async fn value(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, BusError> {
        Ok(self.standing(bucket, &key).await?.map(|standing| standing.payload))
    }

    async fn delete(&self, bucket: Bucket, key: String) -> Result<bool, BusError> {
        for _ in 0..REMOVAL_ATTEMPTS_MAX {
            let Some(standing) = self.standing(bucket, &key).await? else { return Ok(false) };
            let (store, token) = (self.store(bucket), to_token(&key));
            match store.purge_expect_revision_with_ttl(token, standing.sequence, MARKER_LIFETIME).await {
                Ok(()) => return Ok(true),
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(not_stored(bucket, &key, &error)),
            }
        }
        Err(BusError::Unknown(format!("key `{key}` of {} is replaced again and again", bucket.as_str())))
    }

    async fn watch(&self, bucket: Bucket) -> Result<BoxStream<'static, Change>, BusError> {
        let (reader, waiting) = start_watch(&self.read, bucket).await?;
        let mut watcher = NatsWatcher::new(self.read.clone(), bucket);
        watcher.begin_reading(reader, waiting);
        Ok(stream::unfold(watcher, NatsWatcher::next).boxed())
    }
}

struct NatsWatcher {
    source: StreamSource,
    bucket: Bucket,
    /// None while a new one is needed.
    reader: Option<OrderedReader>,
    /// Whether values that stood there when the reader began are still to come.
    is_reading: bool,
    /// Whether [`Change::CaughtUp`] is reported.
    is_caught_up: bool,
    /// Rises with every reading of the whole bucket.
    reading: u64,
    /// The values that were reported, by key.
    reported_by_key: HashMap<String, ReportedValue>,
    ready: VecDeque<Change>,
    /// Markers without an end, as earlier builds left them: their subjects and sequences.
    endless_markers: Vec<(String, u64)>,
}

struct ReportedValue {
    /// Which message it was. A server that has lost its last messages gives their sequences again, at another time.
    seq: u64,
    stamped: Timestamp,
    /// The reading that found it last.
    reading: u64,
}

impl NatsWatcher {
    fn new(source: StreamSource, bucket: Bucket) -> Self {
        Self {
            source,
            bucket,
            reader: None,
            is_reading: false,
            is_caught_up: false,
            reading: 0,
            reported_by_key: HashMap::default(),
            ready: VecDeque::new(),
            endless_markers: Vec::new(),
        }
    }

    async fn next(mut self) -> Option<(Change, Self)> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Some((change, self));
            }
            let Some(reader) = &mut self.reader else {
                tokio::time::sleep(WATCH_PAUSE).await;
                match start_watch(&self.source, self.bucket).await {
                    Ok((reader, waiting)) => self.begin_reading(reader, waiting),
                    Err(error) => tracing::debug!(%error, bucket = self.bucket.as_str(), "a watch cannot start yet"),
                }
                continue;
            };
            let wait = if self.is_reading { READING_PAUSE_MAX } else { Duration::MAX };
            match tokio::time::timeout(wait, reader.next_event()).await {
                Ok(Some(Ok(ConsumerEvent::Message(stored)))) => self.take(stored),
                Ok(Some(Ok(ConsumerEvent::Held))) => {}
                // What was removed meanwhile may have left no marker.
                Ok(Some(Ok(ConsumerEvent::Resumed { .. }))) | Err(_) => self.reader = None,
                Ok(Some(Err(error))) => {
                    tracing::warn!(%error, bucket = self.bucket.as_str(), "a watch starts again");
                    self.reader = None;
                }
                Ok(None) => return None,
            }
        }
    }

    /// Reads the whole bucket, `waiting` messages, and then what comes.
    fn begin_reading(&mut self, reader: OrderedReader, waiting: u64) {
        self.reader = Some(reader);
        self.reading += 1;
        self.is_reading = true;
        if waiting == 0 {
            self.end_reading();
        }
    }

    fn take(&mut self, stored: StoredMessage) {
        let StoredMessage { message, seq, stamped, pending, .. } = stored;
        let token = message.subject.strip_prefix(&subject(self.bucket, "")).unwrap_or(&message.subject);
        let key = from_token(token);
        if let Some(headers) = message.headers.filter(is_deletion) {
            if self.is_reading && headers.get(NATS_MESSAGE_TTL).is_none() {
                self.endless_markers.push((message.subject.to_string(), seq));
            }
            self.reported_by_key.remove(&key);
            self.ready.push_back(Change::Deleted(key));
        } else {
            let value = ReportedValue { seq, stamped, reading: self.reading };
            let before = self.reported_by_key.insert(key.clone(), value);
            if before.is_none_or(|before| (before.seq, before.stamped) != (seq, stamped)) {
                self.ready.push_back(Change::Put(key, message.payload));
            }
        }
        if self.is_reading && pending == 0 {
            self.end_reading();
        }
    }

    /// Reports as removed what this reading has not found.
    fn end_reading(&mut self) {
        self.is_reading = false;
        let gone = self.reported_by_key.extract_if(|_, value| value.reading != self.reading);
        self.ready.extend(gone.map(|(key, _)| Change::Deleted(key)));
        if !std::mem::replace(&mut self.is_caught_up, true) {
            self.ready.push_back(Change::CaughtUp);
        }
        let markers = std::mem::take(&mut self.endless_markers);
        if !markers.is_empty() {
            tokio::spawn(remove_markers(self.source.clone(), stream_name(self.bucket), markers));
        }
    }
}

async fn remove_markers(source: StreamSource, stream_name: String, markers: Vec<(String, u64)>) {
    let count = markers.len();
    for (subject, seq) in markers {
        if let Err(error) = stored::purge(&source.context, &stream_name, &subject, Some(seq + 1)).await {
            return tracing::warn!(%error, stream_name, "markers of removed keys stay until the next start");
        }
    }
    tracing::info!(stream_name, count, "markers of removed keys were removed");
}

async fn start_watch(source: &StreamSource, bucket: Bucket) -> Result<(OrderedReader, u64), BusError> {
    let (stream, subject) = (stream_name(bucket), subject(bucket, ">"));
    OrderedReader::start(source.clone(), Selection { stream, subject, from: DeliverPolicy::LastPerSubject }).await
}

/// `~`, which separates the parts of a negotiation id, is no character of NATS keys; `=` is, and is none of ours.
fn to_token(key: &str) -> String {
    key.replace('~', "=")
}

fn from_token(token: &str) -> String {
    token.replace('=', "~")
}

fn stream_name(bucket: Bucket) -> String {
    format!("KV_{}", bucket.as_str())
}

fn subject(bucket: Bucket, token: &str) -> String {
    format!("$KV.{}.{token}", bucket.as_str())
}

fn is_deletion(headers: &HeaderMap) -> bool {
    headers.get(OPERATION_HEADER).is_some_and(|operation| DELETIONS.contains(&operation.as_str()))
}

/// Whether a failed creation says that the key has a value. One server answers 10071, a cluster mostly 10164, which
/// the client does not tell from other errors.
fn lost_race(error: &(dyn Error + 'static)) -> bool {
    let lost = [ErrorCode::STREAM_WRONG_LAST_SEQUENCE, ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT];
    refusal(error).is_some_and(|refusal| lost.contains(&refusal.error_code()))
        || causes(error).any(|cause| {
            cause
                .downcast_ref::<PublishError>()
                .is_some_and(|failed| failed.kind() == jetstream::context::PublishErrorKind::WrongLastSequence)
        })
}

fn not_stored(bucket: Bucket, key: &str, error: &(dyn Error + 'static)) -> BusError {
    match refusal(error) {
        Some(refusal) if stored::is_full(refusal.error_code()) => {
            stored::full(&stream_name(bucket), refusal.error_code(), &refusal.to_string())
        }
        Some(_) | None => BusError::Unknown(format!("key `{key}` of {}: {error}", bucket.as_str())),
    }
}

/// What the server itself answered, beneath what the client made of it.
fn refusal<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a jetstream::Error> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}
