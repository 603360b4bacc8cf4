//! How far the owner of a lane is behind its log: beyond a limit gateways refuse further calls, so that what is admitted
//! still ends in time.
//!
//! An entry of this engine that the log has stored is folded once all before it is. The time from the one to the other, both
//! by this engine's clock, is the lag. While deliveries are acknowledged an owner appends an entry a second at least, and
//! more the busier it is: nothing is appended to measure. It is told on [`schemas::subject::lag`], best effort, again while
//! it lasts.

use std::time::Duration;

use tokio::time::Instant;

/// Between two reports; a lag counts once it has lasted as long.
const REPORT_PERIOD: Duration = Duration::from_millis(100);
/// A lag below is not told: an owner has as much after a pause of the machine.
const LAG_MIN: Duration = Duration::from_millis(100);
/// How long a measurement says something: entries follow each other faster where a lane is busy.
const MEASURED_MAX: Duration = Duration::from_millis(300);

/// Measures one lane.
#[derive(Debug)]
pub(super) struct LagMeter {
    /// Sequence of an entry that is stored and not folded, and when the log said so.
    awaited: Option<(u64, Instant)>,
    /// The lag of the entry before, and when it was folded.
    measured: Option<(Duration, Instant)>,
    /// What was measured when a report was last due.
    previous: Duration,
    /// When a report is due.
    at: Instant,
    /// Gateways were told of a lag, and not of its end.
    is_told: bool,
}

impl LagMeter {
    pub(super) fn new(now: Instant) -> Self {
        Self { awaited: None, measured: None, previous: Duration::ZERO, at: now, is_told: false }
    }

    /// The log has stored an entry; the lane is folded up to `position`.
    pub(super) fn handle_stored(&mut self, seq: u64, position: u64, now: Instant) {
        if seq <= position {
            self.measured = Some((Duration::ZERO, now));
        } else if self.awaited.is_none() {
            self.awaited = Some((seq, now));
        }
    }

    /// The lane is folded up to `position`.
    pub(super) fn handle_folded(&mut self, position: u64) {
        if let Some((_, since)) = self.awaited.take_if(|(seq, _)| *seq <= position) {
            let now = Instant::now();
            self.measured = Some((now.saturating_duration_since(since), now));
        }
    }

    /// What to tell gateways, once a period: the lag in milliseconds; 0 once where it has ended.
    pub(super) fn poll_report(&mut self, now: Instant) -> Option<u64> {
        if now < self.at {
            return None;
        }
        self.at = now + REPORT_PERIOD;
        let lag = self.lag(now);
        let lasting = lag.min(std::mem::replace(&mut self.previous, lag));
        let was_told = std::mem::replace(&mut self.is_told, lasting >= LAG_MIN);
        let ms = if self.is_told { u64::try_from(lasting.as_millis()).unwrap_or(u64::MAX) } else { 0 };
        (self.is_told || was_told).then_some(ms)
    }

    /// When a report is due whatever happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.is_told.then_some(self.at)
    }

    fn lag(&self, now: Instant) -> Duration {
        let awaited = self.awaited.map(|(_, since)| now.saturating_duration_since(since));
        let is_recent = |at: Instant| now.saturating_duration_since(at) <= MEASURED_MAX;
        let measured = self.measured.filter(|(_, at)| is_recent(*at)).map(|(lag, _)| lag);
        awaited.max(measured).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_MS: u64 = 100;

    /// A meter, and the instant so many milliseconds after its start.
    fn meter() -> (LagMeter, impl Fn(u64) -> Instant) {
        let start = Instant::now();
        (LagMeter::new(start), move |ms| start + Duration::from_millis(ms))
    }

    #[test]
    fn a_lane_that_folds_what_is_stored_tells_nothing() {
        let (mut meter, at) = meter();
        for turn in 1..50 {
            meter.handle_stored(turn, turn, at(turn * 30));
            assert_eq!(meter.poll_report(at(turn * 30)), None, "{turn}");
        }
        assert_eq!(meter.wake_at(), None);
    }

    #[test]
    fn a_lag_is_told_once_it_has_lasted_and_again_while_it_lasts_and_then_its_end() {
        let (mut meter, at) = meter();
        meter.handle_stored(7, 6, at(0));
        meter.handle_stored(9, 6, at(150));
        assert_eq!(meter.poll_report(at(200)), None, "it was not known a period before");
        assert_eq!(meter.poll_report(at(250)), None, "one report a period");
        assert_eq!(meter.poll_report(at(300)), Some(200), "what it was at both times");
        assert_eq!(meter.wake_at(), Some(at(300 + PERIOD_MS)));
        assert_eq!(meter.poll_report(at(400)), Some(300));
        meter.handle_folded(6);
        assert_eq!(meter.poll_report(at(500)), Some(400), "what is awaited is not folded");
        meter.handle_stored(10, 10, at(550));
        meter.awaited = None;
        assert_eq!(meter.poll_report(at(600)), Some(0));
        assert_eq!((meter.poll_report(at(700)), meter.wake_at()), (None, None));
    }

    #[test]
    fn a_pause_is_not_told() {
        let (mut meter, at) = meter();
        meter.handle_stored(7, 6, at(0));
        assert_eq!(meter.poll_report(at(2_000)), None);
        meter.awaited = None;
        meter.handle_stored(8, 8, at(2_001));
        assert_eq!(meter.poll_report(at(2_100)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_measurement_is_forgotten_where_nothing_follows_it() {
        let mut meter = LagMeter::new(Instant::now());
        meter.handle_stored(7, 6, Instant::now());
        tokio::time::advance(Duration::from_millis(700)).await;
        meter.handle_folded(7);
        let told = |meter: &mut LagMeter| meter.poll_report(Instant::now());
        assert_eq!(told(&mut meter), None);
        for _ in 0..2 {
            tokio::time::advance(REPORT_PERIOD).await;
            assert_eq!(told(&mut meter), Some(700));
        }
        tokio::time::advance(MEASURED_MAX).await;
        assert_eq!(told(&mut meter), Some(0));
    }
}
