//! The pure half of an agent: numbers its messages, repeats what is unanswered, recognises what it has heard.
//!
//! Inputs enter by `handle_*` and [`AgentSession::write`], messages leave by [`AgentSession::poll_transmit`]. Time is an argument:
//! the agent's own clock, which decides nothing but when to try again.
//!
//! * **Numbers.** One counter numbers all messages of this instance of the agent; `seq` is the instance plus the
//!   counter, so it rises inside every negotiation, and across restarts when instances rise (the default instance is
//!   the start time in microseconds). `msg_id` is `<instance>-<counter>` in hexadecimal.
//! * **Order.** In one negotiation one message is on its way at a time: the next leaves when its predecessor is in the
//!   log, refused or given up. Messages of different negotiations do not wait for each other.
//! * **Repeats.** A message nobody answered leaves again with the same bytes, with growing gaps, a bounded number of
//!   times; a lost connection does not lose it. A receipt for it counts as an answer.
//! * **Bounds.** [`SessionLimits`]; beyond them messages are refused here, never queued without end.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use bytes::Bytes;
use retry::{Backoff, RecentMap, draw};
use schemas::ids::{FamilyPlace, NEGOTIATION_SEPARATOR};
use schemas::record::Message;
use schemas::{Act, Address, AgentId, Code, DeliveryId, Envelope, MsgId, NegotiationId, Refusal, Timestamp, WireTime};
use telemetry::{SpanId, TraceContext};

use crate::strategy::{Outgoing, SendOutcome, Sent, Way};
use crate::transport::{Accepted, SendReply, can_pass};

/// A message that leaves now.
#[derive(Debug, Clone)]
pub struct Transmit {
    /// What [`AgentSession::handle_answer`] is to be called with.
    pub number: u64,
    /// 1 for the first time.
    pub attempt: u32,
    /// Its negotiation.
    pub negotiation: NegotiationId,
    /// Its id.
    pub msg_id: MsgId,
    /// Its act.
    pub act: Act,
    /// The document.
    pub document: Bytes,
}

/// See the module.
#[derive(Debug)]
pub struct AgentSession {
    composer: Composer,
    limits: SessionLimits,
    heard: RecentMap<DeliveryId, ()>,
    /// What was said `once`, by negotiation.
    said: RecentMap<NegotiationId, Vec<SentOnce>>,
    unanswered_by_number: HashMap<u64, Unanswered>,
    /// Numbers waiting for their turn; the front one is on its way, waits for its retry, or is in `ready`.
    queues_by_negotiation: HashMap<NegotiationId, VecDeque<u64>>,
    ready: VecDeque<u64>,
    retries: BTreeSet<(Timestamp, u64)>,
}

#[derive(Debug, Clone)]
struct SentOnce {
    once: u32,
    number: u64,
    message: ComposedMessage,
}

#[derive(Debug)]
struct Unanswered {
    message: ComposedMessage,
    attempts: u32,
    /// It has left and nothing has come back.
    is_under_way: bool,
    /// When it leaves again, where it waits for that.
    retry_at: Option<Timestamp>,
    /// A receipt has come: it is in the log, whatever the way out says.
    is_logged: bool,
    /// It waits for as long as a gateway has said.
    is_held_back: bool,
    /// It has left without an answer that says it is not in the log.
    may_be_logged: bool,
}

impl AgentSession {
    /// A session of one instance of an agent; `instance` must rise from start to start, and stay below 2^52.
    #[must_use]
    pub fn new(agent: AgentId, instance: u64, limits: SessionLimits) -> Self {
        Self {
            composer: Composer { agent, instance, last_number: 0 },
            heard: RecentMap::new(limits.deliveries_remembered),
            said: RecentMap::new(limits.negotiations_remembered),
            unanswered_by_number: HashMap::new(),
            queues_by_negotiation: HashMap::new(),
            ready: VecDeque::new(),
            retries: BTreeSet::new(),
            limits,
        }
    }

    /// Notes a delivery; false when it has come before.
    pub fn handle_delivery(&mut self, id: DeliveryId) -> bool {
        let is_new = !self.heard.contains(&id);
        if is_new {
            self.heard.insert(id, ());
        }
        is_new
    }

    /// Writes a message and queues it. A message said `once` before is queued again unless it is still unanswered. With
    /// an origin in a trace that is kept, the message carries that trace on; otherwise the one it was given.
    ///
    /// # Errors
    /// What to tell the strategy when there is no room.
    pub fn write(&mut self, now: Timestamp, outgoing: Outgoing, origin: Option<Origin>) -> Result<(), Box<Sent>> {
        if let Some(said) = self.said_before(&outgoing) {
            if self.unanswered_by_number.contains_key(&said.number) {
                return Ok(());
            }
            // It has had its span.
            return self.queue(said.number, ComposedMessage { context: None, ..said.message });
        }
        let once = outgoing.once;
        let (number, message) = self.composer.compose(now, outgoing, origin);
        if let Some(once) = once {
            let mut said = self.said.remove(&message.negotiation).unwrap_or_default();
            said.push(SentOnce { once, number, message: message.clone() });
            self.said.insert(message.negotiation.clone(), said);
        }
        self.queue(number, message)
    }

