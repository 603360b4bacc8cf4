//! The register: a stream that takes one message per subject. An entry goes by a purge of its subject, up to its sequence.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::stream::State;
use async_trait::async_trait;
use bytes::Bytes;
use retry::Backoff;
use schemas::RegisterKey;

use super::REGISTER_STREAM;
use super::consumer::OrderedReader;
use super::{NotStored, Selection, StreamSource, stored};
use crate::{BusError, Register, RegisterSize, Registered, StandingEntry};

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
    /// The stream is of a build whose registers kept everything.
    keeps_all: bool,
}

impl NatsRegister {
    pub(super) fn new(write: Client, read: StreamSource, timeout: Duration, keeps_all: bool) -> Self {
        Self { write, read, timeout, keeps_all }
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

    async fn state(&self) -> Result<State, BusError> {
        let stream = stored::stream(&self.read.context, REGISTER_STREAM).await?;
        let info = stream.get_info().await;
        Ok(info.map_err(|error| BusError::Unknown(format!("the register cannot be read: {error}")))?.state)
    }
}

#[async_trait]
impl Register for NatsRegister {
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

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        self.standing(&key.to_string()).await
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        let all = self.entries_from(1, usize::MAX);
        Ok(all.await?.into_iter().map(|entry| (entry.key, entry.value)).collect())
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError> {
        let unknown = |reason: String| BusError::Unknown(format!("the register cannot be read: {reason}"));
        let last_seq = self.state().await?.last_sequence;
        if last_seq < seq || max == 0 {
            return Ok(Vec::new());
        }
        let from = DeliverPolicy::ByStartSequence { start_sequence: seq.max(1) };
        let selection = Selection { stream: REGISTER_STREAM.to_owned(), subject: ALL_KEYS.to_owned(), from };
        let (mut reader, pending) = OrderedReader::start(self.read.clone(), selection).await?;
        let mut entries = Vec::with_capacity(usize::try_from(pending).unwrap_or(0).min(max));
        let mut is_done = pending == 0;
        while !is_done {
            let next = tokio::time::timeout(self.timeout, reader.next()).await;
            let stored = next.map_err(|_| unknown("no answer".to_owned()))?.ok_or(BusError::Closed)??;
            let (seq, written_at, message) = (stored.seq, stored.stamped, stored.message);
            match RegisterKey::parse(&message.subject) {
                Some(key) => entries.push(StandingEntry { key, value: message.payload, seq, written_at }),
                None => tracing::warn!(subject = %message.subject, "the register holds a key of another make"),
            }
            is_done = seq >= last_seq || stored.pending == 0 || entries.len() >= max;
        }
        Ok(entries)
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        if self.keeps_all {
            let remedy = "it was created by an earlier build (`deny_purge`) and keeps every entry";
            return Err(BusError::Unusable(format!("stream {REGISTER_STREAM}: {remedy}")));
        }
        stored::purge(&self.read.context, REGISTER_STREAM, &key.to_string(), Some(seq.saturating_add(1))).await
    }

    async fn size(&self) -> Result<RegisterSize, BusError> {
        let state = self.state().await?;
        Ok(RegisterSize { entries: state.messages, bytes: state.bytes })
    }
}
