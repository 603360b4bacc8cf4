//! Plays a case: to a lane state and to the reference, record by record.

use std::collections::BTreeSet;
use std::sync::Arc;

use policy_core::{Deliver, Effect, LaneState, Limits, preset};
use policy_reference::{Reference, fact};
use proptest::test_runner::TestCaseError;
use schemas::delivery::Notification;
use schemas::digest::canonical;
use schemas::ids::{AwardNo, Capability, FamilyPlace};
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Invitation, Pinned, Qos, Record, TaskPolicy};
use schemas::team::{Floor, ProposedConclusion};
use schemas::{Act, AgentId, Digest, Lane, NegotiationId, Policy, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::plan::{AssignPlan, Case, Deed, LAST, Move, SayPlan, SubTeamPlan, TaskDeed, Time, Turn, VotePlan, Who};

const START: Timestamp = Timestamp(1_000_000_000);
/// Rules of before teams.
const EARLIER_RULES: u32 = 0;
/// Most ticks until a team has ended: of each timer, one for each turn, vote and seat.
const DRAIN_MAX: usize = 256;

/// See the module.
pub(crate) struct Table<'a> {
    case: &'a Case,
    lane_state: LaneState,
    reference: Reference,
    now: Timestamp,
    pending: Vec<Entry>,
    said: Vec<AdmittedMessage>,
    /// Every team that was called: its id, and its floor as somebody was told it last.
    teams: Vec<(NegotiationId, Option<Floor>)>,
    /// The one that is spoken in.
    team: usize,
    conclusions: Vec<ProposedConclusion>,
    calls: Vec<Deliver>,
    /// The tasks there were, and who was last awarded each.
    tasks: Vec<(NegotiationId, Option<(AgentId, AwardNo)>)>,
    words: BTreeSet<String>,
}

