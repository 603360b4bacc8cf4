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
//! floor or votes, and when it is outbid. What it was told before goes with it.
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
use schemas::delivery::{Award, Call, Cancellation, Delivery, Disposition, Notification, ProgressReport, Receipt};
use schemas::payload::{Confirm, InformKind, Reasoned, Terms};
use schemas::{AgentId, AwardNo, DeliveryId, Digest, Payload, Timestamp, WireTime};
use serde_json::{Value, json};

use crate::a2a::card::EXTENSION;
use crate::memory::todo::{self, TodoChange};
use crate::tools::answer::escaped;
use answer::{A2aFault, A2aReply, A2aStep, OpenTask, inform};

pub use client::A2aClient;

/// How long before a deadline an answer is of use at the latest: it has to be admitted as well.
const MARGIN: Duration = Duration::from_millis(500);
/// How long CancelTask may take, in ms.
const STOP_MS: u64 = 5000;
/// Most negotiations at a time; calls beyond them are refused as `busy`.
const NEGOTIATIONS_MAX: usize = 4096;
/// How long work on a task of a team may take, in ms: its award does not tell.
const BRIEFED_MS: u64 = 3_600_000;
/// Most deliveries of one negotiation that are kept to go with the next question; the oldest go first.
const TOLD_MAX: usize = 32;
/// Characters of a context's id: 160 bits.
const CONTEXT_CHARS: usize = 40;

/// A question to an A2A agent.
#[derive(Debug, Clone)]
pub struct A2aQuestion {
    /// What was told.
    pub delivery: Delivery,
    /// What was told in the negotiation since the question before.
    pub before: Vec<Delivery>,
    /// What is asked.
    pub step: A2aStep,
    /// In which task.
    pub task: Option<OpenTask>,
    /// What it offered in the negotiation.
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
    confirmed: Option<AwardNo>,
    /// The question that waits, and the delivery it is about.
    asked: Option<(A2aStep, DeliveryId)>,
    /// What the last question was about.
    told: Option<Delivery>,
    /// What was told since, where the agent knows the extension.
    since: VecDeque<Delivery>,
}

/// A contractor whose decisions are an A2A agent's.
pub struct A2aContractor {
    confirms: bool,
    /// Who it is, where the A2A agent knows the extension.
    extended: Option<AgentId>,
    open: OpenNegotiations<Partaking>,
    questions: VecDeque<A2aQuestion>,
}

impl A2aContractor {
    /// A contractor, which `confirms` awards of the terms offered without a question. `extended` is who it is, where the A2A agent
    /// knows the extension.
    pub fn new(confirms: bool, extended: Option<AgentId>) -> Self {
        Self { confirms, extended, open: OpenNegotiations::new(NEGOTIATIONS_MAX), questions: VecDeque::new() }
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        // Another round begins anew.
        self.release(delivery);
        let other = other_protocol(call).filter(|_| self.extended.is_none());
        if let Some(reason) = other.or((!self.open.has_room()).then_some("busy")) {
            return vec![Action::refuse(delivery, reason)];
        }
        self.begin(delivery, call.ends_by.0);
        self.ask(now, delivery, A2aStep::Act, call.reply_by.0)
    }

    fn begin(&mut self, delivery: &Delivery, ends_by: Timestamp) {
        let part = Partaking { ends_by, ..Partaking::default() };
        self.open.insert(&delivery.envelope.negotiation, part, ends_by);
    }

    /// Asks for an act where one is due, and keeps what else is told for the next question.
    fn handle_news(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let (Some(agent), negotiation) = (&self.extended, &delivery.envelope.negotiation) else { return Vec::new() };
        let due = match (&delivery.payload, todo::change(&delivery.payload, agent, None, 0)) {
            (Notification::Inform(ProgressReport::Bid(bid)), _) => {
                Some(bid.reply_by).filter(|_| !bid.leads && bid.next_price.is_some())
            }
            (_, TodoChange::Ask(todo)) => todo.by,
            (_, TodoChange::Over | TodoChange::Nothing) => None,
        };
        // Also where the call was told to a process that has ended.
        if let (Some(ends_by), None) = (ends_by(&delivery.payload), self.open.part(negotiation)) {
            if !self.open.has_room() {
                return vec![Action::refuse(delivery, "busy")];
            }
            self.begin(delivery, ends_by.0);
        }
        match (due, self.open.part(negotiation)) {
            (Some(by), _) => self.ask(now, delivery, A2aStep::Act, by.0),
            (None, Some(part)) => {
                part.since.extend([delivery.clone()]);
                part.since.drain(..part.since.len().saturating_sub(TOLD_MAX));
                Vec::new()
            }
            (None, None) => Vec::new(),
        }
    }

    fn handle_award(&mut self, now: Timestamp, delivery: &Delivery, award: &Award) -> Vec<Action> {
        let is_briefed = award.brief.is_some() && self.extended.is_some();
        if is_briefed && self.open.has_room() && !self.open.contains(&delivery.envelope.negotiation) {
            self.begin(delivery, now.plus_ms(BRIEFED_MS));
        }
        match self.open.part(&delivery.envelope.negotiation) {
            None => vec![Action::refuse(delivery, "no such offer")],
            Some(part) if self.confirms && part.offered.as_ref() == Some(&award.terms) => {
                part.confirmed = Some(award.award_no);
                let confirm = Confirm { award_no: award.award_no, terms_digest: None };
                vec![Action::reply(delivery, Payload::Confirm(confirm))]
            }
            Some(part) => {
                part.offered.get_or_insert_with(|| award.terms.clone());
                self.ask(now, delivery, A2aStep::Act, award.confirm_by.0)
            }
        }
    }

