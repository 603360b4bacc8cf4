//! Keeping to a schedule to within tens of microseconds.
//!
//! The runtime's timers have a granularity of a millisecond and fire late rather than early: as long as a whole round
//! takes. A thread of its own sleeps with the system's precision instead.

use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// Due times handed over and not yet taken; a generator that is further behind than this is told by its own lateness.
const WAITING_MAX: usize = 65_536;

/// Hands over each due time, with its number, when it has come, until `until` is reached or the receiver is dropped.
#[must_use]
pub fn pace(
    started: Instant,
    times: impl Iterator<Item = Duration> + Send + 'static,
    until: Duration,
) -> mpsc::Receiver<(usize, Instant)> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
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