    /// What the strategy is told about a message for which there was no room elsewhere in the agent.
    pub fn refuse(&mut self, now: Timestamp, outgoing: &Outgoing, origin: Option<Origin>) -> Sent {
        let outcome = SendOutcome::Refused(overloaded());
        let msg_id = self.composer.next_msg_id();
        let way = Way { attempts: 0, written_at: now, context: origin.map(|origin| origin.context) };
        Sent { negotiation: outgoing.negotiation.clone(), msg_id, act: outgoing.payload.act(), outcome, way }
    }

    /// The next message to leave, if any may.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        loop {
            let number = self.ready.pop_front()?;
            // A receipt can settle a message while it waits here.
            let Some(unanswered) = self.unanswered_by_number.get_mut(&number) else { continue };
            unanswered.attempts += 1;
            unanswered.is_under_way = true;
            let ComposedMessage { negotiation, msg_id, act, document, .. } = unanswered.message.clone();
            return Some(Transmit { number, attempt: unanswered.attempts, negotiation, msg_id, act, document });
        }
    }

    /// When [`AgentSession::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.retries.first().map(|&(at, _)| at)
    }

    /// Makes the messages ready whose time to leave again has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        while let Some(&(at, number)) = self.retries.first()
            && at <= now
        {
            self.retries.pop_first();
            self.make_ready(number);
        }
    }

    /// A connection is up: what waits for a retry leaves now, but for what a gateway has held back.
    pub fn handle_connected(&mut self) {
        let is_held_back = |(_, number): &(Timestamp, u64)| {
            self.unanswered_by_number.get(number).is_some_and(|unanswered| unanswered.is_held_back)
        };
        let ready: BTreeSet<_>;
        (self.retries, ready) = std::mem::take(&mut self.retries).into_iter().partition(is_held_back);
        ready.into_iter().for_each(|(_, number)| self.make_ready(number));
    }

    /// The connection is lost: no answer will come to what is under way, and it leaves again over the next one. Returns
    /// the messages a receipt has shown to be in the log, whose sending ends with that.
    pub fn handle_disconnected(&mut self) -> Vec<Sent> {
        let is_orphan = |(&number, unanswered): (&u64, &mut Unanswered)| {
            unanswered.may_be_logged |= unanswered.is_under_way;
            std::mem::take(&mut unanswered.is_under_way).then_some((number, unanswered.is_logged))
        };
        let mut orphans: Vec<(u64, bool)> = self.unanswered_by_number.iter_mut().filter_map(is_orphan).collect();
        orphans.sort_unstable();
        let mut settled = Vec::new();
        for (number, is_logged) in orphans {
            if is_logged {
                settled.extend(self.settle(number, SendOutcome::Accepted { seq: None, policy: None }));
            } else {
                self.ready.push_back(number);
            }
        }
        settled
    }

    /// A gateway's answer to a transmitted message, or none. Returns how sending ended, once it has: of what was only ever held
    /// back, with the last refusal.
    pub fn handle_answer(&mut self, now: Timestamp, number: u64, answer: SendReply) -> Option<Sent> {
        let unanswered = self.unanswered_by_number.get_mut(&number)?;
        unanswered.is_under_way = false;
        let refusal = match answer {
            SendReply::Accepted(accepted) => {
                let Accepted { seq, policy, .. } = accepted;
                return self.settle(number, SendOutcome::Accepted { seq: Some(seq), policy });
            }
            SendReply::Refused(_) | SendReply::Unknown(_) if unanswered.is_logged => {
                return self.settle(number, SendOutcome::Accepted { seq: None, policy: None });
            }
            SendReply::Refused(refusal) if !can_pass(refusal.code) => {
                return self.settle(number, SendOutcome::Refused(refusal));
            }
            SendReply::Refused(refusal) => Some(refusal),
            SendReply::Unknown(_) => None,
        };
        // With these codes nothing was stored.
        let held_back = refusal.as_ref().filter(|refusal| matches!(refusal.code, Code::RateLimited | Code::Overloaded));
        unanswered.may_be_logged |= held_back.is_none();
        if unanswered.attempts >= self.limits.attempts_max {
            let refusal = held_back.filter(|_| !unanswered.may_be_logged).cloned();
            return self.settle(number, refusal.map_or(SendOutcome::Unanswered, SendOutcome::Refused));
        }
        unanswered.is_held_back = held_back.is_some();
        let wait_ms = refusal.as_ref().and_then(|refusal| refusal.retry_after_ms);
        // Whoever is overloaded knows best when there is room again.
        let is_told = wait_ms.is_some() && refusal.is_some_and(|refusal| refusal.code == Code::Overloaded);
        let SessionLimits { retry_base_ms, retry_max_ms, .. } = self.limits;
        let (base, max) = (Duration::from_millis(retry_base_ms), Duration::from_millis(retry_max_ms));
        let seed = self.composer.instance ^ (number << 8) ^ u64::from(unanswered.attempts);
        let delay = Backoff { base, max, jitter: 0.5 }.delay(unanswered.attempts, draw(seed));
        let delay_ms = if is_told { 0 } else { u64::try_from(delay.as_millis()).unwrap_or(retry_max_ms) };
        let at = now.plus_ms(delay_ms.max(wait_ms.unwrap_or(0).min(retry_max_ms)));
        unanswered.retry_at = Some(at);
        self.retries.insert((at, number));
        None
    }

    /// A receipt: the message is in the log. Its successors may leave; if it waited for a retry, that ends it.
    pub fn handle_receipt(&mut self, ack_of: &MsgId) -> Option<Sent> {
        let number = self.composer.number_of(ack_of)?;
        let unanswered = self.unanswered_by_number.get_mut(&number)?;
        unanswered.is_logged = true;
        if unanswered.retry_at.is_some() {
            return self.settle(number, SendOutcome::Accepted { seq: None, policy: None });
        }
        let negotiation = unanswered.message.negotiation.clone();
        self.advance(&negotiation, number);
        None
    }

    /// Forgets what was said in a negotiation. What is unanswered stays until it is answered.
    pub fn release(&mut self, negotiation: &NegotiationId) {
        self.said.remove(negotiation);
    }

    /// Number of messages without an answer.
    #[must_use]
    pub fn unanswered_count(&self) -> usize {
        self.unanswered_by_number.len()
    }

    fn said_before(&self, outgoing: &Outgoing) -> Option<SentOnce> {
        let once = outgoing.once?;
        let said = self.said.value(&outgoing.negotiation)?;
        said.iter().find(|said| said.once == once && said.message.act == outgoing.payload.act()).cloned()
    }

    fn queue(&mut self, number: u64, message: ComposedMessage) -> Result<(), Box<Sent>> {
        if self.unanswered_by_number.len() >= self.limits.unanswered_max {
            let outcome = SendOutcome::Refused(overloaded());
            return Err(Box::new(message.sent(outcome, 0)));
        }
        let queue = self.queues_by_negotiation.entry(message.negotiation.clone()).or_default();
        queue.push_back(number);
        if queue.len() == 1 {
            self.ready.push_back(number);
        }
        let unanswered = Unanswered {
            message,
            attempts: 0,
            is_under_way: false,
            retry_at: None,
            is_logged: false,
            is_held_back: false,
            may_be_logged: false,
        };
        self.unanswered_by_number.insert(number, unanswered);
        Ok(())
    }

    fn make_ready(&mut self, number: u64) {
        if let Some(unanswered) = self.unanswered_by_number.get_mut(&number) {
            unanswered.retry_at = None;
            self.ready.push_back(number);
        }
    }

    fn settle(&mut self, number: u64, outcome: SendOutcome) -> Option<Sent> {
        let Unanswered { message, attempts, retry_at, .. } = self.unanswered_by_number.remove(&number)?;
        retry_at.map(|at| self.retries.remove(&(at, number)));
        self.advance(&message.negotiation, number);
        Some(message.sent(outcome, attempts))
    }

    /// Lets the next message of a negotiation leave when `number` was the one on its way.
    fn advance(&mut self, negotiation: &NegotiationId, number: u64) {
        let Some(queue) = self.queues_by_negotiation.get_mut(negotiation) else { return };
        if queue.front() != Some(&number) {
            return;
        }
        queue.pop_front();
        match queue.front() {
            Some(&next) => self.ready.push_back(next),
            None => {
                self.queues_by_negotiation.remove(negotiation);
            }
        }
    }
}

