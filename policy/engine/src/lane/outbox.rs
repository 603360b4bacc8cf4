//! The outbox of one lane: every delivery from its effect until it is acknowledged or given up.
//!
//! ```text
//! held -> gated -> queued -> waiting -> sent -> (acknowledged: gone)
//!   (not owner)  (register)   ^  (others are     |
//!                             |   under way)     |
//!                             +------------------+ repeat or hello, or not taken by the bus
//!                                                +-> given up -> (failure in the log: gone)
//! ```
//! When the lane is lost to another engine, everything goes back to held ([`Outbox::demote`]).
//!
//! Holds no socket and reads no clock: the lane feeds it and carries away [`Bundle`](super::Bundle)s and failures to log. Bounds:
//! [`OutboxConfig`].

mod answer_times;
#[cfg(test)]
pub(crate) mod fixture;
mod send_and_retry;
mod standby;
#[cfg(test)]
mod tests;
mod unreachable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use bytes::Bytes;
use policy_core::Deliver;
use retry::RecentMap;
use schemas::delivery::{Notification, ProgressReport};
use schemas::record::EngineEvent;
use schemas::{AgentId, DeliveryId, RegisterKey, Timestamp};
use telemetry::{SpanId, TraceContext};
use tokio::time::Instant;

use crate::config::OutboxConfig;
use crate::lane::document::DocumentWriter;
use crate::lane::{AgentBacklog, DeliveryEvent, DeliveryStep, Gate};
use crate::metrics::{DeadLetterReason, EngineMetrics};
use answer_times::AnswerTimes;
use unreachable::UnreachableAgents;

/// Acknowledgements remembered that are not in the log. An owner logs within a second what it receives, so this covers a
/// busy lane; what is forgotten is only sent once more than it need be.
const ACKS_MAX: usize = 32_768;

/// An agent that has acknowledged something so lately is heard: an SDK acknowledges within 300 ms what it has received.
const HEARD_MAX: Duration = Duration::from_secs(5);
/// Deliveries of a lane that may be under way to an agent of which nothing is known.
const UNDER_WAY_FIRST: usize = 256;
/// An agent whose acknowledgements take longer gets fewer at a time. Agents of the SDK on the same network take a tenth of a
/// second at most, and a repeat comes after half of one.
const QUICK_ACK: Duration = Duration::from_millis(200);

/// How long receipts that came along with a delivery are told at least, in milliseconds since it was made: what it asks for may
/// be over sooner, while the exchange starts again.
const RECEIPTS_MS: u64 = 60_000;

/// An acknowledgement that is not in the log yet: of a lane that is not owned, whose owner will log it unless it ends before it
/// can; or of a delivery that is not folded yet.
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
    /// When it left for the first time since it was released.
    left_at: Instant,
    attempts: u32,
    state: DeliveryState,
    /// The slot its timer is armed in; any other slot that still lists it is out of date.
    due: Option<RetrySlot>,
    /// Whether it counts among those under way to its recipient.
    is_under_way: bool,
    /// An earlier owner may have sent it.
    may_have_left: bool,
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
    /// Waits until its recipient acknowledges what is under way, and then leaves as above.
    Waiting { since: Instant, counts: bool },
    /// Waits for its acknowledgement; the last time that it left `counted` as an attempt.
    Sent { counted: bool },
    /// The bus did not take it: it is queued again after a while.
    Unsent { counts: bool },
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
            left_at: now,
            attempts: 0,
            state: DeliveryState::Held,
            due: None,
            is_under_way: false,
            may_have_left: false,
        }
    }

    /// Whether the recipient may have seen it: sent by this engine, or held, when an earlier owner may have sent it.
    fn may_be_sent(&self) -> bool {
        self.attempts > 0 || self.may_have_left || self.state == DeliveryState::Held
    }

    /// Until when it is told: as long as what it asks for counts, and as long as the receipts that came along are owed.
    fn told_until(&self) -> Timestamp {
        let owed = self.deliver.at.plus_ms(RECEIPTS_MS);
        if self.deliver.receipts.is_empty() { self.deliver.expires } else { self.deliver.expires.max(owed) }
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
    /// Of those, how many have left.
    under_way: usize,
    /// How many may at a time.
    under_way_max: usize,
    /// It has acknowledged nothing since one ran out of attempts, nor connected: others would only be held up.
    is_silent: bool,
    acked_at: Option<Instant>,
    /// When it was last sent everything again, because it connected.
    greeted_at: Option<Instant>,
    /// Those that wait for it, in the order they were made; some may wait no longer.
    waiting: VecDeque<DeliveryId>,
}

