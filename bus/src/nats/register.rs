//! The register: a stream that takes one message per subject, ever.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use retry::Backoff;
use schemas::RegisterKey;

use super::REGISTER_STREAM;
use super::consumer::OrderedReader;
use super::{NotStored, Selection, StreamSource, stored};
use crate::{BusError, Register, Registered};

/// Attempts at one write: with the pauses between them they outlast most changes of leader, which take 4 to 9 s. Whoever
/// is told that the outcome is unknown writes again.
const ATTEMPTS_MAX: u32 = 12;
/// Between two attempts. With delays half as long on average, all attempts take 8 s.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(2), jitter: 1.0 };
/// Every subject of the stream.
const ALL_KEYS: &str = ">";

pub(super) struct NatsRegister {
    write: Client,
    read: StreamSource,
    timeout: Duration,
}

impl NatsRegister {
    pub(super) fn new(write: Client, read: StreamSource, timeout: Duration) -> Self {
        Self { write, read, timeout }
    }

    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        let subject = key.to_string();
        let mut attempt = 1;
        loop {
            let error = match self.try_write(&subject, &value).await {
                // In a cluster a key can be taken before its value can be read; the code of that refusal is the one of a
                // full store.
                Err(error @ (BusError::Unknown(_) | BusError::Unreachable(_) | BusError::Full(_))) => error,
                outcome => return outcome,
            };
            if attempt == ATTEMPTS_MAX {
                return Err(error);
            }
            tracing::debug!(%error, subject, attempt, "a register write is tried again");
            tokio::time::sleep(BACKOFF.delay(attempt, rand::random())).await;
            attempt += 1;
        }
    }

    /// One attempt. A refusal proves nothing by its code, which differs between one server and a cluster: only what
    /// stands under the key does.
    async fn try_write(&self, subject: &str, value: &Bytes) -> Result<Registered, BusError> {
        let (code, reason) = match stored::publish(&self.write, subject.to_owned(), value.clone(), self.timeout).await {
            Ok(_) => return Ok(Registered::Written),
            Err(NotStored::Unknown(reason)) => return Err(BusError::Unknown(reason)),
            Err(NotStored::TooLarge(limit)) => return Err(BusError::TooLarge { bytes: value.len(), limit }),
            Err(NotStored::Refused(code, reason)) => (code, reason),
        };
        match self.standing(subject).await? {
            Some(standing) if standing == *value => Ok(Registered::Same),
            Some(standing) => Ok(Registered::Different(standing)),
            None if stored::is_full(code) => Err(stored::full(REGISTER_STREAM, code, &reason)),
            None => Err(BusError::Unknown(reason)),
        }
    }

    async fn standing(&self, subject: &str) -> Result<Option<Bytes>, BusError> {
        Ok(stored::last_on(&self.read.context, REGISTER_STREAM, subject).await?.map(|message| message.payload))
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        let unknown = |reason: String| BusError::Unknown(format!("the register cannot be read: {reason}"));
        let stream = stored::stream(&self.read.context, REGISTER_STREAM).await?;
        let last_seq = stream.get_info().await.map_err(|error| unknown(error.to_string()))?.state.last_sequence;
        let (name, subject) = (REGISTER_STREAM.to_owned(), ALL_KEYS.to_owned());
        let selection = Selection { stream: name, subject, from: DeliverPolicy::All };
        let (mut reader, pending) = OrderedReader::start(self.read.clone(), selection).await?;
        let mut entries = Vec::with_capacity(usize::try_from(pending).unwrap_or(0));
        let mut is_done = pending == 0;
        while !is_done {
            let next = tokio::time::timeout(self.timeout, reader.next()).await;
            let stored = next.map_err(|_| unknown("no answer".to_owned()))?.ok_or(BusError::Closed)??;
            is_done = stored.seq >= last_seq || stored.pending == 0;
            let message = stored.message;
            match RegisterKey::parse(&message.subject) {
                Some(key) => entries.push((key, message.payload)),
                None => tracing::warn!(subject = %message.subject, "the register holds a key of another make"),
            }
        }
        Ok(entries)
    }
}

impl Register for NatsRegister {
    fn write(&self, key: RegisterKey, value: Bytes) -> BoxFuture<'_, Result<Registered, BusError>> {
        self.write(key, value).boxed()
    }

    fn value(&self, key: RegisterKey) -> BoxFuture<'_, Result<Option<Bytes>, BusError>> {
        async move { self.standing(&key.to_string()).await }.boxed()
    }

    fn entries(&self) -> BoxFuture<'_, Result<Vec<(RegisterKey, Bytes)>, BusError>> {
        self.entries().boxed()
    }
}
