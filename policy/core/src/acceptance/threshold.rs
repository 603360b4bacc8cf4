//! The falling score threshold, and the instant at which it meets a score, in exact integers.
//!
//! `tau(t) = end + (start - end) * (1 - (t/D)^e)`, with `t` the microseconds since the call and `D` the collection period.
//! A score suffices when it is at least `tau(t)`; multiplied out: `(start - score) * D^e <= (start - end) * t^e`.

use schemas::Timestamp;
use schemas::policy::{FallingThreshold, Threshold};
use serde::{Deserialize, Serialize};

/// The period a threshold falls over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Period {
    /// Its begin: the round's call.
    pub(crate) start: Timestamp,
    /// Its length in microseconds; an extension of the deadline does not stretch it.
    pub(crate) length_us: u64,
}

/// Whether `score` suffices at `now`.
pub(crate) fn is_reached(threshold: Threshold, period: Period, score: u32, now: Timestamp) -> bool {
    match threshold {
        Threshold::Constant(required) => score >= required,
        Threshold::Falling(falling) => is_below(falling, period, score, now),
    }
}

/// The first instant at which `score` suffices, from `now` to the end of the period; absent when it never does.
pub(crate) fn crossing(threshold: Threshold, period: Period, score: u32, now: Timestamp) -> Option<Timestamp> {
    let end = Timestamp(period.start.0.saturating_add(period.length_us));
    if !is_reached(threshold, period, score, end) {
        return None;
    }
    // The threshold never rises, so the instants at which the score suffices are a suffix of the period.
    let (mut low, mut high) = (now.0, end.0.max(now.0));
    while low < high {
        let middle = low + (high - low) / 2;
        if is_reached(threshold, period, score, Timestamp(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(Timestamp(low))
}

fn is_below(falling: FallingThreshold, period: Period, score: u32, now: Timestamp) -> bool {
    let elapsed_us = now.since_us(period.start).min(period.length_us);
    let missing = u64::from(falling.start.saturating_sub(score));
    let fall = u64::from(falling.start.saturating_sub(falling.end));
    product(missing, period.length_us, falling.exponent) <= product(fall, elapsed_us, falling.exponent)
}

/// 64-bit limbs of a wide integer, most significant first, so that the derived order is the numeric one. A score (2^20)
/// times a day in microseconds (2^37) to the 8th power needs 316 bits.
type Wide = [u64; 5];

/// `factor * base^exponent`.
pub(crate) fn product(factor: u64, base: u64, exponent: u32) -> Wide {
    let mut wide: Wide = [0, 0, 0, 0, factor];
    for _ in 0..exponent {
        let mut carry = 0;
        for limb in wide.iter_mut().rev() {
            let sum = u128::from(*limb) * u128::from(base) + carry;
            *limb = u64::try_from(sum & u128::from(u64::MAX)).unwrap_or(u64::MAX);
            carry = sum >> 64;
        }
    }
    wide
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
            for (us, tau) in [(0, 900_000), (1_000_000, 500_000), (9_000_000, 500_000)] {
                assert!(is_reached(falling(exponent), PERIOD, tau, at(us)));
                assert!(!is_reached(falling(exponent), PERIOD, tau - 1, at(us)));
            }
        }
        for (exponent, tau) in [(1, 700_000), (2, 800_000), (3, 850_000)] {
            assert_eq!(crossing(falling(exponent), PERIOD, tau, at(0)), Some(at(500_000)));
        }
    }

    #[test]
    fn the_crossing_is_the_first_microsecond_at_which_the_score_suffices() {
        for exponent in 1..=8 {
            for score in [500_000, 500_001, 640_321, 899_999] {
                let instant = crossing(falling(exponent), PERIOD, score, at(0)).unwrap();
                assert!(is_reached(falling(exponent), PERIOD, score, instant));
                assert!(!is_reached(falling(exponent), PERIOD, score, Timestamp(instant.0 - 1)), "{exponent} {score}");
            }
        }
        assert_eq!(crossing(falling(1), PERIOD, 499_999, at(0)), None);
        assert_eq!(crossing(Threshold::Constant(7), PERIOD, 7, at(3)), Some(at(3)));
        assert_eq!(crossing(falling(1), PERIOD, 900_000, at(10)), Some(at(10)));
    }

    #[test]
    fn the_widest_product_does_not_overflow() {
        let widest = product(1_000_000, 86_400_000_000, 8);
        assert!(widest[0] > 0 && widest[0] < u64::MAX >> 3);
        assert_eq!(product(3, 1 << 33, 2), [0, 0, 0, 12, 0]);
    }
}
