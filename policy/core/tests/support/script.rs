//! A negotiation as a script: who says what, when, and what follows. How effects are written: see `effect_text.rs`.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::wildcard_enum_match_arm,
    reason = "each test crate that includes the script uses a part of it"
)]

mod effect_text;

use std::sync::Arc;

use effect_text::text;
use policy_core::{Deliver, Effect, Event, LaneState, Limits, check, preset};
use schemas::delivery::Notification;
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record};
use schemas::{Act, AgentId, DeliveryId, Digest, Lane, NegotiationId, OfferId, Policy, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Log time of the call, in milliseconds.
pub const START_MS: u64 = 1_000_000;
/// The initiator of every script.
pub const INITIATOR: &str = "alice";

/// The test policy: price up to 1000 counts 700, delivery up to 10 000 ms counts 300; wait for all; one runner-up.
pub fn policy(change: impl FnOnce(&mut Policy)) -> Policy {
    let mut policy = preset("high").expect("a preset");
    (policy.gates[0].max, policy.weights[0].hi, policy.weights[1].hi) = (Some(1000), 1000, 10_000);
    policy.standby = 1;
    policy.timers_ms = schemas::policy::Timers { collect: 500, confirm: 100, perform: 300, cancel: 50, hard: 5_000 };
    change(&mut policy);
    check(&policy).expect("a script's policy is consistent");
    policy
}

/// One lane with one negotiation of interest.
pub struct Script {
    pub lane_state: LaneState,
    pub negotiation: NegotiationId,
    pub deliveries: Vec<Deliver>,
    pub events: Vec<Event>,
    pub effects: Vec<Effect>,
    /// Whether everybody's registration asks for every receipt at once.
    pub receipts_all: bool,
    seq: u64,
    messages: u32,
    log: Vec<(u64, Timestamp, Record)>,
}

impl Script {
    /// An empty lane.
    pub fn empty() -> Self {
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        Self {
            lane_state: LaneState::new(Lane(0), limits),
            negotiation: NegotiationId::try_new("alice~job").expect("an id"),
            deliveries: Vec::new(),
            events: Vec::new(),
            effects: Vec::new(),
            receipts_all: true,
            seq: 0,
            messages: 0,
            log: Vec::new(),
        }
    }

    /// A lane on which alice has called `contractors` at 0 ms.
    pub fn open(policy: Policy, contractors: &[&str]) -> Self {
        let mut script = Self::empty();
        script.call(0, policy, contractors, json!({}), json!({}));
        script
    }

    /// Alice calls; `payload` and `envelope` are merged into the documents.
    pub fn call(
        &mut self,
        at_ms: u64,
        policy: Policy,
        contractors: &[&str],
        payload: Value,
        envelope: Value,
    ) -> Vec<String> {
        let pinned = pinned(policy, contractors);
        let mut message = self.message(INITIATOR, Act::Cfp, payload, envelope);
        message.pinned = Some(Arc::new(pinned));
        self.fold(at_ms, vec![Entry::Message(message)])
    }

    /// Alice calls whom a gateway has pinned.
    pub fn call_pinned(&mut self, at_ms: u64, pinned: Pinned) -> Vec<String> {
        let mut message = self.message(INITIATOR, Act::Cfp, json!({}), json!({}));
        message.pinned = Some(Arc::new(pinned));
        self.fold(at_ms, vec![Entry::Message(message)])
    }

    /// Anyone says anything, in a record of its own.
    pub fn say(&mut self, at_ms: u64, from: &str, act: Act, payload: Value) -> Vec<String> {
        self.say_with(at_ms, from, act, payload, json!({}))
    }

    pub fn say_with(&mut self, at_ms: u64, from: &str, act: Act, payload: Value, envelope: Value) -> Vec<String> {
        let message = self.message(from, act, payload, envelope);
        self.fold(at_ms, vec![Entry::Message(message)])
    }

    pub fn offer(&mut self, at_ms: u64, from: &str, price: i64) -> Vec<String> {
        self.say(at_ms, from, Act::Offer, json!({"terms": {"price": price, "delivery_ms": 0}}))
    }

    pub fn confirm(&mut self, at_ms: u64, from: &str, award_no: u32) -> Vec<String> {
        self.say(at_ms, from, Act::Confirm, json!({"award_no": award_no}))
    }

    pub fn done(&mut self, at_ms: u64, from: &str) -> Vec<String> {
        self.say(at_ms, from, Act::Inform, json!({"kind": "done"}))
    }

    pub fn fail(&mut self, at_ms: u64, from: &str, phase: &str) -> Vec<String> {
        self.say(at_ms, from, Act::Failure, json!({"phase": phase, "code": "broken"}))
    }

    pub fn cancel(&mut self, at_ms: u64) -> Vec<String> {
        self.say(at_ms, INITIATOR, Act::Cancel, json!({}))
    }

    pub fn tick(&mut self, at_ms: u64) -> Vec<String> {
        self.fold(at_ms, vec![Entry::Tick])
    }

    pub fn engine(&mut self, at_ms: u64, epoch: u64, event: EngineEvent) -> Vec<String> {
        self.fold(at_ms, vec![Entry::Engine { epoch, event }])
    }

    /// The outbox gives up a delivery.
    pub fn undelivered(&mut self, at_ms: u64, id: DeliveryId, to: &str) -> Vec<String> {
        let negotiation = self.negotiation.clone();
        self.engine(
            at_ms,
            0,
            EngineEvent::DeliveryFailed { id, negotiation, to: agent(to), attempts: 5, may_answer: true },
        )
    }

    /// A message with an id of its own, or the one `envelope` gives.
    pub fn message(&mut self, from: &str, act: Act, mut payload: Value, envelope: Value) -> AdmittedMessage {
        self.messages += 1;
        let mut document = json!({
            "msg_id": format!("m{}", self.messages),
            "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"),
        });
        merge(&mut document, envelope);
        payload["act"] = json!(act);
        let body = canonical(&json!({"envelope": document, "payload": payload})).expect("canonical");
        let body = String::from_utf8(body).expect("text");
        AdmittedMessage {
            from: agent(from),
            negotiation: self.negotiation.clone(),
            act,
            digest: Digest::of_bytes(body.as_bytes()),
            body: Arc::from(RawValue::from_string(body).expect("json")),
            pinned: None,
            receipts_all: self.receipts_all,
            capabilities: Vec::new(),
        }
    }

    /// Folds one record and gives the texts of its effects.
    pub fn fold(&mut self, at_ms: u64, entries: Vec<Entry>) -> Vec<String> {
        self.fold_at(Timestamp::from_ms(START_MS + at_ms), entries)
    }

    pub fn fold_at(&mut self, time: Timestamp, entries: Vec<Entry>) -> Vec<String> {
        self.seq += 1;
        let record = Record::new("test", entries);
        self.lane_state.handle_record(self.seq, time, &record);
        self.log.push((self.seq, time, record));
        let mut texts = Vec::new();
        while let Some(effect) = self.lane_state.poll_effect() {
            texts.extend(text(&effect));
            match &effect {
                Effect::Deliver(deliver) => self.deliveries.push(deliver.clone()),
                Effect::Event(event) => self.events.push(event.clone()),
                Effect::Register(_) | Effect::Notice(_) => {}
            }
            self.effects.push(effect);
        }
        texts
    }

    /// Everything folded so far.
    pub fn log(&self) -> &[(u64, Timestamp, Record)] {
        &self.log
    }

    /// The last delivery to an agent of an act.
    pub fn last(&self, to: &str, act: Act) -> &Deliver {
        let found = self.deliveries.iter().rev().find(|deliver| deliver.to.as_str() == to && deliver.told.act() == act);
        found.unwrap_or_else(|| panic!("no {act} to {to}"))
    }

    /// The id of an agent's last recorded offer.
    pub fn offer_id(&self, of: &str) -> OfferId {
        let ids = self.deliveries.iter().rev().filter(|deliver| deliver.to.as_str() == of);
        let mut ids = ids.filter_map(|deliver| match &*deliver.told {
            Notification::Ack(receipt) => receipt.offer_id,
            _ => None,
        });
        ids.next().unwrap_or_else(|| panic!("{of} has no offer"))
    }

    /// Fails when the fold caught itself breaking an invariant.
    pub fn assert_sound(&self) {
        let broken: Vec<_> =
            self.events.iter().filter(|event| matches!(event, Event::InvariantViolated { .. })).collect();
        assert!(broken.is_empty(), "{broken:?}");
    }
}

/// What a gateway pins.
pub fn pinned(policy: Policy, contractors: &[&str]) -> Pinned {
    let mut invited: Vec<Invitation> = contractors
        .iter()
        .map(|name| Invitation { agent: agent(name), qos: Qos::AtLeastOnce, durable: false, reputation: None })
        .collect();
    invited.sort_by(|left, right| left.agent.cmp(&right.agent));
    Pinned {
        policy_digest: policy.digest().expect("canonical"),
        policy: Arc::new(policy),
        invited,
        left_out: 0,
        task_policy: None,
        panel: None,
    }
}

pub fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}

fn merge(document: &mut Value, change: Value) {
    let Value::Object(change) = change else { panic!("members to merge") };
    for (name, value) in change {
        document[name] = value;
    }
}
