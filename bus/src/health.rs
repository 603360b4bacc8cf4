//! Whether the bus answers, found out by asking it again and again: for readiness.
//!
//! A lost connection says nothing by itself (it comes back within milliseconds), and a connection that stands says as
//! little (a cluster without a leader accepts nothing). So the question is a real one: for the end of a lane, and for a
//! round trip of messages. A bus that answers may still serve this process badly: it may deny it subscriptions, or stamp
//! records by a clock that is far from the process's own.

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use schemas::{Lane, Timestamp};
use tokio::time::{Instant, sleep, timeout};

use crate::{Bus, BusError, wall_clock};

/// Pause after an answer. A question costs the bus two small requests, and wakes a server that rests.
const PAUSE: Duration = Duration::from_millis(900);
/// Pause after a question without an answer: another is asked within [`ANSWER_AGE_MAX`], however late the first one failed.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Longest wait for an answer; a healthy bus takes milliseconds.
const ANSWER_MAX: Duration = Duration::from_millis(800);
/// Silence after which the bus counts as unreachable: longer than a reconnection or the election of a leader takes,
/// shorter than clients wait before they turn elsewhere.
pub const ANSWER_AGE_MAX: Duration = Duration::from_secs(2);
/// The clock of the log is looked at so often. Clocks drift by milliseconds in a minute.
const CLOCK_PERIOD: Duration = Duration::from_secs(60);
/// Furthest that it may be from this process's own, in milliseconds: as far as for engines (docs/spec/log.md#lg-6).
const CLOCK_SKEW_MS_MAX: u64 = 5_000;

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
    /// What the bus denies this process.
    denied: Vec<String>,
    /// How far the log's clock is ahead of this process's own, in milliseconds.
    skew_ms: i64,
}

