//! Large documents: a JetStream object store (ADR-20), readable with `nats object`.
//!
//! The content goes first, in chunks under a subject of its own; then the description, which names that subject and
//! replaces the earlier description in one step. The description is written only if the one it replaces still stands
//! (`Nats-Expected-Last-Subject-Sequence` on a literal subject, which holds in a cluster too), so versions cannot go
//! back however long a writer was stopped between two steps. Chunks of the versions before are removed last: a reader
//! of one of them misses chunks, or the digest is not what it should be, and begins again with what stands then.
//!
//! The client has object stores of its own. They write one chunk per acknowledgement, replace without a condition,
//! leave behind what an interrupted writer has stored, and let a reader wait for chunks that are gone.

mod ballast;
mod description;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_ROLLUP};
use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use schemas::{Digest, Timestamp};
use tokio::time::Instant;

use self::ballast::{Ballast, SMALL_BYTES_MAX};
use self::description::{CHUNK_BYTES, DOCUMENT_BYTES_MAX, Description};
use super::DOCUMENT_STREAM;
use super::consumer::{OrderedReader, Selection, StreamSource};
use super::stored::{self, NotStored};
use crate::name::check_key;
use crate::{Blobs, BusError};

/// Chunks on their way at a time: 2 MiB, so that the server's acknowledgements are not waited for one by one.
const CHUNKS_IN_FLIGHT_MAX: usize = 16;
/// Attempts at a whole document: the first, one after a lost connection, one after a change of leader.
const ATTEMPTS_MAX: u32 = 3;
/// Attempts at a description, each after another writer's, or after silence.
const DESCRIPTION_ATTEMPTS_MAX: u32 = 8;
/// Attempts at reading a document that is replaced again and again. Documents are replaced every few seconds at most.
const READS_MAX: u32 = 5;
/// Pause before a further attempt at anything: what failed once fails at once again.
const PAUSE: Duration = Duration::from_millis(200);
/// Value of the rollup header: this message replaces the earlier ones on its subject.
const ROLLUP_SUBJECT: &str = "sub";

pub(super) struct NatsBlobs {
    source: StreamSource,
    ballast: Ballast,
    timeout: Duration,
}

/// The description that stands, and its sequence, on which the next one is conditional.
struct StoredDescription {
    description: Description,
    seq: u64,
}

impl NatsBlobs {
    /// Documents, with the ballast filled until `deadline` if it can be.
    pub(super) async fn new(source: StreamSource, timeout: Duration, deadline: Instant) -> Self {
        let ballast = Ballast::new(source.context.clone());
        ballast.ensure(timeout, deadline).await;
        Self { source, ballast, timeout }
    }

    /// To be called once the log was trimmed: there may be room again for what is kept as ballast.
    pub(super) async fn restore_ballast(&self) {
        self.ballast.restore(self.timeout).await;
    }

