//! The agent's own clock, and what it tells about log time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemas::Timestamp;
use tokio::time::Instant;

/// Local time that never goes back: the wall clock at the start, moved on by the monotonic one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentClock {
    start: Instant,
    start_at: Timestamp,
    /// How far log time is ahead of local time, in microseconds: the largest difference seen, because a delivery can
    /// only arrive after its record was written.
    log_ahead_us: Option<i64>,
}

impl AgentClock {
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::starting_at(Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(0)))
    }

    fn starting_at(start_at: Timestamp) -> Self {
        Self { start: Instant::now(), start_at, log_ahead_us: None }
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
        let ahead = i64::try_from(i128::from(log_time.0) - i128::from(local.0)).unwrap_or(0);
        self.log_ahead_us = Some(self.log_ahead_us.map_or(ahead, |known| known.max(ahead)));
    }

    pub(crate) fn log_time(&self, local: Timestamp) -> Timestamp {
        Timestamp(local.0.saturating_add_signed(self.log_ahead_us.unwrap_or(0)))
    }

    pub(crate) fn local_time(&self, log_time: Timestamp) -> Timestamp {
        Timestamp(log_time.0.saturating_add_signed(self.log_ahead_us.unwrap_or(0).saturating_neg()))
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
}
