//! An agent of the Agent2Agent protocol (A2A 1.0, JSON-RPC) as a contractor of the exchange.
//!
//! | it hears | asked of the A2A agent | said |
//! |---|---|---|
//! | CFP | SendMessage: the call, for people and as data | OFFER, REFUSE, or NOT_UNDERSTOOD with the pointer |
//! | ACCEPT | the award, in the same task; nothing where it `confirms` and the terms are those offered | CONFIRM, REFUSE |
//! | ACK `committed` | to carry it out, in the same task | INFORM `done` with the text, or FAILURE |
//! | CANCEL by the initiator | CancelTask | INFORM `cancelled`, or FAILURE `cannot_cancel` |
//! | CANCEL for another reason, REJECT, CLOSED, the next round | CancelTask, unless the task is over | |
//! | CFP with a bargain, a team or an auction, ASK | | REFUSE |
//!
//! One whose card names the extension is asked instead for an act of its own: to such a CFP, at ASK, at its turn, when it has the
//! floor or votes, when it is outbid, and again where the exchange has not understood it. One question of a negotiation waits at a
//! time; what was told before goes with it, and the end is told as well.
//!
//! One that is asked to end says REFUSE or FAILURE, `shutting_down`, of what is in hand, and asks to cancel its tasks.
//!
//! Where no answer can be used, or none comes in time, it says REFUSE or FAILURE, `unavailable` or `timeout`. What others wrote
//! goes out with invisible characters written out.

pub mod answer;
pub mod client;

use std::collections::VecDeque;
use std::iter::once;
use std::mem::{replace, take};
use std::time::Duration;

use agents::asking::Asks;
use agents::contractor::other_protocol;
use agents::open::OpenNegotiations;
use agents::strategy::{Action, Strategy};
use schemas::delivery::{
    Award, Call, Cancellation, Delivery, Disposition, Notification, ProgressReport, Receipt, RejectReason,
};
use schemas::payload::{Confirm, FailurePhase, InformKind, Terms};
use schemas::team::{Floor, Say, TaskMode};
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Payload, Timestamp, WireTime};
use serde_json::{Value, json};

use crate::a2a::card::EXTENSION;
use crate::memory::todo::{self, Todo, TodoChange};
use crate::tools::answer::escaped;
use answer::{A2aFault, A2aReply, A2aStep, OpenTask, failure, inform};

pub use client::A2aClient;

/// How long before a deadline an answer is of use at the latest: it has to be admitted as well.
const MARGIN: Duration = Duration::from_millis(500);
/// How long CancelTask may take, in ms.
const STOP_MS: u64 = 5000;
/// Most negotiations at a time; calls beyond them are refused as `busy`.
const NEGOTIATIONS_MAX: usize = 4096;
/// How long work on a task of a team may take, in ms: the award does not say.
const BRIEFED_MS: u64 = 3_600_000;
/// Most deliveries of one negotiation that are kept to go with the next question; the oldest are dropped.
const TOLD_MAX: usize = 32;
/// How often an act that the exchange does not understand is asked for again.
const REFUSALS_MAX: u8 = 2;
/// Characters of a context's id: 160 bits.
const CONTEXT_CHARS: usize = 40;

/// A question to an A2A agent.
#[derive(Debug, Clone)]
pub struct A2aQuestion {
    /// What was told.
    pub delivery: Delivery,
    /// What it is about: of an act that is asked for again what was told first.
    pub about: Notification,
    /// What was told in the negotiation since the question before.
    pub before: Vec<Delivery>,
    /// What is asked.
    pub step: A2aStep,
    /// The tools of the acts that answer it.
    pub tools: Vec<&'static str>,
    /// In which task.
    pub task: Option<OpenTask>,
    /// What it offered in the negotiation, or is awarded.
    pub offered: Option<Terms>,
    /// How long an answer is of use.
    pub within: Duration,
}

