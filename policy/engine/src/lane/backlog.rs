//! Agents that do not acknowledge: which of them gateways should invite no more, and what is said of dead letters.
//!
//! Those of them that have acknowledged others lately are named apart, on [`schemas::subject::behind`]: they are slow, or are
//! asked for more than anybody could do, and are called again once they have caught up.
//!
//! An agent's backlog is the number of deliveries that wait for it or were given up since it last acknowledged one or
//! connected. Each lane counts what it owns, a task of the engine adds the lanes up once a second, and publishes the agents
//! whose backlog is above [`OutboxConfig::backlog_max`](crate::OutboxConfig) on [`schemas::subject::backlog`]: best effort,
//! again every second while there are any. The lanes of other engines are not added, so an agent may have as many times the
//! limit as engines own lanes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::PubSub;
use bytes::Bytes;
use parking_lot::Mutex;
use schemas::{AgentId, DeliveryId, NegotiationId, presence, subject};
use telemetry::TraceId;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::{AgentBacklog, LaneBacklog, LaneReceivers, Shared};
use crate::lane::outbox::Outbox;
use crate::lane::{DeliveryEvent, DeliveryStep};
use crate::metrics::DeadLetterReason;

/// How often the lanes are added up.
const BACKLOG_PERIOD: Duration = Duration::from_secs(1);

/// Hands on what one lane says of agents that do not acknowledge.
#[derive(Clone)]
pub(crate) struct BacklogSender {
    sender: watch::Sender<LaneBacklog>,
    at: Instant,
    dead_letters: SharedDeadLetters,
    /// Wakes the reporter.
    wake: Arc<Notify>,
}

impl BacklogSender {
    pub(crate) fn new(shared: &Shared, now: Instant) -> (Self, watch::Receiver<LaneBacklog>) {
        let (sender, receiver) = watch::channel(LaneBacklog::new());
        let (dead_letters, wake) = (shared.dead_letters.clone(), Arc::clone(&shared.backlog_wake));
        (Self { sender, at: now, dead_letters, wake }, receiver)
    }

    /// Hands on what was given up.
    pub(crate) fn note_dead_letters(&self, events: &[DeliveryEvent]) {
        let mut letters = events.iter().filter_map(DeadLetter::of).peekable();
        if letters.peek().is_some() {
            let mut dead_letters = self.dead_letters.0.lock();
            letters.for_each(|letter| dead_letters.note(letter));
            drop(dead_letters);
            self.wake.notify_one();
        }
    }