/// Why the bus does not serve this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BusFault {
    /// It does not answer.
    #[error(transparent)]
    Unreachable(Unreachable),
    /// It does not let the process use what it needs.
    #[error(
        "the bus does not let this process use `{}`, so nothing is heard or stored there; extend the permissions of its user",
        subjects.join("`, `")
    )]
    Denied {
        /// What it may not use.
        subjects: Vec<String>,
    },
    /// Deadlines and tokens are judged by clocks that differ.
    #[error(
        "the log's clock is {} s {} this process's; synchronise the clocks of both machines (NTP)",
        skew_ms.unsigned_abs() / 1000, if *skew_ms > 0 { "ahead of" } else { "behind" }
    )]
    ClockOff {
        /// How far the log's clock is ahead.
        skew_ms: i64,
    },
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
        let last = Last { answer_at: Instant::now(), failure: None, denied: Vec::new(), skew_ms: 0 };
        Self { last: Mutex::new(last) }
    }

    /// Asks until it is dropped.
    pub async fn drive(&self, bus: &Bus) -> Infallible {
        let mut clock_at = Instant::now();
        loop {
            let outcome = timeout(ANSWER_MAX, ask(bus)).await;
            let failure = match outcome {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!("no answer within {} ms", ANSWER_MAX.as_millis())),
            };
            let pause = if failure.is_none() { PAUSE } else { RETRY_PAUSE };
            self.note(failure, bus.pub_sub.denied());
            if Instant::now() >= clock_at
                && let Ok(Ok(Some(time))) = timeout(ANSWER_MAX, bus.log.time()).await
            {
                let is_off = self.note_time(time);
                clock_at = Instant::now() + if is_off { PAUSE } else { CLOCK_PERIOD };
            }
            sleep(pause).await;
        }
    }

    /// Compares the log's time with this process's own.
    fn note_time(&self, time: Timestamp) -> bool {
        let own = wall_clock();
        let ahead_ms = |one: Timestamp, other: Timestamp| i64::try_from(one.since_us(other) / 1000).unwrap_or(i64::MAX);
        let skew_ms = ahead_ms(time, own) - ahead_ms(own, time);
        self.last.lock().skew_ms = skew_ms;
        is_off(skew_ms)
    }

    /// Whether the bus answers, and lets this process do its work.
    ///
    /// # Errors
    /// [`BusFault::Unreachable`] when it has not answered for longer than [`ANSWER_AGE_MAX`]; otherwise what else is wrong.
    pub fn check(&self) -> Result<(), BusFault> {
        let last = self.last.lock();
        let silent_for = last.answer_at.elapsed();
        if silent_for > ANSWER_AGE_MAX {
            let reason = last.failure.clone().unwrap_or_else(|| "not asked".to_owned());
            return Err(BusFault::Unreachable(Unreachable { silent_for, reason }));
        }
        if !last.denied.is_empty() {
            return Err(BusFault::Denied { subjects: last.denied.clone() });
        }
        if is_off(last.skew_ms) { Err(BusFault::ClockOff { skew_ms: last.skew_ms }) } else { Ok(()) }
    }

    fn note(&self, failure: Option<String>, denied: Vec<String>) {
        let mut last = self.last.lock();
        last.denied = denied;
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

fn is_off(skew_ms: i64) -> bool {
    skew_ms.unsigned_abs() > CLOCK_SKEW_MS_MAX
}

async fn ask(bus: &Bus) -> Result<(), BusError> {
    tokio::try_join!(bus.log.last_seq(Lane(0)), bus.pub_sub.flush()).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
    use std::time::SystemTime;

    use bytes::Bytes;

    use super::*;
    use crate::async_trait;
    use crate::memory::{self, MemoryOptions};
    use crate::{Log, LogRecord, LogStream};

    #[tokio::test(start_paused = true)]
    async fn a_bus_that_falls_silent_is_unreachable_after_two_seconds_and_reachable_at_its_first_answer() {
        let bus = memory::open(MemoryOptions::default());
        let deaf = Arc::new(Deaf::of(&bus));
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
        let BusFault::Unreachable(unreachable) = health.check().unwrap_err() else { panic!("it does not answer") };
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
        let deaf = Arc::new(Deaf::of(&bus));
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
        let fault = health.check().unwrap_err();
        assert!(matches!(&fault, BusFault::Unreachable(unreachable) if unreachable.reason == "not asked"), "{fault}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_whose_clock_is_an_hour_off_is_a_fault_until_both_agree() {
        let bus = memory::open(MemoryOptions::default());
        let deaf = Arc::new(Deaf::of(&bus));
        let bus = Bus { log: deaf.clone(), ..bus };
        let health = Arc::new(HealthProbe::new());
        let asked = Arc::clone(&health);
        let asking = tokio::spawn(async move { asked.drive(&bus).await });
        for (ahead_s, said) in [(3600, "3600 s ahead of"), (-3600, "3600 s behind"), (4, ""), (-4, "")] {
            deaf.ahead_s.store(ahead_s, Ordering::Relaxed);
            sleep(CLOCK_PERIOD + PAUSE).await;
            let told = health.check().err().map(|fault| fault.to_string()).unwrap_or_default();
            // A slow test may read its own clock a little later.
            let is_said = told.contains(said) || told.contains(&said.replace("3600", "3599"));
            assert!(is_said && told.is_empty() == said.is_empty(), "{ahead_s}: {told}");
        }
        asking.abort();
    }

    /// A log whose end cannot be learned while it is deaf.
    struct Deaf {
        log: Arc<dyn Log>,
        is_deaf: AtomicBool,
        /// How far its clock is ahead.
        ahead_s: AtomicI64,
    }

    impl Deaf {
        fn of(bus: &Bus) -> Self {
            Self { log: Arc::clone(&bus.log), is_deaf: AtomicBool::new(false), ahead_s: AtomicI64::new(0) }
        }
    }

    #[async_trait]
    impl Log for Deaf {
        fn lanes(&self) -> u8 {
            self.log.lanes()
        }

        async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
            self.log.append(lane, record).await
        }

        async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
            self.log.read(lane, from_seq).await
        }

        async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
            if self.is_deaf.load(Ordering::Relaxed) {
                std::future::pending().await
            } else {
                self.log.last_seq(lane).await
            }
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
            let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
            let ahead_us = 1_000_000 * self.ahead_s.load(Ordering::Relaxed);
            let time = Timestamp(u64::try_from(since_epoch.as_micros()).unwrap().saturating_add_signed(ahead_us));
            Ok(Some(time))
        }
    }
}