/// What is known of one negotiation.
#[derive(Default)]
struct Partaking {
    ends_by: Timestamp,
    task: Option<OpenTask>,
    offered: Option<Terms>,
    awarded: Option<Terms>,
    confirmed: Option<AwardNo>,
    /// The question that waits, and the delivery it is about.
    asked: Option<(A2aStep, DeliveryId)>,
    /// What the last question told, what it was about, and what answers it.
    told: Option<Delivery>,
    about: Option<Notification>,
    todo: Option<Todo>,
    /// What was told since, where the agent knows the extension.
    since: Vec<Delivery>,
    /// What to ask about once the question that waits is answered, or a bid was not taken.
    due: Option<Delivery>,
    /// Whether its bid is the standing one of an auction.
    leads: bool,
    /// How often the exchange has not understood the last act.
    refusals: u8,
    /// It has opened tasks for which nobody waits: the receipt says in which turn it has the floor again.
    keeps_floor: bool,
}

impl Partaking {
    /// Keeps what was told for the next question.
    fn note(&mut self, told: Delivery) {
        if self.since.len() == TOLD_MAX {
            self.since.remove(0);
        }
        self.since.push(told);
    }
}

/// A contractor whose decisions are an A2A agent's.
pub struct A2aContractor {
    agent: AgentId,
    confirms: bool,
    is_extended: bool,
    open: OpenNegotiations<Partaking>,
    questions: VecDeque<A2aQuestion>,
}

impl A2aContractor {
    /// A contractor, which `confirms` awards of the terms offered without a question; `is_extended`: its A2A agent knows the
    /// extension.
    pub fn new(agent: AgentId, confirms: bool, is_extended: bool) -> Self {
        let open = OpenNegotiations::new(NEGOTIATIONS_MAX);
        Self { agent, confirms, is_extended, open, questions: VecDeque::new() }
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        // Another round begins anew.
        self.release(delivery);
        let other = other_protocol(call).filter(|_| !self.is_extended);
        if let Some(reason) = other.or((!self.open.has_room()).then_some("busy")) {
            return vec![Action::refuse(delivery, reason)];
        }
        self.begin(delivery, call.ends_by.0);
        self.ask_for_act(now, delivery)
    }

    fn begin(&mut self, delivery: &Delivery, ends_by: Timestamp) {
        let part = Partaking { ends_by, ..Partaking::default() };
        self.open.insert(&delivery.envelope.negotiation, part, ends_by);
    }

    fn handle_award(&mut self, now: Timestamp, delivery: &Delivery, award: &Award) -> Vec<Action> {
        let is_briefed = award.brief.is_some() && self.is_extended;
        if is_briefed && self.open.has_room() && !self.open.contains(&delivery.envelope.negotiation) {
            self.begin(delivery, now.plus_ms(BRIEFED_MS));
        }
        match self.open.part(&delivery.envelope.negotiation) {
            None => vec![Action::refuse(delivery, "no such offer")],
            Some(part) if self.confirms && part.offered.as_ref() == Some(&award.terms) => {
                (part.confirmed, part.awarded) = (Some(award.award_no), Some(award.terms.clone()));
                let confirm = Confirm { award_no: award.award_no, terms_digest: None };
                vec![Action::reply(delivery, Payload::Confirm(confirm))]
            }
            Some(part) => {
                part.awarded = Some(award.terms.clone());
                self.ask_for_act(now, delivery)
            }
        }
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) -> Vec<Action> {
        let is_committed = receipt.first.unwrap_or(receipt.disposition) == Disposition::Committed;
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
        if let (Some(turn), Some(Notification::Floor(floor)), Some(told), true) =
            (receipt.turn, &part.about, &part.told, take(&mut part.keeps_floor))
            && let Some(turns_left @ 1..) = floor.turns_left.checked_sub(1)
        {
            // It is told nothing else of its own acts: as long as the turn before.
            let as_long = |by: WireTime| WireTime(now.plus_ms(by.0.since_us(told.envelope.ts.0) / 1000));
            let (act_by, by, said, tasks) = (floor.act_by.map(as_long), None, None, Vec::new());
            let floor = Floor { turn, turns_left, act_by, by, said, tasks, ..Floor::clone(floor) };
            let told = Delivery { payload: Notification::Floor(Box::new(floor)), ..delivery.clone() };
            return self.handle_news(now, &told);
        }
        // Told again, or of an award it never confirmed: no reason to perform.
        if !is_committed || part.confirmed.is_none() || part.confirmed != receipt.award_no {
            return Vec::new();
        }
        let (ends_by, _) = (part.ends_by, part.confirmed.take());
        self.ask(now, delivery, A2aStep::Perform, ends_by)
    }

