//! An agent of the Agent2Agent protocol (A2A 1.0, JSON-RPC) as a contractor of the exchange.
//!
//! | it hears | asked of the A2A agent | said |
//! |---|---|---|
//! | CFP | SendMessage: the call, for people and as data | OFFER, REFUSE, or NOT_UNDERSTOOD with the pointer |
//! | ACCEPT | the award, in the same task; nothing where it `confirms` and the terms are those offered | CONFIRM, REFUSE |
//! | ACK `committed` | to carry it out, in the same task | INFORM `done` with the text, or FAILURE |
//! | CANCEL by the initiator | CancelTask | INFORM `cancelled`, or FAILURE `cannot_cancel` |
//! | CANCEL for another reason, REJECT, CLOSED, the next round | CancelTask, unless the task is over | |
//! | CFP with a bargain or a team, ASK | | REFUSE |
//!
//! One that is asked to end says REFUSE or FAILURE, `shutting_down`, of what is in hand, and asks to cancel its tasks.
//!
//! Where no answer can be used, or none comes in time, it says REFUSE or FAILURE, `unavailable` or `timeout`. What others wrote
//! goes out with invisible characters written out.

pub mod answer;
pub mod client;

use std::collections::VecDeque;
use std::mem::{replace, take};
use std::time::Duration;

use agents::asking::Asks;
use agents::contractor::other_protocol;
use agents::open::OpenNegotiations;
use agents::strategy::{Action, Strategy};
use schemas::delivery::{Award, Call, Cancellation, Delivery, Disposition, Notification, Receipt};
use schemas::payload::{Confirm, InformKind, Reasoned, Terms};
use schemas::{AwardNo, DeliveryId, Digest, Payload, Timestamp};
use serde_json::{Value, json};

use crate::tools::answer::escaped;
use answer::{A2aFault, A2aReply, A2aStep, OpenTask, inform};

pub use client::A2aClient;

/// How long before a deadline an answer is of use at the latest: it has to be admitted as well.
const MARGIN: Duration = Duration::from_millis(500);
/// How long CancelTask may take, in ms.
const STOP_MS: u64 = 5000;
/// Most negotiations at a time; calls beyond them are refused as `busy`.
const NEGOTIATIONS_MAX: usize = 4096;
/// Characters of a context's id: 160 bits.
const CONTEXT_CHARS: usize = 40;

/// A question to an A2A agent.
#[derive(Debug, Clone)]
pub struct A2aQuestion {
    /// What was told.
    pub delivery: Delivery,
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
}

/// A contractor whose decisions are an A2A agent's.
pub struct A2aContractor {
    confirms: bool,
    open: OpenNegotiations<Partaking>,
    questions: VecDeque<A2aQuestion>,
}

impl A2aContractor {
    /// A contractor, which `confirms` awards of the terms offered without a question.
    pub fn new(confirms: bool) -> Self {
        Self { confirms, open: OpenNegotiations::new(NEGOTIATIONS_MAX), questions: VecDeque::new() }
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        // Another round begins anew.
        self.release(delivery);
        if let Some(reason) = other_protocol(call).or((!self.open.has_room()).then_some("busy")) {
            return vec![Action::refuse(delivery, reason)];
        }
        let part = Partaking { ends_by: call.ends_by.0, ..Partaking::default() };
        self.open.insert(&delivery.envelope.negotiation, part, call.ends_by.0);
        self.ask(now, delivery, A2aStep::Offer, call.reply_by.0)
    }

    fn handle_award(&mut self, now: Timestamp, delivery: &Delivery, award: &Award) -> Vec<Action> {
        match self.open.part(&delivery.envelope.negotiation) {
            None => vec![Action::refuse(delivery, "no such offer")],
            Some(part) if self.confirms && part.offered.as_ref() == Some(&award.terms) => {
                part.confirmed = Some(award.award_no);
                let confirm = Confirm { award_no: award.award_no, terms_digest: None };
                vec![Action::reply(delivery, Payload::Confirm(confirm))]
            }
            Some(_) => self.ask(now, delivery, A2aStep::Confirm, award.confirm_by.0),
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
            Some(part) if part.asked.is_some() => vec![Action::reply(delivery, A2aStep::Stop.decline("no_task"))],
            Some(_) | None => vec![Action::reply(delivery, inform(InformKind::Cancelled, None))],
        }
    }