impl Recipient {
    /// Ids that may be stale before they are swept, beyond as many as live; keeps sweeping linear in what is added.
    const SLACK: usize = 16;

    fn new(config: &OutboxConfig, is_silent: bool) -> Self {
        let under_way_max = UNDER_WAY_FIRST.clamp(config.under_way_min, config.under_way_max);
        Self { under_way_max, is_silent, ..Self::default() }
    }

    fn push(&mut self, id: DeliveryId) {
        self.order.push_back(id);
        self.live += 1;
    }

    /// Notes that one id no longer lives; `lives` tells which still do. Returns whether any is left.
    fn note_gone(&mut self, lives: impl Fn(&DeliveryId) -> bool) -> bool {
        debug_assert!(self.live > 0 && self.live <= self.order.len(), "who goes was there, and stands in the order");
        self.live = self.live.saturating_sub(1);
        while self.order.front().is_some_and(|id| !lives(id)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.live + Self::SLACK {
            self.order.retain(|id| lives(id));
        }
        self.live > 0
    }

    /// One was acknowledged this long after it had left: where that is long, it waited for the agent, and the next would as
    /// well do so here.
    fn note_acked(&mut self, took: Duration, now: Instant, config: &OutboxConfig) {
        (self.is_silent, self.acked_at) = (false, Some(now));
        if took > QUICK_ACK {
            self.under_way_max = self.under_way_max.saturating_sub(1).max(config.under_way_min);
        } else if !self.waiting.is_empty() {
            self.under_way_max = (self.under_way_max + 1).min(config.under_way_max);
        }
    }

    /// One is no longer under way. Returns whether others wait for that.
    fn note_arrived(&mut self) -> bool {
        debug_assert!(self.under_way > 0, "only what is under way arrives");
        self.under_way = self.under_way.saturating_sub(1);
        !self.waiting.is_empty()
    }

    fn has_room(&self) -> bool {
        self.is_silent || self.under_way < self.under_way_max
    }

    /// One waits until others are acknowledged; `waits` tells which still do.
    fn wait(&mut self, id: DeliveryId, waits: impl Fn(&DeliveryId) -> bool) {
        if self.waiting.len() > 2 * self.live + Self::SLACK {
            self.waiting.retain(waits);
        }
        self.waiting.push_back(id);
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
    /// Agents for whom deliveries wait and may leave now.
    opened: BTreeSet<AgentId>,
    /// Agents that have connected again too soon, and when they are sent everything again.
    greeted: BTreeSet<(Instant, AgentId)>,
    /// Failures to be logged.
    given_up: VecDeque<(DeliveryId, EngineEvent)>,
    /// Items that wait for the record of their failure.
    failed: usize,
    acks: RecentMap<DeliveryId, Ack>,
    made: u64,
    writer: DocumentWriter,
    unreachable: UnreachableAgents,
    answer_times: AnswerTimes,
    /// What became of deliveries since the lane last asked: of all where `keeps_events`, otherwise of those given up.
    events: Vec<DeliveryEvent>,
    keeps_events: bool,
}

impl Outbox {
    pub(crate) fn new(config: OutboxConfig, metrics: Arc<EngineMetrics>, now: Instant) -> Self {
        let answer_times = AnswerTimes::new(Duration::from_millis(config.retry_base_ms));
        Self {
            config,
            metrics,
            entries: HashMap::new(),
            recipients: HashMap::new(),
            gated: HashMap::new(),
            schedule: RetrySchedule::new(now),
            queue: Vec::new(),
            opened: BTreeSet::new(),
            greeted: BTreeSet::new(),
            given_up: VecDeque::new(),
            failed: 0,
            acks: RecentMap::new(ACKS_MAX),
            made: 0,
            writer: DocumentWriter::default(),
            unreachable: UnreachableAgents::default(),
            answer_times,
            events: Vec::new(),
            keeps_events: false,
        }
    }

    /// Deliveries neither acknowledged nor given up.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the lane should take no further records in for now. What only waits for a record does not count: the
    /// lane must read on to settle it.
    pub(crate) fn is_full(&self) -> bool {
        debug_assert!(self.failed <= self.entries.len(), "what has failed is still here");
        self.entries.len().saturating_sub(self.failed) >= self.config.in_flight_max
    }

    /// Takes a delivery in and holds it back until it is released; unless its recipient has acknowledged it before, and then
    /// it is `false`. `trace` is where it hangs in its trace.
    pub(crate) fn hold(&mut self, deliver: Deliver, trace: Option<Box<TraceContext>>, now: Instant) -> bool {
        let (id, to) = (deliver.id, deliver.to.clone());
        if self.acks.value(&id).is_some_and(|ack| matches!(ack, Ack::Early(from) if *from == to)) {
            self.acks.insert(id, Ack::Settling);
            return false;
        }
        let entry = OutboxEntry { trace, ..OutboxEntry::new(deliver, self.made, now) };
        if self.entries.insert(id, entry).is_none() {
            self.made += 1;
            let is_silent = self.unreachable.count(&to) > 0;
            self.recipients.entry(to).or_insert_with(|| Recipient::new(&self.config, is_silent)).push(id);
        }
        true
    }

    /// The deliveries held back, in the order they were made.
    fn held(&self) -> Vec<DeliveryId> {
        let mut held: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.state == DeliveryState::Held)
            .map(|(id, entry)| (entry.made, *id))
            .collect();
        held.sort_unstable();
        held.into_iter().map(|(_, id)| id).collect()
    }

    /// Lets a held delivery go as far as its gate allows.
    pub(crate) fn release(&mut self, id: DeliveryId, gate: Gate) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::Held) else { return };
        let waiting = self.recipients.get(&entry.deliver.to).map_or(0, |recipient| recipient.live);
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
        // Absent for what an earlier owner of the lane sent.
        let since = |at| (entry.attempts > 0).then(|| now.saturating_duration_since(at));
        let waited = since(entry.left_at);
        let (deliveries, kind) = (&self.metrics.deliveries, entry.deliver.told.act());
        deliveries.acked.of(kind).inc();
        if let Some(waited) = since(entry.made_at) {
            deliveries.duration.of(kind).observe(waited.as_secs_f64());
        }
        if let Some(waited) = waited.filter(|_| entry.is_under_way) {
            self.answer_times.note(agent, waited);
            if let Some(recipient) = self.recipients.get_mut(agent) {
                recipient.note_acked(waited, now, &self.config);
            }
        }
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
        let (entries, to) = (&self.entries, &entry.deliver.to);
        let Some(recipient) = self.recipients.get_mut(to) else { return };
        if entry.is_under_way && recipient.note_arrived() {
            self.opened.insert(to.clone());
        }
        if !recipient.note_gone(|id| entries.contains_key(id)) {
            // Nothing is left that a hello which waits could send again.
            if let Some(at) = self.recipients.remove(to).and_then(|gone| gone.greeted_at) {
                self.greeted.remove(&(at + Duration::from_millis(self.config.retry_base_ms), to.clone()));
            }
        }
    }

    /// From now on keeps what becomes of any delivery until [`Outbox::take_events`]; says of everything that is held where it
    /// hangs in its trace: of what came out of a checkpoint nobody has said it.
    pub(crate) fn keep_events(&mut self, trace_of: impl Fn(&Deliver) -> Option<Box<TraceContext>>) {
        self.keeps_events = true;
        self.entries.values_mut().for_each(|entry| entry.trace = trace_of(&entry.deliver));
    }

    /// What became of deliveries since the last call. The lane asks after each batch of signals and each flush, which
    /// bounds how many there can be.
    pub(crate) fn take_events(&mut self) -> Vec<DeliveryEvent> {
        std::mem::take(&mut self.events)
    }

    /// How many deliveries each agent has not acknowledged: those that wait for it, and those given up since it last
    /// acknowledged one or connected.
    pub(crate) fn backlog(&mut self, now: Instant) -> Vec<(AgentId, AgentBacklog)> {
        self.unreachable.forget_old(now);
        let is_lately = |at: &Instant| now.saturating_duration_since(*at) <= HEARD_MAX;
        let waiting = self.recipients.iter().map(|(agent, one)| {
            let count = one.live + self.unreachable.count(agent);
            (agent.clone(), AgentBacklog { count, is_heard: one.acked_at.as_ref().is_some_and(is_lately) })
        });
        let gone = self.unreachable.iter().filter(|(agent, _)| !self.recipients.contains_key(*agent));
        let gone = gone.map(|(agent, count)| (agent.clone(), AgentBacklog { count, is_heard: false }));
        waiting.chain(gone).collect()
    }

    /// Whether any agent has unacknowledged deliveries.
    pub(crate) fn has_backlog(&self) -> bool {
        !(self.recipients.is_empty() && self.unreachable.is_empty())
    }

    fn give_up(&mut self, id: DeliveryId, reason: DeadLetterReason) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        // What was about to leave for the first time was late by no fault of its recipient.
        let is_blamed = entry.attempts > 0 || !matches!(entry.state, DeliveryState::Queued { .. });
        entry.state = DeliveryState::GivenUp;
        if std::mem::take(&mut entry.is_under_way)
            && let Some(recipient) = self.recipients.get_mut(&entry.deliver.to)
        {
            let is_heard = recipient.acked_at.is_some_and(|at| at >= entry.left_at);
            recipient.is_silent |= reason == DeadLetterReason::Attempts && !is_heard;
            if recipient.note_arrived() {
                self.opened.insert(entry.deliver.to.clone());
            }
        }
        self.metrics.deliveries.dead_letters.of(reason).inc();
        if is_blamed {
            self.unreachable.note(&entry.deliver.to, reason);
        }
        self.events.push(DeliveryEvent::of(entry, DeliveryStep::GivenUp(reason)));
        self.given_up.push_back((id, entry.failure()));
    }
}

