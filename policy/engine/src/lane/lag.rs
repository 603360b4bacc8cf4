//! How far the owner of a lane is behind its log: beyond a limit gateways refuse further calls, so that what is admitted
//! still ends in time.
//!
//! An entry of this engine that the log has stored is folded once all before it is. The time from the one to the other, both
//! by this engine's clock, is the lag. While deliveries are acknowledged an owner appends an entry a second at least, and
//! dozens where it is busy: nothing is appended to measure. It is told on [`schemas::subject::lag`], best effort, again while
//! it lasts.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Between two reports; a lag counts once it has lasted as long.
const REPORT_PERIOD: Duration = Duration::from_millis(100);
/// A lag below is not told: an owner has as much after a pause of the machine.
const LAG_MIN: Duration = Duration::from_millis(100);
/// Entries that are waited for; of further ones nothing is noted.
const AWAITED_MAX: usize = 256;
/// A lane that folds nothing for so long is not busy: what it waits for may be lost with the end of the log.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Measures one lane.
#[derive(Debug)]
pub(super) struct LagMeter {
    /// Sequences of entries that are stored and not folded, and when the log said so.
    awaited: VecDeque<(u64, Instant)>,
    /// The largest lag of entries folded since a report was last due.
    measured: Duration,
    /// Whether anything was folded since then.
    is_moving: bool,
    /// When a report was last due of a lane that had moved, or since when it has room or none.
    moved_at: Instant,
    /// What was measured when a report was last due.
    previous: Duration,
    /// When a report is due.
    at: Instant,
    /// What gateways were told last, in milliseconds.
    told_ms: u64,
    /// Whether nothing is folded because there is no room.
    is_full: bool,
}

