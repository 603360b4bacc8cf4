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

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_ROLLUP};
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use schemas::{Digest, Timestamp, WireTime};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::consumer::OrderedReader;
use super::{DOCUMENT_BUCKET, DOCUMENT_STREAM};
use super::{NotStored, Selection, StreamSource, stored};
use crate::name::check_key;
use crate::{Blobs, BusError, retry_until, wall_clock};

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
        let subject = description_subject(&description.name);
        let encoded = description.encode(wall_clock());
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
        let subject = description_subject(name);
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
        let filter = all_chunks_subject(name);
        let listed = stream.info_with_subjects(filter).await.map_err(|error| unknown(&error))?;
        let subjects: Vec<(String, usize)> = listed.try_collect().await.map_err(|error| unknown(&error))?;
        let is_older =
            |subject: &str| version_of(subject).is_some_and(|version| version < standing.description.version);
        Ok(subjects.into_iter().map(|(subject, _)| subject).filter(|subject| is_older(subject)).collect())
    }

    async fn remove(&self, chunks_subject: &str) {
        if let Err(error) = stored::purge(&self.source.context, DOCUMENT_STREAM, chunks_subject, None).await {
            tracing::debug!(%error, "chunks stay until a later version is stored");
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
}

fn is_overtaken(description: &Description, standing: Option<&StoredDescription>) -> bool {
    standing.is_some_and(|standing| standing.description.version > description.version)
}

/// Digests on a thread of its own: a few hundred megabytes take a second.
async fn digest(value: Bytes) -> Result<Digest, BusError> {
    tokio::task::spawn_blocking(move || Digest::of_bytes(&value)).await.map_err(|_| BusError::Closed)
}

fn to_bus_error(error: NotStored) -> BusError {
    error.into_error(DOCUMENT_STREAM, CHUNK_BYTES)
}

#[async_trait]
impl Blobs for NatsBlobs {
    async fn put(&self, name: String, version: u64, value: Bytes) -> Result<bool, BusError> {
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

    async fn value(&self, name: String) -> Result<Option<Bytes>, BusError> {
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

    async fn version(&self, name: String) -> Result<Option<u64>, BusError> {
        check_key(&name)?;
        Ok(self.standing(&name).await?.map(|standing| standing.description.version))
    }
}

/// Pieces of ballast.
const PIECES: usize = 8;
/// Size of a piece; 1 MiB in all. Room for thousands of small documents, and more than gateways append to a store that
/// was full a moment ago in the time until one of them is written.
const PIECE_BYTES: usize = 128 * 1024;

/// Largest document that may use the ballast.
const SMALL_BYTES_MAX: usize = 16 * 1024;

struct Ballast {
    context: Context,
    is_given_up: AtomicBool,
}

impl Ballast {
    fn new(context: Context) -> Self {
        Self { context, is_given_up: AtomicBool::new(false) }
    }

    /// Sees that the ballast is there, if it can be: a store that is full already has none.
    async fn ensure(&self, timeout: Duration, deadline: Instant) {
        match retry_until(deadline, || self.fill(timeout)).await {
            Ok(()) => self.is_given_up.store(false, Ordering::Relaxed),
            Err(error) => tracing::warn!(%error, "no room is kept for trimming the log, should the store be full"),
        }
    }

    /// Gives the room to whoever comes first, and returns whether there was any.
    async fn give_up(&self) -> bool {
        if self.is_given_up.swap(true, Ordering::Relaxed) {
            return false;
        }
        tracing::warn!("the server's store is full: the room kept for trimming the log is used");
        stored::purge(&self.context, DOCUMENT_STREAM, &subject(), None).await.is_ok()
    }

    /// Puts the ballast back when it was given up.
    async fn restore(&self, timeout: Duration) {
        if self.is_given_up.load(Ordering::Relaxed) {
            self.ensure(timeout, Instant::now()).await;
        }
    }

    async fn fill(&self, timeout: Duration) -> Result<(), BusError> {
        let stream = stored::stream(&self.context, DOCUMENT_STREAM).await?;
        let unknown = |error: &dyn std::fmt::Display| BusError::Unknown(error.to_string());
        let listed = stream.info_with_subjects(subject()).await.map_err(|error| unknown(&error))?;
        let counts: Vec<(String, usize)> = listed.try_collect().await.map_err(|error| unknown(&error))?;
        let standing: usize = counts.into_iter().map(|(_, count)| count).sum();
        let client: Client = self.context.client();
        for _ in standing..PIECES {
            let piece = Bytes::from(vec![0; PIECE_BYTES]);
            stored::publish(&client, subject(), piece, timeout).await.map_err(to_bus_error)?;
        }
        Ok(())
    }
}

fn subject() -> String {
    chunks_subject("reserve")
}

/// Largest document. A checkpoint of 100 000 open negotiations has a quarter of it; whoever reads one holds it whole.
const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024 * 1024;
/// Content is stored in chunks of this size, as the client does.
const CHUNK_BYTES: usize = 128 * 1024;
/// Member of a description's metadata that holds the version.
const VERSION_KEY: &str = "llmx-version";

/// A document as it is described; the content is under [`Self::chunks_subject`].
#[derive(Debug, Clone, PartialEq, Eq)]
struct Description {
    name: String,
    version: u64,
    /// Names the chunks: `<name>.<version>.<random>`. An object store takes any unique id here; this one lets a later
    /// writer find, and remove, what interrupted ones have left.
    id: String,
    size: usize,
    chunks: usize,
    digest: Digest,
}

impl Description {
    fn new(name: &str, version: u64, value: &Bytes, digest: Digest) -> Self {
        Self {
            name: name.to_owned(),
            version,
            id: format!("{name}.{version}.{:016x}", rand::random::<u64>()),
            size: value.len(),
            chunks: value.len().div_ceil(CHUNK_BYTES),
            digest,
        }
    }

    fn chunks_subject(&self) -> String {
        chunks_subject(&self.id)
    }

    fn encode(&self, modified: Timestamp) -> Bytes {
        let document = json!({
            "name": self.name,
            "bucket": DOCUMENT_BUCKET,
            "nuid": self.id,
            "size": self.size,
            "chunks": self.chunks,
            "mtime": WireTime(modified).to_string(),
            "digest": digest_text(self.digest),
            "metadata": { VERSION_KEY: self.version.to_string() },
            "options": { "max_chunk_size": CHUNK_BYTES },
        });
        Bytes::from(document.to_string())
    }

    /// Reads a description that [`Self::encode`] wrote, or says what is wrong with it.
    fn decode(bytes: &[u8]) -> Result<Self, BusError> {
        let fault = |what: &str| BusError::Unknown(format!("the description of a document has no {what}"));
        let document: Value = serde_json::from_slice(bytes).map_err(|_| fault("JSON"))?;
        let text = |member: &str| document[member].as_str().map(str::to_owned).ok_or_else(|| fault(member));
        let number = |member: &str| {
            let number = document[member].as_u64().and_then(|number| usize::try_from(number).ok());
            number.filter(|&number| number <= DOCUMENT_BYTES_MAX).ok_or_else(|| fault(member))
        };
        let version = document["metadata"][VERSION_KEY].as_str().and_then(|version| version.parse().ok());
        Ok(Self {
            name: text("name")?,
            version: version.ok_or_else(|| fault(VERSION_KEY))?,
            id: text("nuid")?,
            size: number("size")?,
            chunks: number("chunks")?,
            digest: parse_digest(&text("digest")?).ok_or_else(|| fault("digest"))?,
        })
    }
}

/// Where the chunks with this id are.
fn chunks_subject(id: &str) -> String {
    format!("$O.{DOCUMENT_BUCKET}.C.{id}")
}

/// The chunks of every version of a document.
fn all_chunks_subject(name: &str) -> String {
    format!("$O.{DOCUMENT_BUCKET}.C.{name}.>")
}

/// The version that chunks under this subject belong to.
fn version_of(subject: &str) -> Option<u64> {
    let mut tokens = subject.rsplit('.');
    let _random = tokens.next()?;
    tokens.next()?.parse().ok()
}

/// Where a document's description is.
fn description_subject(name: &str) -> String {
    format!("$O.{DOCUMENT_BUCKET}.M.{}", URL_SAFE.encode(name))
}

fn digest_text(digest: Digest) -> String {
    format!("SHA-256={}", URL_SAFE.encode(digest.0))
}

fn parse_digest(text: &str) -> Option<Digest> {
    let bytes = URL_SAFE.decode(text.strip_prefix("SHA-256=")?).ok()?;
    Some(Digest(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_reads_as_it_was_written() {
        let value = Bytes::from(vec![7; CHUNK_BYTES + 1]);
        let written = Description::new("checkpoint-0", 42, &value, Digest::of_bytes(&value));
        assert_eq!((written.size, written.chunks), (CHUNK_BYTES + 1, 2));
        assert_eq!(Description::decode(&written.encode(Timestamp(1))).unwrap(), written);
        assert_eq!(version_of(&written.chunks_subject()), Some(42));
    }

    #[test]
    fn a_description_that_lacks_something_is_refused_by_its_name() {
        let whole = Description::new("a", 1, &Bytes::new(), Digest::of_bytes(b"")).encode(Timestamp(1));
        for member in ["nuid", "size", "chunks", "digest", "metadata", "name"] {
            let mut document: Value = serde_json::from_slice(&whole).unwrap();
            document[member] = Value::Null;
            let told = Description::decode(document.to_string().as_bytes()).unwrap_err().to_string();
            let expected = if member == "metadata" { VERSION_KEY } else { member };
            assert!(told.contains(expected), "{member}: {told}");
        }
        assert!(Description::decode(b"{").is_err());
    }
}
