//! A strategy that has questions for a model, and the task that takes them there.

use std::ops::AddAssign;
use std::sync::Arc;

use schemas::delivery::Delivery;
use schemas::{NegotiationId, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::consultant::Consultant;
use crate::agent::{Agent, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

/// What the questions of an agent came to, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelCounts {
    /// Questions put to the model.
    pub questions: u64,
    /// Answers that were used.
    pub answers: u64,
    /// Calls, or asks, that were answered without the model.
    pub fallbacks: u64,
    /// Answers that came after their call, or ask, was over.
    pub stale: u64,
}

impl AddAssign for ModelCounts {
    fn add_assign(&mut self, other: Self) {
        self.questions += other.questions;
        self.answers += other.answers;
        self.fallbacks += other.fallbacks;
        self.stale += other.stale;
    }
}

/// A strategy that has questions for a model.
pub trait ModelStrategy: Strategy + 'static {
    /// A question.
    type Question: Send + Sync + 'static;
    /// An answer, or why there is none.
    type Answer: Send + 'static;

    /// The next question for the model.
    fn poll_question(&mut self) -> Option<Self::Question>;

    /// The number of a question and its negotiation, by which the answer comes back.
    fn asked(question: &Self::Question) -> (u64, &NegotiationId);

    /// The answer to a question that too many others are in front of.
    fn unasked() -> Self::Answer;

    /// Takes a question to the model.
    fn consult(consultant: &Consultant, question: &Self::Question) -> impl Future<Output = Self::Answer> + Send;

    /// Takes the answer to a question, by its number.
    fn handle_answer(
        &mut self,
        now: Timestamp,
        negotiation: &NegotiationId,
        number: u64,
        answer: Self::Answer,
    ) -> Vec<Action>;

    /// What its questions came to.
    fn counts(&self) -> ModelCounts;
}

/// A strategy whose questions are handed on.
#[derive(Debug)]
pub struct Asking<S: ModelStrategy> {
    strategy: S,
    questions: mpsc::Sender<S::Question>,
}

impl<S: ModelStrategy> Asking<S> {
    /// Hands the questions on, after whatever the strategy was told.
    fn pass(&mut self, now: Timestamp, mut actions: Vec<Action>) -> Vec<Action> {
        while let Some(question) = self.strategy.poll_question() {
            if let Err(unasked) = self.questions.try_send(question) {
                let question = unasked.into_inner();
                let (number, negotiation) = S::asked(&question);
                actions.extend(self.strategy.handle_answer(now, negotiation, number, S::unasked()));
            }
        }
        actions
    }
}

impl<S: ModelStrategy> Strategy for Asking<S> {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let actions = self.strategy.handle(now, delivery);
        self.pass(now, actions)
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let actions = self.strategy.handle_sent(now, sent);
        self.pass(now, actions)
    }

    fn poll_timer(&self) -> Option<Timestamp> {
        self.strategy.poll_timer()
    }

    fn handle_timer(&mut self, now: Timestamp) -> Vec<Action> {
        self.strategy.handle_timer(now)
    }
}

/// Runs a strategy in a task of its own, and its questions in another, which ends with it.
#[must_use]
pub fn spawn<S: ModelStrategy>(
    strategy: S,
    consultant: Arc<Consultant>,
    (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
    cancel: CancellationToken,
) -> AgentHandle<Asking<S>> {
    let (sender, questions) = mpsc::channel(QUESTIONS_MAX);
    let asking = Asking { strategy, questions: sender };
    let handle = Agent::new(transport, identity, asking).with_options(options).spawn(cancel);
    let answer = move |question: S::Question| {
        let consultant = Arc::clone(&consultant);
        async move {
            let answer = S::consult(&consultant, &question).await;
            (question, answer)
        }
    };
    let take = |asking: &mut Asking<S>, now, (question, answer): (S::Question, S::Answer)| {
        let (number, negotiation) = S::asked(&question);
        asking.strategy.handle_answer(now, negotiation, number, answer)
    };
    tokio::spawn(handle.commander().answer_all(questions, answer, take));
    handle
}

/// What the questions of an agent came to; nothing of one that has ended.
pub async fn counts<S: ModelStrategy>(agent: &AgentHandle<Asking<S>>) -> ModelCounts {
    let (sender, counts) = oneshot::channel();
    let tell = move |asking: &mut Asking<S>, _| {
        // Whoever asked may have gone.
        let _ = sender.send(asking.strategy.counts());
        Vec::new()
    };
    match agent.command(tell).await {
        Ok(()) => counts.await.unwrap_or_default(),
        Err(_) => ModelCounts::default(),
    }
}