impl DeliveryEvent {
    fn of(entry: &OutboxEntry, step: DeliveryStep) -> Self {
        let deliver = &entry.deliver;
        let trace = entry.trace.as_deref().copied();
        Self {
            id: deliver.id,
            negotiation: deliver.negotiation.clone(),
            to: deliver.to.clone(),
            act: deliver.told.act(),
            attempts: entry.attempts,
            made_at: entry.made_at,
            waited: None,
            told: (matches!(step, DeliveryStep::Sent | DeliveryStep::SentOnce) && is_kept(&deliver.told))
                .then(|| Arc::clone(&deliver.told)),
            trace: trace.or_else(|| matches!(step, DeliveryStep::GivenUp(_)).then(|| unkept(deliver))),
            step,
        }
    }
}

/// Whether a journal keeps of it more than its act: of a bargain its rules, the offer that stands and the agreement; of a team
/// its steps and the conclusion; of a panel what is asked for and the finding; of an award the report; of an auction each bid,
/// once: as its bidder is told.
#[expect(clippy::wildcard_enum_match_arm, reason = "of the rest the act is enough")]
fn is_kept(told: &Notification) -> bool {
    match told {
        Notification::Cfp(call) => call.bargain.is_some(),
        Notification::Turn(turn) => turn.standing.is_some(),
        Notification::Closed(closing) => closing.agreement.is_some() || closing.conclusion.is_some(),
        Notification::Inform(ProgressReport::Bid(bid)) => bid.leads,
        Notification::Inform(news) => {
            matches!(news, ProgressReport::Result(_) | ProgressReport::Done(_) | ProgressReport::Finding(_))
        }
        Notification::Floor(_) | Notification::Ask(_) => true,
        _ => false,
    }
}

