//! How queued deliveries become messages, as few as possible: one per gateway for those that leave for the first time and are
//! routed, one per agent for all others; and what their sending leaves behind.

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use bytes::Bytes;
use retry::Backoff;
use schemas::delivery::Notification;
use schemas::record::{EngineEvent, Qos};
use schemas::{AgentId, DeliveryId, GatewayId, Timestamp, routed};
use tokio::time::Instant;

use super::{DeliveryState, Outbox, OutboxEntry, Recipient};
use crate::config::OutboxConfig;
use crate::lane::{Bundle, DeliveryEvent, DeliveryStep, Destination, LogClock};
use crate::metrics::DeadLetterReason;

/// How often it is looked whether what waits is to be given up. Not only at its deadline: a timer stays until it is due.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// Longest a delivery waits for others: as long as its attempts would take.
const WAITING_MAX: Duration = Duration::from_secs(60);

impl Outbox {
    /// Whether something is to be published.
    pub(crate) fn has_queued(&self) -> bool {
        !(self.queue.is_empty() && self.opened.is_empty())
    }

    /// Everything queued, as messages to publish; they count as sent. `route` names the gateway that alone holds an agent's
    /// streams.
    pub(crate) fn poll_bundles(
        &mut self,
        now: Instant,
        clock: &LogClock,
        route: impl Fn(&AgentId) -> Option<GatewayId>,
    ) -> Vec<Bundle> {
        let (mut bundler, log_time) = (Bundler::new(&self.config), clock.log_time(now));
        let mut written = Vec::new();
        for id in self.take_queue(now, clock) {
            let Some(entry) = self.entries.get(&id).filter(|entry| matches!(entry.state, DeliveryState::Queued { .. }))
            else {
                continue;
            };
            if entry.has_missed_its_instant(log_time) {
                self.give_up(id, DeadLetterReason::Expired);
                continue;
            }
            let to = &entry.deliver.to;
            let gateway = if entry.may_be_routed(&self.config) { route(to) } else { None };
            let destination = gateway.map_or_else(|| Destination::Inbox(to.clone()), Destination::Gateway);
            if let Some(document) = &entry.document {
                bundler.add(id, destination, to, document);
                continue;
            }
            written.clear();
            match self.writer.write(&entry.deliver, &mut written) {
                Ok(()) => bundler.add(id, destination, to, &written),
                Err(error) => {
                    // The core builds no such delivery; retrying could not help.
                    let negotiation = &entry.deliver.negotiation;
                    tracing::error!(%negotiation, %id, %error, "a delivery cannot be written; it is given up");
                    self.give_up(id, DeadLetterReason::Unwritable);
                }
            }
        }
        let bundles: Vec<Bundle> = bundler.finish().collect();
        for bundle in &bundles {
            for (id, range) in &bundle.documents {
                // A message to a gateway is many agents': the slowest of them would keep all of it in memory. What is
                // repeated is written again.
                let is_kept = matches!(bundle.destination, Destination::Inbox(_));
                let document = is_kept.then(|| bundle.payload.slice(range.clone()));
                self.note_sent(*id, document, now, clock);
            }
        }
        bundles
    }

    /// What may leave of what is queued, of each recipient those first that waited. Where as much is under way as may be, the
    /// others wait.
    fn take_queue(&mut self, now: Instant, clock: &LogClock) -> Vec<DeliveryId> {
        let mut leaving = Vec::new();
        for agent in std::mem::take(&mut self.opened) {
            let Some(recipient) = self.recipients.get_mut(&agent) else { continue };
            while recipient.has_room()
                && let Some(id) = recipient.waiting.pop_front()
            {
                let Some(entry) = self.entries.get_mut(&id) else { continue };
                let DeliveryState::Waiting { counts, .. } = entry.state else { continue };
                entry.due = None;
                entry.leave(recipient, counts, now);
                leaving.push(id);
            }
        }
        for id in std::mem::take(&mut self.queue) {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            // What is sent only once is acknowledged by nobody, so it takes no room and waits for none.
            let is_new = entry.deliver.qos == Qos::AtLeastOnce && !entry.is_under_way;
            let (recipient, counts) = match (self.recipients.get_mut(&entry.deliver.to), entry.state) {
                (Some(recipient), DeliveryState::Queued { counts }) if is_new => (recipient, counts),
                _ => {
                    leaving.push(id);
                    continue;
                }
            };
            if recipient.has_room() && recipient.waiting.is_empty() {
                entry.leave(recipient, counts, now);
                leaving.push(id);
            } else {
                entry.state = DeliveryState::Waiting { since: now, counts };
                let expiry = clock.instant_of(entry.told_until()) + Duration::from_millis(1);
                entry.due = Some(self.schedule.arm(id, expiry.clamp(now, now + LOOK_PERIOD)));
                if recipient.has_room() {
                    self.opened.insert(entry.deliver.to.clone());
                }
                let entries = &self.entries;
                let waits = |one: &OutboxEntry| matches!(one.state, DeliveryState::Waiting { .. });
                recipient.wait(id, |id| entries.get(id).is_some_and(waits));
            }
        }
        leaving
    }

