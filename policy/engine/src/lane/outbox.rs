//! The outbox of one lane: every delivery from its effect until it is acknowledged or given up.
//!
//! ```text
//! held -> gated -> queued -> sent -> (acknowledged: gone)
//!   (not owner)  (register)   ^        |
//!                             +--------+ repeat or hello
//!                                      +-> given up -> (failure in the log: gone)
//! ```
//! When the lane is lost to another engine, everything goes back to held ([`Outbox::demote`]).
//!
//! Holds no socket and reads no clock: the lane feeds it and carries away [`bundle::Bundle`]s and failures to log. Bounds:
//! [`OutboxConfig`].

mod bundle;
mod event;
#[cfg(test)]
pub(crate) mod fixture;
mod schedule;
mod sending;
#[cfg(test)]
mod tests;
mod unreachable;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use policy_core::Deliver;
use retry::RecentMap;
use schemas::record::{EngineEvent, Qos};
use schemas::{AgentId, DeliveryId, RegisterKey, Timestamp};
use telemetry::TraceContext;
use tokio::time::Instant;

use crate::config::OutboxConfig;
use crate::lane::document::DocumentWriter;
use crate::lane::register::Gate;
use crate::metrics::{DeadLetterReason, EngineMetrics, Observation};

pub(crate) use event::{DeliveryEvent, DeliveryStep};
use schedule::{RetrySchedule, RetrySlot};
use unreachable::UnreachableAgents;

/// Acknowledgements remembered while the lane is not owned. An owner logs within a second what it receives, so this covers a
/// busy lane; what is forgotten is only sent once more than it need be.
const ACKS_MAX: usize = 32_768;

/// An acknowledgement received while the lane is not owned: its owner will log it, unless it ends before it can.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ack {
    /// Came from this agent before the delivery was folded. May be anybody's invention until then.
    Early(AgentId),
    /// Settled a delivery, and is not in the log yet.
    Settling,
}

/// A delivery and where it stands.
#[derive(Debug)]
struct OutboxEntry {
    deliver: Deliver,
    /// Its document, once written; a slice of the message it first went out in.
    document: Option<Bytes>,
    /// Where it hangs in its trace, if that is kept.
    trace: Option<Box<TraceContext>>,
    /// Rank in the order of making.
    made: u64,
    made_at: Instant,
    attempts: u32,
    state: DeliveryState,
    /// The slot its timer is armed in; any other slot that still lists it is out of date.
    due: Option<RetrySlot>,
}

/// See the diagram in the parent module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeliveryState {
    /// Not to be sent by this engine yet.
    Held,
    /// Waits for the register.
    Gated,
    /// Leaves with the next flush; `counts` as an attempt, or is an extra for a hello.
    Queued { counts: bool },
    /// Waits for its acknowledgement.
    Sent,
    /// Waits until its failure is logged.
    GivenUp,
    /// Waits until its failure, which is logged, is folded.
    Failed,
}

impl OutboxEntry {
    fn new(deliver: Deliver, made: u64, now: Instant) -> Self {
        Self {
            deliver,
            document: None,
            trace: None,
            made,
            made_at: now,
            attempts: 0,
            state: DeliveryState::Held,
            due: None,
        }
    }

    /// Whether the recipient may have seen it: sent by this engine, or held, when an earlier owner may have sent it.
    fn may_be_sent(&self) -> bool {
        self.attempts > 0 || self.state == DeliveryState::Held
    }

    /// What the log is to say once it is given up.
    fn failure(&self) -> EngineEvent {
        EngineEvent::DeliveryFailed {
            id: self.deliver.id,
            negotiation: self.deliver.negotiation.clone(),
            to: self.deliver.to.clone(),
            attempts: self.attempts,
            may_answer: self.deliver.attempts_max.is_some(),
        }
    }

    /// Times it may be sent.
    fn attempts_max(&self, config: &OutboxConfig) -> u32 {
        self.deliver.attempts_max.map_or(config.attempts_max, |attempts| attempts.min(config.attempts_max))
    }
}

/// The deliveries that wait for one agent, in the order they were made. Removal from the middle is lazy: the outbox knows which ids still live.
#[derive(Debug, Default)]
struct Recipient {
    order: VecDeque<DeliveryId>,
    live: usize,
}

impl Recipient {
    /// Ids that may be stale before they are swept, beyond as many as live; keeps sweeping linear in what is added.
    const SLACK: usize = 16;

    fn push(&mut self, id: DeliveryId) {
        self.order.push_back(id);
        self.live += 1;
    }

