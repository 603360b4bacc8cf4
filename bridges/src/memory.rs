//! What one agent has heard: deliveries with numbers, what they ask for, and when they are acknowledged. Pure.

pub mod todo;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use retry::RecentMap;
use schemas::delivery::{
    Award, Delivery, Disposition, EXCHANGE, Misunderstanding, Notification, Outcome, ProgressReport, Receipt,
};
use schemas::payload::Terms;
use schemas::{AgentId, DeliveryId, Digest, MsgId, NegotiationId};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::todo::{Todo, TodoChange};

/// Most deliveries that are kept; the oldest go first.
pub const ITEMS_MAX: usize = 4096;
/// Most bytes of deliveries that are kept.
pub const ITEMS_BYTES_MAX: usize = 4 << 20;
/// Bytes of deliveries that all agents of a process keep, beyond which none keeps more than [`SHARE_BYTES`].
pub const TOTAL_BYTES_MAX: usize = 256 << 20;
/// Bytes that an agent keeps whatever others have: of 4,096 agents all of them.
pub const SHARE_BYTES: usize = TOTAL_BYTES_MAX / 4096;
/// Most negotiations that are kept.
pub const NEGOTIATIONS_MAX: usize = 1024;
/// Most items that are kept, however old, because they ask for something where the agent is bound.
const ENGAGED_MAX: usize = 256;
/// Most deliveries whose acknowledgement waits until they were handed to a client.
pub const HELD_MAX: usize = 64;
/// How long such a delivery waits at most: within what the exchange repeats it.
const HELD_FOR: Duration = Duration::from_secs(45);
/// How long after it was handed to a client it is acknowledged: the client has read its answer by then.
const HANDED_FOR: Duration = Duration::from_secs(1);

/// Hexadecimal digits of a delivery's id.
const DELIVERY_ID_DIGITS: usize = 32;

/// A delivery that was heard.
#[derive(Debug)]
pub struct Item {
    /// Its number, from 1 in the order of arrival.
    pub n: u64,
    /// The delivery.
    pub delivery: Delivery,
    bytes: usize,
}

/// A delivery that asked for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedBy {
    /// The delivery.
    pub delivery: DeliveryId,
    /// The round it is of.
    pub round: Option<u32>,
    /// The turn of a team's floor it is of.
    pub turn: Option<u32>,
}

impl AskedBy {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn by(delivery: &Delivery) -> Self {
        let (round, turn) = match &delivery.payload {
            Notification::Cfp(call) => (Some(call.round), None),
            Notification::Turn(turn) => (Some(turn.round), None),
            Notification::Floor(floor) => (None, Some(floor.turn)),
            _ => (None, None),
        };
        Self { delivery: delivery.envelope.msg_id, round, turn }
    }
}

/// What is known of one negotiation.
#[derive(Debug, Default)]
pub struct NegotiationMemory {
    /// What the agent is asked for now.
    pub todo: Option<Todo>,
    /// What asked last for each tool: what a call of it answers, and answers again when it is repeated.
    pub asked: HashMap<&'static str, AskedBy>,
    /// Whether it is a team.
    pub is_team: bool,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Whether the agent has an award that is committed.
    pub is_committed: bool,
    /// The last two messages of the agent that were followed, the newest last: what an act comes after.
    pub acts: [Option<MsgId>; 2],
    /// Terms of the last offer made here that may be confirmed without asking.
    pub offered: Option<Terms>,
    /// Until when its end is waited for that a view has shown.
    end_by: Option<Instant>,
    /// The newest item that a client was told.
    told: u64,
    last: u64,
}

impl NegotiationMemory {
    /// What a client is asked for now.
    pub fn asked_of_client(&self) -> Option<&Todo> {
        self.todo.as_ref().filter(|todo| !todo.is_automatic)
    }

    /// Whether the agent called it, has offered in it, or is committed.
    fn binds(&self, negotiation: &NegotiationId, agent: &str) -> bool {
        negotiation.initiator() == agent || self.is_committed || self.acts[1].is_some()
    }
}

