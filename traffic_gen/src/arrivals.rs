//! When calls are due: open-loop Poisson arrivals (LLM-X paper, section 4.1) and the other shapes of a load.
//!
//! Times are absolute offsets from the start of the run: a late send never shifts the ones behind it, so latencies
//! taken from the intended time are free of coordinated omission.

mod load;

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use rand_distr::{Distribution, Exp};
use tokio::sync::mpsc;

pub use load::{Arrivals, Load, LoadError};

/// A rate that is no positive, finite number of arrivals per second.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the rate must be a positive number of arrivals per second, at most {max}, not {found}", max = RATE_MAX)]
pub struct RateError {
    /// What was asked for.
    pub found: f64,
}

/// Highest rate: beyond it the intervals are below the timer's resolution and the schedule would be a burst.
pub const RATE_MAX: f64 = 1_000_000.0;
/// Due times handed over and not yet taken; a generator that is further behind than this is told by its own lateness.
const WAITING_MAX: usize = 65_536;

/// An endless, seeded sequence of absolute send times.
#[derive(Debug, Clone)]
pub struct PoissonArrivals {
    interval_s: Exp<f64>,
    rng: ChaCha12Rng,
    elapsed_s: f64,
}

impl PoissonArrivals {
    /// Arrivals at `rate` per second. The same seed gives the same times on every machine.
    ///
    /// # Errors
    /// [`RateError`] unless `0 < rate <= RATE_MAX`.
    pub fn try_new(rate: f64, seed: u64) -> Result<Self, RateError> {
        let refuse = RateError { found: rate };
        if !(rate > 0.0 && rate <= RATE_MAX) {
            return Err(refuse);
        }
        let interval_s = Exp::new(rate).map_err(|_| refuse)?;
        Ok(Self { interval_s, rng: ChaCha12Rng::seed_from_u64(seed), elapsed_s: 0.0 })
    }
}

impl Iterator for PoissonArrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.elapsed_s += self.interval_s.sample(&mut self.rng);
        // At a rate next to nothing even the first is beyond what a duration holds.
        Some(Duration::try_from_secs_f64(self.elapsed_s).unwrap_or(Duration::MAX))
    }
}

/// Hands over each due time, with its number, when it has come, to within tens of microseconds, until `until` is reached or
/// the receiver is dropped.
pub fn pace(
    started: Instant,
    times: impl Iterator<Item = Duration> + Send + 'static,
    until: Duration,
) -> mpsc::Receiver<(usize, Instant)> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    // The runtime's timers have a granularity of a millisecond and fire late rather than early: as long as a whole round
    // takes. A thread of its own sleeps with the system's precision instead.
    // A thread that is asleep when its receiver goes ends at its next due time, or with the process.
    std::thread::spawn(move || {
        for (number, due) in times.enumerate().take_while(|(_, due)| *due < until) {
            let intended = started + due;
            std::thread::sleep(intended.saturating_duration_since(Instant::now()));
            if sender.blocking_send((number, intended)).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_times() {
        let times = |seed| PoissonArrivals::try_new(50.0, seed).unwrap().take(100).collect::<Vec<_>>();
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
    }

    #[test]
    fn rates_that_are_no_rates_are_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 2.0 * RATE_MAX] {
            assert!(PoissonArrivals::try_new(bad, 1).is_err(), "{bad}");
        }
    }

    #[test]
    fn at_a_rate_next_to_nothing_nothing_arrives() {
        assert_eq!(PoissonArrivals::try_new(1e-300, 1).unwrap().next(), Some(Duration::MAX));
    }

    /// Kolmogorov-Smirnov distance to the exponential distribution; the 1 % critical value is 1.63 / sqrt(n).
    #[test]
    fn intervals_are_exponential() {
        const COUNT: usize = 20_000;
        let rate = 20.0;
        let mut last = 0.0;
        let mut intervals: Vec<f64> = PoissonArrivals::try_new(rate, 42)
            .unwrap()
            .take(COUNT)
            .map(|time| {
                let time = time.as_secs_f64();
                let interval = time - last;
                last = time;
                interval
            })
            .collect();
        intervals.sort_by(f64::total_cmp);
        let distance = intervals
            .iter()
            .enumerate()
            .map(|(rank, interval)| {
                let expected = 1.0 - (-rate * interval).exp();
                ((rank + 1) as f64 / COUNT as f64 - expected).abs().max((rank as f64 / COUNT as f64 - expected).abs())
            })
            .fold(0.0, f64::max);
        assert!(distance < 1.63 / (COUNT as f64).sqrt(), "distance {distance}");
    }

    #[tokio::test]
    async fn every_due_time_before_the_end_is_handed_over_in_order_and_never_early() {
        let started = Instant::now();
        let times = [1, 2, 2, 5, 9].map(Duration::from_millis);
        let mut due = pace(started, times.into_iter(), Duration::from_millis(9));
        let mut numbers = Vec::new();
        while let Some((number, intended)) = due.recv().await {
            assert!(Instant::now() >= intended);
            numbers.push((number, intended - started));
        }
        let expected: Vec<_> = [1, 2, 2, 5].map(Duration::from_millis).into_iter().enumerate().collect();
        assert_eq!(numbers, expected);
    }
}