    /// Notes that one id no longer lives; `lives` tells which still do. Returns whether any is left.
    fn note_gone(&mut self, lives: impl Fn(&DeliveryId) -> bool) -> bool {
        self.live = self.live.saturating_sub(1);
        while self.order.front().is_some_and(|id| !lives(id)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.live + Self::SLACK {
            self.order.retain(|id| lives(id));
        }
        self.live > 0
    }

    fn live(&self) -> usize {
        self.live
    }

    /// The ids, stale ones included.
    fn ids(&self) -> impl Iterator<Item = DeliveryId> + '_ {
        self.order.iter().copied()
    }
}

/// See the module.
pub(crate) struct Outbox {
    config: OutboxConfig,
    metrics: Arc<EngineMetrics>,
    entries: HashMap<DeliveryId, OutboxEntry>,
    recipients: HashMap<AgentId, Recipient>,
    gated: HashMap<RegisterKey, Vec<DeliveryId>>,
    schedule: RetrySchedule,
    queue: Vec<DeliveryId>,
    /// Failures to be logged.
    given_up: VecDeque<(DeliveryId, EngineEvent)>,
    /// Items that wait for the record of their failure.
    failed: usize,
    acks: RecentMap<DeliveryId, Ack>,
    made: u64,
    writer: DocumentWriter,
    unreachable: UnreachableAgents,
    /// What became of deliveries since the lane last asked: of all where `keeps_events`, otherwise of those given up.
    events: Vec<DeliveryEvent>,
    keeps_events: bool,
}

impl Outbox {
    pub(crate) fn new(config: OutboxConfig, metrics: Arc<EngineMetrics>, now: Instant) -> Self {
        Self {
            config,
            metrics,
            entries: HashMap::new(),
            recipients: HashMap::new(),
            gated: HashMap::new(),
            schedule: RetrySchedule::new(now),
            queue: Vec::new(),
            given_up: VecDeque::new(),
            failed: 0,
            acks: RecentMap::new(ACKS_MAX),
            made: 0,
            writer: DocumentWriter::default(),
            unreachable: UnreachableAgents::default(),
            events: Vec::new(),
            keeps_events: false,
        }
    }

