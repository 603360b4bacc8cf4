//! A contractor whose terms a model chooses. Everything else it does is the scripted contractor's, so what it sends for the
//! same terms is the same, byte for byte.
//!
//! A call becomes a [`CallQuestion`], which leaves by [`Asks::poll_question`]; the answer comes back by
//! [`Asks::take_answer`]. Where none comes in time, the contractor refuses and says why by a code of
//! [`GaveUp`], or does what the scripted one does ([`ModelFallback`]); at and past the deadline it says nothing.

mod question;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use schemas::delivery::{Call, Delivery, Notification};
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::{SpanId, TraceContext};

use super::asking::{AsksModel, CountsQuestions, ModelCounts};
use super::config::{ModelAgentConfig, ModelFallback};
use super::consultant::{Consultant, Subject};
use super::consultation::GaveUp;
use crate::asking::Asks;
use crate::contractor::{ConfigError, Contractor, ContractorConfig, NOT_INTERESTED, other_protocol};
use crate::strategy::{Action, Strategy};

pub use question::{CallAnswer, CallQuestion};

/// How long before the end of collection a model's answer is of use at the latest: the offer has to be admitted as well.
pub const DEADLINE_MARGIN_MS: u64 = 500;
/// Most calls that wait for an answer; further ones are answered without the model.
pub const WAITING_MAX: usize = 4096;

/// A contractor that asks a model.
pub struct ModelContractor {
    agent: AgentId,
    config: Arc<ModelAgentConfig>,
    marker_seed: u64,
    scripted: Contractor,
    waiting: BTreeMap<NegotiationId, WaitingCall>,
    by_deadline: BTreeSet<(Timestamp, NegotiationId)>,
    questions: VecDeque<CallQuestion>,
    last_number: u64,
    counts: ModelCounts,
}

#[derive(Debug)]
struct WaitingCall {
    number: u64,
    delivery: Delivery,
    deadline: Timestamp,
}

impl ModelContractor {
    /// A contractor. `seed` is the script's; `marker_seed` makes the markers around words of others, who must not know it.
    ///
    /// # Errors
    /// [`ConfigError`] names the first parameter of the script that makes no sense.
    pub fn try_new(
        agent: &AgentId,
        config: Arc<ModelAgentConfig>,
        seed: u64,
        marker_seed: u64,
    ) -> Result<Self, ConfigError> {
        let script = ContractorConfig { seed, ..config.contractor.script.clone() };
        Ok(Self {
            agent: agent.clone(),
            scripted: Contractor::try_new(agent, script)?,
            config,
            marker_seed,
            waiting: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            questions: VecDeque::new(),
            last_number: 0,
            counts: ModelCounts::default(),
        })
    }

    fn handle_call(&mut self, now: Timestamp, delivery: &Delivery, call: &Call) -> Vec<Action> {
        let negotiation = &delivery.envelope.negotiation;
        // A later round replaces an earlier one.
        self.forget(negotiation);
        let deadline = Timestamp(call.reply_by.0.0.saturating_sub(DEADLINE_MARGIN_MS * 1000));
        if deadline <= now {
            return self.fall_back(now, delivery, call, GaveUp::Deadline);
        }
        if self.waiting.len() >= WAITING_MAX {
            return self.fall_back(now, delivery, call, GaveUp::Budget);
        }
        self.last_number += 1;
        let number = self.last_number;
        let trace = TraceContext::of(delivery.envelope.traceparent.as_deref(), negotiation);
        let subject = Subject {
            agent: self.agent.clone(),
            negotiation: negotiation.clone(),
            context: trace.under(SpanId::processed(delivery.envelope.msg_id)),
            asked_at: now,
            deadline,
        };
        self.questions.push_back(CallQuestion::new(number, subject, call, &self.config, self.marker_seed));
        self.counts.questions += 1;
        self.by_deadline.insert((deadline, negotiation.clone()));
        self.waiting.insert(negotiation.clone(), WaitingCall { number, delivery: delivery.clone(), deadline });
        vec![Action::Defer]
    }