    /// Asks in place of what was asked before. An answer is of use until shortly before `by`.
    fn ask(&mut self, now: Timestamp, delivery: &Delivery, step: A2aStep, by: Timestamp) -> Vec<Action> {
        let within = Duration::from_micros(by.since_us(now)).saturating_sub(MARGIN);
        let Some(part) = self.open.part(&delivery.envelope.negotiation) else { return Vec::new() };
        part.asked = Some((step, delivery.envelope.msg_id));
        part.told = Some(delivery.clone());
        let (task, offered) = (part.task.clone(), part.offered.clone());
        self.questions.push_back(A2aQuestion { delivery: delivery.clone(), step, task, offered, within });
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
            said.extend(step.map(|step| Action::reply(&delivery, step.decline("shutting_down"))));
            self.stop(&delivery, part.task);
        }
        (said, take(&mut self.questions).into())
    }

    /// Cancels a task that is of no use any more, whatever comes of that.
    fn stop(&mut self, delivery: &Delivery, task: Option<OpenTask>) {
        if task.is_some() {
            let (delivery, step, within) = (delivery.clone(), A2aStep::Stop, Duration::from_millis(STOP_MS));
            self.questions.push_back(A2aQuestion { delivery, step, task, offered: None, within });
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
        let Some(part) = self.open.part(&delivery.envelope.negotiation).filter(|part| part.asked == asked) else {
            // It is over, or something else was asked since.
            self.stop(delivery, answer.ok().and_then(|heard| heard.task).filter(|_| *step != A2aStep::Stop));
            return Vec::new();
        };
        part.asked = None;
        let mut said = match answer {
            Ok(heard) => {
                part.task.clone_from(&heard.task);
                heard.payload(*step)
            }
            Err(fault) => step.decline(fault),
        };
        if let Payload::NotUnderstood(Reasoned { reason: why, .. }) | Payload::Refuse(Reasoned { reason: why, .. }) =
            &said
        {
            let (negotiation, why) = (&delivery.envelope.negotiation, why.as_deref().unwrap_or("it refuses"));
            tracing::warn!(%negotiation, ?step, why, "an answer of the A2A agent does not count");
        }
        match (&delivery.payload, &mut said) {
            (Notification::Cfp(call), _) if now > call.reply_by.0 => return self.release(delivery),
            (Notification::Cfp(call), Payload::Offer(offer)) => {
                (offer.round, part.offered) = (Some(call.round), Some(offer.terms.clone()));
                offer.currency = offer.currency.take().or_else(|| call.currency.clone());
            }
            (_, Payload::Confirm(confirm)) => part.confirmed = Some(confirm.award_no),
            // Nothing more may be told that would end its task.
            (_, Payload::Refuse(_) | Payload::NotUnderstood(_)) => {
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
            // It makes one offer a round.
            Notification::Reject(_) | Notification::Closed(_) => self.release(delivery),
            Notification::Ask(_) => vec![Action::refuse(delivery, "sits on no panel")],
            _ => Vec::new(),
        }
    }
}

/// Parameters of SendMessage: what was told, for people and as data.
fn request(A2aQuestion { delivery, step, task, offered, .. }: &A2aQuestion) -> Value {
    let (envelope, mut told) = (&delivery.envelope, escaped(json!(delivery.payload)));
    if *step == A2aStep::Perform {
        told["terms"] = json!(offered);
    }
    let form = match step {
        A2aStep::Offer => {
            r#"Answer by a data part: {"act":"offer","terms":{"price":MILLIONTHS}}, where 85.00 is 85000000, or {"act":"refuse"}"#
        }
        A2aStep::Confirm => r#"You win. Answer by a data part: {"act":"confirm","award_no":N} or {"act":"refuse"}"#,
        A2aStep::Perform | A2aStep::Stop => "The award is binding: carry it out, and complete the task with its result",
    };
    let words = told.get("task").map_or_else(|| form.to_owned(), |task| format!("{form}. What is wanted: {task}"));
    let context = Digest::of_parts(&[envelope.to[0].as_bytes(), envelope.negotiation.as_str().as_bytes()]).to_string();
    let data = json!({"data": {"payload": told}, "mediaType": "application/json"});
    let mut message = json!({"messageId": envelope.msg_id, "contextId": context[..CONTEXT_CHARS], "role": "ROLE_USER",
        "parts": [{"text": words, "mediaType": "text/plain"}, data]});
    if let Some(task) = task {
        message["taskId"] = json!(task.id);
    }
    json!({"message": message, "configuration": {"acceptedOutputModes": ["application/json", "text/plain"], "historyLength": 0}})
}