/// Where a delivery hangs whose trace is not kept: known well enough to tell that it failed.
fn unkept(deliver: &Deliver) -> TraceContext {
    let trace = TraceContext::of(deliver.traceparent.as_deref(), &deliver.negotiation).trace;
    TraceContext { trace, parent: SpanId::of(&deliver.negotiation) }
}

/// Width of a slot. Repeats come after 500 ms and more, so this much imprecision is not felt.
const SLOT_MS: u64 = 8;

/// A slot: everything in it is due at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RetrySlot(u64);

impl RetrySlot {
    fn after_start(self) -> Duration {
        Duration::from_millis(self.0.saturating_mul(SLOT_MS))
    }
}

/// Timers are kept in slots: a busy lane arms hundreds of thousands of timers a second, nearly all of which are answered before
/// they fire. A delivery that was acknowledged stays in its slot until that is due; the owner of the schedule
/// compares the slot with the one it noted and ignores what no longer holds.
#[derive(Debug)]
struct RetrySchedule {
    start: Instant,
    ids_by_slot: BTreeMap<RetrySlot, Vec<DeliveryId>>,
}

impl RetrySchedule {
    fn new(now: Instant) -> Self {
        Self { start: now, ids_by_slot: BTreeMap::new() }
    }

    /// Arms a timer and returns its slot: the first that ends at or after `at`.
    fn arm(&mut self, id: DeliveryId, at: Instant) -> RetrySlot {
        let after_ms = at.saturating_duration_since(self.start).as_micros().div_ceil(1000);
        let slot = RetrySlot(u64::try_from(after_ms).unwrap_or(u64::MAX).div_ceil(SLOT_MS));
        self.ids_by_slot.entry(slot).or_default().push(id);
        slot
    }

    /// Forgets every timer.
    fn clear(&mut self) {
        self.ids_by_slot.clear();
    }

    /// The end of the first slot.
    fn next(&self) -> Option<Instant> {
        self.ids_by_slot.keys().next().map(|slot| self.start + slot.after_start())
    }

    /// Takes the first slot if it is due.
    fn poll(&mut self, now: Instant) -> Option<(RetrySlot, Vec<DeliveryId>)> {
        let entry = self.ids_by_slot.first_entry()?;
        let slot = *entry.key();
        (self.start + slot.after_start() <= now).then(|| entry.remove_entry())
    }
}
