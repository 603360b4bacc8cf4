//! When to try again.

use std::time::Duration;

/// Delays that double from attempt to attempt up to a limit, each shortened at random by at most a share of itself, so
/// that those which failed together do not return together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// Longest delay after the first attempt.
    pub base: Duration,
    /// Longest delay after any attempt.
    pub max: Duration,
    /// The share of a delay that is random: 0 for none of it, 1 for all of it.
    pub jitter: f64,
}

impl Backoff {
    /// Delays without jitter.
    #[must_use]
    pub const fn exact(base: Duration, max: Duration) -> Self {
        Self { base, max, jitter: 0.0 }
    }

    /// The longest delay after failed attempt number `attempt`, counted from 1.
    #[must_use]
    pub fn ceiling(&self, attempt: u32) -> Duration {
        // 2^31 times any base is beyond every limit in use.
        self.base.saturating_mul(1 << attempt.saturating_sub(1).min(31)).min(self.max)
    }

    /// The delay after failed attempt number `attempt`, counted from 1; `draw` is a number from 0 to 1.
    #[must_use]
    pub fn delay(&self, attempt: u32, draw: f64) -> Duration {
        debug_assert!((0.0..=1.0).contains(&draw) && (0.0..=1.0).contains(&self.jitter));
        self.ceiling(attempt).mul_f64(1.0 - self.jitter * (1.0 - draw))
    }
}

/// A number from 0 to 1 that follows from a seed: equal seeds give equal numbers, near ones distant numbers.
#[must_use]
pub fn draw(seed: u64) -> f64 {
    // The 32 high bits: a float holds them exactly.
    f64::from((mix(seed) >> 32) as u32) / f64::from(u32::MAX)
}

/// A number that follows from a text and a salt, spread over all 64 bits; the same in every build and process.
#[must_use]
pub fn hash(text: &str, salt: u64) -> u64 {
    text.bytes().fold(salt, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// `SplitMix64`'s output function.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn delays_double_up_to_the_limit() {
        let backoff = Backoff::exact(Duration::from_millis(100), Duration::from_secs(5));
        let delays = [0, 1, 2, 3, 6, 7, 40, u32::MAX].map(|attempt| backoff.delay(attempt, 0.3).as_millis());
        assert_eq!(delays, [100, 100, 200, 400, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn jitter_shortens_a_delay_by_no_more_than_its_share() {
        for jitter in [0.0, 0.5, 1.0] {
            let backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(5), jitter };
            for attempt in 1..=40 {
                let ceiling = backoff.ceiling(attempt);
                assert_eq!(backoff.delay(attempt, 1.0), ceiling);
                assert_eq!(backoff.delay(attempt, 0.0), ceiling.mul_f64(1.0 - jitter));
            }
        }
    }

    #[test]
    fn draws_differ_between_seeds_and_repeat() {
        let draws: Vec<f64> = (0..50).map(draw).collect();
        assert!(draws.iter().all(|draw| (0.0..=1.0).contains(draw)));
        assert!(draws.iter().map(|draw| draw.to_bits()).collect::<BTreeSet<_>>().len() == 50, "{draws:?}");
        assert!(draws.iter().any(|draw| *draw < 0.2) && draws.iter().any(|draw| *draw > 0.8), "{draws:?}");
        assert_eq!((draw(7), hash("alice", 1)), (draws[7], hash("alice", 1)));
        assert!(hash("alice", 1) != hash("alice", 2) && hash("alice", 1) != hash("alicf", 1));
    }
}
