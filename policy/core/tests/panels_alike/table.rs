//! Plays a case: to a lane state and to the reference, record by record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policy_core::{Deliver, Effect, LaneState, Limits, preset};
use policy_reference::{Reference, fact};
use proptest::test_runner::TestCaseError;
use schemas::delivery::{Ask, Notification, Rated};
use schemas::digest::canonical;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, PinnedPanel, Qos, Record};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::plan::{AnswerPlan, Case, Deed, Move, REVIEWERS, RatingsPlan, SEATS_MAX, Time, Who};

const START: Timestamp = Timestamp(1_000_000_000);
/// Rules of before panels.
const EARLIER_RULES: u32 = 0;
/// Most ticks until a panel has ended.
const DRAIN_MAX: usize = 256;

/// See the module.
pub(crate) struct Table<'a> {
    case: &'a Case,
    lane_state: LaneState,
    reference: Reference,
    now: Timestamp,
    pending: Vec<Entry>,
    said: Vec<AdmittedMessage>,
    /// What each was asked last, and has not answered.
    asked: BTreeMap<AgentId, Ask>,
    asks: Vec<Deliver>,
    /// Every word of every fact.
    words: BTreeSet<String>,
}

impl<'a> Table<'a> {
    /// To the end, and beyond; gives every word of every fact.
    pub(crate) fn play(case: &'a Case) -> Result<BTreeSet<String>, TestCaseError> {
        let limits = Limits { tombstone_grace_ms: 500, messages_per_party_max: 12, ..Limits::default() };
        let mut table = Self {
            case,
            lane_state: LaneState::new(Lane(0), limits.clone()),
            reference: Reference::new(&limits),
            now: START,
            pending: vec![Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } }],
            said: Vec::new(),
            asked: BTreeMap::new(),
            asks: Vec::new(),
            words: BTreeSet::new(),
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
        Ok(table.words)
    }

    fn make(&mut self, one: &Move) -> Result<(), TestCaseError> {
        if !one.joins {
            self.append()?;
            let deadline = self.lane_state.poll_deadline().unwrap_or(self.now).max(self.now);
            self.now = match one.time {
                Time::Us(us) => Timestamp(self.now.0 + us),
                Time::Ms(ms) => self.now.plus_ms(ms),
                Time::Deadline => deadline,
                Time::PastDeadline => Timestamp(deadline.0 + 1),
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
        self.words.extend(found.iter().flat_map(|fact| fact.split(' ')).map(str::to_owned));
        if found != expected {
            let missing: Vec<_> = expected.iter().filter(|fact| !found.contains(fact)).collect();
            let surplus: Vec<_> = found.iter().filter(|fact| !expected.contains(fact)).collect();
            let why = format!("record {seq} at {:?}: {record:?}\nmissing {missing:#?}\nsurplus {surplus:#?}", self.now);
            return Err(TestCaseError::fail(why));
        }
        let state = (self.lane_state.open_count(), self.lane_state.tombstone_count(), self.lane_state.poll_deadline());
        let (open, ended) = self.reference.counts();
        let wanted = (open, ended, self.reference.deadline());
        if state != wanted {
            return Err(TestCaseError::fail(format!("record {seq}: {state:?}, should be {wanted:?}")));
        }
        let (shown, expected): (Vec<_>, _) =
            (self.lane_state.evidence().entries().collect(), self.reference.evidence());
        if shown != expected {
            return Err(TestCaseError::fail(format!("record {seq}: shown {shown:#?}, should be {expected:#?}")));
        }
        if !shown.is_empty() {
            self.words.insert("evidence".to_owned());
        }
        for effect in &effects {
            if let Effect::Deliver(deliver) = effect
                && let Notification::Ask(ask) = &*deliver.told
            {
                self.asked.insert(deliver.to.clone(), (**ask).clone());
                self.asks.push(deliver.clone());
            }
        }
        Ok(())
    }

    fn call(&mut self) {
        let mut payload = json!({"task": "How many?", "panel": self.case.rules});
        self.case.reply_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        let mut message = self.message(&agent("p0"), Act::Cfp, payload, false);
        let invitation = |agent: AgentId, qos, reputation| Invitation { agent, qos, durable: false, reputation };
        // One seat is told everything once only.
        let qos = |seat: usize| if seat == 3 { Qos::BestEffort } else { Qos::AtLeastOnce };
        let reputation = |seat: usize| self.case.reputations.get(seat - 1).copied().flatten();
        let invited = (1..=self.case.seats).rev();
        let invited = invited.map(|seat| invitation(seat_named(seat), qos(seat), reputation(seat))).collect();
        let policy = preset("medium").expect("a preset");
        let reviewers = REVIEWERS.iter().filter(|_| self.case.is_pinned);
        let reviewers = reviewers.map(|name| invitation(agent(name), Qos::AtLeastOnce, None)).collect();
        let ranker = self.case.is_pinned.then(|| invitation(agent("q"), Qos::AtLeastOnce, None));
        message.pinned = Some(Arc::new(Pinned {
            policy_digest: policy.digest().expect("integers and texts"),
            policy: Arc::new(policy),
            invited,
            left_out: 0,
            task_policy: None,
            panel: Some(Box::new(PinnedPanel { ranker, reviewers })),
        }));
        self.said.push(message.clone());
        self.pending.push(Entry::Message(message));
    }

    fn entry(&mut self, one: &Move) -> Option<Entry> {
        let seat = |index: usize| seat_named(index % self.case.seats.max(1) + 1);
        let from = match one.who {
            Who::Asked(index) => {
                self.asked.keys().nth(index % self.asked.len().max(1)).cloned().unwrap_or_else(|| seat(index))
            }
            Who::Seat(index) => seat(index),
            Who::Reviewer(index) => agent(REVIEWERS[index % REVIEWERS.len()]),
            Who::Ranker => agent("q"),
            Who::Initiator => agent("p0"),
            Who::Stranger => agent("stranger"),
        };
        let engine = |event| Some(Entry::Engine { epoch: 1, event });
        let (act, payload) = match &one.deed {
            Deed::Tick => return Some(Entry::Tick),
            Deed::Abort => return engine(EngineEvent::Abort { negotiation: id(), code: "internal".to_owned() }),
            Deed::Undelivered(back) => {
                let which = self.asks.len().checked_sub(1 + back % self.asks.len().max(1))?;
                let Deliver { id, negotiation, to, .. } = self.asks.get(which)?.clone();
                return engine(EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 3, may_answer: true });
            }
            Deed::Repeat(which) => return Some(Entry::Message(self.said[which % self.said.len()].clone())),
            Deed::Conflict(which) => return Some(self.conflict(*which)),
            Deed::Answer(plan) if matches!(one.who, Who::Asked(_)) && self.is_to_review(&from) => {
                (Act::Answer, self.review(&from, None, plan))
            }
            Deed::Answer(plan) => (Act::Answer, self.answer(&from, plan)),
            Deed::Review(texts, plan) => (Act::Answer, self.review(&from, *texts, plan)),
            Deed::Order(order) => {
                let round = self.asked.get(&from).map_or(1, |ask| ask.round);
                (Act::Answer, json!({"round": round, "order": order}))
            }
            Deed::Refuse => (Act::Refuse, json!({})),
            Deed::NotUnderstood => (Act::NotUnderstood, json!({})),
            Deed::Cancel(round) => (Act::Cancel, round.map_or(json!({}), |round| json!({"round": round}))),
            Deed::Offer => (Act::Offer, json!({"terms": {"price": 3}})),
        };
        if matches!(one.deed, Deed::Answer(_) | Deed::Review(..)) {
            self.asked.remove(&from);
        }
        let message = self.message(&from, act, payload, one.is_stale);
        self.said.push(message.clone());
        Some(Entry::Message(message))
    }

    fn answer(&self, from: &AgentId, plan: &AnswerPlan) -> Value {
        let ask = self.asked.get(from);
        let round = ask.map_or(1, |ask| ask.round);
        let mut payload = json!({"round": round.saturating_add_signed(plan.shift).max(1), "answer": plan.answer});
        plan.text.into_iter().for_each(|text| payload["text"] = json!(text));
        add_rest(&mut payload, ask, plan);
        payload
    }

    fn is_to_review(&self, agent: &AgentId) -> bool {
        self.asked.get(agent).is_some_and(|ask| ask.review)
    }

    fn review(&self, from: &AgentId, texts: Option<usize>, plan: &AnswerPlan) -> Value {
        let ask = self.asked.get(from);
        let shown = ask.and_then(|ask| ask.peers.as_ref()).map_or(0, Vec::len);
        let round = ask.map_or(1, |ask| ask.round).saturating_add_signed(plan.shift).max(1);
        let text = |number: usize| plan.text.map(|text| format!("{text} {number}"));
        let texts: Vec<Option<String>> = (0..texts.unwrap_or(shown)).map(text).collect();
        let mut payload = json!({"round": round, "reviews": texts});
        add_rest(&mut payload, ask, plan);
        payload
    }

    /// An earlier message's id again, for another body.
    fn conflict(&self, which: usize) -> Entry {
        let earlier = &self.said[which % self.said.len()];
        let mut document: Value = serde_json::from_str(earlier.body.get()).expect("JSON");
        document["payload"]["reason"] = json!("another");
        let again = admitted(&earlier.from, earlier.act, &document);
        Entry::Message(AdmittedMessage { pinned: earlier.pinned.clone(), ..again })
    }

    /// Every second seat numbers its messages.
    fn message(&self, from: &AgentId, act: Act, mut payload: Value, is_stale: bool) -> AdmittedMessage {
        payload["act"] = json!(act);
        let number = self.said.len() + 1;
        let mut envelope = json!({"msg_id": format!("m{number}"), "ts": "2026-01-01T00:00:00Z",
            "from": format!("agent://{from}"), "negotiation": id()});
        if from.as_str().ends_with(['2', '4', '6', '8']) {
            envelope["seq"] = json!(if is_stale { 1 } else { number });
        }
        admitted(from, act, &json!({"envelope": envelope, "payload": payload}))
    }
}

