//! The falling score threshold, in integers, and the instant at which it meets a score.
//!
//! `tau(t) = start - floor((start - end) * f(t)^e)`, where `f` is the elapsed share of the collection period in
//! fixed-point with [`FRACTION_BITS`] bits, rounded down at every multiplication. Every engine computes the same.

use schemas::Timestamp;
use schemas::policy::{FallingThreshold, Threshold};

/// Bits of the fraction. 32 keep every product within 64 bits and resolve a day to 20 microseconds.
const FRACTION_BITS: u32 = 32;

/// The period a threshold falls over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    /// Its begin: the round's call.
    pub(crate) start: Timestamp,
    /// Its length in microseconds; an extension of the deadline does not stretch it.
    pub(crate) length_us: u64,
}

/// The score required at `now`.
pub(crate) fn tau(threshold: Threshold, period: Period, now: Timestamp) -> u32 {
    match threshold {
        Threshold::Constant(score) => score,
        Threshold::Falling(falling) => falling_tau(falling, period, now),
    }
}

/// The first instant at which `score` suffices, from `now` to the end of the period; absent when it never does.
pub(crate) fn crossing(threshold: Threshold, period: Period, score: u32, now: Timestamp) -> Option<Timestamp> {
    let end = Timestamp(period.start.0.saturating_add(period.length_us));
    if score < tau(threshold, period, end) {
        return None;
    }
    // tau never rises, so the instants at which the score suffices are a suffix of the period.
    let (mut low, mut high) = (now.0, end.0.max(now.0));
    while low < high {
        let middle = low + (high - low) / 2;
        if score >= tau(threshold, period, Timestamp(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(Timestamp(low))
}

fn falling_tau(falling: FallingThreshold, period: Period, now: Timestamp) -> u32 {
    let elapsed = u128::from(now.since_us(period.start).min(period.length_us));
    let fraction = (elapsed << FRACTION_BITS) / u128::from(period.length_us.max(1));
    let mut power = fraction;
    for _ in 1..falling.exponent {
        power = (power * fraction) >> FRACTION_BITS;
    }
    let fall = u128::from(falling.start.saturating_sub(falling.end));
    let fallen = u32::try_from((fall * power) >> FRACTION_BITS).unwrap_or(u32::MAX);
    falling.start.saturating_sub(fallen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Period = Period { start: Timestamp(5_000_000), length_us: 1_000_000 };

    fn falling(exponent: u32) -> Threshold {
        Threshold::Falling(FallingThreshold { start: 900_000, end: 500_000, exponent })
    }

    fn at(us: u64) -> Timestamp {
        Timestamp(PERIOD.start.0 + us)
    }

    #[test]
    fn the_threshold_falls_from_start_to_end_and_stays_there() {
        for exponent in 1..=8 {
            assert_eq!(tau(falling(exponent), PERIOD, at(0)), 900_000);
            assert_eq!(tau(falling(exponent), PERIOD, at(1_000_000)), 500_000);
            assert_eq!(tau(falling(exponent), PERIOD, at(9_000_000)), 500_000);
        }
        assert_eq!(tau(falling(1), PERIOD, at(500_000)), 700_000);
        assert_eq!(tau(falling(2), PERIOD, at(500_000)), 800_000);
    }

    #[test]
    fn the_crossing_is_the_first_microsecond_at_which_the_score_suffices() {
        for exponent in 1..=8 {
            for score in [500_000, 500_001, 640_321, 899_999] {
                let instant = crossing(falling(exponent), PERIOD, score, at(0)).unwrap();
                assert!(score >= tau(falling(exponent), PERIOD, instant));
                assert!(score < tau(falling(exponent), PERIOD, Timestamp(instant.0 - 1)), "{exponent} {score}");
            }
        }
        assert_eq!(crossing(falling(1), PERIOD, 499_999, at(0)), None);
        assert_eq!(crossing(Threshold::Constant(7), PERIOD, 7, at(3)), Some(at(3)));
        assert_eq!(crossing(falling(1), PERIOD, 900_000, at(10)), Some(at(10)));
    }
}
