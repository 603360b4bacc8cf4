//! Log time between records, estimated from the local monotonic clock; and when a lane needs a tick, a record that carries
//! time and nothing else.

use std::time::Duration;

use schemas::Timestamp;
use tokio::time::Instant;

/// A timer is due when a record's time is later than its deadline; this much later covers the estimate's rounding and
/// leaves a busy log the chance to bring a record of its own.
const MARGIN: Duration = Duration::from_millis(1);
/// Gap after a tick that came early: the estimate was ahead, and has been corrected by that tick.
const EARLY_GAP: Duration = Duration::from_millis(2);
/// Gap after a tick that could not be appended.
const REFUSED_GAP: Duration = Duration::from_millis(100);

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

/// The lane's one outstanding tick.
#[derive(Debug)]
pub(crate) struct Ticker {
    state: TickState,
    not_before: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TickState {
    Idle,
    Appending,
    /// Appended; not folded yet.
    Appended(u64),
}

impl Ticker {
    pub(crate) fn new(now: Instant) -> Self {
        Self { state: TickState::Idle, not_before: now }
    }

    /// When to ask again; nothing while a tick is outstanding or no timer is armed.
    pub(crate) fn wake_at(&self, deadline: Option<Timestamp>, clock: &LogClock) -> Option<Instant> {
        match self.state {
            TickState::Idle => deadline.map(|deadline| (clock.instant_of(deadline) + MARGIN).max(self.not_before)),
            TickState::Appending | TickState::Appended(_) => None,
        }
    }

    /// Whether a tick must be appended now; the caller appends it.
    pub(crate) fn poll_tick(&mut self, deadline: Option<Timestamp>, clock: &LogClock, now: Instant) -> bool {
        let is_due = self.wake_at(deadline, clock).is_some_and(|at| at <= now);
        if is_due {
            self.state = TickState::Appending;
        }
        is_due
    }

    /// The append was answered.
    pub(crate) fn handle_append(&mut self, seq: Option<u64>, folded: u64, now: Instant) {
        match seq {
            Some(seq) if seq > folded => self.state = TickState::Appended(seq),
            Some(_) => self.state = TickState::Idle,
            None => {
                self.state = TickState::Idle;
                self.not_before = now + REFUSED_GAP;
            }
        }
    }

    /// A record was folded. Corrects the clock when it is the outstanding tick and the timer has still not fired.
    pub(crate) fn handle_fold(
        &mut self,
        seq: u64,
        time: Timestamp,
        deadline: Option<Timestamp>,
        clock: &mut LogClock,
        now: Instant,
    ) {
        let TickState::Appended(tick) = self.state else { return };
        if seq < tick {
            return;
        }
        self.state = TickState::Idle;
        let still_due = deadline.is_some_and(|deadline| deadline <= clock.log_time(now) && deadline >= time);
        if still_due {
            clock.reset(time, now);
            self.not_before = now + EARLY_GAP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> (Instant, LogClock, Ticker) {
        let start = Instant::now();
        let mut clock = LogClock::new(start);
        clock.observe(Timestamp::from_ms(1000), start);
        (start, clock, Ticker::new(start))
    }

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
    fn one_tick_is_due_after_the_deadline_and_none_while_it_is_outstanding() {
        let (start, mut clock, mut ticker) = ready();
        let deadline = Some(Timestamp::from_ms(1100));
        assert!(!ticker.poll_tick(None, &clock, start));
        assert!(!ticker.poll_tick(deadline, &clock, start + Duration::from_millis(100)));
        let late = start + Duration::from_millis(101);
        assert_eq!(ticker.wake_at(deadline, &clock), Some(late));
        assert!(ticker.poll_tick(deadline, &clock, late));
        assert!(!ticker.poll_tick(deadline, &clock, late));
        ticker.handle_append(Some(7), 6, late);
        assert_eq!(ticker.wake_at(deadline, &clock), None);
        ticker.handle_fold(7, Timestamp::from_ms(1101), Some(Timestamp::from_ms(1200)), &mut clock, late);
        assert_eq!(ticker.wake_at(Some(Timestamp::from_ms(1200)), &clock), Some(start + Duration::from_millis(201)));
    }

    #[test]
    fn a_tick_that_came_early_corrects_the_clock_and_is_sent_again() {
        let (start, mut clock, mut ticker) = ready();
        let deadline = Some(Timestamp::from_ms(1100));
        let late = start + Duration::from_millis(101);
        assert!(ticker.poll_tick(deadline, &clock, late));
        ticker.handle_append(Some(7), 6, late);
        // The log's clock had been set back by 51 ms.
        ticker.handle_fold(7, Timestamp::from_ms(1050), deadline, &mut clock, late);
        assert_eq!(ticker.wake_at(deadline, &clock), Some(late + Duration::from_millis(51)));
    }

    #[test]
    fn a_tick_that_was_not_appended_is_tried_again_after_a_gap() {
        let (start, clock, mut ticker) = ready();
        let deadline = Some(Timestamp::from_ms(900));
        assert!(ticker.poll_tick(deadline, &clock, start + MARGIN));
        ticker.handle_append(None, 6, start + MARGIN);
        assert_eq!(ticker.wake_at(deadline, &clock), Some(start + MARGIN + REFUSED_GAP));
    }
}