    fn handle_receipt(&mut self, now: Timestamp, delivery: &Delivery, receipt: &Receipt) -> Vec<Action> {
        let is_committed = receipt.first.unwrap_or(receipt.disposition) == Disposition::Committed;
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
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
            Some(part) if part.asked.is_some() => A2aStep::Stop
                .decline(&delivery.payload, "no_task")
                .map(|said| Action::reply(delivery, said))
                .into_iter()
                .collect(),
            Some(_) | None => vec![Action::reply(delivery, inform(InformKind::Cancelled, None))],
        }
    }

    /// Asks in place of what was asked before. An answer is of use until shortly before `by`.
    fn ask(&mut self, now: Timestamp, delivery: &Delivery, step: A2aStep, by: Timestamp) -> Vec<Action> {
        let within = Duration::from_micros(by.since_us(now)).saturating_sub(MARGIN);
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
        part.asked = Some((step, delivery.envelope.msg_id));
        part.told = Some(delivery.clone());
        let before = part.since.drain(..).collect();
        let (task, offered, delivery) = (part.task.clone(), part.offered.clone(), delivery.clone());
        self.questions.push_back(A2aQuestion { delivery, before, step, task, offered, within });
        vec![Action::Defer]
    }

    /// Forgets a negotiation. A task of it that is not over is cancelled.
    fn release(&mut self, delivery: &Delivery) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        let task = self.open.remove(negotiation).and_then(|part| part.task);
        self.stop(delivery, task);
        vec![Action::Release(negotiation.clone())]
    }

    /// Gives up whatever is in hand, and takes nothing further: what to say of it, and the tasks to cancel.
    pub fn give_up(&mut self) -> (Vec<Action>, Vec<A2aQuestion>) {
        let mut said = Vec::new();
        for part in replace(&mut self.open, OpenNegotiations::new(0)).into_parts() {
            let Some(delivery) = part.told else { continue };
            let step = part.asked.map(|(step, _)| step).or(part.confirmed.map(|_| A2aStep::Perform));
            let declined = step.and_then(|step| step.decline(&delivery.payload, "shutting_down"));
            said.extend(declined.map(|payload| Action::reply(&delivery, payload)));
            self.stop(&delivery, part.task);
        }
        (said, take(&mut self.questions).into())
    }

    /// Cancels a task that is of no use any more, whatever comes of that.
    fn stop(&mut self, delivery: &Delivery, task: Option<OpenTask>) {
        if task.is_some() {
            let (delivery, step, within) = (delivery.clone(), A2aStep::Stop, Duration::from_millis(STOP_MS));
            self.questions.push_back(A2aQuestion { delivery, before: Vec::new(), step, task, offered: None, within });
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
        let A2aQuestion { delivery, step, .. } = question;
        let asked = Some((*step, delivery.envelope.msg_id));
        let mut part = self.open.part(&delivery.envelope.negotiation);
        let Some(part) = part.as_mut().filter(|part| part.asked == asked) else {
            // It is over, or something else was asked since, be it in the same task.
            let kept = part.and_then(|part| part.task.as_ref()).map(|task| task.id.clone());
            let heard = answer.ok().and_then(|heard| heard.task).filter(|_| *step != A2aStep::Stop);
            self.stop(delivery, heard.filter(|task| *step == A2aStep::Perform || Some(&task.id) != kept.as_ref()));
            return Vec::new();
        };
        part.asked = None;
        let said = match answer {
            Ok(heard) => {
                part.task.clone_from(&heard.task);
                heard.payload(*step, &delivery.payload)
            }
            Err(fault) => step.decline(&delivery.payload, fault),
        };
        let why = match &said {
            None => Some("its turn lapses"),
            Some(
                Payload::NotUnderstood(Reasoned { reason, .. })
                | Payload::Refuse(Reasoned { reason, .. })
                | Payload::End(Reasoned { reason, .. }),
            ) => Some(reason.as_deref().unwrap_or("it refuses")),
            Some(_) => None,
        };
        if let (Some(why), negotiation) = (why, &delivery.envelope.negotiation) {
            tracing::warn!(%negotiation, ?step, why, "an answer of the A2A agent does not count");
        }
        let Some(mut said) = said else { return Vec::new() };
        match (&delivery.payload, &mut said) {
            (Notification::Cfp(call), _) if now > call.reply_by.0 => return self.release(delivery),
            (Notification::Cfp(call), Payload::Offer(offer)) => {
                (offer.round, part.offered) = (Some(call.round), Some(offer.terms.clone()));
                offer.currency = offer.currency.take().or_else(|| call.currency.clone());
            }
            (Notification::Inform(_), Payload::Offer(bid)) => part.offered = Some(bid.terms.clone()),
            (_, Payload::Confirm(confirm)) => part.confirmed = Some(confirm.award_no),
            (Notification::Floor(_), Payload::Refuse(_)) => {}
            // Nothing more may be told that would end its task.
            (_, Payload::Refuse(_) | Payload::NotUnderstood(_) | Payload::End(_)) => {
                let task = part.task.take();
                self.stop(delivery, task);
            }
            (_, _) => {}
        }
        vec![Action::reply(delivery, said)]
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
            Notification::Reject(rejection) if self.extended.is_some() && rejection.reason.goes_on() => {
                self.handle_news(now, delivery)
            }
            // It makes one offer a round.
            Notification::Reject(_) | Notification::Closed(_) => self.release(delivery),
            Notification::Ask(_) if self.extended.is_none() => vec![Action::refuse(delivery, "sits on no panel")],
            _ => self.handle_news(now, delivery),
        }
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