/// Cost and ratings: fitting ones are as many as are to be rated.
fn add_rest(payload: &mut Value, ask: Option<&Ask>, plan: &AnswerPlan) {
    plan.usage.into_iter().for_each(|calls| payload["usage"] = json!({"calls": calls}));
    let peers = ask.and_then(|ask| ask.peers.as_deref()).unwrap_or_default();
    let rated = match ask.and_then(|ask| ask.rate) {
        Some(Rated::Peers) => peers.len(),
        Some(Rated::Reviewers) => {
            let shown = ask.and_then(|ask| ask.own.as_ref()).into_iter().chain(peers);
            shown.map(|one| one.reviews.len()).max().unwrap_or(0)
        }
        None => 0,
    };
    match &plan.ratings {
        RatingsPlan::Fitting(ratings) if rated > 0 => payload["ratings"] = json!(ratings[..rated.min(SEATS_MAX)]),
        RatingsPlan::Any(ratings) => payload["ratings"] = json!(ratings),
        RatingsPlan::None | RatingsPlan::Fitting(_) => {}
    }
}

/// Two of the seats ask for every receipt at once.
fn admitted(from: &AgentId, act: Act, document: &Value) -> AdmittedMessage {
    let body = canonical(document).expect("integers and texts");
    AdmittedMessage {
        from: from.clone(),
        negotiation: id(),
        act,
        digest: Digest::of_bytes(&body),
        body: RawValue::from_string(String::from_utf8(body).expect("JSON")).expect("JSON").into(),
        pinned: None,
        receipts_all: ["p1", "p2"].contains(&from.as_str()),
        capabilities: Vec::new(),
    }
}

fn seat_named(seat: usize) -> AgentId {
    agent(&format!("p{seat}"))
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::try_new(name).expect("a name")
}

fn id() -> NegotiationId {
    NegotiationId::try_new("p0~job").expect("an id")
}
