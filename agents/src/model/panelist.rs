//! A panelist, ranker and reviewer whose answers a model gives (docs/panels.md#models).
//!
//! An ask becomes a [`PanelQuestion`], which leaves by [`Asks::poll_question`]; the answer comes back by
//! [`Asks::take_answer`]. What the model says is an answer that the exchange takes, or none. Without a usable answer
//! a seat has no opinion, and is asked again in the next round; without a budget for more calls it leaves. A ranker or reviewer
//! leaves, and the panel goes on without it.

mod question;
mod wanted;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use schemas::delivery::{Ask, Delivery, Notification};
use schemas::evidence::Usage;
use schemas::panel::PanelAnswer;
use schemas::{AgentId, NegotiationId, Timestamp};
use telemetry::{SpanId, TraceContext};

use super::asking::{AskedQuestion, AsksModel, CountsQuestions, ModelCounts};
use super::config::ModelAgentConfig;
use super::consultant::{Consultant, ConsultationCost, Subject};
use super::consultation::GaveUp;
use crate::asking::Asks;
use crate::open::OpenNegotiations;
use crate::panel::{AskReply, PanelMember, Panelist};
use crate::strategy::{ActRefusal, Action, Outgoing, Sent, Strategy};

pub use question::PanelQuestion;
pub use wanted::WantedAnswer;

/// How long before the end of an ask a model's answer is of use at the latest: the answer has to be admitted as well. Of an ask
/// shorter than four times this, a quarter.
const ANSWER_MARGIN_MS: u64 = 500;
/// Most asks that wait for an answer of the model; further ones are answered without it.
const WAITING_MAX: usize = 1024;
/// Most panels whose last answer is kept, in case they ask for it again.
const REPLIES_MAX: usize = 1024;

/// A member of panels that asks a model.
#[derive(Debug)]
pub struct ModelPanelist {
    agent: AgentId,
    config: Arc<ModelAgentConfig>,
    marker_seed: u64,
    member: PanelMember<PanelReplies>,
    waiting: BTreeMap<NegotiationId, WaitingAsk>,
    questions: VecDeque<AskedQuestion<PanelQuestion>>,
    last_number: u64,
    counts: ModelCounts,
}

/// What came of a question to the model, and what that took.
type CountedAnswer = (Result<PanelAnswer, GaveUp>, ConsultationCost);

#[derive(Debug)]
struct WaitingAsk {
    number: u64,
    ask: Box<Ask>,
    /// The delivery that asked; none for an answer that is to be corrected.
    delivery: Option<Delivery>,
}

impl ModelPanelist {
    /// A member with the owner's words to its model. `marker_seed` makes the markers around words of others, who must not know it.
    #[must_use]
    pub fn new(agent: AgentId, config: Arc<ModelAgentConfig>, marker_seed: u64) -> Self {
        let replies = PanelReplies { replies: OpenNegotiations::new(REPLIES_MAX), refused: VecDeque::new() };
        Self {
            // Two agents that are shown the same have different markers.
            marker_seed: retry::hash(agent.as_str(), marker_seed),
            agent,
            config,
            member: PanelMember::new(replies),
            waiting: BTreeMap::new(),
            questions: VecDeque::new(),
            last_number: 0,
            counts: ModelCounts::default(),
        }
    }

    fn handle_ask(&mut self, now: Timestamp, delivery: &Delivery, ask: &Ask) -> Vec<Action> {
        let panel = &delivery.envelope.negotiation;
        if let Some(reply) = self.member.panelist_mut().reply_to(panel, ask) {
            return self.member.answer_with(now, delivery, reply);
        }
        if let Some(waiting) = self.waiting.get_mut(panel).filter(|waiting| is_same(&waiting.ask, ask)) {
            waiting.delivery = Some(delivery.clone());
            return vec![Action::Defer];
        }
        let context = TraceContext::of(delivery.envelope.traceparent.as_deref(), panel)
            .under(SpanId::processed(delivery.envelope.msg_id));
        match self.question(now, (panel, context), ask, None) {
            Ok(()) => {
                if let Some(waiting) = self.waiting.get_mut(panel) {
                    waiting.delivery = Some(delivery.clone());
                }
                vec![Action::Defer]
            }
            Err(reason) => self.fall_back(now, delivery, ask, (reason, None)),
        }
    }

