//! An estimate of log time between records, from the local monotonic clock; and whether the log's clock can be trusted.

use std::time::Duration;

use bus::LogRecord;
use schemas::Timestamp;
use tokio::time::Instant;

use crate::config::ClockConfig;

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

/// Judges the log's clock by its records. Nothing is decided by it: it refuses readiness, because every deadline is kept
/// by that clock.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    /// How far the log's clock stands behind log time, in milliseconds.
    back_ms: u64,
    /// The stamp of the last record read, until it is judged.
    unjudged: Option<Timestamp>,
    /// How far it is from the engine's own, in milliseconds, by the last record that was read at once.
    skew_ms: i64,
    /// Such records in a row beyond the bound.
    beyond: u32,
}

/// Records in a row that must lie beyond the bound: one may have been held up on its way.
const SKEWED_MIN: u32 = 3;

impl ClockWatch {
    /// A record was read.
    pub(crate) fn observe(&mut self, record: &LogRecord) {
        self.back_ms = record.time.since_us(record.stamped) / 1000;
        self.unjudged = Some(record.stamped);
    }

    /// The log has no further record: the last one was read as soon as it was there, so its stamp is the log's clock now.
    pub(crate) fn handle_end(&mut self, config: &ClockConfig) {
        let Some(stamped) = self.unjudged.take() else { return };
        let now = (config.now)();
        let ahead_ms = |one: Timestamp, other: Timestamp| i64::try_from(one.since_us(other) / 1000).unwrap_or(i64::MAX);
        self.skew_ms = ahead_ms(stamped, now) - ahead_ms(now, stamped);
        let is_beyond = self.skew_ms.unsigned_abs() > config.skew_ms_max;
        self.beyond = if is_beyond { self.beyond.saturating_add(1) } else { 0 };
    }

    /// What is wrong, each with its remedy.
    pub(crate) fn faults(&self, config: &ClockConfig) -> impl Iterator<Item = String> {
        let back = (self.back_ms > config.back_ms_max).then(|| {
            format!(
                "the log's clock went back by {} ms (at most {} are allowed), and log time stands still until it has \
                 caught up; see to the clock of the NATS leader",
                self.back_ms, config.back_ms_max
            )
        });
        let skewed = (self.beyond >= SKEWED_MIN).then(|| {
            format!(
                "the log's clock is {} ms {} this engine's (at most {} are allowed); synchronise the clocks of both \
                 machines (NTP)",
                self.skew_ms.unsigned_abs(),
                if self.skew_ms > 0 { "ahead of" } else { "behind" },
                config.skew_ms_max
            )
        });
        back.into_iter().chain(skewed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schemas::Lane;

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

    #[test]
    fn a_clock_that_goes_back_or_is_far_off_is_named_with_its_remedy() {
        // Time and stamp of three records in a row, and the engine's own clock, in seconds.
        for (time, stamped, own, is_fresh, expected) in [
            (100, 100, 100, true, None),
            (101, 100, 100, true, None),
            (102, 100, 100, true, Some("went back by 2000 ms")),
            (100, 100, 105, true, None),
            (100, 100, 106, true, Some("6000 ms behind")),
            (100, 100, 94, true, Some("6000 ms ahead of")),
            (100, 100, 106, false, None),
        ] {
            let config =
                ClockConfig { now: Arc::new(move || Timestamp::from_ms(own * 1000)), ..ClockConfig::default() };
            let mut watch = ClockWatch::default();
            let record = record(time, stamped);
            for _ in 0..SKEWED_MIN {
                watch.observe(&record);
                if is_fresh {
                    watch.handle_end(&config);
                }
            }
            let faults: Vec<_> = watch.faults(&config).collect();
            assert_eq!(faults.len(), usize::from(expected.is_some()), "{faults:?}");
            assert!(expected.is_none_or(|expected| faults[0].contains(expected)), "{faults:?}");
        }
    }

    #[test]
    fn one_record_that_was_held_up_is_no_skew_and_a_good_one_ends_it() {
        let config = ClockConfig { now: Arc::new(|| Timestamp::from_ms(100_000)), ..ClockConfig::default() };
        let mut watch = ClockWatch::default();
        for (stamped, is_faulty) in
            [(90, false), (90, false), (100, false), (90, false), (90, false), (90, true), (100, false)]
        {
            watch.observe(&record(stamped, stamped));
            watch.handle_end(&config);
            watch.handle_end(&config);
            assert_eq!(watch.faults(&config).count(), usize::from(is_faulty));
        }
    }

    fn record(time_s: u64, stamped_s: u64) -> LogRecord {
        let [time, stamped] = [time_s, stamped_s].map(|s| Timestamp::from_ms(s * 1000));
        LogRecord { lane: Lane(0), seq: 1, time, stamped, bytes: bytes::Bytes::new() }
    }
}
