//! The register: a stream that takes one message per subject. An entry goes by a purge of its subject, up to its sequence.

use std::time::Duration;

use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::stream::State;
use async_nats::{Client, Message};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use retry::Backoff;
use schemas::RegisterKey;

use super::REGISTER_STREAM;
use super::{NotStored, StreamSource, stored, to_timestamp};
use crate::{BusError, Register, RegisterSize, Registered, StandingEntry};

/// Attempts at one write: with the pauses between them they outlast most changes of leader, which take 4 to 9 s. Whoever
/// is told that the outcome is unknown writes again.
const ATTEMPTS_MAX: u32 = 12;
/// Between two attempts. With delays half as long on average, all attempts take 8 s.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(2), jitter: 1.0 };
/// Time after which the server forgets who reads, and asks for no more.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// Entries asked for at once: a server that may send on by itself sends megabytes before it is told to stop.
const FETCHED_AT_ONCE: usize = 1024;

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
        let config = Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: seq.max(1) },
            ack_policy: AckPolicy::None,
            inactive_threshold: FORGET_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..Config::default()
        };
        let consumer = self.read.context.create_consumer_on_stream(config, REGISTER_STREAM).await;
        let consumer = consumer.map_err(|error| unknown(error.to_string()))?;
        let (mut entries, mut received) = (Vec::new(), 0);
        let mut pending = consumer.cached_info().num_pending;
        while pending > 0 && entries.len() < max {
            let wanted = (max - entries.len()).min(FETCHED_AT_ONCE);
            let fetched = consumer.fetch().max_messages(wanted).messages().await;
            let mut fetched = fetched.map_err(|error| unknown(error.to_string()))?;
            let before = received;
            while let Some(next) = tokio::time::timeout(self.timeout, fetched.next()).await.transpose() {
                let message = next.map_err(|_| unknown("no answer".to_owned()))?;
                let message = message.map_err(|error| unknown(error.to_string()))?;
                let info = message.info().map_err(|error| unknown(error.to_string()))?;
                received += 1;
                if info.consumer_sequence != received {
                    return Err(unknown("a message is missing".to_owned()));
                }
                let (seq, written_at) = (info.stream_sequence, to_timestamp(info.published));
                pending = if seq >= last_seq { 0 } else { info.pending };
                let Message { subject, payload: value, .. } = &message.message;
                match RegisterKey::parse(subject) {
                    Some(key) => entries.push(StandingEntry { key, value: value.clone(), seq, written_at }),
                    None => tracing::warn!(%subject, "the register holds a key of another make"),
                }
            }
            if received == before {
                return Err(unknown("no answer".to_owned()));
            }
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