    /// Deliveries that are neither acknowledged nor given up for good.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the lane should take no further records in for now. What only waits for a record does not count: the
    /// lane must read on to settle it.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len().saturating_sub(self.failed) >= self.config.in_flight_max
    }

    /// Takes a delivery in and holds it back until [`Outbox::release`]; unless its recipient has acknowledged it before.
    pub(crate) fn hold(&mut self, deliver: Deliver, now: Instant) {
        self.hold_traced(deliver, None, now);
    }

    /// As [`Outbox::hold`], with where the delivery hangs in its trace.
    pub(crate) fn hold_traced(&mut self, deliver: Deliver, trace: Option<Box<TraceContext>>, now: Instant) {
        let (id, to) = (deliver.id, deliver.to.clone());
        if self.acks.value(&id).is_some_and(|ack| matches!(ack, Ack::Early(from) if *from == to)) {
            self.acks.insert(id, Ack::Settling);
            return;
        }
        let entry = OutboxEntry { trace, ..OutboxEntry::new(deliver, self.made, now) };
        if self.entries.insert(id, entry).is_none() {
            self.made += 1;
            self.recipients.entry(to).or_default().push(id);
        }
    }

    /// The deliveries held back, in the order they were made.
    pub(crate) fn held(&self) -> Vec<DeliveryId> {
        let mut held: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.state == DeliveryState::Held)
            .map(|(id, entry)| (entry.made, *id))
            .collect();
        held.sort_unstable();
        held.into_iter().map(|(_, id)| id).collect()
    }

    /// The register key a delivery waits for.
    pub(crate) fn after(&self, id: DeliveryId) -> Option<&RegisterKey> {
        self.entries.get(&id)?.deliver.after.as_ref()
    }

    /// Lets a held delivery go as far as its gate allows.
    pub(crate) fn release(&mut self, id: DeliveryId, gate: Gate) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::Held) else { return };
        let waiting = self.recipients.get(&entry.deliver.to).map_or(0, Recipient::live);
        match gate {
            Gate::Refused => self.give_up(id, DeadLetterReason::RegisterConflict),
            Gate::Open | Gate::Shut(_) if waiting > self.config.per_agent_max => {
                self.give_up(id, DeadLetterReason::Overflow);
            }
            Gate::Open => {
                entry.state = DeliveryState::Queued { counts: true };
                self.queue.push(id);
            }
            Gate::Shut(key) => {
                entry.state = DeliveryState::Gated;
                self.gated.entry(key).or_default().push(id);
            }
        }
    }

    /// The register answered for a key: what waited for it leaves, or is given up when the key holds another value.
    pub(crate) fn handle_register(&mut self, key: &RegisterKey, is_refused: bool) {
        for id in self.gated.remove(key).unwrap_or_default() {
            let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::Gated) else {
                continue;
            };
            if is_refused {
                self.give_up(id, DeadLetterReason::RegisterConflict);
            } else {
                entry.state = DeliveryState::Queued { counts: true };
                self.queue.push(id);
            }
        }
    }

    /// An agent acknowledged a delivery. Counts only from the recipient, and only for what may have been sent; tells
    /// whether it did.
    pub(crate) fn handle_ack(&mut self, agent: &AgentId, id: DeliveryId, now: Instant) -> bool {
        let Some(entry) = self.entries.get(&id).filter(|entry| entry.deliver.to == *agent && entry.may_be_sent())
        else {
            return false;
        };
        let waited = (entry.attempts > 0).then(|| now.saturating_duration_since(entry.made_at));
        self.metrics.count_acked(&entry.deliver.told, waited);
        self.unreachable.end(agent);
        if self.keeps_events {
            self.events.push(DeliveryEvent { waited, ..DeliveryEvent::of(entry, DeliveryStep::Acknowledged) });
        }
        self.settle(id);
        true
    }

    /// Forgets a delivery: the log says it was acknowledged or given up, or it no longer matters.
    pub(crate) fn settle(&mut self, id: DeliveryId) {
        self.acks.remove(&id);
        let Some(entry) = self.entries.remove(&id) else { return };
        self.failed -= usize::from(entry.state == DeliveryState::Failed);
        let entries = &self.entries;
        let is_left = self
            .recipients
            .get_mut(&entry.deliver.to)
            .is_some_and(|recipient| recipient.note_gone(|id| entries.contains_key(id)));
        if !is_left {
            self.recipients.remove(&entry.deliver.to);
        }
    }

    /// An agent has connected: everything it has not acknowledged goes out again at once, uncounted, so that an agent
    /// whose connection flaps does not use its attempts up.
    pub(crate) fn handle_hello(&mut self, agent: &AgentId) {
        self.unreachable.end(agent);
        let Some(recipient) = self.recipients.get(agent) else { return };
        for id in recipient.ids() {
            if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::Sent) {
                entry.state = DeliveryState::Queued { counts: false };
                self.queue.push(id);
            }
        }
    }

    /// The next instant something may be due for a repeat.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// Queues what is due for a repeat and gives up what has run out of attempts or time.
    pub(crate) fn handle_time(&mut self, now: Instant, log_time: Timestamp) {
        while let Some((slot, ids)) = self.schedule.poll(now) {
            for id in ids {
                let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.due == Some(slot)) else { continue };
                entry.due = None;
                match entry.state {
                    DeliveryState::GivenUp => self.given_up.push_back((id, entry.failure())),
                    DeliveryState::Sent | DeliveryState::Queued { .. } if log_time > entry.deliver.expires => {
                        self.give_up(id, DeadLetterReason::Expired);
                    }
                    DeliveryState::Sent | DeliveryState::Queued { .. }
                        if entry.attempts >= entry.attempts_max(&self.config) =>
                    {
                        self.give_up(id, DeadLetterReason::Attempts);
                    }
                    DeliveryState::Sent => {
                        entry.state = DeliveryState::Queued { counts: true };
                        self.queue.push(id);
                    }
                    DeliveryState::Queued { .. } => entry.state = DeliveryState::Queued { counts: true },
                    DeliveryState::Held | DeliveryState::Gated | DeliveryState::Failed => {}
                }
            }
        }
    }

    /// The next delivery whose failure must be logged, with what the log is to say.
    pub(crate) fn poll_given_up(&mut self) -> Option<(DeliveryId, EngineEvent)> {
        self.given_up.pop_front()
    }

    /// The failure of a delivery could not be logged: it is reported again after a while.
    pub(crate) fn handle_failure_unlogged(&mut self, id: DeliveryId, now: Instant) {
        let gap = Duration::from_millis(self.config.retry_base_ms);
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::GivenUp) {
            entry.due = Some(self.schedule.arm(id, now + gap));
        }
    }

    /// The failure of a delivery is in the log: whether it counts is known once it is folded. Beyond as many as may be in
    /// flight it is taken to count: wrong only where another engine's claim stands before it that is not folded yet, and
    /// then that engine has the delivery.
    pub(crate) fn handle_failure_logged(&mut self, id: DeliveryId) {
        if self.failed >= self.config.in_flight_max {
            return self.settle(id);
        }
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::GivenUp) {
            entry.state = DeliveryState::Failed;
            self.failed += 1;
        }
    }

    /// The deliveries that are neither acknowledged nor given up for good, in the order they were made: for a
    /// checkpoint. [`Outbox::hold`] takes them back in. What is sent only once and is on its way is not among them.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Deliver> {
        let is_kept = |state: DeliveryState, qos: Qos| state == DeliveryState::Held || qos == Qos::AtLeastOnce;
        let mut entries: Vec<_> =
            self.entries.values().filter(|entry| is_kept(entry.state, entry.deliver.qos)).collect();
        entries.sort_unstable_by_key(|entry| entry.made);
        entries.into_iter().map(|entry| &entry.deliver)
    }

    /// An acknowledgement while the lane is not owned: the owner counts and logs it. One that comes before its delivery is
    /// folded is remembered for a while.
    pub(crate) fn handle_ack_heard(&mut self, agent: &AgentId, id: DeliveryId) {
        match self.entries.get(&id) {
            Some(entry) if entry.deliver.to == *agent => {
                self.settle(id);
                self.acks.insert(id, Ack::Settling);
            }
            Some(_) => {}
            None if self.acks.value(&id) == Some(&Ack::Settling) => {}
            None => self.acks.insert(id, Ack::Early(agent.clone())),
        }
    }

    /// The lane is owned from now on: what was acknowledged meanwhile and the log does not know yet, in the order of the
    /// ids. Whoever owned the lane before may have ended before it could log it.
    pub(crate) fn take_heard(&mut self) -> Vec<DeliveryId> {
        let mut settling: Vec<_> =
            self.acks.drain().filter(|(_, ack)| *ack == Ack::Settling).map(|(id, _)| id).collect();
        settling.sort_unstable();
        settling
    }

    /// The lane has another owner: everything not settled is held back again, as on the start. Attempts are kept, so
    /// that a lane that comes back does not begin to count anew. A failure that is not in the log is forgotten, and what
    /// is sent only once is left to the owner.
    pub(crate) fn demote(&mut self) {
        self.gated.clear();
        self.schedule.clear();
        self.queue.clear();
        self.given_up.clear();
        self.events.retain(|event| matches!(event.step, DeliveryStep::GivenUp(_)));
        self.failed = 0;
        self.unreachable = UnreachableAgents::default();
        for entry in self.entries.values_mut() {
            entry.state = DeliveryState::Held;
            entry.due = None;
            // The message it was cut from is many times its size.
            entry.document = None;
        }
        let once = self.entries.iter().filter(|(_, entry)| entry.deliver.qos == Qos::BestEffort).map(|(id, _)| *id);
        for id in once.collect::<Vec<_>>() {
            self.settle(id);
        }
    }

    /// From now on keeps what becomes of any delivery until [`Outbox::take_events`].
    pub(crate) fn keep_events(&mut self) {
        self.keeps_events = true;
    }

    /// Says of everything that is held where it hangs in its trace: of what came out of a checkpoint nobody has said it.
    pub(crate) fn trace_all(&mut self, trace_of: impl Fn(&Deliver) -> Option<Box<TraceContext>>) {
        self.entries.values_mut().for_each(|entry| entry.trace = trace_of(&entry.deliver));
    }

    /// What became of deliveries since the last call. The lane asks after each batch of signals and each flush, which
    /// bounds how many there can be.
    pub(crate) fn take_events(&mut self) -> Vec<DeliveryEvent> {
        std::mem::take(&mut self.events)
    }

    /// How many deliveries each agent has not acknowledged: those that wait for it, and those given up since it last
    /// acknowledged one or connected.
    pub(crate) fn backlog(&mut self, now: Instant) -> Vec<(AgentId, usize)> {
        self.unreachable.forget_old(now);
        let given_up = |agent: &AgentId| self.unreachable.count(agent);
        let waiting = self.recipients.iter().map(|(agent, one)| (agent.clone(), one.live() + given_up(agent)));
        let gone = self.unreachable.iter().filter(|(agent, _)| !self.recipients.contains_key(*agent));
        waiting.chain(gone.map(|(agent, count)| (agent.clone(), count))).collect()
    }

    /// Whether any agent has not acknowledged something.
    pub(crate) fn has_backlog(&self) -> bool {
        !(self.recipients.is_empty() && self.unreachable.is_empty())
    }

    fn give_up(&mut self, id: DeliveryId, reason: DeadLetterReason) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.state = DeliveryState::GivenUp;
        self.metrics.observe(Observation::DeadLetter(reason));
        self.unreachable.note(&entry.deliver.to, reason);
        self.events.push(DeliveryEvent::of(entry, DeliveryStep::GivenUp(reason)));
        self.given_up.push_back((id, entry.failure()));
    }
}