impl<'a> Table<'a> {
    /// To the end, and beyond; every word of every fact.
    pub(crate) fn play(case: &'a Case) -> Result<BTreeSet<String>, TestCaseError> {
        let limits = Limits { tombstone_grace_ms: 500, ..Limits::default() };
        let mut table = Self {
            case,
            lane_state: LaneState::new(Lane(0), limits.clone()),
            reference: Reference::new(&limits),
            now: START,
            pending: vec![Entry::Engine { epoch: 1, event: EngineEvent::Claim { engine: "engine-1".to_owned() } }],
            said: Vec::new(),
            teams: vec![(id(), None)],
            team: 0,
            conclusions: Vec::new(),
            calls: Vec::new(),
            tasks: Vec::new(),
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
        self.team = if one.team == LAST { self.teams.len() - 1 } else { one.team % self.teams.len() };
        let times = if let Deed::Flood(times) = one.deed { times } else { 1 };
        for _ in 0..times {
            let entry = self.entry(one);
            self.pending.extend(entry);
        }
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
        Ok(())
    }

    fn remember(&mut self, effects: &[Effect]) {
        for effect in effects {
            let Effect::Deliver(deliver) = effect else { continue };
            if matches!(deliver.negotiation.place(), FamilyPlace::Task(_)) {
                self.remember_task(deliver);
            }
            match &*deliver.told {
                Notification::Floor(floor) => {
                    let proposed = floor.conclusion.clone();
                    self.conclusions.extend(proposed.filter(|one| !self.conclusions.contains(one)));
                    let team = self.teams.iter_mut().find(|(id, _)| *id == deliver.negotiation);
                    team.expect("it was called").1 = Some((**floor).clone());
                }
                Notification::Cfp(call) => {
                    self.calls.push(deliver.clone());
                    if call.team.is_some() && self.teams.iter().all(|(id, _)| *id != deliver.negotiation) {
                        self.teams.push((deliver.negotiation.clone(), None));
                    }
                }
                _ => {}
            }
        }
    }

    fn remember_task(&mut self, deliver: &Deliver) {
        let known = self.tasks.iter().position(|(task, _)| *task == deliver.negotiation);
        let index = known.unwrap_or_else(|| {
            self.tasks.push((deliver.negotiation.clone(), None));
            self.tasks.len() - 1
        });
        if let Notification::Accept(award) = &*deliver.told {
            self.tasks[index].1 = Some((deliver.to.clone(), award.award_no));
        }
    }

    fn call(&mut self) {
        let mut payload = json!({"team": self.case.rules, "task": "write a survey"});
        self.case.join_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        if self.case.policy.is_some() {
            payload["policy"] = json!("seats");
        }
        let mut message = self.message(&party(0), Act::Cfp, payload, false);
        let invited = (1..=usize::from(self.case.invited)).rev().map(party);
        let invited = invited
            .map(|agent| Invitation { agent, qos: Qos::AtLeastOnce, durable: false, reputation: None })
            .collect();
        message.pinned = Some(pinned(self.case.policy.as_ref(), invited));
        self.say(message);
    }

    fn say(&mut self, message: AdmittedMessage) {
        self.said.push(message.clone());
        self.pending.push(Entry::Message(message));
    }

    fn entry(&mut self, one: &Move) -> Option<Entry> {
        let from = match one.who {
            Who::Speaker => self.floor().and_then(|floor| floor.speaker.clone()).unwrap_or(party(0)),
            Who::Party(index) => party(index % (usize::from(self.case.invited) + 1)),
            Who::Owner => self.owner(&one.deed),
            Who::Stranger => party(9),
        };
        let engine = |event| Some(Entry::Engine { epoch: 1, event });
        let (act, payload) = match &one.deed {
            Deed::Tick => return Some(Entry::Tick),
            Deed::Abort => {
                let negotiation = self.teams[self.team].0.clone();
                return engine(EngineEvent::Abort { negotiation, code: "internal".to_owned() });
            }
            Deed::Undelivered(which, may_answer) => {
                let call = self.calls.get(which % self.calls.len().max(1))?;
                let Deliver { id, negotiation, to, .. } = call.clone();
                let may_answer = *may_answer;
                return engine(EngineEvent::DeliveryFailed { id, negotiation, to, attempts: 3, may_answer });
            }
            Deed::Repeat(which) => return Some(Entry::Message(self.said[which % self.said.len()].clone())),
            Deed::Conflict(which) => return Some(self.conflict(*which)),
            Deed::Join(fit) => (Act::Join, json!({"terms": {"fit": fit}})),
            Deed::Say(plan) => (Act::Say, self.words_of(plan)),
            Deed::Flood(_) => (Act::Say, json!({"text": "again"})),
            Deed::Assign(plan) => (Act::Assign, self.assign(plan)),
            Deed::InTask(which, deed) => self.work(*which, *deed),
            Deed::CallSubTeam(which, plan) => return Some(self.call_sub_team(&from, *which, plan)),
            Deed::Pause(turn, triggers) => (Act::Pause, self.in_turn(*turn, json!({"triggers": triggers}))),
            Deed::Conclude(turn) => (Act::Conclude, self.in_turn(*turn, json!({"text": "the survey"}))),
            Deed::Accept(plan) => (Act::Accept, self.accept(*plan)),
            Deed::Refuse => (Act::Refuse, json!({})),
            Deed::End => (Act::End, json!({})),
            Deed::Cancel => (Act::Cancel, json!({})),
            Deed::Other(act) => other(act),
        };
        let mut message = self.message(&from, act, payload, one.is_stale);
        match &one.deed {
            Deed::Assign(AssignPlan { has_policy: true, .. }) => message.pinned = Some(pinned_task()),
            Deed::InTask(which, _) => message.negotiation = self.task(*which).0,
            _ => {}
        }
        self.said.push(message.clone());
        Some(Entry::Message(message))
    }

    fn floor(&self) -> Option<&Floor> {
        self.teams[self.team].1.as_ref()
    }

    /// A call to the sub-team of the n-th task's last award.
    fn call_sub_team(&mut self, from: &AgentId, which: usize, plan: &SubTeamPlan) -> Entry {
        let (task, award) = self.task(which);
        let award_no = award.map_or(1, |(_, award_no)| award_no.0) + u32::from(plan.is_wrong);
        let mut rules = plan.rules.clone();
        rules["of"] = json!({"task": task, "award_no": award_no});
        let payload = json!({"team": rules, "task": "a part of it", "reply_within_ms": plan.join_ms});
        let mut message = self.message(from, Act::Cfp, payload, false);
        let id = task.sub_team(AwardNo(award_no)).filter(|_| !plan.is_forged);
        message.negotiation = id.unwrap_or_else(|| NegotiationId::form(from, "own").expect("an id"));
        let invitation = |index: &usize| Invitation {
            agent: party(*index),
            qos: Qos::AtLeastOnce,
            durable: false,
            reputation: None,
        };
        message.pinned = Some(pinned(None, plan.invited.iter().map(invitation).collect()));
        self.said.push(message.clone());
        Entry::Message(message)
    }

    /// The n-th task, or one that never was.
    fn task(&self, which: usize) -> (NegotiationId, Option<(AgentId, AwardNo)>) {
        let known = if which == LAST { self.tasks.last() } else { self.tasks.get(which % self.tasks.len().max(1)) };
        let known = known.cloned();
        known.unwrap_or((id().task(1).expect("a team's"), None))
    }

    fn owner(&self, deed: &Deed) -> AgentId {
        let task = match deed {
            Deed::InTask(which, _) | Deed::CallSubTeam(which, _) => self.task(*which).1,
            _ => None,
        };
        task.map_or(party(0), |(owner, _)| owner)
    }

    fn work(&self, which: usize, deed: TaskDeed) -> (Act, Value) {
        let award_no = self.task(which).1.map_or(AwardNo(1), |(_, award_no)| award_no);
        match deed {
            TaskDeed::Offer(fit) => (Act::Offer, json!({"terms": {"fit": fit * 250_000}})),
            TaskDeed::Confirm => (Act::Confirm, json!({"award_no": award_no})),
            TaskDeed::Result => (Act::Inform, json!({"kind": "result", "result": "a figure"})),
            TaskDeed::Done => (Act::Inform, json!({"kind": "done"})),
            TaskDeed::Failure => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
            TaskDeed::Refuse => (Act::Refuse, json!({})),
            TaskDeed::Cancel => (Act::Cancel, json!({})),
        }
    }

    fn assign(&self, plan: &AssignPlan) -> Value {
        let tasks = plan.tasks.iter().map(|task| {
            let mut document = json!({"title": "figures", "text": "draw figure 1"});
            task.owner.into_iter().for_each(|owner| document["owner"] = json!(party(owner)));
            task.reply_within_ms.into_iter().for_each(|ms| document["reply_within_ms"] = json!(ms));
            task.perform_ms.into_iter().for_each(|ms| document["perform_ms"] = json!(ms));
            if task.is_drawn {
                document["requires"] = json!(["drawing"]);
            }
            document
        });
        let tasks: Vec<Value> = tasks.collect();
        let mut payload = self.in_turn(plan.turn, json!({"mode": plan.mode, "tasks": tasks}));
        if plan.has_policy {
            payload["policy"] = json!("quick");
        }
        payload
    }

    fn words_of(&self, plan: &SayPlan) -> Value {
        let mut payload = self.in_turn(plan.turn, json!({"text": plan.text}));
        plan.next.into_iter().for_each(|next| payload["next"] = json!(party(next)));
        payload
    }

    fn in_turn(&self, turn: Turn, mut payload: Value) -> Value {
        let current = self.floor().map_or(1, |floor| floor.turn);
        let named = match turn {
            Turn::Unnamed => None,
            Turn::Current => Some(current),
            Turn::Earlier => Some(current.saturating_sub(1).max(1)),
            Turn::Later => Some(current + 1),
        };
        named.into_iter().for_each(|turn| payload["turn"] = json!(turn));
        payload
    }

    /// An earlier message's id again, for another body.
    fn conflict(&self, which: usize) -> Entry {
        let earlier = &self.said[which % self.said.len()];
        let mut document: Value = serde_json::from_str(earlier.body.get()).expect("JSON");
        document["payload"]["reason"] = json!("another");
        Entry::Message(AdmittedMessage {
            pinned: earlier.pinned.clone(),
            negotiation: earlier.negotiation.clone(),
            ..admitted(&earlier.from, earlier.act, &document)
        })
    }

    fn accept(&self, plan: VotePlan) -> Value {
        let which = if let VotePlan::Earlier(which) = plan { which } else { self.conclusions.len().saturating_sub(1) };
        let Some(meant) = self.conclusions.get(which % self.conclusions.len().max(1)) else {
            return json!({"offer_id": "o1-0", "terms_digest": Digest([0; 32])});
        };
        match plan {
            VotePlan::WithoutDigest => json!({"offer_id": meant.offer_id}),
            VotePlan::OtherDigest => json!({"offer_id": meant.offer_id, "terms_digest": Digest([0; 32])}),
            VotePlan::Right | VotePlan::Earlier(_) => {
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
        let message = admitted(from, act, &json!({"envelope": envelope, "payload": payload}));
        AdmittedMessage { negotiation: self.teams[self.team].0.clone(), ..message }
    }
}

/// An act that no team knows.
fn other(act: &str) -> (Act, Value) {
    match act {
        "cfp" => (Act::Cfp, json!({"task": "another"})),
        "offer" => (Act::Offer, json!({"terms": {}})),
        "withdraw" => (Act::Withdraw, json!({})),
        "confirm" => (Act::Confirm, json!({"award_no": 1})),
        "inform" => (Act::Inform, json!({"kind": "done"})),
        "failure" => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
        _ => (Act::NotUnderstood, json!({})),
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
        receipts_all: *from == party(1) || *from == party(2),
        capabilities: if draws(from) { vec![Capability::try_new("drawing").expect("a name")] } else { Vec::new() },
    }
}

/// What a gateway pins: a fitness that counts, and is not nothing.
fn pinned(tie_break: Option<&Value>, invited: Vec<Invitation>) -> Arc<Pinned> {
    let mut policy = preset("high").expect("a preset");
    let mut document = serde_json::to_value(&policy).expect("a document");
    document["id"] = json!("seats@1");
    document["gates"] = json!([{"attr": "fit", "min": 1}]);
    document["weights"] = json!([{"attr": "fit", "w": 1000, "dir": "higher", "lo": 0, "hi": 1_000_000}]);
    tie_break.into_iter().for_each(|tie_break| document["tie_break"] = tie_break.clone());
    if tie_break.is_some() {
        policy = serde_json::from_value(document).expect("a policy");
    }
    let policy_digest = policy.digest().expect("integers and texts");
    let task = task_policy(60);
    let task_policy = TaskPolicy { digest: task.digest().expect("integers and texts"), policy: Arc::new(task) };
    Arc::new(Pinned {
        policy_digest,
        policy: Arc::new(policy),
        invited,
        left_out: 0,
        task_policy: Some(task_policy),
        panel: None,
    })
}

/// What a gateway pins of the policy an assignment names.
fn pinned_task() -> Arc<Pinned> {
    let policy = task_policy(20);
    let policy_digest = policy.digest().expect("integers and texts");
    Arc::new(Pinned {
        policy_digest,
        policy: Arc::new(policy),
        invited: Vec::new(),
        left_out: 0,
        task_policy: None,
        panel: None,
    })
}

/// The best fitness wins; one runner-up, two awards.
fn task_policy(confirm_ms: u64) -> Policy {
    let mut document = serde_json::to_value(preset("high").expect("a preset")).expect("a document");
    document["id"] = json!("team-task@1");
    document["gates"] = json!([]);
    document["weights"] = json!([{"attr": "fit", "w": 1000, "dir": "higher", "lo": 0, "hi": 1_000_000}]);
    document["standby"] = json!(1);
    document["max_awards"] = json!(2);
    document["hold_until"] = json!("done");
    document["timers_ms"] =
        json!({"collect": 40, "confirm": confirm_ms, "perform": 1_200, "cancel": 30, "hard": 3_000});
    serde_json::from_value(document).expect("a policy")
}

/// Whether a party can draw.
fn draws(party_id: &AgentId) -> bool {
    *party_id == party(1) || *party_id == party(3)
}

/// The parties by their order.
fn party(index: usize) -> AgentId {
    AgentId::try_new(&format!("p{index}")).expect("a name")
}

fn id() -> NegotiationId {
    NegotiationId::try_new("p0~job").expect("an id")
}
