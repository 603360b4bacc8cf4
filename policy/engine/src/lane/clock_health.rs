//! Whether the log's clock can be trusted.

use bus::LogRecord;
use schemas::Timestamp;

use crate::config::ClockConfig;

/// Judges the log's clock by its records. Nothing is decided by it: it refuses readiness, because every deadline is kept
/// by that clock.
#[derive(Debug, Default)]
pub(crate) struct ClockHealth {
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

impl ClockHealth {
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
            let mut watch = ClockHealth::default();
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
        let mut watch = ClockHealth::default();
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
