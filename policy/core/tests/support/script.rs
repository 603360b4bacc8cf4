//! A negotiation as a script: who says what, when, and what follows, each effect as one short text.
//!
//! | text | effect |
//! |---|---|
//! | `a<ack:ok`, `a<reject:late`, `a<accept:1`, `a<cancel:1:timeout`, `alice<inform:awarded:a:1` | delivery to an agent |
//! | `award.0.1`, `award.0.1.end=committed`, `closed=completed` | write to the register |
//! | `notice:called`, `notice:closed` | public notice |
//!
//! `@award.0.1` behind a text: it waits for that register key.

#![allow(dead_code, unreachable_pub, reason = "each test crate that includes the script uses a part of it")]

use std::sync::Arc;

use policy_core::{Book, Deliver, Effect, Event, Limits, check, preset};
use schemas::delivery::{News, Notice, Told};
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record};
use schemas::register::AwardEnd;
use schemas::{
    Act, AgentId, DeliveryId, Digest, Lane, NegotiationId, OfferId, Policy, RegisterKey, RegisterValue, Timestamp,
};
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
    pub book: Book,
    pub negotiation: NegotiationId,
    pub deliveries: Vec<Deliver>,
    pub events: Vec<Event>,
    pub effects: Vec<Effect>,
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
            book: Book::new(Lane(0), limits),
            negotiation: NegotiationId::try_new("alice~job").expect("an id"),
            deliveries: Vec::new(),
            events: Vec::new(),
            effects: Vec::new(),
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
        self.engine(at_ms, 0, EngineEvent::DeliveryFailed { id, negotiation, to: agent(to), attempts: 5 })
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
        }
    }

    /// Folds one record and gives the texts of its effects.
    pub fn fold(&mut self, at_ms: u64, entries: Vec<Entry>) -> Vec<String> {
        self.fold_at(Timestamp::from_ms(START_MS + at_ms), entries)
    }

    pub fn fold_at(&mut self, time: Timestamp, entries: Vec<Entry>) -> Vec<String> {
        self.seq += 1;
        let record = Record::new("test", entries);
        self.book.handle_record(self.seq, time, &record);
        self.log.push((self.seq, time, record));
        let mut texts = Vec::new();
        while let Some(effect) = self.book.poll_effect() {
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
            Told::Ack(receipt) => receipt.offer_id,
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
    let mut invited: Vec<Invitation> =
        contractors.iter().map(|name| Invitation { agent: agent(name), qos: Qos::AtLeastOnce }).collect();
    invited.sort_by(|left, right| left.agent.cmp(&right.agent));
    Pinned { policy_digest: policy.digest().expect("canonical"), policy: Arc::new(policy), invited, left_out: 0 }
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

/// The text of an effect; events have none.
pub fn text(effect: &Effect) -> Option<String> {
    Some(match effect {
        Effect::Deliver(deliver) => {
            format!("{}<{}{}", deliver.to, told(&deliver.told), waits_for(deliver.after.as_ref()))
        }
        Effect::Register(write) => {
            let value = match &write.value {
                RegisterValue::Award { .. } => String::new(),
                RegisterValue::AwardEnd { end: AwardEnd::Committed, .. } => "=committed".to_owned(),
                RegisterValue::AwardEnd { end: AwardEnd::Revoked, .. } => "=revoked".to_owned(),
                RegisterValue::Closed { outcome, .. } => format!("={}", word(outcome)),
            };
            format!("{}{value}{}", key(&write.key), waits_for(write.after.as_ref()))
        }
        Effect::Notice(notice) => match notice.notice {
            Notice::Called { .. } => "notice:called".to_owned(),
            Notice::Closed { .. } => "notice:closed".to_owned(),
        },
        Effect::Event(_) => return None,
    })
}

fn told(told: &Told) -> String {
    match told {
        Told::Cfp(call) if call.round == 1 => "cfp".to_owned(),
        Told::Cfp(call) => format!("cfp:{}", call.round),
        Told::Accept(award) => format!("accept:{}", award.award_no),
        Told::Reject(rejection) => match &rejection.code {
            Some(code) => format!("reject:{}:{code}", word(&rejection.reason)),
            None => format!("reject:{}", word(&rejection.reason)),
        },
        Told::Cancel(cancellation) => format!("cancel:{}:{}", cancellation.award_no, cancellation.reason),
        Told::Inform(news) => match news {
            News::Awarded(news) => format!("inform:awarded:{}:{}", news.contractor, news.award_no),
            News::Offers(news) => format!("inform:offers:{}", news.offers.len()),
            News::Committed(news) => format!("inform:committed:{}:{}", news.contractor, news.award_no),
            News::Done(news) => format!("inform:done:{}:{}", news.contractor, news.award_no),
            News::Result(news) => format!("inform:result:{}:{}", news.contractor, news.award_no),
            News::Cancelled(news) => format!("inform:cancelled:{}:{}", news.contractor, news.award_no),
        },
        Told::Failure(failure) => {
            format!("failure:{}:{}:{}", failure.contractor, failure.award_no, failure.failure.code)
        }
        Told::NotUnderstood(misunderstanding) => format!("not_understood:{}", misunderstanding.reason),
        Told::Closed(closing) => match &closing.detail {
            Some(detail) => format!("closed:{}:{detail}", word(&closing.outcome)),
            None => format!("closed:{}", word(&closing.outcome)),
        },
        Told::Ack(receipt) => match receipt.first {
            Some(first) => format!("ack:{}:{}", receipt.disposition.as_str(), first.as_str()),
            None => format!("ack:{}", receipt.disposition.as_str()),
        },
    }
}

fn waits_for(after: Option<&RegisterKey>) -> String {
    after.map(|after| format!("@{}", key(after))).unwrap_or_default()
}

/// A key without the negotiation.
fn key(key: &RegisterKey) -> String {
    match key {
        RegisterKey::Award(_, lot, award_no) => format!("award.{lot}.{award_no}"),
        RegisterKey::AwardEnd(_, lot, award_no) => format!("award.{lot}.{award_no}.end"),
        RegisterKey::Closed(_) => "closed".to_owned(),
    }
}

fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).expect("a word").as_str().expect("a text").to_owned()
}
