//! Plays a case: to a lane state and to the reference, record by record.

#![allow(dead_code, reason = "two test crates play cases, and look at different things")]

use std::collections::BTreeSet;
use std::sync::Arc;

use policy_core::{Deliver, Effect, LaneState, Limits, preset};
use policy_reference::{Reference, fact};
use proptest::test_runner::TestCaseError;
use schemas::delivery::{Notification, Standing, Turn};
use schemas::digest::canonical;
use schemas::policy::BargainRule;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Policy, Timestamp, WireTime};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::plan::{AcceptPlan, Case, Deed, Move, OfferPlan, Time, Who};

const START: Timestamp = Timestamp(1_000_000_000);
/// Rules of before bargains.
const EARLIER_RULES: u32 = 0;
/// Most ticks until a bargain has ended.
const DRAIN_MAX: usize = 64;

/// See the module.
pub(crate) struct Table<'a> {
    case: &'a Case,
    lane_state: LaneState,
    reference: Reference,
    now: Timestamp,
    pending: Vec<Entry>,
    said: Vec<AdmittedMessage>,
    turn: Option<Turn>,
    offers: Vec<Standing>,
    calls: Vec<Deliver>,
    played: Played,
}

/// A case that was played.
#[derive(Default)]
pub(crate) struct Played {
    /// Every word of every fact.
    pub(crate) words: BTreeSet<String>,
    pub(crate) steps: Vec<Step>,
    pub(crate) limits: Limits,
}

/// One record, and what followed.
pub(crate) struct Step {
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
    pub(crate) record: Record,
    pub(crate) effects: Vec<Effect>,
}

