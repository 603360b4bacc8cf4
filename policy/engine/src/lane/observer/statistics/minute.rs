//! Durations of the last minute, in buckets: eight to each doubling, so a figure is at most an eighth too high.

use std::collections::VecDeque;

use schemas::Timestamp;
use schemas::statistics::Histogram;

/// How long a duration is remembered.
const SECONDS: u64 = 60;
/// What counts as recent.
const RECENT_SECONDS: u64 = 5;
const US_PER_S: u64 = 1_000_000;
/// Buckets to each doubling, as a power of two.
const STEP_BITS: u32 = 3;
const STEPS: u64 = 1 << STEP_BITS;

/// Durations by the second of their end; at most [`SECONDS`] histograms, of at most 496 buckets each.
#[derive(Debug, Default)]
pub(super) struct Minute(VecDeque<(u64, Histogram)>);

impl Minute {
    /// Something that took so long ended at `at`, which never goes back.
    pub(super) fn add(&mut self, at: Timestamp, took_us: u64) {
        let second = at.0 / US_PER_S;
        self.forget_before(second);
        if self.0.back().is_none_or(|(last, _)| *last < second) {
            self.0.push_back((second, Histogram::default()));
        }
        if let Some((_, counts)) = self.0.back_mut() {
            add(counts, took_us);
        }
    }

    /// What ended in the minute before `now`.
    pub(super) fn counts(&mut self, now: Timestamp) -> Histogram {
        self.forget_before(now.0 / US_PER_S);
        let mut all = Histogram::default();
        self.0.iter().for_each(|(_, counts)| all.merge(counts));
        all
    }

    /// What ended in the last few seconds before `now`.
    pub(super) fn recent(&mut self, now: Timestamp) -> Histogram {
        let first = (now.0 / US_PER_S).saturating_sub(RECENT_SECONDS);
        let mut all = Histogram::default();
        self.0.iter().rev().take_while(|(second, _)| *second > first).for_each(|(_, counts)| all.merge(counts));
        all
    }

    fn forget_before(&mut self, second: u64) {
        while self.0.front().is_some_and(|(first, _)| first.saturating_add(SECONDS) <= second) {
            self.0.pop_front();
        }
    }
}

/// Adds a duration to the bucket that holds it.
pub(super) fn add(histogram: &mut Histogram, us: u64) {
    *histogram.0.entry(upper_end(bucket(us))).or_default() += 1;
}

fn bucket(us: u64) -> u64 {
    let Some(octave) = us.checked_ilog2().filter(|octave| *octave >= STEP_BITS) else { return us };
    let shift = octave - STEP_BITS;
    u64::from(shift + 1) * STEPS + (us >> shift) % STEPS
}

fn upper_end(bucket: u64) -> u64 {
    let Some(shift) = (bucket / STEPS).checked_sub(1) else { return bucket };
    (((STEPS + bucket % STEPS) << shift) - 1).saturating_add(1 << shift)
}

#[cfg(test)]
mod tests {
    use schemas::statistics::Quantiles;

    use super::*;

    #[test]
    fn a_figure_is_never_too_low_and_at_most_an_eighth_too_high() {
        for us in (0..70).flat_map(|n| [n, 1 << (n % 60), (1 << (n % 60)) * 3 / 2 + n]).chain([u64::MAX]) {
            let told = upper_end(bucket(us));
            assert!(told >= us && told - us <= us / 8, "{us} is told as {told}");
        }
    }

    #[test]
    fn the_spread_is_of_the_last_minute_only() {
        let mut minute = Minute::default();
        (0..100).for_each(|n| minute.add(Timestamp::from_ms(1_000), n));
        assert_eq!(minute.counts(Timestamp::from_ms(1_500)).spread().count, 100);
        minute.add(Timestamp::from_ms(30_000), 1_000_000);
        let spread = minute.counts(Timestamp::from_ms(60_999)).spread();
        assert_eq!(spread.count, 101);
        assert!((50..=56).contains(&spread.p50_us) && (99..=112).contains(&spread.p99_us), "{spread:?}");
        let spread = minute.counts(Timestamp::from_ms(61_000)).spread();
        assert_eq!(spread.count, 1);
        assert!((1_000_000..=1_125_000).contains(&spread.p50_us), "{spread:?}");
        assert_eq!(minute.counts(Timestamp::from_ms(90_000)).spread(), Quantiles::default());
    }

    #[test]
    fn what_is_recent_ended_in_the_last_five_seconds() {
        let mut minute = Minute::default();
        [1_000, 3_000, 7_000].into_iter().for_each(|ms| minute.add(Timestamp::from_ms(ms), ms));
        let recent = |minute: &mut Minute, ms| minute.recent(Timestamp::from_ms(ms)).spread().count;
        assert_eq!([7_500, 8_500, 12_500].map(|ms| recent(&mut minute, ms)), [2, 1, 0]);
    }

    #[test]
    fn an_hour_of_every_duration_takes_a_bounded_memory() {
        let mut minute = Minute::default();
        (0..3_600_u64).for_each(|s| (0..64).for_each(|n| minute.add(Timestamp::from_ms(s * 1_000), (1_u64 << n) + s)));
        assert_eq!(minute.0.len(), 60);
        assert!(minute.0.iter().all(|(_, counts)| counts.0.len() <= 496));
    }
}