    fn handle_cancel(&mut self, now: Timestamp, delivery: &Delivery, cancellation: &Cancellation) -> Vec<Action> {
        if cancellation.reason != "cancelled" {
            return self.release(delivery);
        }
        match self.open.part(&delivery.envelope.negotiation) {
            Some(part) if part.task.is_some() => self.ask(now, delivery, A2aStep::Stop, now.plus_ms(STOP_MS)),
            Some(part) if part.asked.is_some() => {
                vec![Action::reply(delivery, failure(FailurePhase::CannotCancel, "no_task"))]
            }
            Some(_) | None => vec![Action::reply(delivery, inform(InformKind::Cancelled, None))],
        }
    }

    /// Asks for an act where one is due, once the question before is answered, and keeps what else is told.
    fn handle_news(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        if !self.is_extended {
            return Vec::new();
        }
        // Also where the call was told to a process that has ended.
        if let (Some(ends_by), None) = (ends_by(&delivery.payload), self.open.part(&delivery.envelope.negotiation)) {
            match (&delivery.payload, self.open.has_room()) {
                (_, true) => self.begin(delivery, ends_by.0),
                (Notification::Ask(_), false) => return vec![Action::refuse(delivery, "busy")],
                (_, false) => return Vec::new(),
            }
        }
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
        if let Notification::Inform(ProgressReport::Bid(bid)) = &delivery.payload {
            part.leads = bid.leads;
            part.due.take_if(|_| bid.leads);
        }
        if let Notification::Reject(rejection) = &delivery.payload {
            let due = part.due.take_if(|_| rejection.reason == RejectReason::Policy || !rejection.reason.goes_on());
            if let Some(due) = due.filter(|_| part.asked.is_none() && rejection.reason.goes_on()) {
                return self.ask_for_act(now, &due);
            }
        }
        let is_refusal = matches!(delivery.payload, Notification::NotUnderstood(_));
        let is_asked_for = |todo: &Todo| match (is_refusal, &part.todo) {
            (true, Some(last)) => {
                let is_again = |tool: &&str| *tool != "leave" && last.tools.contains(tool);
                part.asked.is_none() && part.refusals < REFUSALS_MAX && todo.tools.iter().any(is_again)
            }
            (true, None) => false,
            (false, _) => true,
        };
        if !todo_of(&delivery.payload, &self.agent, part.todo.as_ref()).is_some_and(|todo| is_asked_for(&todo)) {
            part.note(delivery.clone());
            return Vec::new();
        }
        part.refusals = if is_refusal { part.refusals + 1 } else { 0 };
        if let Some(due) = part.due.take() {
            part.note(due);
        }
        if part.asked.is_some() {
            part.due = Some(delivery.clone());
            return Vec::new();
        }
        self.ask_for_act(now, delivery)
    }

    fn ask_for_act(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
        let todo = todo_of(&delivery.payload, &self.agent, part.todo.as_ref());
        let Some(by) = todo.as_ref().and_then(|todo| todo.by) else { return Vec::new() };
        part.todo = todo;
        if !matches!(delivery.payload, Notification::NotUnderstood(_)) {
            part.about = Some(delivery.payload.clone());
        }
        self.ask(now, delivery, A2aStep::Act, by.0)
    }

