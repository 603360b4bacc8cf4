//! A lane's part of what the engine says of agents that do not acknowledge.

use tokio::sync::watch;
use tokio::time::Instant;

use super::Driver;
use crate::backlog::{BACKLOG_PERIOD, LaneBacklog, note_dead_letters};

/// What there is to say, and when.
pub(super) struct Backlog {
    sender: watch::Sender<LaneBacklog>,
    at: Instant,
}

impl Backlog {
    pub(super) fn new(now: Instant) -> (Self, watch::Receiver<LaneBacklog>) {
        let (sender, receiver) = watch::channel(LaneBacklog::new());
        (Self { sender, at: now }, receiver)
    }
}

impl Driver {
    /// Hands on what was given up, and the lane's backlogs once a period; only the owner of a lane has any.
    pub(super) fn report_backlog(&mut self, now: Instant) {
        let letters = self.outbox.take_dead_letters();
        if !letters.is_empty() {
            note_dead_letters(&self.shared.dead_letters, letters);
            self.shared.backlog_wake.notify_one();
        }
        let is_known = !self.backlog.sender.borrow().is_empty();
        if !self.is_owner() {
            if is_known {
                self.backlog.sender.send_replace(LaneBacklog::new());
            }
        } else if now >= self.backlog.at && (is_known || self.outbox.has_backlog()) {
            self.backlog.at = now + BACKLOG_PERIOD;
            self.backlog.sender.send_replace(self.outbox.backlog(now));
            self.shared.backlog_wake.notify_one();
        }
    }

    /// When the owner's backlogs are due.
    pub(super) fn backlog_wake_at(&self) -> Option<Instant> {
        let is_any = self.outbox.has_backlog() || !self.backlog.sender.borrow().is_empty();
        is_any.then_some(self.backlog.at)
    }
}
