//! Which call is due next: by the clock in an open load, by the end of another in a closed one.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::CallScenario;
use crate::arrivals::{Load, LoadError, pace};

/// Ends of calls that were not yet looked at.
const ENDS_MAX: usize = 1024;

/// Hands over calls as they fall due.
pub enum DueCalls {
    /// By the clock.
    Open(mpsc::Receiver<(usize, std::time::Instant)>),
    /// By the ends of calls.
    Closed(ClosedCalls),
}

/// The callers of a closed load.
pub struct ClosedCalls {
    ends: mpsc::Receiver<()>,
    /// When callers that think will call, the first first.
    due: VecDeque<Instant>,
    think: Duration,
    until: Instant,
    begun: usize,
}

impl DueCalls {
    /// The calls of a scenario, and where the ends of calls are to be said.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn try_new(scenario: &CallScenario, started: Instant) -> Result<(Self, mpsc::Sender<()>), LoadError> {
        let (said, ends) = mpsc::channel(ENDS_MAX);
        let arrivals = scenario.load.arrivals(scenario.rate, scenario.duration, scenario.seed)?;
        let Load::Closed { calls, think_s } = scenario.load else {
            return Ok((Self::Open(pace(started.into_std(), arrivals, scenario.duration)), said));
        };
        let closed = ClosedCalls {
            ends,
            due: std::iter::repeat_n(started, calls as usize).collect(),
            think: Duration::from_secs_f64(think_s),
            until: started + scenario.duration,
            begun: 0,
        };
        Ok((Self::Closed(closed), said))
    }

    /// The next call with the time at which it was due; none when no further one is. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<(usize, Instant)> {
        match self {
            Self::Open(due) => due.recv().await.map(|(number, intended)| (number, Instant::from_std(intended))),
            Self::Closed(closed) => closed.next().await,
        }
    }
}

impl ClosedCalls {
    async fn next(&mut self) -> Option<(usize, Instant)> {
        loop {
            let first = self.due.front().copied().unwrap_or(self.until).min(self.until);
            tokio::select! {
                biased;
                () = sleep_until(first) => {
                    let intended = self.due.pop_front().filter(|due| *due < self.until)?;
                    let number = self.begun;
                    self.begun += 1;
                    return Some((number, intended));
                }
                ended = self.ends.recv() => {
                    ended?;
                    self.due.push_back(Instant::now() + self.think);
                }
            }
        }
    }
}