    /// Asks in place of what was asked before. An answer is of use until shortly before `by`.
    fn ask(&mut self, now: Timestamp, delivery: &Delivery, step: A2aStep, by: Timestamp) -> Vec<Action> {
        let within = Duration::from_micros(by.since_us(now)).saturating_sub(MARGIN);
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
        part.asked = Some((step, delivery.envelope.msg_id));
        part.told = Some(delivery.clone());
        let tools = part.todo.as_ref().map_or_else(Vec::new, |todo| todo.tools.clone());
        let (before, task) = (take(&mut part.since), part.task.clone());
        let offered = part.awarded.as_ref().or(part.offered.as_ref()).cloned();
        let about = part.about.as_ref().filter(|_| step == A2aStep::Act).unwrap_or(&delivery.payload).clone();
        let delivery = delivery.clone();
        self.questions.push_back(A2aQuestion { delivery, about, before, step, tools, task, offered, within });
        vec![Action::Defer]
    }

    /// Forgets a negotiation. A task of it that is not over is cancelled, by the extension with the end.
    fn release(&mut self, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        if let Some(Partaking { task, since, .. }) = self.open.remove(negotiation) {
            let is_told = self.is_extended && matches!(delivery.payload, Notification::Closed(_));
            self.stop(delivery, task, since, if is_told { A2aStep::Close } else { A2aStep::Stop });
        }
        vec![Action::Release(negotiation.clone())]
    }

    /// Gives up whatever is in hand, and takes nothing further: what to say of it, and the tasks to cancel.
    pub fn give_up(&mut self) -> (Vec<Action>, Vec<A2aQuestion>) {
        let mut said = Vec::new();
        for part in replace(&mut self.open, OpenNegotiations::new(0)).into_parts() {
            let Some(delivery) = part.told else { continue };
            let step = part.asked.map(|(step, _)| step).or(part.confirmed.map(|_| A2aStep::Perform));
            let about = part.about.as_ref().unwrap_or(&delivery.payload);
            let declined = step.and_then(|step| step.decline(about, "shutting_down"));
            said.extend(declined.map(|payload| Action::reply(&delivery, payload)));
            self.stop(&delivery, part.task, Vec::new(), A2aStep::Stop);
        }
        (said, take(&mut self.questions).into())
    }

    /// Ends a task that is of no use any more, whatever comes of that.
    fn stop(&mut self, delivery: &Delivery, task: Option<OpenTask>, before: Vec<Delivery>, step: A2aStep) {
        if task.is_some() {
            let (delivery, within) = (delivery.clone(), Duration::from_millis(STOP_MS));
            let (about, tools, offered) = (delivery.payload.clone(), Vec::new(), None);
            self.questions.push_back(A2aQuestion { delivery, about, before, step, tools, task, offered, within });
        }
    }
}

impl Asks for A2aContractor {
    type Question = A2aQuestion;
    type Answer = Result<A2aReply, A2aFault>;

    fn poll_question(&mut self) -> Option<A2aQuestion> {
        self.questions.pop_front()
    }