    /// Puts an ask to the model, in the place of what waits in this panel.
    fn question(
        &mut self,
        now: Timestamp,
        (panel, context): (&NegotiationId, TraceContext),
        ask: &Ask,
        refused: Option<&ActRefusal>,
    ) -> Result<(), GaveUp> {
        self.waiting.remove(panel);
        let left_ms = ask.answer_by.0.since_us(now) / 1000;
        let margin_us = ANSWER_MARGIN_MS.min(left_ms / 4) * 1000;
        let deadline = Timestamp(ask.answer_by.0.0.saturating_sub(margin_us));
        if deadline <= now {
            return Err(GaveUp::Deadline);
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(GaveUp::Budget);
        }
        self.last_number += 1;
        let number = self.last_number;
        let (agent, negotiation) = (self.agent.clone(), panel.clone());
        let subject = Subject { agent, negotiation, context, asked_at: now, deadline };
        let question = PanelQuestion::new(panel, ask, refused, &self.config.panel.instructions, self.marker_seed);
        self.questions.push_back(AskedQuestion { number, subject, question });
        self.counts.questions += 1;
        let waiting = WaitingAsk { number, ask: Box::new(ask.clone()), delivery: None };
        self.waiting.insert(panel.clone(), waiting);
        Ok(())
    }

    fn fall_back(
        &mut self,
        now: Timestamp,
        delivery: &Delivery,
        ask: &Ask,
        (reason, usage): (GaveUp, Option<Usage>),
    ) -> Vec<Action> {
        self.counts.fallbacks += 1;
        let panel = &delivery.envelope.negotiation;
        tracing::debug!(agent = %self.agent, %panel, reason = reason.as_str(), "an ask is answered without the model");
        let is_seat = ask.rank.is_none() && !ask.review;
        let reply = if is_seat && reason != GaveUp::Budget {
            AskReply::of_round(ask, PanelAnswer { answer: Some(None), usage, ..PanelAnswer::default() })
        } else {
            AskReply::Refuse(reason.as_str().to_owned())
        };
        self.member.panelist_mut().note_reply(now, panel, ask, &reply);
        self.member.answer_with(now, delivery, reply)
    }

    /// Puts what was refused and may be corrected to the model again.
    fn correct(&mut self, now: Timestamp) {
        while let Some((panel, refusal, ask)) = self.member.panelist_mut().refused.pop_front() {
            let context = TraceContext::of(None, &panel);
            if let Err(reason) = self.question(now, (&panel, context), &ask, Some(&refusal)) {
                tracing::debug!(agent = %self.agent, %panel, reason = reason.as_str(), "a refused answer is not corrected");
            }
        }
    }

    /// Takes the answer to a question, by its number.
    fn handle_answer(
        &mut self,
        now: Timestamp,
        panel: &NegotiationId,
        number: u64,
        (answer, cost): CountedAnswer,
    ) -> Vec<Action> {
        if self.waiting.get(panel).is_none_or(|waiting| waiting.number != number) {
            self.counts.stale += 1;
            return Vec::new();
        }
        let Some(WaitingAsk { ask, delivery, .. }) = self.waiting.remove(panel) else { return Vec::new() };
        let usage = (cost.calls > 0).then_some(Usage {
            calls: cost.calls,
            prompt_tokens: cost.usage.input,
            completion_tokens: cost.usage.output,
        });
        match (answer, delivery) {
            _ if now > ask.answer_by.0 => {
                self.counts.stale += 1;
                Vec::new()
            }
            (Ok(answer), delivery) => {
                self.counts.answers += 1;
                let reply = AskReply::Answer(Box::new(PanelAnswer { usage, ..answer }));
                self.member.panelist_mut().note_reply(now, panel, &ask, &reply);
                match delivery {
                    Some(delivery) => self.member.answer_with(now, &delivery, reply),
                    None => reply
                        .payload()
                        .map(|payload| Outgoing::new(panel.clone(), payload).into())
                        .into_iter()
                        .collect(),
                }
            }
            (Err(reason), Some(delivery)) => self.fall_back(now, &delivery, &ask, (reason, usage)),
            // What was refused stays refused.
            (Err(_), None) => Vec::new(),
        }
    }
}