    fn fall_back(&mut self, now: Timestamp, delivery: &Delivery, call: &Call, reason: GaveUp) -> Vec<Action> {
        if now >= call.reply_by.0 {
            return Vec::new();
        }
        self.counts.fallbacks += 1;
        match self.config.model.fallback {
            ModelFallback::Refuse => self.scripted.refuse(delivery, call.round, reason.as_str()),
            ModelFallback::Scripted => {
                let mut actions = self.scripted.handle(now, delivery);
                actions.retain(|action| !is_late(action, now, call));
                actions
            }
        }
    }

    fn forget(&mut self, negotiation: &NegotiationId) -> Option<WaitingCall> {
        let waiting = self.waiting.remove(negotiation)?;
        self.by_deadline.remove(&(waiting.deadline, negotiation.clone()));
        Some(waiting)
    }

    /// Takes the answer to a question, by its number.
    fn handle_answer(
        &mut self,
        now: Timestamp,
        negotiation: &NegotiationId,
        number: u64,
        answer: Result<CallAnswer, GaveUp>,
    ) -> Vec<Action> {
        let is_current = self.waiting.get(negotiation).is_some_and(|waiting| waiting.number == number);
        let waiting = if is_current { self.forget(negotiation) } else { None };
        let Some(waiting) = waiting else {
            self.counts.stale += 1;
            return Vec::new();
        };
        let Some(call) = call_of(&waiting.delivery) else { return Vec::new() };
        match answer {
            _ if now >= call.reply_by.0 => Vec::new(),
            Err(reason) => self.fall_back(now, &waiting.delivery, call, reason),
            Ok(CallAnswer::Offer(terms)) => {
                self.counts.answers += 1;
                self.scripted.offer(&waiting.delivery, call, terms)
            }
            Ok(CallAnswer::Refuse) => {
                self.counts.answers += 1;
                self.scripted.refuse(&waiting.delivery, call.round, NOT_INTERESTED)
            }
        }
    }
}

impl Asks for ModelContractor {
    type Question = CallQuestion;
    type Answer = Result<CallAnswer, GaveUp>;

    fn poll_question(&mut self) -> Option<CallQuestion> {
        self.questions.pop_front()
    }

    fn take_answer(&mut self, now: Timestamp, question: &CallQuestion, answer: Self::Answer) -> Vec<Action> {
        self.handle_answer(now, &question.subject.negotiation, question.number, answer)
    }
}

impl AsksModel for ModelContractor {
    async fn consult(consultant: &Consultant, question: &CallQuestion) -> Self::Answer {
        consultant.consult(&question.subject, question.clone()).await
    }

    fn unasked() -> Self::Answer {
        Err(GaveUp::Budget)
    }
}

impl CountsQuestions for ModelContractor {
    fn counts(&self) -> ModelCounts {
        self.counts
    }
}

impl Strategy for ModelContractor {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        if let Notification::Cfp(call) = &delivery.payload
            && other_protocol(call).is_none()
        {
            return self.handle_call(now, delivery, call);
        }
        let actions = self.scripted.handle(now, delivery);
        let negotiation = &delivery.envelope.negotiation;
        let is_over = matches!(delivery.payload, Notification::Closed(_) | Notification::Cancel(_))
            || actions.contains(&Action::Release(negotiation.clone()));
        if is_over {
            self.forget(negotiation);
        }
        actions
    }

    fn poll_timer(&self) -> Option<Timestamp> {
        self.by_deadline.first().map(|(at, _)| *at)
    }

    fn handle_timer(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((at, negotiation)) = self.by_deadline.first().cloned()
            && at <= now
        {
            let number = self.waiting.get(&negotiation).map_or(0, |waiting| waiting.number);
            actions.extend(self.handle_answer(now, &negotiation, number, Err(GaveUp::Deadline)));
        }
        actions
    }
}

/// Whether a message would leave at or past the end of collection: the script's delays count from the call.
fn is_late(action: &Action, now: Timestamp, call: &Call) -> bool {
    let Action::Send(outgoing) = action else { return false };
    let delay_ms = u64::try_from(outgoing.delay.as_millis()).unwrap_or(u64::MAX);
    now.plus_ms(delay_ms) >= call.reply_by.0
}

fn call_of(delivery: &Delivery) -> Option<&Call> {
    if let Notification::Cfp(call) = &delivery.payload { Some(call) } else { None }
}

#[cfg(test)]
mod tests;
