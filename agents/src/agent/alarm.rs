//! The loop's one timer.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// One timer, armed anew only when the deadline changes.
pub(super) struct Alarm {
    pub(super) sleep: Pin<Box<Sleep>>,
    pub(super) is_set: bool,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), is_set: false }
    }

    pub(super) fn set(&mut self, at: Option<Instant>) {
        self.is_set = at.is_some();
        if let Some(at) = at
            && (self.sleep.is_elapsed() || self.sleep.deadline() != at)
        {
            self.sleep.as_mut().reset(at);
        }
    }
}