/// What a delivery means for whoever runs the connection.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    /// Acknowledge it at once.
    pub is_acknowledged: bool,
    /// An award of the terms last offered here: confirm it.
    pub award: Option<Award>,
}

/// What one agent has heard.
#[derive(Debug)]
pub struct Memory {
    agent: AgentId,
    tag: String,
    total: Arc<AtomicUsize>,
    items: VecDeque<Item>,
    bytes: usize,
    last: u64,
    lost: u64,
    /// Deliveries heard lately, by whether their acknowledgement waits.
    ids: RecentMap<DeliveryId, bool>,
    held: VecDeque<(DeliveryId, u64, Instant)>,
    /// By negotiation and message: an id is its sender's and unique in one negotiation alone.
    receipts: RecentMap<(NegotiationId, MsgId), (Receipt, Option<Misunderstanding>)>,
    known: HashMap<NegotiationId, NegotiationMemory>,
}

impl Memory {
    /// The memory of an agent that has heard nothing. `tag` tells its cursors from those of another; `total` counts the bytes
    /// of all memories of the process.
    pub fn new(agent: AgentId, tag: String, total: Arc<AtomicUsize>) -> Self {
        Self {
            agent,
            tag,
            total,
            items: VecDeque::new(),
            bytes: 0,
            last: 0,
            lost: 0,
            ids: RecentMap::new(ITEMS_MAX),
            held: VecDeque::new(),
            receipts: RecentMap::new(ITEMS_MAX),
            known: HashMap::new(),
        }
    }

    /// Takes a delivery in, once however often it comes.
    pub fn hear(&mut self, delivery: Delivery, now: Instant) -> Heard {
        let id = delivery.envelope.msg_id;
        if let Some(is_held) = self.ids.renew(&id) {
            return Heard { is_acknowledged: !is_held, award: None };
        }
        self.note_receipts(&delivery);
        let is_held = self.is_held(&delivery);
        self.ids.insert(id, is_held);
        if delivery.payload.receipt().is_some_and(Receipt::is_bare) {
            return Heard { is_acknowledged: true, award: None };
        }
        let award = self.update(&delivery);
        self.keep(delivery);
        if is_held {
            self.held.push_back((id, self.last, now + HELD_FOR));
        }
        Heard { is_acknowledged: !is_held, award }
    }

    /// Terms that were awarded, results and ends of negotiations the agent called are in no view of an ended one: until they are
    /// acknowledged, they come again to whoever connects next.
    fn is_held(&self, delivery: &Delivery) -> bool {
        use ProgressReport::{Awarded, Done, Finding, Result};
        let is_last_word = matches!(
            &delivery.payload,
            Notification::Closed(_) | Notification::Inform(Awarded(_) | Done(_) | Finding(_) | Result(_))
        );
        is_last_word && delivery.envelope.negotiation.initiator() == self.agent.as_str()
    }

    /// Takes in what a view asks the agent for, where nothing of the negotiation was heard: it was acknowledged at a process that
    /// is gone.
    pub fn see(&mut self, negotiation: &NegotiationId, view: &Value, now: Instant) {
        let is_heard = self.news(negotiation, 0).any(|item| item.delivery.payload.receipt().is_none());
        let delivery = (!is_heard).then(|| self.asked_by_view(negotiation, view)).flatten();
        delivery.into_iter().for_each(|delivery| drop(self.hear(delivery, now)));
    }