    /// Hands on the lane's backlogs once a period; only the owner of a lane has any.
    pub(crate) fn report(&mut self, outbox: &mut Outbox, is_owner: bool, now: Instant) {
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
#[derive(Clone, Default)]
pub(crate) struct SharedDeadLetters(Arc<Mutex<DeadLetters>>);

/// The task of an engine that adds the lanes up and speaks of dead letters.
pub(crate) struct BacklogReporter {
    engine: String,
    backlog_max: usize,
    pub_sub: Arc<dyn PubSub>,
    lanes: Vec<watch::Receiver<LaneBacklog>>,
    dead_letters: SharedDeadLetters,
    /// A lane has something to report.
    wake: Arc<Notify>,
}

impl BacklogReporter {
    /// Adds up what lanes say.
    pub(crate) fn new(shared: &Shared, lanes: &[LaneReceivers]) -> Self {
        Self {
            engine: shared.config.id.clone(),
            backlog_max: shared.config.outbox.backlog_max,
            pub_sub: Arc::clone(&shared.bus.pub_sub),
            lanes: lanes.iter().map(|lane| lane.backlog.clone()).collect(),
            dead_letters: shared.dead_letters.clone(),
            wake: Arc::clone(&shared.backlog_wake),
        }
    }

    /// Reports until it is dropped.
    pub(crate) async fn drive(self) {
        let mut periods = interval(BACKLOG_PERIOD);
        periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_known = [false; 2];
        loop {
            periods.tick().await;
            let (lines, is_quiet) = {
                let mut letters = self.dead_letters.0.lock();
                (letters.poll_lines(Instant::now()), letters.is_empty())
            };
            lines.iter().for_each(Line::log);
            let beyond = beyond(self.lanes.iter().map(|lane| lane.borrow().clone()), self.backlog_max);
            let is_any = beyond.each_ref().map(|agents| !agents.is_empty());
            // That nobody is beyond the limit any more is said once; where that is lost, silence says it.
            let was_known = std::mem::replace(&mut is_known, is_any);
            if is_any == [false; 2] && was_known == [false; 2] && is_quiet {
                self.wake.notified().await;
            }
            let subjects = [subject::backlog(&self.engine), subject::behind(&self.engine)];
            for (place, (subject, agents)) in subjects.into_iter().zip(beyond).enumerate() {
                if !(is_any[place] || was_known[place]) {
                    continue;
                }
                let Ok(payload) = serde_json::to_vec(&agents).map(Bytes::from) else { continue };
                let _ = timeout(BACKLOG_PERIOD, self.pub_sub.publish(subject, payload)).await;
            }
        }
    }
}

/// The agents whose backlogs add up to more than `backlog_max`: the silent ones, and those that are heard. Of each at most one
/// message's worth, those with the largest first.
fn beyond(lanes: impl Iterator<Item = LaneBacklog>, backlog_max: usize) -> [Vec<AgentId>; 2] {
    let mut waiting: BTreeMap<AgentId, AgentBacklog> = BTreeMap::new();
    for (agent, AgentBacklog { count, is_heard }) in lanes.flatten() {
        let all = waiting.entry(agent).or_default();
        all.count += count;
        all.is_heard |= is_heard;
    }
    let mut beyond: Vec<_> = waiting.into_iter().filter(|(_, all)| all.count > backlog_max).collect();
    beyond.sort_by_key(|(_, all)| std::cmp::Reverse(all.count));
    let named = |is_heard| {
        let of_kind = beyond.iter().filter(move |(_, all)| all.is_heard == is_heard);
        of_kind.take(presence::REPORT_AGENTS_MAX).map(|(agent, _)| agent.clone()).collect()
    };
    [named(false), named(true)]
}

/// Gap between two lines about one agent.
const LINE_GAP: Duration = Duration::from_secs(60);
/// Agents spoken of apart; those beyond share a line.
const AGENTS_MAX: usize = 1024;

/// A delivery that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeadLetter {
    id: DeliveryId,
    to: AgentId,
    negotiation: NegotiationId,
    trace_id: TraceId,
    attempts: u32,
    reason: DeadLetterReason,
}

impl DeadLetter {
    fn of(event: &DeliveryEvent) -> Option<Self> {
        let DeliveryStep::GivenUp(reason) = event.step else { return None };
        let (to, negotiation) = (event.to.clone(), event.negotiation.clone());
        let trace_id = event.trace?.trace;
        Some(Self { id: event.id, to, negotiation, trace_id, attempts: event.attempts, reason })
    }
}

/// What the log says of deliveries that were given up: one line an agent and minute, with the number of them.
#[derive(Debug, Default)]
struct DeadLetters {
    by_agent: BTreeMap<AgentId, UnreportedLetters>,
    others: UnreportedLetters,
}

#[derive(Debug, Default)]
struct UnreportedLetters {
    /// Since the last line.
    count: u64,
    last: Option<DeadLetter>,
    said_at: Option<Instant>,
}

/// A line for the log: how many were given up since the line before, and the last of them.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    count: u64,
    last: DeadLetter,
    /// It is about several agents, of which the last letter names one.
    is_of_others: bool,
}

impl DeadLetters {
    /// A delivery was given up.
    fn note(&mut self, letter: DeadLetter) {
        let has_room = self.by_agent.len() < AGENTS_MAX || self.by_agent.contains_key(&letter.to);
        let unreported = if has_room { self.by_agent.entry(letter.to.clone()).or_default() } else { &mut self.others };
        unreported.count += 1;
        unreported.last = Some(letter);
    }

    /// Whether there is nothing left to say.
    fn is_empty(&self) -> bool {
        self.by_agent.values().all(|unreported| unreported.count == 0) && self.others.count == 0
    }

    /// The lines that are due; agents of which there was nothing to say for a while are forgotten.
    fn poll_lines(&mut self, now: Instant) -> Vec<Line> {
        let own = self.by_agent.values_mut().filter_map(|unreported| unreported.poll_line(now, false));
        let lines = own.collect::<Vec<_>>().into_iter().chain(self.others.poll_line(now, true)).collect();
        self.by_agent.retain(|_, unreported| unreported.count > 0 || !unreported.is_due(now));
        lines
    }
}

impl UnreportedLetters {
    fn is_due(&self, now: Instant) -> bool {
        self.said_at.is_none_or(|at| now.saturating_duration_since(at) >= LINE_GAP)
    }

