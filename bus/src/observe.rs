//! What is stored on a bus, told to an observer: for metrics. Works with every backend.
//!
//! [`observed`] wraps the two services whose acknowledgements the exchange lives by, the log and the register. The others
//! are passed through.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use schemas::{Lane, RegisterKey, Timestamp};
use tokio::time::Instant;

use crate::{Bus, BusError, Log, LogRecord, LogStream, Register, RegisterSize, Registered, StandingEntry, nats};

/// What is published into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub enum Stream {
    /// The log.
    Log,
    /// The write-once register.
    Register,
}

/// What became of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum PublishResult {
    /// It is stored.
    Ack,
    /// The same stood there already.
    Duplicate,
    /// The register holds another value under the key: never to be seen.
    Conflict,
    /// Nobody knows: no answer in time, or one that leaves it open. It is repeated.
    Timeout,
    /// There is no room.
    Full,
    /// It was refused for another reason.
    Error,
}

/// Hears what is stored. Called on the way of every message: must not block.
pub trait PublishObserver: Send + Sync {
    /// A publication begins; exactly one [`PublishObserver::published`] follows.
    fn publishing(&self, stream: Stream);

    /// A publication has ended. `took` includes what the backend repeated by itself; whoever stops waiting ends it as
    /// [`PublishResult::Timeout`].
    fn published(&self, stream: Stream, result: PublishResult, took: Duration);
}

impl From<Stream> for &'static str {
    /// Its name on NATS, which the server's own metrics show.
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Log => nats::LOG_STREAM,
            Stream::Register => nats::REGISTER_STREAM,
        }
    }
}

impl PublishResult {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told by the error itself")]
    const fn of_failure(error: &BusError) -> Self {
        match error {
            BusError::Unknown(_) | BusError::Unreachable(_) | BusError::NoResponder(_) => Self::Timeout,
            BusError::Full(_) => Self::Full,
            _ => Self::Error,
        }
    }
}

/// The same bus; what is stored on it through this handle is told to `observer`.
#[must_use]
pub fn observed(bus: Bus, observer: Arc<dyn PublishObserver>) -> Bus {
    let log = Arc::new(ObservedLog { log: bus.log, observer: Arc::clone(&observer) });
    let register = Arc::new(ObservedRegister { register: bus.register, observer });
    Bus { log, register, ..bus }
}

/// A publication on its way. Whoever drops it has stopped waiting.
struct Publication<'a> {
    observer: &'a dyn PublishObserver,
    stream: Stream,
    begun: Instant,
    result: PublishResult,
}

impl<'a> Publication<'a> {
    fn begin(observer: &'a dyn PublishObserver, stream: Stream) -> Self {
        observer.publishing(stream);
        Self { observer, stream, begun: Instant::now(), result: PublishResult::Timeout }
    }
}

impl Drop for Publication<'_> {
    fn drop(&mut self) {
        self.observer.published(self.stream, self.result, self.begun.elapsed());
    }
}

struct ObservedLog {
    log: Arc<dyn Log>,
    observer: Arc<dyn PublishObserver>,
}

#[async_trait]
impl Log for ObservedLog {
    fn lanes(&self) -> u8 {
        self.log.lanes()
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        let mut publication = Publication::begin(&*self.observer, Stream::Log);
        let outcome = self.log.append(lane, record).await;
        publication.result = outcome.as_ref().map_or_else(PublishResult::of_failure, |_| PublishResult::Ack);
        outcome
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        self.log.read(lane, from_seq).await
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        self.log.last_seq(lane).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        self.log.record(lane, seq).await
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        self.log.trim(lane, below_seq).await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        self.log.trimmed(lane).await
    }

    async fn time(&self) -> Result<Option<Timestamp>, BusError> {
        self.log.time().await
    }
}

struct ObservedRegister {
    register: Arc<dyn Register>,
    observer: Arc<dyn PublishObserver>,
}

#[async_trait]
impl Register for ObservedRegister {
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        let mut publication = Publication::begin(&*self.observer, Stream::Register);
        let outcome = self.register.write(key, value).await;
        publication.result = match &outcome {
            Ok(Registered::Written) => PublishResult::Ack,
            Ok(Registered::Same) => PublishResult::Duplicate,
            Ok(Registered::Different(_)) => PublishResult::Conflict,
            Err(error) => PublishResult::of_failure(error),
        };
        outcome
    }

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        self.register.value(key).await
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        self.register.entries().await
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError> {
        self.register.entries_from(seq, max).await
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        self.register.remove(key, seq).await
    }

    async fn size(&self) -> Result<RegisterSize, BusError> {
        self.register.size().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use parking_lot::Mutex;
    use schemas::{AwardNo, Lot, NegotiationId};

    use super::*;
    use crate::memory::{self, MemoryOptions};

    #[derive(Default)]
    struct Counted(Mutex<(i64, Vec<(Stream, PublishResult)>)>);

    impl PublishObserver for Counted {
        fn publishing(&self, _: Stream) {
            self.0.lock().0 += 1;
        }

        fn published(&self, stream: Stream, result: PublishResult, _: Duration) {
            let mut heard = self.0.lock();
            heard.0 -= 1;
            heard.1.push((stream, result));
        }
    }

    #[tokio::test]
    async fn every_publication_is_told_once_with_its_result() {
        let heard = Arc::new(Counted::default());
        let options = MemoryOptions { log_bytes_max: 64, ..MemoryOptions::default() };
        let bus = observed(memory::open(options), heard.clone());
        bus.log.append(Lane(0), Bytes::from_static(b"{}")).await.unwrap();
        assert!(bus.log.append(Lane(0), Bytes::from(vec![b' '; 1_000])).await.is_err());
        assert!(bus.log.append(Lane(99), Bytes::from_static(b"{}")).await.is_err());
        let key = RegisterKey::Award(NegotiationId::try_new("alice~job").unwrap(), Lot(0), AwardNo(1));
        for value in ["one", "one", "other"] {
            bus.register.write(key.clone(), Bytes::from(value)).await.unwrap();
        }
        use PublishResult::{Ack, Conflict, Duplicate, Error, Full};
        let log = [Ack, Full, Error].map(|result| (Stream::Log, result));
        let register = [Ack, Duplicate, Conflict].map(|result| (Stream::Register, result));
        let (in_flight, results) = &*heard.0.lock();
        assert_eq!((*in_flight, results.as_slice()), (0, [log, register].concat().as_slice()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_publication_nobody_waits_for_any_more_has_ended_without_an_answer() {
        let heard = Arc::new(Counted::default());
        let publishing = async {
            let _publication = Publication::begin(&*heard, Stream::Log);
            pending::<()>().await;
        };
        assert!(tokio::time::timeout(Duration::from_secs(1), publishing).await.is_err());
        assert_eq!(*heard.0.lock(), (0, vec![(Stream::Log, PublishResult::Timeout)]));
    }
}