impl LagMeter {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            awaited: VecDeque::new(),
            measured: Duration::ZERO,
            is_moving: false,
            moved_at: now,
            previous: Duration::ZERO,
            at: now,
            told_ms: 0,
            is_full: false,
        }
    }

    /// The log has stored an entry; the lane is folded up to `position`.
    pub(super) fn handle_stored(&mut self, seq: u64, position: u64, now: Instant) {
        // A sequence that comes again is one of a log that has lost its end.
        while self.awaited.back().is_some_and(|(later, _)| *later >= seq) {
            self.awaited.pop_back();
        }
        if seq > position && self.awaited.len() < AWAITED_MAX {
            self.awaited.push_back((seq, now));
        }
    }

    /// The lane is folded up to `position`.
    pub(super) fn handle_folded(&mut self, position: u64) {
        self.is_moving = true;
        while let Some((_, since)) = self.awaited.pop_front_if(|(seq, _)| *seq <= position) {
            self.measured = self.measured.max(since.elapsed());
        }
    }

    /// What to tell gateways, once a period: the lag in milliseconds; 0 once where it has ended. A lane that has no room
    /// (`is_full`) need not have appended anything to be behind.
    pub(super) fn poll_report(&mut self, now: Instant, is_full: bool) -> Option<u64> {
        if std::mem::replace(&mut self.is_full, is_full) != is_full {
            self.moved_at = now;
        }
        if now < self.at {
            return None;
        }
        self.at = now + REPORT_PERIOD;
        if std::mem::take(&mut self.is_moving) {
            self.moved_at = now;
        }
        let stands_for = now.saturating_duration_since(self.moved_at);
        if stands_for > WAIT_MAX && !is_full {
            self.awaited.clear();
        }
        let first = self.awaited.front().map(|(_, since)| now.saturating_duration_since(*since));
        let waiting = first.max(is_full.then_some(stands_for)).unwrap_or_default();
        let lag = std::mem::take(&mut self.measured).max(waiting);
        let lasting = lag.min(std::mem::replace(&mut self.previous, lag));
        let lag_ms = if lasting >= LAG_MIN { u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX) } else { 0 };
        (std::mem::replace(&mut self.told_ms, lag_ms) > 0 || lag_ms > 0).then_some(lag_ms)
    }

    /// What gateways were told last, in milliseconds; 0 where nothing was worth telling.
    pub(super) fn told_ms(&self) -> u64 {
        self.told_ms
    }

    /// When a report is due whatever happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        (self.told_ms > 0 || self.is_full).then_some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time so many milliseconds on.
    async fn pass(ms: u64) -> Instant {
        tokio::time::advance(Duration::from_millis(ms)).await;
        Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_folds_what_is_stored_tells_nothing() {
        let mut meter = LagMeter::new(Instant::now());
        for seq in 1..50 {
            meter.handle_stored(seq, seq - 1, pass(30).await);
            let now = pass(50).await;
            meter.handle_folded(seq);
            assert_eq!((meter.poll_report(now, false), meter.wake_at()), (None, None), "{seq}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lag_that_stands_is_told_every_time_and_then_its_end() {
        let mut meter = LagMeter::new(Instant::now());
        let mut told = Vec::new();
        // An entry every 25 ms, each folded 1.5 s after it was stored, until nothing more is stored.
        for step in 0..400_u64 {
            let now = pass(25).await;
            if step < 200 {
                meter.handle_stored(step + 1, step.saturating_sub(60), now);
            }
            meter.handle_folded((step + 1).saturating_sub(60).min(200));
            told.extend(meter.poll_report(now, false));
        }
        let (rising, rest) = told.split_at(15);
        assert!(rising.is_sorted() && rising[0] >= 100, "{rising:?}");
        let ended = rest.iter().position(|ms| *ms == 0).unwrap();
        assert!(ended > 30 && rest[..ended].iter().all(|ms| (1_300..=1_500).contains(ms)), "{rest:?}");
        assert_eq!((ended + 1, meter.told_ms(), meter.wake_at()), (rest.len(), 0, None), "{rest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_not_told() {
        let mut meter = LagMeter::new(Instant::now());
        meter.handle_stored(7, 6, Instant::now());
        let now = pass(2_000).await;
        meter.handle_folded(7);
        assert_eq!(meter.poll_report(now, false), None);
        for _ in 0..3 {
            assert_eq!(meter.poll_report(pass(100).await, false), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_lost_with_the_end_of_the_log_is_waited_for_no_longer() {
        let mut meter = LagMeter::new(Instant::now());
        meter.handle_stored(7, 5, Instant::now());
        let mut told = Vec::new();
        for _ in 0..200 {
            told.extend(meter.poll_report(pass(100).await, false));
        }
        assert_eq!(told.last(), Some(&0), "nothing is folded, so nobody is busy: {told:?}");
        meter.handle_stored(9, 5, Instant::now());
        meter.handle_stored(6, 5, Instant::now());
        meter.handle_folded(6);
        assert!(meter.awaited.is_empty(), "6 was given anew, so the 9 before it is gone: {:?}", meter.awaited);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_without_room_is_behind_for_as_long_as_it_folds_nothing() {
        let mut meter = LagMeter::new(Instant::now());
        pass(60_000).await;
        let mut told = Vec::new();
        for _ in 0..300 {
            told.push(meter.poll_report(pass(100).await, true));
        }
        assert_eq!(told[..3], [None, None, Some(100)], "by the time that it has been without room");
        assert_eq!(told.last(), Some(&Some(29_800)), "however long");
        meter.handle_folded(1);
        let told = [meter.poll_report(pass(100).await, false), meter.poll_report(pass(100).await, false)];
        assert_eq!((told, meter.wake_at()), ([Some(0), None], None));
    }

    #[test]
    fn what_is_waited_for_is_bounded() {
        let mut meter = LagMeter::new(Instant::now());
        for seq in 1..1_000 {
            meter.handle_stored(seq, 0, Instant::now());
        }
        assert_eq!(meter.awaited.len(), AWAITED_MAX);
    }
}