/// Where in a trace a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The trace, and the span that causes the message.
    pub context: TraceContext,
    /// Whether the trace is kept: the message then carries it on.
    pub is_kept: bool,
}

/// A message with everything that stays the same on every attempt.
#[derive(Debug, Clone)]
struct ComposedMessage {
    negotiation: NegotiationId,
    msg_id: MsgId,
    act: Act,
    document: Bytes,
    written_at: Timestamp,
    context: Option<TraceContext>,
}

impl ComposedMessage {
    fn sent(self, outcome: SendOutcome, attempts: u32) -> Sent {
        let Self { negotiation, msg_id, act, written_at, context, document: _ } = self;
        Sent { negotiation, msg_id, act, outcome, way: Way { attempts, written_at, context } }
    }
}

/// Numbers the messages of one instance of an agent.
#[derive(Debug)]
struct Composer {
    agent: AgentId,
    instance: u64,
    /// Number of the last message written.
    last_number: u64,
}

impl Composer {
    /// The id of a message that is never written.
    fn next_msg_id(&mut self) -> MsgId {
        self.last_number += 1;
        self.msg_id(self.last_number)
    }

    fn compose(&mut self, now: Timestamp, outgoing: Outgoing, origin: Option<Origin>) -> (u64, ComposedMessage) {
        self.last_number += 1;
        let number = self.last_number;
        let Outgoing { negotiation, payload, in_reply_to, call_to, traceparent, delay: _, once: _ } = outgoing;
        let act = payload.act();
        let msg_id = self.msg_id(number);
        let sent_in = |context: TraceContext| context.under(SpanId::sent(&self.agent, &msg_id)).to_traceparent(true);
        let kept = origin.filter(|origin| origin.is_kept);
        let traceparent = kept.map(|origin| sent_in(origin.context)).or(traceparent);
        let named = named(act, &negotiation);
        let (to, capabilities, scope) =
            call_to.map_or_else(Default::default, |call| (call.to, call.capabilities, call.scope));
        let envelope = Envelope {
            msg_id: msg_id.clone(),
            ts: WireTime(now),
            from: Address::Agent(self.agent.clone()),
            to,
            capabilities,
            scope,
            negotiation: named,
            seq: Some(self.instance + number),
            in_reply_to,
            traceparent,
            receipt: false,
        };
        let document = serde_json::to_vec(&Message { envelope, payload })
            .expect("envelopes and payloads hold only integers, texts and maps with text keys, which JSON can express");
        let context = origin.map(|origin| origin.context);
        (number, ComposedMessage { negotiation, msg_id, act, document: document.into(), written_at: now, context })
    }