    pub(super) async fn put(&self, name: String, version: u64, value: Bytes) -> Result<bool, BusError> {
        check_key(&name)?;
        if value.len() > DOCUMENT_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: value.len(), limit: DOCUMENT_BYTES_MAX });
        }
        let digest = digest(value.clone()).await?;
        let mut attempt = 1;
        loop {
            let description = Description::new(&name, version, &value, digest);
            let error = match self.try_put(&description, &value).await {
                Ok(is_stored) => return Ok(is_stored),
                Err(error) => error,
            };
            let has_room =
                matches!(error, BusError::Full(_)) && value.len() <= SMALL_BYTES_MAX && self.ballast.give_up().await;
            if has_room {
                continue;
            }
            if attempt == ATTEMPTS_MAX || !error.is_worth_repeating() {
                return Err(error);
            }
            tracing::debug!(%error, name, attempt, "a document is stored again");
            attempt += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn try_put(&self, description: &Description, value: &Bytes) -> Result<bool, BusError> {
        let before = self.standing(&description.name).await?;
        if is_overtaken(description, before.as_ref()) {
            return Ok(false);
        }
        if let Err(error) = self.upload(description, value).await {
            // Only here: once a description was sent, it may come to stand, however late.
            self.remove(&description.chunks_subject()).await;
            return Err(error);
        }
        let replaced = before.as_ref().map(|before| before.description.chunks_subject());
        let is_stored = self.describe(description, before).await?;
        // What stood before with the same version is not among the older ones.
        if is_stored && let Some(chunks) = replaced {
            self.remove(&chunks).await;
        }
        self.remove_older(&description.name).await;
        Ok(is_stored)
    }

    async fn upload(&self, description: &Description, value: &Bytes) -> Result<(), BusError> {
        let subject = description.chunks_subject();
        let chunks = (0..description.chunks).map(|index| {
            let begin = index * CHUNK_BYTES;
            let chunk = value.slice(begin..value.len().min(begin + CHUNK_BYTES));
            let client = self.source.context.client();
            let (subject, timeout) = (subject.clone(), self.timeout);
            async move { stored::publish(&client, subject, chunk, timeout).await.map_err(to_bus_error) }
        });
        stream::iter(chunks).buffered(CHUNKS_IN_FLIGHT_MAX).try_for_each(|_| std::future::ready(Ok(()))).await
    }

    /// Writes the description in the place of `standing`, unless a later version stands by now.
    async fn describe(
        &self,
        description: &Description,
        mut standing: Option<StoredDescription>,
    ) -> Result<bool, BusError> {
        let subject = description::description_subject(&description.name);
        let encoded = description.encode(now());
        let mut last_error = BusError::Unknown("other writers replace it again and again".to_owned());
        for _ in 0..DESCRIPTION_ATTEMPTS_MAX {
            if is_overtaken(description, standing.as_ref()) {
                return Ok(false);
            }
            let mut headers = HeaderMap::new();
            headers.insert(NATS_ROLLUP, ROLLUP_SUBJECT);
            let expected = standing.as_ref().map_or(0, |standing| standing.seq);
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string().as_str());
            let client = self.source.context.client();
            match stored::publish_with(&client, subject.clone(), headers, encoded.clone(), self.timeout).await {
                Ok(_) => return Ok(true),
                Err(error @ NotStored::Refused(code, _)) if stored::is_full(code) => return Err(to_bus_error(error)),
                Err(error) => last_error = to_bus_error(error),
            }
            // Refused, or not answered: what stands tells which.
            standing = self.standing(&description.name).await?;
            if standing.as_ref().is_some_and(|standing| standing.description.id == description.id) {
                return Ok(true);
            }
            tokio::time::sleep(PAUSE.mul_f64(rand::random())).await;
        }
        Err(last_error)
    }

    async fn standing(&self, name: &str) -> Result<Option<StoredDescription>, BusError> {
        let subject = description::description_subject(name);
        let Some(message) = stored::last_on(&self.source.context, DOCUMENT_STREAM, &subject).await? else {
            return Ok(None);
        };
        Ok(Some(StoredDescription { description: Description::decode(&message.payload)?, seq: message.sequence }))
    }

    /// Removes what is left of the versions before the one that stands: none of them can come to stand again.
    async fn remove_older(&self, name: &str) {
        match self.older_chunks(name).await {
            Ok(subjects) => {
                for subject in subjects {
                    self.remove(&subject).await;
                }
            }
            Err(error) => tracing::debug!(%error, name, "older versions of a document stay until the next one"),
        }
    }

    async fn older_chunks(&self, name: &str) -> Result<Vec<String>, BusError> {
        let Some(standing) = self.standing(name).await? else { return Ok(Vec::new()) };
        let unknown = |error: &dyn std::fmt::Display| BusError::Unknown(format!("chunks cannot be listed: {error}"));
        let stream = stored::stream(&self.source.context, DOCUMENT_STREAM).await?;
        let filter = description::all_chunks_subject(name);
        let listed = stream.info_with_subjects(filter).await.map_err(|error| unknown(&error))?;
        let subjects: Vec<(String, usize)> = listed.try_collect().await.map_err(|error| unknown(&error))?;
        let is_older = |subject: &str| {
            description::version_of(subject).is_some_and(|version| version < standing.description.version)
        };
        Ok(subjects.into_iter().map(|(subject, _)| subject).filter(|subject| is_older(subject)).collect())
    }

    async fn remove(&self, chunks_subject: &str) {
        if let Err(error) = stored::purge(&self.source.context, DOCUMENT_STREAM, chunks_subject, None).await {
            tracing::debug!(%error, "chunks stay until a later version is stored");
        }
    }

    pub(super) async fn value(&self, name: String) -> Result<Option<Bytes>, BusError> {
        check_key(&name)?;
        let mut attempt = 1;
        loop {
            let Some(standing) = self.standing(&name).await? else { return Ok(None) };
            let error = match self.download(&standing.description).await {
                Ok(value) => return Ok(Some(value)),
                Err(error) => error,
            };
            if attempt == READS_MAX {
                return Err(error);
            }
            tracing::debug!(%error, name, attempt, "a document is read again");
            attempt += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn download(&self, description: &Description) -> Result<Bytes, BusError> {
        let incomplete = |what: &str| BusError::Unknown(format!("document {}: {what}", description.id));
        let mut value = BytesMut::with_capacity(description.size);
        if description.chunks > 0 {
            let (stream, subject) = (DOCUMENT_STREAM.to_owned(), description.chunks_subject());
            let selection = Selection { stream, subject, from: DeliverPolicy::All };
            let (mut reader, pending) = OrderedReader::start(self.source.clone(), selection).await?;
            // Known at once, instead of after waiting for what will not come.
            let mut is_missing = pending < description.chunks as u64;
            for taken in 1..=description.chunks {
                if is_missing {
                    return Err(incomplete("chunks are missing"));
                }
                let next = tokio::time::timeout(self.timeout, reader.next()).await;
                let chunk = next.map_err(|_| incomplete("a chunk did not come"))?.ok_or(BusError::Closed)??;
                if value.len() + chunk.message.payload.len() > description.size {
                    return Err(incomplete("the chunks are larger than described"));
                }
                value.extend_from_slice(&chunk.message.payload);
                is_missing = chunk.pending < (description.chunks - taken) as u64;
            }
        }
        let value = value.freeze();
        if digest(value.clone()).await? == description.digest {
            Ok(value)
        } else {
            Err(incomplete("the content does not have its digest"))
        }
    }

    pub(super) async fn version(&self, name: String) -> Result<Option<u64>, BusError> {
        check_key(&name)?;
        Ok(self.standing(&name).await?.map(|standing| standing.description.version))
    }
}

fn is_overtaken(description: &Description, standing: Option<&StoredDescription>) -> bool {
    standing.is_some_and(|standing| standing.description.version > description.version)
}

/// Digests on a thread of its own: a few hundred megabytes take a second.
async fn digest(value: Bytes) -> Result<Digest, BusError> {
    tokio::task::spawn_blocking(move || Digest::of_bytes(&value)).await.map_err(|_| BusError::Closed)
}

fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}

fn to_bus_error(error: NotStored) -> BusError {
    match error {
        NotStored::Refused(code, reason) if stored::is_full(code) => stored::full(DOCUMENT_STREAM, code, &reason),
        NotStored::Refused(_, reason) | NotStored::Unknown(reason) => BusError::Unknown(reason),
        NotStored::TooLarge(limit) => BusError::TooLarge { bytes: CHUNK_BYTES, limit },
    }
}

impl Blobs for NatsBlobs {
    fn put(&self, name: String, version: u64, value: Bytes) -> BoxFuture<'_, Result<bool, BusError>> {
        self.put(name, version, value).boxed()
    }

    fn value(&self, name: String) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        self.value(name).boxed()
    }

    fn version(&self, name: String) -> BoxFuture<'_, Result<Option<u64>, BusError>> {
        self.version(name).boxed()
    }
}