    fn take_answer(&mut self, now: Timestamp, question: &A2aQuestion, answer: Self::Answer) -> Vec<Action> {
        let A2aQuestion { delivery, about, step, .. } = question;
        let asked = Some((*step, delivery.envelope.msg_id));
        let mut part = self.open.part(&delivery.envelope.negotiation);
        let Some(part) = part.as_mut().filter(|part| part.asked == asked) else {
            // It is over, or something else was asked since, in the same task or another.
            let kept = part.and_then(|part| part.task.clone()).map(|task| task.id);
            let task =
                answer.ok().and_then(|heard| heard.task).filter(|task| !step.ends() && Some(&task.id) != kept.as_ref());
            self.stop(delivery, task, Vec::new(), A2aStep::Stop);
            return Vec::new();
        };
        part.asked = None;
        let mut said = match answer {
            Ok(heard) => {
                part.task.clone_from(&heard.task);
                heard.payload(question)
            }
            Err(fault) => step.decline(about, fault),
        };
        // Whoever leads outbids nobody but itself.
        said.take_if(|_| part.leads && matches!(about, Notification::Inform(_)));
        complete(about, said.as_mut());
        let why = match &said {
            None => Some("nothing is said"),
            Some(Payload::NotUnderstood(why) | Payload::Refuse(why) | Payload::End(why)) => {
                Some(why.reason.as_deref().unwrap_or("it refuses"))
            }
            Some(_) => None,
        };
        if let (Some(why), negotiation) = (why, &delivery.envelope.negotiation) {
            tracing::warn!(%negotiation, ?step, why, "the A2A agent does not do what it is asked");
        }
        if matches!(&delivery.payload, Notification::Cfp(call) if now > call.reply_by.0) {
            return self.release(delivery);
        }
        match &said {
            Some(Payload::Offer(offer)) => part.offered = Some(offer.terms.clone()),
            Some(Payload::Confirm(confirm)) => part.confirmed = Some(confirm.award_no),
            _ => {}
        }
        part.keeps_floor = matches!(&said, Some(Payload::Assign(assign)) if assign.mode == TaskMode::Async);
        let is_vote = matches!(about, Notification::Floor(_)) && said.is_some();
        // A bid waits for what becomes of the one that is made.
        let due = part.due.take_if(|due| said.is_none() || !matches!(due.payload, Notification::Inform(_)));
        let due = match due {
            Some(due) if said.is_some() && turn_of(&due.payload) == turn_of(about) => {
                part.note(due);
                None
            }
            due => due,
        };
        // Nothing more may be told that would end its task.
        let task = if why.is_some() && !is_vote { part.task.take() } else { None };
        self.stop(delivery, task, Vec::new(), A2aStep::Stop);
        let mut actions: Vec<_> = said.map(|payload| Action::reply(delivery, payload)).into_iter().collect();
        actions.extend(due.into_iter().flat_map(|due| self.ask_for_act(now, &due)));
        actions
    }
}

impl Strategy for A2aContractor {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is told others, or in other protocols")]
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        self.open.expire(now);
        match &delivery.payload {
            Notification::Cfp(call) => self.handle_call(now, delivery, call),
            Notification::Accept(award) => self.handle_award(now, delivery, award),
            Notification::Ack(receipt) => self.handle_receipt(now, delivery, receipt),
            Notification::Cancel(cancellation) => self.handle_cancel(now, delivery, cancellation),
            Notification::Closed(_) => self.release(delivery),
            // It makes one offer a round.
            Notification::Reject(_) if !self.is_extended => self.release(delivery),
            Notification::Ask(_) if !self.is_extended => vec![Action::refuse(delivery, "sits on no panel")],
            _ => self.handle_news(now, delivery),
        }
    }
}

/// What a delivery asks the agent for.
fn todo_of(told: &Notification, agent: &AgentId, before: Option<&Todo>) -> Option<Todo> {
    match (told, todo::change(told, agent, before, 0)) {
        (Notification::Inform(ProgressReport::Bid(bid)), _) if !bid.leads && bid.next_price.is_some() => {
            let (tools, by) = (vec!["offer", "refuse"], Some(bid.reply_by));
            Some(Todo { tools, by, because: 0, is_automatic: false })
        }
        (_, TodoChange::Ask(todo)) => Some(todo),
        (_, TodoChange::Over | TodoChange::Nothing) => None,
    }
}

/// Which turn a question is about: it is answered once.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest is no turn of several")]
const fn turn_of(told: &Notification) -> Option<u32> {
    match told {
        Notification::Floor(floor) => Some(floor.turn),
        Notification::Turn(turn) => Some(turn.step),
        Notification::Ask(question) => Some(question.round),
        _ => None,
    }
}