    fn asked_by_view(&self, negotiation: &NegotiationId, view: &Value) -> Option<Delivery> {
        let (act, mut payload) = if view["role"] == "initiator" && view["state"] == "deciding" {
            let offers: Vec<&Value> =
                view["offers"].as_array()?.iter().filter(|offer| offer["state"] == "offered").collect();
            // By when to decide is in no view: at once.
            ("inform", json!({"kind": "offers", "offers": offers, "decide_by": view["reply_by"]}))
        } else if view["bargain"]["turn"].is_object() {
            ("turn", view["bargain"]["turn"].clone())
        } else {
            ("floor", view["team"]["floor"].clone())
        };
        payload.as_object_mut()?.insert("act".to_owned(), json!(act));
        let id = Digest::of(&json!([negotiation, payload])).ok()?.to_string();
        let envelope = json!({
            "msg_id": id.get(..DELIVERY_ID_DIGITS)?, "ts": view["messages"].as_array()?.last()?["at"], "from": EXCHANGE,
            "to": [format!("agent://{}", self.agent)], "negotiation": negotiation
        });
        serde_json::from_value(json!({"envelope": envelope, "payload": payload})).ok()
    }

    fn note_receipts(&mut self, delivery: &Delivery) {
        let of = |message: &MsgId| (delivery.envelope.negotiation.clone(), message.clone());
        for receipt in delivery.receipts_told() {
            let message = of(&receipt.ack_of);
            let why = self.receipts.remove(&message).and_then(|(_, why)| why);
            // A confirmation, which may be automatic, is `committed`: it makes a repeat of the offer before it no new offer.
            if receipt.disposition == Disposition::Ok {
                self.followed(&message);
            }
            self.receipts.insert(message, (receipt.clone(), why));
        }
        if let (Notification::NotUnderstood(why), Some(id)) = (&delivery.payload, &delivery.envelope.in_reply_to) {
            let receipt = self.receipts.remove(&of(id)).map(|(receipt, _)| receipt);
            let receipt = receipt.unwrap_or_else(|| Receipt::new(id.clone(), Disposition::Malformed));
            self.receipts.insert(of(id), (receipt, Some(why.clone())));
        }
    }

    /// Notes that a message of the agent was followed.
    fn followed(&mut self, (negotiation, message): &(NegotiationId, MsgId)) {
        self.make_room(negotiation);
        let acts = &mut self.known.entry(negotiation.clone()).or_default().acts;
        if acts[1].as_ref() != Some(message) {
            *acts = [acts[1].take(), Some(message.clone())];
        }
    }