impl Asks for ModelPanelist {
    type Question = AskedQuestion<PanelQuestion>;
    type Answer = CountedAnswer;

    fn poll_question(&mut self) -> Option<Self::Question> {
        self.questions.pop_front()
    }

    fn take_answer(&mut self, now: Timestamp, asked: &Self::Question, answer: CountedAnswer) -> Vec<Action> {
        self.handle_answer(now, &asked.subject.negotiation, asked.number, answer)
    }
}

impl AsksModel for ModelPanelist {
    async fn consult(consultant: &Consultant, asked: &Self::Question) -> CountedAnswer {
        consultant.consult_counted(&asked.subject, asked.question.clone()).await
    }

    fn unasked() -> CountedAnswer {
        (Err(GaveUp::Budget), ConsultationCost::default())
    }
}

impl CountsQuestions for ModelPanelist {
    fn counts(&self) -> ModelCounts {
        self.counts
    }
}

impl Strategy for ModelPanelist {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        if let Notification::Ask(ask) = &delivery.payload {
            return self.handle_ask(now, delivery, ask);
        }
        let actions = self.member.handle(now, delivery);
        if matches!(delivery.payload, Notification::Closed(_)) {
            let panel = &delivery.envelope.negotiation;
            self.waiting.remove(panel);
            self.member.panelist_mut().replies.remove(panel);
        }
        self.correct(now);
        actions
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let actions = self.member.handle_sent(now, sent);
        self.correct(now);
        actions
    }
}

/// Whether two asks of a panel are for the same: told anew, an ask has the same round and the same part.
fn is_same(one: &Ask, other: &Ask) -> bool {
    (one.round, one.rank, one.review) == (other.round, other.rank, other.review)
}

/// Keeps what was said to asks, and what was refused of it. Whoever holds it says what is to be said.
#[derive(Debug)]
pub struct PanelReplies {
    replies: OpenNegotiations<(Box<Ask>, AskReply)>,
    refused: VecDeque<(NegotiationId, ActRefusal, Box<Ask>)>,
}

impl PanelReplies {
    fn note_reply(&mut self, now: Timestamp, panel: &NegotiationId, ask: &Ask, reply: &AskReply) {
        self.replies.remove(panel);
        self.replies.expire(now);
        if self.replies.has_room() {
            // What it was asked about is not needed any more.
            let asked = Box::new(Ask { task: None, own: None, peers: None, ..ask.clone() });
            self.replies.insert(panel, (asked, reply.clone()), ask.ends_by.0);
        }
    }

    fn reply_to(&mut self, panel: &NegotiationId, ask: &Ask) -> Option<AskReply> {
        let (_, reply) = self.replies.part(panel).filter(|(asked, _)| is_same(asked, ask))?;
        Some(reply.clone())
    }
}

impl Panelist for PanelReplies {
    fn answer(&mut self, _panel: &NegotiationId, _ask: &Ask) -> AskReply {
        AskReply::Silence
    }

    fn refused(&mut self, panel: &NegotiationId, refusal: &ActRefusal, ask: Option<&Ask>) -> AskReply {
        if let Some(ask) = ask {
            self.refused.push_back((panel.clone(), refusal.clone(), Box::new(ask.clone())));
        }
        AskReply::Silence
    }
}

#[cfg(test)]
mod tests;