    fn msg_id(&self, number: u64) -> MsgId {
        MsgId::try_new(&format!("{:x}-{number:x}", self.instance))
            .expect("two hexadecimal numbers and a hyphen are a name")
    }

    fn number_of(&self, msg_id: &MsgId) -> Option<u64> {
        let (instance, number) = msg_id.as_str().split_once('-')?;
        let is_ours = u64::from_str_radix(instance, 16) == Ok(self.instance);
        u64::from_str_radix(number, 16).ok().filter(|_| is_ours)
    }
}

/// What a message calls its negotiation. A call names the initiator's own part of the id, and the exchange forms the whole; that
/// of a sub-team it forms from the award alone.
fn named(act: Act, negotiation: &NegotiationId) -> Option<String> {
    let is_call = act == Act::Cfp;
    match negotiation.place() {
        FamilyPlace::SubTeam { .. } if is_call => None,
        FamilyPlace::Root if is_call => {
            negotiation.as_str().split_once(NEGOTIATION_SEPARATOR).map(|(_, own)| own.to_owned())
        }
        FamilyPlace::SubTeam { .. } | FamilyPlace::Root | FamilyPlace::Task(_) => Some(negotiation.as_str().to_owned()),
    }
}

/// What a session may hold and how it repeats.
#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// Most messages without an answer; further ones are refused with `overloaded`.
    pub unanswered_max: usize,
    /// At least this many of the latest deliveries are recognised when they come again, at most twice as many.
    pub deliveries_remembered: usize,
    /// At least this many of the latest negotiations in which something was said `once`, at most twice as many.
    pub negotiations_remembered: usize,
    /// Most times a message leaves.
    pub attempts_max: u32,
    /// First gap between attempts, in milliseconds.
    pub retry_base_ms: u64,
    /// Longest gap between attempts, in milliseconds.
    pub retry_max_ms: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            // About 50 MB of offers: an agent this far behind should slow down, not remember more.
            unanswered_max: 65_536,
            // Some 15 s of repeats at 4 000 deliveries a second; 2 MB for the busiest agent, nothing for a quiet one.
            deliveries_remembered: 65_536,
            // 4 096 times an offer and a confirmation is some 4 MB.
            negotiations_remembered: 4096,
            // With the gaps below: two and a half minutes, longer than the default hard deadline of a negotiation.
            attempts_max: 20,
            retry_base_ms: 200,
            retry_max_ms: 10_000,
        }
    }
}

/// What is answered beyond the bounds.
fn overloaded() -> Refusal {
    Refusal::new(Code::Overloaded, "the agent has too many messages waiting; send fewer, or wait for answers")
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