    /// Notes what a delivery asks for; the award that is to be confirmed, if it is one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn update(&mut self, delivery: &Delivery) -> Option<Award> {
        let (negotiation, n) = (&delivery.envelope.negotiation, self.last + 1);
        self.make_room(negotiation);
        let known = self.known.entry(negotiation.clone()).or_default();
        known.last = n;
        match todo::change(&delivery.payload, &self.agent, known.todo.as_ref(), n) {
            TodoChange::Nothing => {}
            TodoChange::Over => known.todo = None,
            TodoChange::Ask(asked) => {
                known.asked.extend(asked.tools.iter().map(|tool| (*tool, AskedBy::by(delivery))));
                known.todo = Some(asked);
            }
        }
        match &delivery.payload {
            Notification::Cfp(call) => known.is_team = call.team.is_some(),
            Notification::Closed(closing) => known.outcome = Some(closing.outcome),
            Notification::Ack(receipt) if receipt.disposition == Disposition::Committed => known.is_committed = true,
            Notification::Accept(award) if known.offered.as_ref() == Some(&award.terms) => {
                known.todo.iter_mut().for_each(|todo| todo.is_automatic = true);
                return Some(award.clone());
            }
            // Nothing more comes of it, an end neither.
            Notification::Cancel(_) => known.is_committed = false,
            _ => {}
        }
        None
    }

    /// Forgets the negotiation heard of longest ago where there is no room for another.
    fn make_room(&mut self, negotiation: &NegotiationId) {
        if self.known.len() < NEGOTIATIONS_MAX || self.known.contains_key(negotiation) {
            return;
        }
        let agent = self.agent.as_str();
        let rank = |of: &NegotiationId, known: &NegotiationMemory| {
            (known.outcome.is_none(), known.binds(of, agent), known.last)
        };
        let oldest = self.known.iter().min_by_key(|(negotiation, known)| rank(negotiation, known));
        if let Some(oldest) = oldest.map(|(negotiation, _)| negotiation.clone()) {
            self.known.remove(&oldest);
        }
    }

    fn keep(&mut self, delivery: Delivery) {
        let bytes = delivery.encode().map_or(0, |document| document.len());
        self.last += 1;
        self.bytes += bytes;
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.items.push_back(Item { n: self.last, delivery, bytes });
        loop {
            let is_full = self.total.load(Ordering::Relaxed) > TOTAL_BYTES_MAX;
            let bytes_max = if is_full { SHARE_BYTES } else { ITEMS_BYTES_MAX };
            if self.items.len() <= ITEMS_MAX && self.bytes <= bytes_max {
                break;
            }
            let Some(oldest) = self.items.remove(self.evictable()) else { break };
            self.bytes -= oldest.bytes;
            self.total.fetch_sub(oldest.bytes, Ordering::Relaxed);
            self.lost += 1;
        }
        debug_assert!(self.items.iter().map(|item| item.bytes).sum::<usize>() == self.bytes);
    }

    /// The oldest item but for those that ask for something where the agent is bound: others must not be able to drown them.
    fn evictable(&self) -> usize {
        let is_kept = |item: &Item| {
            let negotiation = &item.delivery.envelope.negotiation;
            self.known.get(negotiation).is_some_and(|known| {
                known.binds(negotiation, self.agent.as_str())
                    && known.todo.as_ref().is_some_and(|todo| todo.because == item.n)
            })
        };
        self.items.iter().take(ENGAGED_MAX).position(|item| !is_kept(item)).unwrap_or(0)
    }

    /// Deliveries whose acknowledgement is due: handed to a client a moment ago, or too long here, or one of too many.
    pub fn due(&mut self, now: Instant) -> Vec<DeliveryId> {
        let spare = self.held.len().saturating_sub(HELD_MAX);
        let mut due = Vec::new();
        let mut place = 0;
        self.held.retain(|(id, _, by)| {
            place += 1;
            let waits = *by > now && place > spare;
            if !waits {
                due.push(*id);
            }
            waits
        });
        for id in &due {
            self.ids.insert(*id, false);
        }
        due
    }

    /// The newest item of this negotiation that a client was told.
    pub fn told(&self, negotiation: &NegotiationId) -> u64 {
        self.known.get(negotiation).map_or(0, |known| known.told)
    }

    /// Items up to number `n` of this negotiation were handed to a client.
    pub fn handed(&mut self, negotiation: &NegotiationId, n: u64, now: Instant) {
        if let Some(known) = self.known.get_mut(negotiation) {
            known.told = known.told.max(n);
        }
        let items = &self.items;
        for (_, of, by) in self.held.iter_mut().filter(|(_, of, _)| *of <= n) {
            let place = items.binary_search_by_key(of, |item| item.n);
            let is_its = place.is_ok_and(|place| items[place].delivery.envelope.negotiation == *negotiation);
            if is_its {
                *by = (*by).min(now + HANDED_FOR);
            }
        }
    }

    /// What became of a message of the agent's, and why it was not understood.
    pub fn receipt(&self, of: &NegotiationId, message: &MsgId) -> Option<&(Receipt, Option<Misunderstanding>)> {
        self.receipts.value(&(of.clone(), message.clone()))
    }

    /// The item that asks for this tool now.
    pub fn asks_for(&self, negotiation: &NegotiationId, tool: &str) -> Option<u64> {
        let todo = self.known.get(negotiation)?.todo.as_ref()?;
        todo.tools.contains(&tool).then_some(todo.because)
    }

    /// What the agent was asked for by item `because` is answered.
    pub fn answered(&mut self, negotiation: &NegotiationId, because: u64) {
        if let Some(known) = self.known.get_mut(negotiation) {
            known.todo.take_if(|todo| todo.because == because);
        }
    }

    /// What is done without a client did not succeed: the client is asked for it.
    pub fn asks_client(&mut self, negotiation: &NegotiationId) {
        let known = self.known.get_mut(negotiation);
        known.and_then(|known| known.todo.as_mut()).into_iter().for_each(|todo| todo.is_automatic = false);
    }

    /// The agent has offered these terms: an award of them is to be confirmed, unless `None`.
    pub fn offers(&mut self, negotiation: &NegotiationId, terms: Option<Terms>) {
        self.make_room(negotiation);
        self.known.entry(negotiation.clone()).or_default().offered = terms;
    }

    /// The agent has called it: it is known before anything of it is heard.
    pub fn calls(&mut self, negotiation: &NegotiationId) {
        self.make_room(negotiation);
        self.known.entry(negotiation.clone()).or_default();
    }

    /// Negotiations that the agent called, each with the number of the newest item of it, or 0.
    pub fn called(&self) -> impl Iterator<Item = (u64, &NegotiationId)> {
        let own = self.known.iter().filter(|(negotiation, _)| negotiation.initiator() == self.agent.as_str());
        own.map(|(negotiation, known)| (known.last, negotiation))
    }

    /// Until when the end of a negotiation is waited for: `deadline`, or the one that was given first.
    pub fn end_by(&mut self, negotiation: &NegotiationId, deadline: Instant) -> Instant {
        self.make_room(negotiation);
        *self.known.entry(negotiation.clone()).or_default().end_by.get_or_insert(deadline)
    }

    /// A negotiation has ended, whether or not that is heard.
    pub fn ends(&mut self, negotiation: &NegotiationId, outcome: Outcome) {
        if let Some(known) = self.known.get_mut(negotiation) {
            known.outcome.get_or_insert(outcome);
        }
    }

    /// What is known of a negotiation.
    pub fn known(&self, negotiation: &NegotiationId) -> Option<&NegotiationMemory> {
        self.known.get(negotiation)
    }

    /// Whether a negotiation is under way that the agent called or is bound to.
    pub fn is_engaged(&self) -> bool {
        self.known.iter().any(|(negotiation, known)| {
            known.outcome.is_none() && (known.is_committed || negotiation.initiator() == self.agent.as_str())
        })
    }

    /// What was heard of a negotiation after item `after`.
    pub fn news(&self, negotiation: &NegotiationId, after: u64) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(move |item| item.n > after && item.delivery.envelope.negotiation == *negotiation)
    }

    /// What was heard of each negotiation, in its order.
    pub fn heard_by_negotiation(&self) -> HashMap<&NegotiationId, Vec<&Item>> {
        let mut heard = HashMap::<_, Vec<_>>::new();
        self.items.iter().for_each(|item| heard.entry(&item.delivery.envelope.negotiation).or_default().push(item));
        heard
    }

    /// Items after `after` that ask the agent for something now, the oldest first.
    pub fn asking(&self, after: u64) -> Vec<(&Item, &Todo)> {
        let asked: BTreeMap<u64, &Todo> = self
            .known
            .values()
            .filter_map(NegotiationMemory::asked_of_client)
            .map(|todo| (todo.because, todo))
            .collect();
        let items = asked.range(after + 1..).filter_map(|(n, todo)| {
            let place = self.items.binary_search_by_key(n, |item| item.n).ok()?;
            Some((&self.items[place], *todo))
        });
        items.collect()
    }

    /// How many items were forgotten.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// The number of the newest item.
    pub const fn newest(&self) -> u64 {
        self.last
    }

    /// A place in what was heard, for the client to give back.
    pub fn cursor(&self, n: u64) -> String {
        format!("{}-{n}", self.tag)
    }

    /// The item a cursor names. One of another memory is answered from the beginning.
    pub fn place(&self, cursor: Option<&str>) -> u64 {
        let place = cursor.and_then(|cursor| cursor.strip_prefix(self.tag.as_str())?.strip_prefix('-')?.parse().ok());
        place.filter(|n| *n <= self.last).unwrap_or(0)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