    fn poll_line(&mut self, now: Instant, is_of_others: bool) -> Option<Line> {
        if !self.is_due(now) {
            return None;
        }
        let last = self.last.take()?;
        self.said_at = Some(now);
        Some(Line { count: std::mem::take(&mut self.count), last, is_of_others })
    }
}

impl Line {
    fn log(&self) {
        let DeadLetter { id, to, negotiation, trace_id, attempts, reason } = &self.last;
        let (count, reason): (_, &str) = (self.count, (*reason).into());
        if self.is_of_others {
            tracing::warn!(count, %negotiation, %trace_id, %id, %to, attempts, reason, "dead letters of several agents; this is the last");
        } else {
            tracing::warn!(count, %negotiation, %trace_id, %id, %to, attempts, reason, "dead letters of an agent; this is the last");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::outbox::fixture::id;

    #[test]
    fn the_backlogs_of_lanes_add_up() {
        let lanes = || [backlog(&[("bob", 6), ("carol", 11)]), backlog(&[("bob", 5), ("dave", 10)])].into_iter();
        let silent = |backlog_max| beyond(lanes(), backlog_max)[0].clone();
        assert_eq!(names(&silent(10)), ["bob", "carol"]);
        assert_eq!(names(&silent(11)), [""; 0]);
        assert_eq!(names(&silent(5)), ["bob", "carol", "dave"]);
    }

    #[test]
    fn who_acknowledges_to_any_lane_is_behind_and_not_silent() {
        let heard = vec![(agent("bob"), AgentBacklog { count: 6, is_heard: true })];
        let [silent, behind] = beyond([heard, backlog(&[("bob", 5), ("carol", 11)])].into_iter(), 10);
        assert_eq!((names(&silent), names(&behind)), (vec!["carol"], vec!["bob"]));
    }

    #[test]
    fn no_more_are_named_than_gateways_read_and_the_largest_backlogs_first() {
        let of = |count| AgentBacklog { count, is_heard: false };
        let many: LaneBacklog = (0..5_000).map(|number| (agent(&format!("a{number}")), of(number))).collect();
        let [beyond, _] = beyond([many].into_iter(), 0);
        assert_eq!(beyond.len(), presence::REPORT_AGENTS_MAX);
        assert_eq!(beyond[0].as_str(), "a4999");
    }

    #[test]
    fn an_agent_has_one_line_a_minute_with_the_number() {
        let (mut letters, start) = (DeadLetters::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        for _ in 0..3 {
            letters.note(letter("bob", 1));
        }
        letters.note(letter("carol", 2));
        assert_eq!(said(&letters.poll_lines(at(0))), [("bob".to_owned(), 3), ("carol".to_owned(), 1)]);
        for second in 1..60 {
            (0..360).for_each(|_| letters.note(letter("bob", 3)));
            assert!(letters.poll_lines(at(second)).is_empty(), "{second}");
        }
        assert_eq!(said(&letters.poll_lines(at(60))), [("bob".to_owned(), 59 * 360)]);
        assert!(letters.poll_lines(at(61)).is_empty());
    }

    #[test]
    fn agents_beyond_the_bound_share_a_line_and_silent_ones_are_forgotten() {
        let (mut letters, start) = (DeadLetters::default(), Instant::now());
        for number in 0..2 * AGENTS_MAX {
            letters.note(letter(&format!("a{number}"), 1));
        }
        let lines = letters.poll_lines(start);
        assert_eq!(lines.len(), AGENTS_MAX + 1);
        let last = lines.last().unwrap();
        assert!(last.is_of_others && last.count == AGENTS_MAX as u64, "{last:?}");
        assert!(letters.poll_lines(start + LINE_GAP).is_empty());
        assert!(letters.by_agent.is_empty());
    }

    fn letter(to: &str, number: u128) -> DeadLetter {
        DeadLetter {
            id: id(number),
            to: AgentId::try_new(to).unwrap(),
            negotiation: NegotiationId::try_new("alice~job").unwrap(),
            trace_id: TraceId::of(&NegotiationId::try_new("alice~job").unwrap()),
            attempts: 3,
            reason: DeadLetterReason::Attempts,
        }
    }

    fn said(lines: &[Line]) -> Vec<(String, u64)> {
        lines.iter().map(|line| (line.last.to.to_string(), line.count)).collect()
    }

    fn backlog(of: &[(&str, usize)]) -> LaneBacklog {
        of.iter().map(|(name, count)| (agent(name), AgentBacklog { count: *count, is_heard: false })).collect()
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn names(agents: &[AgentId]) -> Vec<&str> {
        agents.iter().map(AgentId::as_str).collect()
    }
}
