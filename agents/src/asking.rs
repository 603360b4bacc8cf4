//! A strategy that leaves some decisions to something slow, and the task that asks for them outside of the agent's loop.

use std::sync::Arc;

use schemas::Timestamp;
use schemas::delivery::Delivery;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agent::{ASKED_MAX, Agent, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

/// A strategy that has questions for something slow: a model, a routine.
pub trait Asks: Strategy + 'static {
    /// A question.
    type Question: Send + Sync + 'static;
    /// An answer, or why there is none.
    type Answer: Send + 'static;

    /// The next question.
    fn poll_question(&mut self) -> Option<Self::Question>;

    /// Takes the answer to a question.
    fn take_answer(&mut self, now: Timestamp, question: &Self::Question, answer: Self::Answer) -> Vec<Action>;
}

/// What answers the questions of a strategy.
pub trait Answers<S: Asks>: Send + Sync + 'static {
    /// Questions of one agent that are under way at a time.
    const AT_ONCE: usize = ASKED_MAX;

    /// The answer to a question.
    fn answer(&self, question: &S::Question) -> impl Future<Output = S::Answer> + Send;

    /// The answer to a question that too many others are in front of.
    fn turn_away(&self, question: &S::Question) -> S::Answer;
}

/// A strategy whose questions are handed on: at most [`QUESTIONS_MAX`] wait, further ones are turned away.
pub struct Asking<S: Asks> {
    strategy: S,
    questions: mpsc::Sender<S::Question>,
    turn_away: Box<TurnAway<S>>,
}

type TurnAway<S> = dyn Fn(&<S as Asks>::Question) -> <S as Asks>::Answer + Send;

impl<S: Asks> Asking<S> {
    /// A strategy whose questions are for this, and where they come out.
    #[must_use]
    pub fn new(strategy: S, answers: Arc<impl Answers<S>>) -> (Self, mpsc::Receiver<S::Question>) {
        let (questions, receiver) = mpsc::channel(QUESTIONS_MAX);
        let turn_away = Box::new(move |question: &S::Question| answers.turn_away(question));
        (Self { strategy, questions, turn_away }, receiver)
    }

    /// The strategy inside.
    pub fn strategy(&mut self) -> &mut S {
        &mut self.strategy
    }

    /// Hands the questions on, after whatever the strategy was told.
    fn pass(&mut self, now: Timestamp, mut actions: Vec<Action>) -> Vec<Action> {
        while let Some(question) = self.strategy.poll_question() {
            if let Err(unasked) = self.questions.try_send(question) {
                let question = unasked.into_inner();
                let answer = (self.turn_away)(&question);
                actions.extend(self.strategy.take_answer(now, &question, answer));
            }
        }
        actions
    }
}

impl<S: Asks> Strategy for Asking<S> {
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
pub fn spawn<S: Asks, A: Answers<S>>(
    strategy: S,
    answers: Arc<A>,
    (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
    cancel: CancellationToken,
) -> AgentHandle<Asking<S>> {
    let (asking, questions) = Asking::new(strategy, Arc::clone(&answers));
    let handle = Agent::new(transport, identity, asking).with_options(options).spawn(cancel);
    let answer = move |question: S::Question| {
        let answers = Arc::clone(&answers);
        async move {
            let answer = answers.answer(&question).await;
            (question, answer)
        }
    };
    let take = |asking: &mut Asking<S>, now, (question, answer): (S::Question, S::Answer)| {
        let actions = asking.strategy.take_answer(now, &question, answer);
        asking.pass(now, actions)
    };
    tokio::spawn(handle.commander().answer_all(questions, A::AT_ONCE, answer, take));
    handle
}