/// Writes into an act what it answers, where the agent has not: late, it then counts for no other turn.
fn complete(told: &Notification, said: Option<&mut Payload>) {
    match (told, said) {
        (Notification::Cfp(call), Some(Payload::Offer(offer))) => {
            offer.round = Some(call.round);
            offer.currency = offer.currency.take().or_else(|| call.currency.clone());
        }
        (Notification::Turn(turn), Some(Payload::Offer(offer))) => drop(offer.round.get_or_insert(turn.round)),
        (Notification::Ask(question), Some(Payload::Refuse(why))) => drop(why.round.get_or_insert(question.round)),
        (Notification::Floor(floor), Some(Payload::Say(Say { turn, .. }))) => drop(turn.get_or_insert(floor.turn)),
        (Notification::Floor(floor), Some(Payload::Assign(assign))) => drop(assign.turn.get_or_insert(floor.turn)),
        (Notification::Floor(floor), Some(Payload::Pause(pause))) => drop(pause.turn.get_or_insert(floor.turn)),
        (Notification::Floor(floor), Some(Payload::Conclude(said))) => drop(said.turn.get_or_insert(floor.turn)),
        _ => {}
    }
}

/// When a negotiation ends at the latest, where that is told.
#[expect(clippy::wildcard_enum_match_arm, reason = "the rest does not tell it")]
fn ends_by(told: &Notification) -> Option<WireTime> {
    match told {
        Notification::Ask(question) => Some(question.ends_by),
        Notification::Turn(turn) => Some(turn.ends_by),
        Notification::Floor(floor) => Some(floor.ends_by),
        _ => None,
    }
}

/// Parameters of SendMessage: what was told, for people and as data.
fn request(question: &A2aQuestion, is_extended: bool) -> Value {
    let A2aQuestion { delivery, before, step, task, offered, .. } = question;
    let (envelope, mut told) = (&delivery.envelope, escaped(json!(delivery.payload)));
    if *step == A2aStep::Perform {
        told["terms"] = json!(offered);
    }
    let form = match (step, &delivery.payload) {
        (A2aStep::Act, _) if is_extended => "Answer by one data part: the payload of your act",
        (A2aStep::Act, Notification::Accept(_)) => {
            r#"You win. Answer by a data part: {"act":"confirm","award_no":N} or {"act":"refuse"}"#
        }
        (A2aStep::Act, _) => {
            r#"Answer by a data part: {"act":"offer","terms":{"price":MILLIONTHS}}, where 85.00 is 85000000, or {"act":"refuse"}"#
        }
        (A2aStep::Close, _) => "It has ended. Nothing is asked any more",
        (A2aStep::Perform | A2aStep::Stop, _) => {
            "The award is binding: carry it out, and complete the task with its result"
        }
    };
    let words = told.get("task").map_or_else(|| form.to_owned(), |task| format!("{form}. What is wanted: {task}"));
    let context = Digest::of_parts(&[envelope.to[0].as_bytes(), envelope.negotiation.as_str().as_bytes()]).to_string();
    let told = before.iter().map(|earlier| escaped(json!(earlier.payload))).chain([told]);
    let data = told.map(|told| json!({"data": {"payload": told}, "mediaType": "application/json"}));
    let parts: Vec<_> = once(json!({"text": words, "mediaType": "text/plain"})).chain(data).collect();
    let mut message = json!({"messageId": envelope.msg_id, "contextId": context[..CONTEXT_CHARS], "role": "ROLE_USER", "parts": parts});
    if let Some(task) = task {
        message["taskId"] = json!(task.id);
    }
    if is_extended {
        message["extensions"] = json!([EXTENSION]);
    }
    json!({"message": message, "configuration": {"acceptedOutputModes": ["application/json", "text/plain"], "historyLength": 0}})
}
