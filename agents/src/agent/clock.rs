//! The agent's own clock, and what it tells about log time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemas::Timestamp;
use tokio::time::Instant;

/// Local time that never goes back: the wall clock at the start, moved on by the monotonic one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentClock {
    start: Instant,
    start_at: Timestamp,
    /// How far log time is ahead of local time, once a delivery has told.
    log_ahead: Option<LogAhead>,
}

/// The largest differences seen, in microseconds: a delivery can only arrive after its record was written. What is older than
/// two spans is forgotten: clocks drift apart, and one that was wrong is set right.
#[derive(Debug, Clone, Copy)]
struct LogAhead {
    began: Timestamp,
    largest_us: i64,
    /// In the span before.
    before_us: Option<i64>,
}

/// Long against the queues of an overloaded exchange, which hide the least delay for as long as they stand.
const SPAN: Duration = Duration::from_secs(60);

impl AgentClock {
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::starting_at(Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(0)))
    }

    fn starting_at(start_at: Timestamp) -> Self {
        Self { start: Instant::now(), start_at, log_ahead: None }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        Timestamp(self.start_at.0.saturating_add(elapsed))
    }

    /// The instant at which [`AgentClock::now`] reaches a time; absent when it lies beyond what the clock can say.
    pub(crate) fn instant(&self, at: Timestamp) -> Option<Instant> {
        self.start.checked_add(Duration::from_micros(at.since_us(self.start_at)))
    }

    /// Learns from a delivery that the log had reached `log_time`.
    pub(crate) fn handle_log_time(&mut self, local: Timestamp, log_time: Timestamp) {
        let ahead_us = i64::try_from(i128::from(log_time.0) - i128::from(local.0)).unwrap_or(0);
        let latest = LogAhead { began: local, largest_us: ahead_us, before_us: None };
        self.log_ahead = Some(self.log_ahead.map_or(latest, |known| known.after(latest)));
    }

    pub(crate) fn log_time(&self, local: Timestamp) -> Timestamp {
        Timestamp(local.0.saturating_add_signed(self.log_ahead_us()))
    }

    pub(crate) fn local_time(&self, log_time: Timestamp) -> Timestamp {
        Timestamp(log_time.0.saturating_add_signed(self.log_ahead_us().saturating_neg()))
    }

    fn log_ahead_us(&self) -> i64 {
        self.log_ahead.map_or(0, |ahead| ahead.before_us.unwrap_or(i64::MIN).max(ahead.largest_us))
    }
}

impl LogAhead {
    fn after(self, latest: Self) -> Self {
        if latest.began.since_us(self.began) >= u64::try_from(SPAN.as_micros()).unwrap_or(u64::MAX) {
            Self { before_us: Some(self.largest_us), ..latest }
        } else {
            Self { largest_us: self.largest_us.max(latest.largest_us), ..self }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn log_time_follows_the_least_delayed_delivery() {
        let mut clock = AgentClock::starting_at(Timestamp::from_ms(1000));
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(clock.now(), Timestamp::from_ms(1050));
        assert_eq!(clock.log_time(clock.now()), clock.now(), "without a delivery the own clock has to do");
        // The log is 200 ms ahead; the first delivery took 30 ms, the second none, the third 10 ms.
        for (delay, expected_ahead) in [(30, 170), (0, 200), (10, 200)] {
            clock.handle_log_time(clock.now(), clock.now().plus_ms(200 - delay));
            assert_eq!(clock.log_time(clock.now()), clock.now().plus_ms(expected_ahead));
        }
        assert_eq!(clock.local_time(clock.log_time(clock.now())), clock.now());
        assert_eq!(clock.instant(clock.now().plus_ms(5)), Some(Instant::now() + Duration::from_millis(5)));
        assert!(clock.instant(Timestamp(0)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_clock_was_two_minutes_ago_says_nothing() {
        let mut clock = AgentClock::starting_at(Timestamp::from_ms(1000));
        let mut ahead_ms = |by_ms| {
            clock.handle_log_time(clock.now(), clock.now().plus_ms(by_ms));
            clock.log_time(clock.now()).since_us(clock.now()) / 1000
        };
        assert_eq!(ahead_ms(10_000), 10_000, "the log's clock is wrong");
        for second in 1..=200 {
            tokio::time::advance(Duration::from_secs(1)).await;
            // It is set right, and every other delivery waits in a queue.
            let by_ms = if second % 2 == 0 { 500 } else { 0 };
            let expected = if second < 120 { 10_000 } else { 500 };
            assert_eq!(ahead_ms(by_ms), expected, "{second}");
        }
    }
}
