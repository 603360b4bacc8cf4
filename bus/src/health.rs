//! Whether the bus answers, found out by asking it again and again: for readiness.
//!
//! A lost connection says nothing by itself (it comes back within milliseconds), and a connection that stands says as
//! little (a cluster without a leader accepts nothing). So the question is a real one: for the end of a lane, and for a
//! round trip of messages.

use std::convert::Infallible;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use schemas::Lane;
use tokio::time::{Instant, sleep, timeout};

use crate::{Bus, BusError};

/// Pause after an answer. A question costs the bus two small requests, and wakes a server that rests.
const PAUSE: Duration = Duration::from_millis(900);
/// Pause after a question without an answer: another is asked within [`ANSWER_AGE_MAX`], however late the first one failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for an answer; a healthy bus takes milliseconds.
const ANSWER_MAX: Duration = Duration::from_millis(800);
/// Silence after which the bus counts as unreachable: longer than a reconnection or the election of a leader takes,
/// shorter than clients wait before they turn elsewhere.
pub const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);

/// Asks the bus again and again whether it answers. Shared between [`HealthProbe::drive`] and whoever answers for readiness.
#[derive(Debug)]
pub struct HealthProbe {
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    answer_at: Instant,
    /// Why the last question had no answer.
    failure: Option<String>,
}

/// The bus is unreachable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the bus has not answered for {} s ({reason}); check that nats-server runs and can be reached", silent_for.as_secs())]
pub struct Unreachable {
    /// Since its last answer, or since the first question.
    pub silent_for: Duration,
    /// What the last question led to.
    pub reason: String,
}

impl HealthProbe {
    /// For a bus that has just been opened, and so has answered.
    #[must_use]
    pub fn new() -> Self {
        Self { last: Mutex::new(Last { answer_at: Instant::now(), failure: None }) }
    }

    /// Asks until it is dropped.
    pub async fn drive(&self, bus: &Bus) -> Infallible {
        loop {
            let outcome = timeout(ANSWER_MAX, ask(bus)).await;
            let failure = match outcome {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {} ms", ANSWER_MAX.as_millis())),
            };
            let pause = if failure.is_none() { PAUSE } else { RETRY_PAUSE };
            self.note(failure);
            sleep(pause).await;
        }
    }

    /// Whether the bus answers.
    ///
    /// # Errors
    /// [`Unreachable`] when it has not for longer than [`ANSWER_AGE_MAX`].
    pub fn check(&self) -> Result<(), Unreachable> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let silent_for = last.answer_at.elapsed();
        if silent_for <= ANSWER_AGE_MAX {
            return Ok(());
        }
        Err(Unreachable { silent_for, reason: last.failure.clone().unwrap_or_else(|| "not asked".to_owned()) })
    }

    fn note(&self, failure: Option<String>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match (&failure, last.answer_at.elapsed()) {
            (None, silent_for) if silent_for > ANSWER_AGE_MAX => {
                tracing::info!(silent_ms = silent_for.as_millis(), "the bus answers again");
            }
            (Some(reason), silent_for) if silent_for > ANSWER_AGE_MAX && last.failure.as_ref() != Some(reason) => {
                tracing::warn!(silent_ms = silent_for.as_millis(), reason, "the bus does not answer");
            }
            (None | Some(_), _) => {}
        }
        if failure.is_none() {
            last.answer_at = Instant::now();
        }
        last.failure = failure;
    }
}

impl Default for HealthProbe {
    fn default() -> Self {
        Self::new()
    }
}

async fn ask(bus: &Bus) -> Result<(), BusError> {
    tokio::try_join!(bus.log.last_seq(Lane(0)), bus.pub_sub.flush()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use bytes::Bytes;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::memory::{self, MemoryOptions};
    use crate::{Log, LogRecord, LogStream};

    #[tokio::test(start_paused = true)]
    async fn a_bus_that_falls_silent_is_unreachable_after_two_seconds_and_reachable_at_its_first_answer() {
        let bus = memory::open(MemoryOptions::default());
        let deaf = Arc::new(Deaf { log: Arc::clone(&bus.log), is_deaf: AtomicBool::new(false) });
        let bus = Bus { log: deaf.clone(), ..bus };
        let health = Arc::new(HealthProbe::new());
        let asked = Arc::clone(&health);
        let asking = tokio::spawn(async move { asked.drive(&bus).await });
        sleep(Duration::from_secs(60)).await;
        assert_eq!(health.check(), Ok(()));

        deaf.is_deaf.store(true, Ordering::Relaxed);
        sleep(ANSWER_AGE_MAX - PAUSE).await;
        assert_eq!(health.check(), Ok(()), "a reconnection takes as long");
        sleep(Duration::from_secs(10)).await;
        let unreachable = health.check().unwrap_err();
        assert!(
            unreachable.silent_for > Duration::from_secs(11) && unreachable.reason == "no answer within 800 ms",
            "{unreachable}"
        );

        deaf.is_deaf.store(false, Ordering::Relaxed);
        sleep(ANSWER_MAX + PAUSE).await;
        assert_eq!(health.check(), Ok(()));
        asking.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn one_question_that_is_lost_makes_no_bus_unreachable() {
        let bus = memory::open(MemoryOptions::default());
        let deaf = Arc::new(Deaf { log: Arc::clone(&bus.log), is_deaf: AtomicBool::new(false) });
        let bus = Bus { log: deaf.clone(), ..bus };
        let health = Arc::new(HealthProbe::new());
        let asked = Arc::clone(&health);
        let asking = tokio::spawn(async move { asked.drive(&bus).await });
        sleep(PAUSE / 2).await;
        deaf.is_deaf.store(true, Ordering::Relaxed);
        sleep(PAUSE).await;
        deaf.is_deaf.store(false, Ordering::Relaxed);
        for _ in 0..40 {
            assert_eq!(health.check(), Ok(()));
            sleep(Duration::from_millis(50)).await;
        }
        asking.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_who_asks_means_nobody_knows() {
        let health = HealthProbe::new();
        assert_eq!(health.check(), Ok(()), "it has just been opened");
        sleep(2 * ANSWER_AGE_MAX).await;
        assert_eq!(health.check().unwrap_err().reason, "not asked");
    }

    /// A log whose end cannot be learned while it is deaf.
    struct Deaf {
        log: Arc<dyn Log>,
        is_deaf: AtomicBool,
    }

    impl Log for Deaf {
        fn lanes(&self) -> u8 {
            self.log.lanes()
        }

        fn append(&self, lane: Lane, record: Bytes) -> BoxFuture<'_, Result<u64, BusError>> {
            self.log.append(lane, record)
        }

        fn read(&self, lane: Lane, from_seq: u64) -> BoxFuture<'_, Result<LogStream, BusError>> {
            self.log.read(lane, from_seq)
        }

        fn last_seq(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
            if self.is_deaf.load(Ordering::Relaxed) { std::future::pending().boxed() } else { self.log.last_seq(lane) }
        }

        fn record(&self, lane: Lane, seq: u64) -> BoxFuture<'_, Result<Option<LogRecord>, BusError>> {
            self.log.record(lane, seq)
        }

        fn trim(&self, lane: Lane, below_seq: u64) -> BoxFuture<'_, Result<(), BusError>> {
            self.log.trim(lane, below_seq)
        }

        fn trimmed(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
            self.log.trimmed(lane)
        }
    }
}
