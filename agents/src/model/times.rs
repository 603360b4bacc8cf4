//! How long a model takes to answer, and which answers came too late. What it cannot answer in time is not asked.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Completion, CompletionError};

/// Answers that are measured: the latest.
const LATEST_MAX: usize = 64;
/// Answers from which on the measure counts.
const MEASURED_MIN: usize = 8;
/// Of so many questions that cannot be answered in time one is asked all the same, so that the measure can recover.
const ASKED_ONE_IN: u64 = 8;

/// Answers that are waited for at most although they are too late: an endpoint works on them in the place of others.
const WATCHED_MAX: usize = 2;

/// An answer on its way.
pub type PendingAnswer = BoxFuture<'static, Result<Completion, CompletionError>>;

/// How long a model takes, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelTimes {
    /// Median of its latest answers.
    pub p50_ms: u64,
    /// Of 100 of them 95 took no longer.
    pub p95_ms: u64,
    /// Answers that came when nobody waited for them any more.
    pub late: u64,
    /// By how much the latest of these came too late: the median.
    pub late_p50_ms: u64,
    /// The same of all: the most.
    pub late_max_ms: u64,
    /// Questions that were not asked, because no answer would have come in time.
    pub unasked: u64,
}

/// Measures a model.
#[derive(Debug, Default)]
pub struct AnswerTimes {
    latest: VecDeque<Duration>,
    late: VecDeque<Duration>,
    p50: Duration,
    told: ModelTimes,
    hopeless: u64,
}

impl AnswerTimes {
    /// Takes how long an answer took.
    pub fn note(&mut self, took: Duration) {
        keep(&mut self.latest, took);
        self.p50 = quantile(&self.latest, 50);
        (self.told.p50_ms, self.told.p95_ms) = (milliseconds(self.p50), milliseconds(quantile(&self.latest, 95)));
    }

    /// Takes how long an answer was waited for in vain: nothing is known but that it takes longer.
    pub fn note_none(&mut self, within: Duration) {
        self.note(within + Duration::from_millis(1));
    }

    /// Takes by how much an answer came too late. Returns whether it is the first.
    pub fn note_late(&mut self, by: Duration) -> bool {
        keep(&mut self.late, by);
        self.told.late += 1;
        self.told.late_p50_ms = milliseconds(quantile(&self.late, 50));
        self.told.late_max_ms = self.told.late_max_ms.max(milliseconds(by));
        self.told.late == 1
    }

    /// Whether a question is asked that must be answered within this time.
    pub fn may_ask(&mut self, within: Duration) -> bool {
        if self.latest.len() < MEASURED_MIN || within >= self.p50 {
            return true;
        }
        self.hopeless += 1;
        let is_asked = self.hopeless.is_multiple_of(ASKED_ONE_IN);
        self.told.unasked += u64::from(!is_asked);
        is_asked
    }

    /// What was measured so far.
    #[must_use]
    pub fn told(&self) -> ModelTimes {
        self.told
    }
}

impl fmt::Display for ModelTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50_ms, p95_ms, late, late_p50_ms, late_max_ms, unasked } = self;
        write!(f, "answers took {p50_ms} ms (p95 {p95_ms} ms)")?;
        if *late > 0 {
            write!(f, ", {late} came {late_p50_ms} ms too late (at most {late_max_ms} ms)")?;
        }
        if *unasked > 0 {
            write!(f, ", {unasked} questions had no time for one")?;
        }
        Ok(())
    }
}

/// Waits on behalf of nobody for an answer that was waited for already, as long as one may take, and tells by how much it came
/// too late, and whether it is the first that does. Of more than two at once the others count as not answered, and the endpoint is
/// hung up on. Returns whether it is waited for.
pub fn watch(
    times: &Arc<Mutex<AnswerTimes>>,
    answering: PendingAnswer,
    (waited, longest): (Duration, Duration),
    tell: impl FnOnce(Duration, bool) + Send + 'static,
) -> bool {
    if Arc::strong_count(times) > WATCHED_MAX || waited >= longest {
        times.lock().note_none(waited);
        return false;
    }
    let times = Arc::clone(times);
    tokio::spawn(async move {
        let due = Instant::now();
        let answer = tokio::time::timeout(longest - waited, answering).await;
        let by = due.elapsed();
        if matches!(answer, Ok(Ok(_))) {
            times.lock().note(waited + by);
            let is_first = times.lock().note_late(by);
            tell(by, is_first);
        } else {
            times.lock().note_none(waited + by);
        }
    });
    true
}

fn keep(latest: &mut VecDeque<Duration>, one: Duration) {
    if latest.len() >= LATEST_MAX {
        latest.pop_front();
    }
    latest.push_back(one);
}

/// What so many of 100 do not exceed.
fn quantile(of: &VecDeque<Duration>, percent: usize) -> Duration {
    let mut sorted: Vec<Duration> = of.iter().copied().collect();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

/// Whole milliseconds.
#[must_use]
pub fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_cannot_be_answered_in_time_is_asked_once_in_eight_until_the_model_is_quicker() {
        let mut times = AnswerTimes::default();
        for _ in 0..MEASURED_MIN - 1 {
            times.note(ms(3000));
        }
        assert!(times.may_ask(ms(1)), "seven answers say nothing yet");
        times.note(ms(3000));
        assert!(times.may_ask(ms(3000)));
        let asked: Vec<bool> = (0..16).map(|_| times.may_ask(ms(2999))).collect();
        assert_eq!(asked, [[false; 7].as_slice(), &[true], &[false; 7], &[true]].concat());
        assert_eq!(times.told().unasked, 14);
        (0..9).for_each(|_| times.note(ms(10)));
        assert!(times.may_ask(ms(10)), "most answers are quick again");
        assert_eq!((times.told().p50_ms, times.told().p95_ms), (10, 3000));
    }

    #[test]
    fn only_the_latest_answers_are_measured() {
        let mut times = AnswerTimes::default();
        (1..=1000).for_each(|took| times.note(ms(took)));
        assert_eq!((times.told().p50_ms, times.told().p95_ms, times.latest.len()), (968, 997, LATEST_MAX));
    }

    #[test]
    fn what_came_too_late_is_told_with_how_late() {
        let mut times = AnswerTimes::default();
        times.note(ms(20));
        assert_eq!(times.told().to_string(), "answers took 20 ms (p95 20 ms)");
        let firsts: Vec<bool> = [30, 900, 50].map(|by| times.note_late(ms(by))).to_vec();
        assert_eq!(firsts, [true, false, false]);
        assert_eq!(times.told().to_string(), "answers took 20 ms (p95 20 ms), 3 came 50 ms too late (at most 900 ms)");
        assert!((0..100).all(|_| !times.note_late(ms(1))));
        assert_eq!((times.told().late, times.told().late_max_ms, times.late.len()), (103, 900, LATEST_MAX));
    }
}
