//! A model contractor and the task that takes its questions to the model.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use schemas::Timestamp;
use schemas::delivery::Delivery;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{CallAnswer, CallQuestion, ModelContractor, ModelContractorCounts};
use crate::agent::{Agent, AgentCommander, AgentHandle, AgentOptions};
use crate::identity::Identity;
use crate::model::consultant::Consultant;
use crate::model::consultation::GaveUp;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

/// Questions of one agent at a time with the model: an endpoint serves few at once, and the rest would only wait there.
const CONSULTATIONS_MAX: usize = 64;
/// Questions that wait for one of these to end; further ones are given up at once.
const QUESTIONS_MAX: usize = 1024;

/// A model contractor that hands its questions on.
#[derive(Debug)]
pub struct AskingContractor {
    contractor: ModelContractor,
    questions: mpsc::Sender<CallQuestion>,
}

impl AskingContractor {
    /// What its calls came to.
    #[must_use]
    pub fn counts(&self) -> ModelContractorCounts {
        self.contractor.counts()
    }

    /// Hands the contractor's questions on, after whatever it was told.
    fn pass(&mut self, now: Timestamp, mut actions: Vec<Action>) -> Vec<Action> {
        while let Some(question) = self.contractor.poll_question() {
            if let Err(unasked) = self.questions.try_send(question) {
                let CallQuestion { number, subject, .. } = unasked.into_inner();
                let given_up = Err(GaveUp::Budget);
                actions.extend(self.contractor.handle_answer(now, &subject.negotiation, number, given_up));
            }
        }
        actions
    }
}

impl Strategy for AskingContractor {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let actions = self.contractor.handle(now, delivery);
        self.pass(now, actions)
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        self.contractor.handle_sent(now, sent)
    }

    fn poll_timer(&self) -> Option<Timestamp> {
        self.contractor.poll_timer()
    }

    fn handle_timer(&mut self, now: Timestamp) -> Vec<Action> {
        self.contractor.handle_timer(now)
    }
}

/// Runs a model contractor in a task of its own, and its questions in another, which ends with it.
#[must_use]
pub fn spawn(
    contractor: ModelContractor,
    consultant: Arc<Consultant>,
    (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
    cancel: CancellationToken,
) -> AgentHandle<AskingContractor> {
    let (sender, questions) = mpsc::channel(QUESTIONS_MAX);
    let asking = AskingContractor { contractor, questions: sender };
    let handle = Agent::new(transport, identity, asking).with_options(options).spawn(cancel);
    tokio::spawn(ask(questions, consultant, handle.commander()));
    handle
}

/// Takes questions to the model until the contractor has ended.
async fn ask(
    mut questions: mpsc::Receiver<CallQuestion>,
    consultant: Arc<Consultant>,
    contractor: AgentCommander<AskingContractor>,
) {
    let mut asked = FuturesUnordered::new();
    loop {
        tokio::select! {
            question = questions.recv(), if asked.len() < CONSULTATIONS_MAX => match question {
                Some(question) => asked.push(consult(&consultant, question)),
                None => return,
            },
            Some((question, answer)) = asked.next(), if !asked.is_empty() => {
                let CallQuestion { number, subject, .. } = question;
                let command = move |asking: &mut AskingContractor, now| {
                    asking.contractor.handle_answer(now, &subject.negotiation, number, answer)
                };
                if contractor.command(command).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn consult(consultant: &Consultant, question: CallQuestion) -> (CallQuestion, Result<CallAnswer, GaveUp>) {
    let answer = consultant.consult(&question.subject, question.clone()).await;
    (question, answer)
}
