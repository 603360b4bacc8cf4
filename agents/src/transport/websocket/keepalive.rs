//! Whether the other end of a connection still lives.

use std::time::Duration;

use tokio::time::Instant;

/// Between the last sign of life and a ping, while nothing was asked. With [`PONG_TIMEOUT`] the longest an agent that
/// only listens stays with a dead gateway.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Between a message nobody has answered and a ping: far above a healthy answer, well below the agent's patience.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// How long a ping may go without anything coming back; also how long one write may take.
pub(super) const PONG_TIMEOUT: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepaliveAction {
    /// Nothing yet.
    Wait,
    /// Send a ping.
    Ping,
    /// The other end is gone.
    Dead,
}

/// Whether the other end of a connection still lives, from what was written and what came back.
///
/// A process that is stopped, or a network that swallows packets, closes nothing: only silence tells. So silence is
/// given a reason to end: a ping, soon after a message that got no answer, else now and then.
#[derive(Debug)]
pub(super) struct Keepalive {
    heard_at: Instant,
    /// When the first message left after which nothing has come.
    asked_at: Option<Instant>,
    /// When the ping left after which nothing has come.
    pinged_at: Option<Instant>,
}

impl Keepalive {
    pub(super) fn new(now: Instant) -> Self {
        Self { heard_at: now, asked_at: None, pinged_at: None }
    }

    /// Something came, whatever it was.
    pub(super) fn handle_sign(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// A message left that asks for an answer.
    pub(super) fn handle_asked(&mut self, now: Instant) {
        self.asked_at.get_or_insert(now);
    }

    /// When [`Keepalive::handle_timeout`] wants to be called.
    pub(super) fn poll_timeout(&self) -> Instant {
        let ping_at = self.heard_at + PING_EVERY;
        match (self.pinged_at, self.asked_at) {
            (Some(pinged_at), _) => pinged_at + PONG_TIMEOUT,
            (None, Some(asked_at)) => ping_at.min(asked_at + PROBE_AFTER),
            (None, None) => ping_at,
        }
    }

    /// Time has passed.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> KeepaliveAction {
        if now < self.poll_timeout() {
            return KeepaliveAction::Wait;
        }
        if self.pinged_at.is_some() {
            return KeepaliveAction::Dead;
        }
        self.pinged_at = Some(now);
        KeepaliveAction::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_pinged_and_dies_of_silence() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(start);
        assert_eq!(keepalive.poll_timeout(), start + PING_EVERY);
        assert_eq!(keepalive.handle_timeout(start + PING_EVERY - Duration::from_millis(1)), KeepaliveAction::Wait);
        assert_eq!(keepalive.handle_timeout(start + PING_EVERY), KeepaliveAction::Ping);
        assert_eq!(keepalive.handle_timeout(start + PING_EVERY), KeepaliveAction::Wait);
        assert_eq!(keepalive.handle_timeout(start + PING_EVERY + PONG_TIMEOUT), KeepaliveAction::Dead);
    }

    #[test]
    fn an_unanswered_message_is_followed_by_a_ping_soon() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(start);
        let asked = start + Duration::from_secs(2);
        keepalive.handle_asked(asked);
        keepalive.handle_asked(asked + Duration::from_millis(900));
        assert_eq!(keepalive.poll_timeout(), asked + PROBE_AFTER, "the first counts");
        assert_eq!(keepalive.handle_timeout(asked + PROBE_AFTER), KeepaliveAction::Ping);
        keepalive.handle_sign(asked + Duration::from_secs(2));
        assert_eq!(keepalive.poll_timeout(), asked + Duration::from_secs(2) + PING_EVERY, "any sign of life will do");
    }
}
