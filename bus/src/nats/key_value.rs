//! Buckets: NATS key-value stores, readable with `nats kv`.

use std::error::Error;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::context::{KeyValueErrorKind, PublishError};
use async_nats::jetstream::kv::{CreateErrorKind, Store};
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};

use super::consumer::OrderedReader;
use super::stored;
use super::{Selection, StoredMessage, StreamSource};
use crate::name::check_key;
use crate::{Bucket, BusError, Change, KeyValue};

/// Header that marks a deletion, and its values (NATS ADR-8).
const OPERATION_HEADER: &str = "KV-Operation";
const DELETIONS: [&str; 2] = ["DEL", "PURGE"];
/// Pause before a watch that ended is started again.
const WATCH_PAUSE: Duration = Duration::from_millis(500);

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
        let [agents, groups, policies, documents] = &self.stores;
        match bucket {
            Bucket::Agents => agents,
            Bucket::Groups => groups,
            Bucket::Policies => policies,
            Bucket::Documents => documents,
        }
    }

    async fn create(&self, bucket: Bucket, key: String, value: Bytes) -> Result<bool, BusError> {
        check_key(&key)?;
        match self.store(bucket).create(to_token(&key), value).await {
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                CreateErrorKind::AlreadyExists => Ok(false),
                CreateErrorKind::InvalidKey
                | CreateErrorKind::Publish
                | CreateErrorKind::Ack
                | CreateErrorKind::Other => {
                    if lost_race(&error) {
                        Ok(false)
                    } else {
                        Err(not_stored(bucket, &key, &error))
                    }
                }
            },
        }
    }

    async fn value(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, BusError> {
        check_key(&key)?;
        let last = stored::last_on(&self.read.context, &stream_name(bucket), &subject(bucket, &to_token(&key))).await?;
        Ok(last.filter(|message| !is_deletion(&message.headers)).map(|message| message.payload))
    }
}

impl KeyValue for NatsKeyValue {
    fn put(&self, bucket: Bucket, key: String, value: Bytes) -> BoxFuture<'_, Result<(), BusError>> {
        async move {
            check_key(&key)?;
            let stored = self.store(bucket).put(to_token(&key), value).await;
            stored.map(|_| ()).map_err(|error| not_stored(bucket, &key, &error))
        }
        .boxed()
    }

    fn create(&self, bucket: Bucket, key: String, value: Bytes) -> BoxFuture<'_, Result<bool, BusError>> {
        self.create(bucket, key, value).boxed()
    }

    fn value(&self, bucket: Bucket, key: String) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.value(bucket, key).boxed()
    }

    fn delete(&self, bucket: Bucket, key: String) -> BoxFuture<'_, Result<(), BusError>> {
        async move {
            check_key(&key)?;
            self.store(bucket).delete(to_token(&key)).await.map_err(|error| not_stored(bucket, &key, &error))
        }
        .boxed()
    }

    fn watch(&self, bucket: Bucket) -> BoxFuture<'_, Result<BoxStream<'static, Change>, BusError>> {
        async move {
            let (reader, pending) = start_watch(&self.read, bucket).await?;
            let watcher = NatsWatcher {
                source: self.read.clone(),
                bucket,
                reader: Some(reader),
                progress: if pending == 0 { WatchProgress::AllReported } else { WatchProgress::Reporting },
            };
            Ok(stream::unfold(watcher, NatsWatcher::next).boxed())
        }
        .boxed()
    }
}

struct NatsWatcher {
    source: StreamSource,
    bucket: Bucket,
    /// None while a new one is needed.
    reader: Option<OrderedReader>,
    progress: WatchProgress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchProgress {
    /// Of what was present.
    Reporting,
    /// The last of what was present is reported, [`Change::CaughtUp`] is not.
    AllReported,
    /// Both are.
    CaughtUp,
}

impl NatsWatcher {
    async fn next(mut self) -> Option<(Change, Self)> {
        if self.progress == WatchProgress::AllReported {
            self.progress = WatchProgress::CaughtUp;
            return Some((Change::CaughtUp, self));
        }
        loop {
            let Some(reader) = &mut self.reader else {
                tokio::time::sleep(WATCH_PAUSE).await;
                match start_watch(&self.source, self.bucket).await {
                    Ok((reader, _)) => self.reader = Some(reader),
                    Err(error) => tracing::debug!(%error, bucket = self.bucket.as_str(), "a watch cannot start yet"),
                }
                continue;
            };
            match reader.next().await {
                Some(Ok(stored)) => {
                    if self.progress == WatchProgress::Reporting && stored.pending == 0 {
                        self.progress = WatchProgress::AllReported;
                    }
                    return Some((to_change(self.bucket, stored), self));
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, bucket = self.bucket.as_str(), "a watch starts again");
                    self.reader = None;
                }
                None => return None,
            }
        }
    }
}

async fn start_watch(source: &StreamSource, bucket: Bucket) -> Result<(OrderedReader, u64), BusError> {
    let (stream, subject) = (stream_name(bucket), subject(bucket, ">"));
    OrderedReader::start(source.clone(), Selection { stream, subject, from: DeliverPolicy::LastPerSubject }).await
}

fn to_change(bucket: Bucket, stored: StoredMessage) -> Change {
    let message = stored.message;
    let token = message.subject.strip_prefix(&subject(bucket, "")).unwrap_or(&message.subject);
    let key = from_token(token);
    if message.headers.as_ref().is_some_and(is_deletion) {
        Change::Deleted(key)
    } else {
        Change::Put(key, message.payload)
    }
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
