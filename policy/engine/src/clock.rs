//! An estimate of log time between records, from the local monotonic clock.

use std::time::Duration;

use schemas::Timestamp;
use tokio::time::Instant;

/// Estimates log time. A record is read after it was stamped, so each reading bounds the log's clock from below, and the
/// highest bound is the best estimate. Nothing is decided by it: it says when a tick or a retry is worth making.
#[derive(Debug)]
pub(crate) struct LogClock {
    stamped: Timestamp,
    read: Instant,
}

impl LogClock {
    pub(crate) fn new(now: Instant) -> Self {
        Self { stamped: Timestamp(0), read: now }
    }

    /// Takes a record's time into account.
    pub(crate) fn observe(&mut self, time: Timestamp, now: Instant) {
        if time >= self.log_time(now) {
            self.reset(time, now);
        }
    }

    /// Starts over from a record's time: the estimate was ahead (the log's clock was set back).
    pub(crate) fn reset(&mut self, time: Timestamp, now: Instant) {
        self.stamped = time;
        self.read = now;
    }

    /// The log's time at `now`, as far as known.
    pub(crate) fn log_time(&self, now: Instant) -> Timestamp {
        let elapsed_us = now.saturating_duration_since(self.read).as_micros();
        Timestamp(self.stamped.0.saturating_add(u64::try_from(elapsed_us).unwrap_or(u64::MAX)))
    }

    /// When the log's time will be `time`; a past instant is given as the anchor's.
    pub(crate) fn instant_of(&self, time: Timestamp) -> Instant {
        // An instant cannot lie arbitrarily far ahead; nothing waits longer than a day for a deadline.
        const AHEAD_US_MAX: u64 = 86_400_000_000;
        self.read + Duration::from_micros(time.since_us(self.stamped).min(AHEAD_US_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_lower_bound_is_the_estimate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut clock = LogClock::new(start);
        clock.observe(Timestamp::from_ms(1000), at(10));
        clock.observe(Timestamp::from_ms(1002), at(15));
        assert_eq!(clock.log_time(at(15)), Timestamp::from_ms(1005), "a record read late does not set the clock back");
        clock.observe(Timestamp::from_ms(1020), at(20));
        assert_eq!(clock.log_time(at(21)), Timestamp::from_ms(1021));
        assert_eq!(clock.instant_of(Timestamp::from_ms(1030)), at(30));
        clock.reset(Timestamp::from_ms(500), at(30));
        assert_eq!(clock.log_time(at(31)), Timestamp::from_ms(501));
    }
}
