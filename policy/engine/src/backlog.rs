//! Agents that do not acknowledge: which of them gateways should invite no more, and what is said of dead letters.
//!
//! An agent's backlog is the number of deliveries that wait for it or were given up since it last acknowledged one or
//! connected. Each lane counts what it owns, a task of the engine adds the lanes up once a second, and publishes the agents
//! whose backlog is above [`OutboxConfig::backlog_max`](crate::OutboxConfig) on [`schemas::subject::backlog`]: best effort,
//! again every second while there are any. The lanes of other engines are not added, so an agent may have as many times the
//! limit as engines own lanes.

mod dead_letters;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::PubSub;
use bytes::Bytes;
use schemas::{AgentId, presence, subject};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::outbox::Outbox;

pub(crate) use dead_letters::{DeadLetter, DeadLetters};

/// How often the lanes are added up.
const BACKLOG_PERIOD: Duration = Duration::from_secs(1);

/// Deliveries that agents have not acknowledged, of one lane.
pub(crate) type LaneBacklog = Vec<(AgentId, usize)>;

/// Hands on what one lane says of agents that do not acknowledge.
pub(crate) struct BacklogSender {
    sender: watch::Sender<LaneBacklog>,
    at: Instant,
    dead_letters: SharedDeadLetters,
    /// Wakes the reporter.
    wake: Arc<Notify>,
}

impl BacklogSender {
    pub(crate) fn new(
        dead_letters: SharedDeadLetters,
        wake: Arc<Notify>,
        now: Instant,
    ) -> (Self, watch::Receiver<LaneBacklog>) {
        let (sender, receiver) = watch::channel(LaneBacklog::new());
        (Self { sender, at: now, dead_letters, wake }, receiver)
    }

    /// Hands on what was given up, and the lane's backlogs once a period; only the owner of a lane has any.
    pub(crate) fn report(&mut self, outbox: &mut Outbox, is_owner: bool, now: Instant) {
        let letters = outbox.take_dead_letters();
        if !letters.is_empty() {
            let mut dead_letters = self.dead_letters.lock().unwrap_or_else(PoisonError::into_inner);
            letters.into_iter().for_each(|letter| dead_letters.note(letter));
            drop(dead_letters);
            self.wake.notify_one();
        }
        let is_known = !self.sender.borrow().is_empty();
        if !is_owner {
            if is_known {
                self.sender.send_replace(LaneBacklog::new());
            }
        } else if now >= self.at && (is_known || outbox.has_backlog()) {
            self.at = now + BACKLOG_PERIOD;
            self.sender.send_replace(outbox.backlog(now));
            self.wake.notify_one();
        }
    }

    /// When the owner's backlogs are due.
    pub(crate) fn wake_at(&self, outbox: &Outbox) -> Option<Instant> {
        let is_any = outbox.has_backlog() || !self.sender.borrow().is_empty();
        is_any.then_some(self.at)
    }
}

/// Where every lane of an engine notes what it has given up.
pub(crate) type SharedDeadLetters = Arc<Mutex<DeadLetters>>;

/// The task of an engine that adds the lanes up and speaks of dead letters.
pub(crate) struct BacklogReporter {
    pub(crate) engine: String,
    pub(crate) backlog_max: usize,
    pub(crate) pub_sub: Arc<dyn PubSub>,
    pub(crate) lanes: Vec<watch::Receiver<LaneBacklog>>,
    pub(crate) dead_letters: SharedDeadLetters,
    /// A lane has something to report.
    pub(crate) wake: Arc<Notify>,
}

impl BacklogReporter {
    /// Reports until it is dropped.
    pub(crate) async fn drive(self) {
        let mut periods = interval(BACKLOG_PERIOD);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_known = false;
        loop {
            periods.tick().await;
            let (lines, is_quiet) = {
                let mut letters = self.dead_letters.lock().unwrap_or_else(PoisonError::into_inner);
                (letters.poll_lines(Instant::now()), letters.is_empty())
            };
            lines.iter().for_each(dead_letters::Line::log);
            let beyond = beyond(self.lanes.iter().map(|lane| lane.borrow().clone()), self.backlog_max);
            // That nobody is beyond the limit any more is said once; where that is lost, unreachable says it.
            let was_known = std::mem::replace(&mut is_known, !beyond.is_empty());
            if !(is_known || was_known) {
                if is_quiet {
                    self.wake.notified().await;
                }
                continue;
            }
            let Ok(payload) = serde_json::to_vec(&beyond).map(Bytes::from) else { continue };
            let _ = timeout(BACKLOG_PERIOD, self.pub_sub.publish(subject::backlog(&self.engine), payload)).await;
        }
    }
}

/// The agents whose backlogs add up to more than `backlog_max`: at most one message's worth, those with the largest first.
fn beyond(lanes: impl Iterator<Item = LaneBacklog>, backlog_max: usize) -> Vec<AgentId> {
    let mut waiting: BTreeMap<AgentId, usize> = BTreeMap::new();
    for (agent, count) in lanes.flatten() {
        *waiting.entry(agent).or_default() += count;
    }
    let mut beyond: Vec<_> = waiting.into_iter().filter(|(_, count)| *count > backlog_max).collect();
    beyond.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    beyond.into_iter().take(presence::REPORT_AGENTS_MAX).map(|(agent, _)| agent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlogs_of_lanes_add_up() {
        let lanes = || [backlog(&[("bob", 6), ("carol", 11)]), backlog(&[("bob", 5), ("dave", 10)])].into_iter();
        assert_eq!(names(&beyond(lanes(), 10)), ["bob", "carol"]);
        assert_eq!(names(&beyond(lanes(), 11)), [""; 0]);
        assert_eq!(names(&beyond(lanes(), 5)), ["bob", "carol", "dave"]);
    }

    #[test]
    fn no_more_are_named_than_gateways_read_and_the_largest_backlogs_first() {
        let many: LaneBacklog = (0..5_000).map(|number| (agent(&format!("a{number}")), number)).collect();
        let beyond = beyond([many].into_iter(), 0);
        assert_eq!(beyond.len(), presence::REPORT_AGENTS_MAX);
        assert_eq!(beyond[0].as_str(), "a4999");
    }

    fn backlog(of: &[(&str, usize)]) -> LaneBacklog {
        of.iter().map(|(name, count)| (agent(name), *count)).collect()
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn names(agents: &[AgentId]) -> Vec<&str> {
        agents.iter().map(AgentId::as_str).collect()
    }
}
