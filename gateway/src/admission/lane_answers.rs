//! How the log answers a gateway's appends to one lane.
//!
//! An append that is given up without an answer says that the next ones would wait as long for nothing, as they do while the
//! disk of nats-server is full. From then on one append at a time finds out whether the log answers again, and all others are
//! refused at once.

use std::time::Duration;

use bus::BusError;
use bus::appender::AppendError;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Appends without an answer for so long are a fault: an election takes up to nine seconds, and is one as long as it lasts.
const UNANSWERED_MIN: Duration = Duration::from_secs(5);
/// What is known of a lane in which nothing was appended for so long says nothing any more.
const STALE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LaneAnswers(Mutex<AnswerState>);

#[derive(Debug, Default)]
struct AnswerState {
    /// The first append since the last answer.
    asked_at: Option<Instant>,
    /// The last append.
    tried_at: Option<Instant>,
    /// One was given up without an answer, and none has been answered since.
    is_silent: bool,
    /// One is under way to find out whether the log answers again.
    is_probed: bool,
    /// What the log said when it refused the last append because it is full.
    full: Option<String>,
}

/// An append under way.
pub(super) struct Attempt<'a> {
    answers: &'a LaneAnswers,
    is_probe: bool,
    /// When it began, where nothing before it waits for an answer and it has none itself.
    asked_at: Option<Instant>,
}

/// What an answer changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing.
    None,
    /// The log has fallen silent.
    Silent,
    /// The log has become full.
    Full,
    /// The log takes appends again.
    Recovered,
}

/// What is wrong with a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LaneFault {
    /// Appends have had no answer for so long.
    Unanswered(Duration),
    /// The log is full.
    Full(String),
}

impl LaneAnswers {
    /// Begins an append, unless another one is finding out whether the log answers again.
    pub(super) fn begin(&self, now: Instant) -> Option<Attempt<'_>> {
        let mut state = self.0.lock();
        if state.is_silent && state.is_probed {
            return None;
        }
        state.is_probed = state.is_silent;
        let asked_at = state.asked_at.is_none().then_some(now);
        state.asked_at = state.asked_at.or(asked_at);
        state.tried_at = Some(now);
        Some(Attempt { answers: self, is_probe: state.is_silent, asked_at })
    }

    /// What is wrong, as of the last appends.
    pub(super) fn fault(&self, now: Instant) -> Option<LaneFault> {
        let state = self.0.lock();
        state.tried_at.filter(|at| now.saturating_duration_since(*at) < STALE)?;
        let unanswered =
            state.asked_at.map(|at| now.saturating_duration_since(at)).filter(|time| *time > UNANSWERED_MIN);
        unanswered.map(LaneFault::Unanswered).or_else(|| state.full.clone().map(LaneFault::Full))
    }
}

impl Attempt<'_> {
    /// Takes note of how the append ended.
    pub(super) fn end<T>(mut self, outcome: &Result<T, AppendError>) -> News {
        if let Err(AppendError::Unknown(_)) = outcome {
            self.asked_at = None;
        }
        let mut state = self.answers.0.lock();
        match outcome {
            Ok(_) => {
                let was_at_fault = state.is_silent || state.full.is_some();
                (state.asked_at, state.is_silent, state.full) = (None, false, None);
                if was_at_fault { News::Recovered } else { News::None }
            }
            Err(AppendError::Unknown(_)) if std::mem::replace(&mut state.is_silent, true) => News::None,
            Err(AppendError::Unknown(_)) => News::Silent,
            Err(AppendError::Refused(BusError::Full(reason))) => {
                (state.asked_at, state.is_silent) = (None, false);
                if state.full.replace(reason.clone()).is_none() { News::Full } else { News::None }
            }
            // Not the log's answer: the entry was refused on the way there.
            Err(AppendError::Refused(_) | AppendError::Overloaded) => News::None,
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut state = self.answers.0.lock();
        if self.is_probe {
            state.is_probed = false;
        }
        // Whoever goes away before the answer has learned nothing.
        if self.asked_at.is_some() && state.asked_at == self.asked_at {
            state.asked_at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: Result<(), AppendError> = Ok(());

    fn unknown() -> Result<(), AppendError> {
        Err(AppendError::Unknown(BusError::Unknown("no acknowledgement".to_owned())))
    }

    fn full() -> Result<(), AppendError> {
        Err(AppendError::Refused(BusError::Full("maximum bytes exceeded".to_owned())))
    }

    #[test]
    fn a_log_that_has_given_no_answer_is_asked_by_one_append_at_a_time_until_it_does() {
        let (answers, now) = (LaneAnswers::default(), Instant::now());
        let [first, second] = [(); 2].map(|()| answers.begin(now).unwrap());
        assert_eq!((first.end(&unknown()), second.end(&unknown())), (News::Silent, News::None));
        let probe = answers.begin(now).unwrap();
        assert!(answers.begin(now).is_none(), "one at a time");
        drop(probe);
        let probe = answers.begin(now).expect("its caller has gone away");
        assert_eq!(probe.end(&unknown()), News::None);
        assert_eq!(answers.begin(now).unwrap().end(&STORED), News::Recovered);
        let under_way = [(); 2].map(|()| answers.begin(now).is_some());
        assert_eq!(under_way, [true, true]);
    }

    #[test]
    fn appends_without_an_answer_are_a_fault_as_long_as_somebody_tries() {
        let (answers, began) = (LaneAnswers::default(), Instant::now());
        let after = |s| began + Duration::from_secs(s);
        let waiting = answers.begin(began).unwrap();
        assert_eq!(answers.fault(after(5)), None);
        assert_eq!(answers.fault(after(6)), Some(LaneFault::Unanswered(Duration::from_secs(6))));
        drop(answers.begin(after(7)));
        assert!(answers.fault(after(7)).is_some(), "another one waits");
        waiting.end(&unknown());
        drop(answers.begin(after(30)));
        assert_eq!(answers.fault(after(31)), Some(LaneFault::Unanswered(Duration::from_secs(31))));
        assert_eq!(answers.fault(after(90)), None, "nobody has tried since");
        answers.begin(after(91)).unwrap().end(&STORED);
        assert_eq!(answers.fault(after(91)), None);
        drop(answers.begin(after(92)));
        assert_eq!(answers.fault(after(99)), None, "its caller has gone away");
    }

    #[test]
    fn a_full_log_is_told_of_once_and_is_a_fault_until_it_takes_an_append() {
        let (answers, now) = (LaneAnswers::default(), Instant::now());
        let news = [full(), full(), STORED, STORED].map(|outcome| {
            let news = answers.begin(now).unwrap().end(&outcome);
            (news, answers.fault(now).is_some())
        });
        let expected = [(News::Full, true), (News::None, true), (News::Recovered, false), (News::None, false)];
        assert_eq!(news, expected);
    }
}