    /// An agent has connected: what is under way to it goes out again, uncounted, so that an agent whose connection flaps does
    /// not use its attempts up; at once, or a gap after the last time. What left beyond that while it was silent waits.
    pub(crate) fn handle_hello(&mut self, agent: &AgentId, now: Instant) {
        self.unreachable.end(agent);
        let Some(recipient) = self.recipients.get_mut(agent) else { return };
        recipient.is_silent = false;
        if let Some(at) = recipient.greeted_at {
            let next = (at + Duration::from_millis(self.config.retry_base_ms), agent.clone());
            if recipient.under_way > 0 && now < next.0 {
                self.greeted.insert(next);
                return;
            }
            // An earlier hello that waited is served with this one.
            self.greeted.remove(&next);
        }
        if recipient.under_way == 0 {
            return;
        }
        recipient.greeted_at = Some(now);
        let mut waiting = VecDeque::new();
        let mut room = recipient.under_way_max;
        for id in recipient.order.iter().copied() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            let counts = match entry.state {
                DeliveryState::Sent { .. } => false,
                DeliveryState::Unsent { counts } => {
                    entry.due = None;
                    counts
                }
                DeliveryState::Held
                | DeliveryState::Gated
                | DeliveryState::Queued { .. }
                | DeliveryState::Waiting { .. }
                | DeliveryState::GivenUp
                | DeliveryState::Failed => continue,
            };
            if room > 0 {
                room -= 1;
                entry.state = DeliveryState::Queued { counts };
                self.queue.push(id);
            } else {
                entry.state = DeliveryState::Waiting { since: now, counts };
                entry.is_under_way = false;
                debug_assert!(recipient.under_way > 0, "only what is under way goes back to wait");
                recipient.under_way = recipient.under_way.saturating_sub(1);
                waiting.push_back(id);
            }
        }
        waiting.append(&mut recipient.waiting);
        recipient.waiting = waiting;
    }

    /// The next instant something may be due for a repeat.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.schedule.next().into_iter().chain(self.greeted.first().map(|(at, _)| *at)).min()
    }

    /// Queues what is due for a repeat and gives up what has run out of attempts or time.
    pub(crate) fn handle_time(&mut self, now: Instant, log_time: Timestamp) {
        while let Some(due) = self.greeted.first().filter(|(at, _)| *at <= now).cloned() {
            self.greeted.remove(&due);
            self.handle_hello(&due.1, now);
        }
        while let Some((slot, ids)) = self.schedule.poll(now) {
            for id in ids {
                let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.due == Some(slot)) else { continue };
                entry.due = None;
                match entry.state {
                    DeliveryState::GivenUp => self.given_up.push_back((id, entry.failure())),
                    DeliveryState::Sent { .. }
                    | DeliveryState::Unsent { .. }
                    | DeliveryState::Queued { .. }
                    | DeliveryState::Waiting { .. }
                        if log_time > entry.told_until() =>
                    {
                        self.give_up(id, DeadLetterReason::Expired);
                    }
                    DeliveryState::Waiting { since, .. } if now.saturating_duration_since(since) > WAITING_MAX => {
                        self.give_up(id, DeadLetterReason::Overflow);
                    }
                    DeliveryState::Waiting { .. } => {
                        let left = Duration::from_micros(entry.told_until().since_us(log_time));
                        let at = now + left.min(LOOK_PERIOD) + Duration::from_millis(1);
                        entry.due = Some(self.schedule.arm(id, at));
                    }
                    DeliveryState::Sent { .. } | DeliveryState::Queued { .. }
                        if entry.attempts >= entry.attempts_max(&self.config) =>
                    {
                        self.give_up(id, DeadLetterReason::Attempts);
                    }
                    DeliveryState::Sent { .. } => {
                        entry.state = DeliveryState::Queued { counts: true };
                        self.queue.push(id);
                    }
                    DeliveryState::Unsent { counts } => {
                        entry.state = DeliveryState::Queued { counts };
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

    /// The failure of a delivery is in the log: whether it counts is known once it is folded. Where another engine's claim
    /// stands before it, it does not, and the delivery may come back here with the lane.
    pub(crate) fn handle_failure_logged(&mut self, id: DeliveryId) {
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.state == DeliveryState::GivenUp) {
            entry.state = DeliveryState::Failed;
            self.failed += 1;
        }
    }

    /// The bus did not take a message: its deliveries have not been sent, and go out again after a while. Only their
    /// deadline can end that, not the number of attempts.
    pub(crate) fn handle_unsent(&mut self, bundle: &Bundle, now: Instant) {
        let gap = Duration::from_millis(self.config.retry_base_ms);
        for (id, _) in &bundle.documents {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            let DeliveryState::Sent { counted } = entry.state else { continue };
            entry.state = DeliveryState::Unsent { counts: counted };
            entry.attempts = entry.attempts.saturating_sub(u32::from(counted));
            if entry.attempts == 0 {
                entry.left_at = now;
            }
            entry.due = Some(self.schedule.arm(*id, now + gap));
        }
    }

    fn note_sent(&mut self, id: DeliveryId, document: Option<Bytes>, now: Instant, clock: &LogClock) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (deliveries, kind) = (&self.metrics.deliveries, entry.deliver.told.act());
        deliveries.sent.of(kind).inc();
        if entry.attempts > 0 {
            deliveries.retries.of(kind).inc();
        }
        if self.keeps_events && entry.attempts == 0 {
            let is_once = entry.deliver.qos == Qos::BestEffort;
            self.events
                .push(DeliveryEvent::of(entry, if is_once { DeliveryStep::SentOnce } else { DeliveryStep::Sent }));
        }
        let counts = entry.state == DeliveryState::Queued { counts: true };
        entry.state = DeliveryState::Sent { counted: counts };
        entry.document = document;
        entry.attempts += u32::from(counts);
        if entry.deliver.qos == Qos::BestEffort {
            self.settle(id);
        } else if counts || entry.due.is_none() {
            let base = Duration::from_millis(self.config.retry_base_ms);
            let instant = |time| clock.instant_of(time) + Duration::from_millis(1);
            let (expiry, until) = (instant(entry.deliver.expires), instant(entry.told_until()));
            // Even what expires now gets one gap in which its acknowledgement can arrive.
            let to = &entry.deliver.to;
            let of_its_time = expiry.saturating_duration_since(now) / attempts_in_time(&entry.deliver.told);
            let first = self.answer_times.gap(to).min(of_its_time).max(base);
            let gap = retry_gap(first, &self.config, to, entry.attempts);
            let at = (now + gap).min(until.max(now + base));
            entry.due = Some(self.schedule.arm(id, at));
        }
    }
}

/// Of the time a delivery has left, the first gap to an agent that is slow to acknowledge takes at most this part, so that
/// further attempts fit in. Notices that nobody hears of hold something up; without a call that is lost, there is an offer
/// less, and calls are most of what would be repeated to agents that are busy.
fn attempts_in_time(told: &Notification) -> u32 {
    if matches!(told, Notification::Cfp(_)) { 2 } else { 8 }
}

/// A gap is lengthened by up to a quarter; less than a doubling, so that gaps always grow.
const JITTER_PARTS: u64 = 1024;

/// Gap after the latest attempt: first * 2^(attempts - 1), capped, plus jitter.
///
/// The jitter is a hash of recipient and attempt: it spreads recipients that fell silent together, repeats in a test,
/// and lets one recipient's deliveries stay in one message.
fn retry_gap(first: Duration, config: &OutboxConfig, to: &AgentId, attempts: u32) -> Duration {
    let max = Duration::from_millis(config.retry_ms_max);
    let gap_ms = u64::try_from(Backoff::exact(first, max).ceiling(attempts).as_millis()).unwrap_or(config.retry_ms_max);
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((to, attempts));
    Duration::from_millis(gap_ms + gap_ms.saturating_mul(hash % (JITTER_PARTS / 4)) / JITTER_PARTS)
}

impl OutboxEntry {
    /// Is under way from now on.
    fn leave(&mut self, recipient: &mut Recipient, counts: bool, now: Instant) {
        self.state = DeliveryState::Queued { counts };
        if counts {
            self.left_at = now;
        }
        self.is_under_way = true;
        recipient.under_way += 1;
    }

    /// Whether it asks for what counts no more, and nobody can have seen it: a call behind its collection deadline, a turn
    /// behind the time to act, unless receipts came along with it.
    fn has_missed_its_instant(&self, log_time: Timestamp) -> bool {
        let is_asking = matches!(*self.deliver.told, Notification::Cfp(_) | Notification::Turn(_));
        is_asking && self.attempts == 0 && !self.may_have_left && log_time > self.told_until()
    }

    /// Whether it may leave by a gateway: nobody has seen it yet, and where the gateway turns out to be the wrong one, it will
    /// be sent again.
    fn may_be_routed(&self, config: &OutboxConfig) -> bool {
        self.attempts == 0 && self.attempts_max(config) > 1 && self.deliver.qos == Qos::AtLeastOnce
    }
}

/// Collects documents by destination, in the order of the first delivery to each.
struct Bundler {
    deliveries_max: usize,
    bytes_max: usize,
    filling: Vec<Filling>,
    filling_by_destination: HashMap<Destination, usize>,
}

struct Filling {
    destination: Destination,
    bytes: Vec<u8>,
    documents: Vec<(DeliveryId, Range<usize>)>,
}

impl Bundler {
    fn new(config: &OutboxConfig) -> Self {
        Self {
            deliveries_max: config.bundle_deliveries_max,
            bytes_max: config.bundle_bytes_max,
            filling: Vec::new(),
            filling_by_destination: HashMap::new(),
        }
    }

    /// Adds the document of a delivery.
    fn add(&mut self, id: DeliveryId, destination: Destination, to: &AgentId, document: &[u8]) {
        // Beside the document: the comma before it and the bracket at the end, or what makes it a line.
        let more = match destination {
            Destination::Inbox(_) => document.len() + 2,
            Destination::Gateway(_) => document.len() + to.as_str().len() + routed::LINE_EXTRA,
        };
        let filling = self.open(destination, more);
        let range = match filling.destination {
            Destination::Inbox(_) => {
                let start = filling.bytes.len() + 1;
                filling.bytes.push(if filling.documents.is_empty() { b'[' } else { b',' });
                filling.bytes.extend_from_slice(document);
                start..filling.bytes.len()
            }
            Destination::Gateway(_) => routed::push_line(&mut filling.bytes, to, document),
        };
        filling.documents.push((id, range));
    }

    /// The messages.
    fn finish(self) -> impl Iterator<Item = Bundle> {
        self.filling.into_iter().map(|Filling { destination, mut bytes, documents }| {
            if matches!(destination, Destination::Inbox(_)) {
                bytes.push(b']');
            }
            Bundle { destination, payload: Bytes::from(bytes), documents }
        })
    }

    /// The destination's present message, or a new one when `more` bytes do not fit.
    fn open(&mut self, destination: Destination, more: usize) -> &mut Filling {
        let present = self.filling_by_destination.get(&destination).copied().filter(|&index| {
            let filling = &self.filling[index];
            filling.documents.len() < self.deliveries_max && filling.bytes.len() + more <= self.bytes_max
        });
        let index = present.unwrap_or_else(|| {
            self.filling.push(Filling { destination: destination.clone(), bytes: Vec::new(), documents: Vec::new() });
            self.filling_by_destination.insert(destination, self.filling.len() - 1);
            self.filling.len() - 1
        });
        &mut self.filling[index]
    }
}