impl<'a> Table<'a> {
    /// To the end, and beyond.
    pub(crate) fn play(case: &'a Case) -> Result<Played, TestCaseError> {
        let limits = Limits { tombstone_grace_ms: 500, ..Limits::default() };
        let mut table = Self {
            case,
            lane_state: LaneState::new(Lane(0), limits.clone()),
            reference: Reference::new(&limits),
            now: START,
            pending: vec![Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } }],
            said: Vec::new(),
            turn: None,
            offers: Vec::new(),
            calls: Vec::new(),
            played: Played { limits, ..Played::default() },
        };
        if !case.is_new {
            table.pending.push(Entry::Engine { epoch: 1, event: EngineEvent::Rules { version: EARLIER_RULES } });
        }
        table.append()?;
        table.call();
        for one in &case.moves {
            table.make(one)?;
        }
        table.append()?;
        for _ in 0..DRAIN_MAX {
            let Some(deadline) = table.lane_state.poll_deadline() else { break };
            table.now = Timestamp(deadline.0 + 1);
            table.pending.push(Entry::Tick);
            table.append()?;
        }
        assert_eq!(table.lane_state.open_count(), 0, "still open");
        // Everything is closed by then.
        for one in case.moves.iter().rev().take(4) {
            table.make(&Move { time: Time::Us(1), ..one.clone() })?;
        }
        table.append()?;
        Ok(table.played)
    }

    fn make(&mut self, one: &Move) -> Result<(), TestCaseError> {
        if !one.joins {
            self.append()?;
            self.now = match one.time {
                Time::Us(us) => Timestamp(self.now.0 + us),
                Time::Ms(ms) => self.now.plus_ms(ms),
                Time::Deadline => self.lane_state.poll_deadline().unwrap_or(self.now).max(self.now),
                Time::PastDeadline => {
                    Timestamp(self.lane_state.poll_deadline().unwrap_or(self.now).max(self.now).0 + 1)
                }
            };
        }
        let entry = self.entry(one);
        self.pending.extend(entry);
        Ok(())
    }

    /// Folds what is pending on both sides.
    fn append(&mut self) -> Result<(), TestCaseError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let record = Record::new("test", std::mem::take(&mut self.pending));
        let seq = self.lane_state.position() + 1;
        self.lane_state.handle_record(seq, self.now, &record);
        let effects: Vec<Effect> = std::iter::from_fn(|| self.lane_state.poll_effect()).collect();
        let expected = self.reference.fold(seq, self.now, &record);
        self.reference.note(&effects);
        let found = fact::facts(&effects);
        self.played.words.extend(found.iter().flat_map(|fact| fact.split(' ')).map(str::to_owned));
        let missing: Vec<_> = expected.iter().filter(|fact| !found.contains(fact)).collect();
        let surplus: Vec<_> = found.iter().filter(|fact| !expected.contains(fact)).collect();
        if found != expected {
            let why = format!("record {seq} at {:?}: {record:?}\nmissing {missing:#?}\nsurplus {surplus:#?}", self.now);
            return Err(TestCaseError::fail(why));
        }
        let state = (self.lane_state.open_count(), self.lane_state.tombstone_count(), self.lane_state.poll_deadline());
        let (open, ended) = self.reference.counts();
        if state != (open, ended, self.reference.deadline()) {
            let wanted = (open, ended, self.reference.deadline());
            return Err(TestCaseError::fail(format!("record {seq}: {state:?}, should be {wanted:?}")));
        }
        self.remember(&effects);
        self.played.steps.push(Step { seq, time: self.now, record, effects });
        Ok(())
    }

    fn remember(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Deliver(deliver) = effect else { continue };
            match &*deliver.told {
                Notification::Turn(turn) => {
                    self.offers.extend(turn.standing.clone().filter(|standing| !self.offers.contains(standing)));
                    self.turn = Some(turn.clone());
                }
                Notification::Cfp(_) => self.calls.push(deliver.clone()),
                Notification::Accept(_)
                | Notification::Reject(_)
                | Notification::Cancel(_)
                | Notification::Inform(_)
                | Notification::Failure(_)
                | Notification::NotUnderstood(_)
                | Notification::Closed(_)
                | Notification::Ack(_)
                | Notification::Ask(_)
                | Notification::Floor(_) => {}
            }
        }
    }

    fn call(&mut self) {
        let mut payload = json!({"bargain": self.case.rules, "currency": "EUR"});
        self.case.join_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        let mandated = self.case.mandates[0].as_ref();
        mandated.into_iter().for_each(|mandated| payload["mandate"] = mandated.mandate.clone());
        let mut message = self.message(&party(0), Act::Cfp, payload, false);
        let invited = (1..=usize::from(self.case.invited)).rev().map(party);
        let invited = invited
            .map(|agent| Invitation { agent, qos: Qos::AtLeastOnce, durable: false, reputation: None })
            .collect();
        message.pinned = Some(pinned(mandated.and_then(|mandated| mandated.rule.clone()), invited));
        self.say(message);
    }

    fn say(&mut self, message: AdmittedMessage) {
        self.said.push(message.clone());
        self.pending.push(Entry::Message(message));
    }

    fn entry(&mut self, one: &Move) -> Option<Entry> {
        let from = match one.who {
            Who::Turn => self.turn.as_ref().map_or(party(0), |turn| turn.party.clone()),
            Who::Party(index) => party(index % (usize::from(self.case.invited) + 1)),
            Who::Stranger => party(9),
        };
        let engine = |event| Some(Entry::Engine { epoch: 1, event });
        let (act, payload) = match &one.deed {
            Deed::Tick => return Some(Entry::Tick),
            Deed::Abort => return engine(EngineEvent::Abort { negotiation: id(), code: "internal".to_owned() }),
            Deed::Undelivered => {
                let Deliver { id, negotiation, to, .. } = self.calls.first()?.clone();
                return engine(EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 3, may_answer: true });
            }
            Deed::Repeat(which) => return Some(Entry::Message(self.said[which % self.said.len()].clone())),
            Deed::Conflict(which) => return Some(self.conflict(*which)),
            Deed::Join => return Some(self.join(&from, one.is_stale)),
            Deed::Offer(plan) => (Act::Offer, self.offer(plan)),
            Deed::Accept(plan) => (Act::Accept, self.accept(*plan)),
            Deed::Withdraw(round) => (Act::Withdraw, round.map_or(json!({}), |round| json!({"round": round}))),
            Deed::End => (Act::End, json!({})),
            Deed::Refuse => (Act::Refuse, json!({})),
            Deed::NotUnderstood => (Act::NotUnderstood, json!({})),
            Deed::Cancel => (Act::Cancel, json!({})),
            Deed::Inform => (Act::Inform, json!({"kind": "done"})),
            Deed::Failure => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
            Deed::Confirm(no, is_right) => {
                let digest = self.offers.last().map_or(Digest([1; 32]), |offer| offer.terms_digest);
                let digest = if *is_right { digest } else { Digest([0; 32]) };
                (Act::Confirm, json!({"award_no": no, "terms_digest": digest}))
            }
        };
        let message = self.message(&from, act, payload, one.is_stale);
        self.said.push(message.clone());
        Some(Entry::Message(message))
    }

    fn join(&mut self, from: &AgentId, is_stale: bool) -> Entry {
        let index = (0..4).find(|&index| party(index) == *from).unwrap_or_default();
        let mandated = self.case.mandates[index].clone();
        let payload = mandated.as_ref().map_or(json!({}), |mandated| json!({"mandate": mandated.mandate}));
        let mut message = self.message(from, Act::Join, payload, is_stale);
        message.pinned = mandated.and_then(|mandated| mandated.rule).map(|rule| pinned(Some(rule), Vec::new()));
        self.said.push(message.clone());
        Entry::Message(message)
    }

    /// An earlier message's id again, for another body.
    fn conflict(&self, which: usize) -> Entry {
        let earlier = &self.said[which % self.said.len()];
        let mut document: Value = serde_json::from_str(earlier.body.get()).expect("JSON");
        document["payload"]["reason"] = json!("another");
        Entry::Message(AdmittedMessage {
            pinned: earlier.pinned.clone(),
            ..admitted(&earlier.from, earlier.act, &document)
        })
    }

    fn offer(&self, plan: &OfferPlan) -> Value {
        let mut payload = json!({"terms": plan.terms});
        plan.valid_for_ms.into_iter().for_each(|ms| payload["valid_for_ms"] = json!(ms));
        if let Some(ms) = plan.valid_from_ms {
            payload["valid_from"] = json!(WireTime(Timestamp(self.now.0.saturating_add_signed(ms * 1000))));
        }
        plan.conditions.iter().for_each(|conditions| payload["conditions"] = conditions.clone());
        plan.currency.into_iter().for_each(|currency| payload["currency"] = json!(currency));
        plan.round.into_iter().for_each(|round| payload["round"] = json!(round));
        payload
    }

    fn accept(&self, plan: AcceptPlan) -> Value {
        let standing = self.turn.as_ref().and_then(|turn| turn.standing.as_ref()).or(self.offers.last());
        let earlier = |which: usize| self.offers.get(which % self.offers.len().max(1));
        let Some(meant) = (if let AcceptPlan::Earlier(which) = plan { earlier(which) } else { standing }) else {
            return json!({"offer_id": "o1-0", "terms_digest": Digest([0; 32])});
        };
        match plan {
            AcceptPlan::WithoutDigest => json!({"offer_id": meant.offer_id}),
            AcceptPlan::OtherDigest => json!({"offer_id": meant.offer_id, "terms_digest": Digest([0; 32])}),
            AcceptPlan::Standing | AcceptPlan::Earlier(_) => {
                json!({"offer_id": meant.offer_id, "terms_digest": meant.terms_digest})
            }
        }
    }

    /// Every other party numbers its messages.
    fn message(&self, from: &AgentId, act: Act, mut payload: Value, is_stale: bool) -> AdmittedMessage {
        payload["act"] = json!(act);
        let number = self.said.len() + 1;
        let mut envelope = json!({"msg_id": format!("m{number}"), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"), "negotiation": id()});
        if *from != party(1) {
            envelope["seq"] = json!(if is_stale { 1 } else { number });
        }
        admitted(from, act, &json!({"envelope": envelope, "payload": payload}))
    }
}

fn admitted(from: &AgentId, act: Act, document: &Value) -> AdmittedMessage {
    let body = canonical(document).expect("integers and texts");
    AdmittedMessage {
        from: from.clone(),
        negotiation: id(),
        act,
        digest: Digest::of_bytes(&body),
        body: RawValue::from_string(String::from_utf8(body).expect("JSON")).expect("JSON").into(),
        pinned: None,
        receipts_all: asks(from),
        capabilities: Vec::new(),
    }
}

/// Whether a party's registration asks for every receipt at once.
pub(crate) fn asks(party_id: &AgentId) -> bool {
    *party_id == party(1) || *party_id == party(2)
}

fn pinned(rule: Option<Value>, invited: Vec<Invitation>) -> Arc<Pinned> {
    let rule: Option<BargainRule> = rule.map(|rule| serde_json::from_value(rule).expect("a rule"));
    let policy = Policy { id: "delegate@1".to_owned(), bargain: rule, ..preset("medium").expect("a preset") };
    let policy_digest = policy.digest().expect("integers and texts");
    Arc::new(Pinned { policy_digest, policy: Arc::new(policy), invited, left_out: 0, task_policy: None, panel: None })
}

/// The parties by their order.
fn party(index: usize) -> AgentId {
    AgentId::try_new(&format!("p{index}")).expect("a name")
}

fn id() -> NegotiationId {
    NegotiationId::try_new("p0~job").expect("an id")
}
