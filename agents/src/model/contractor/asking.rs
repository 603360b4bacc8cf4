//! A model contractor and the task that takes its questions to the model.

use std::sync::Arc;

use schemas::delivery::Delivery;
use schemas::{NegotiationId, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{CallQuestion, ModelContractor, ModelContractorCounts};
use crate::agent::{Agent, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::model::consultant::Consultant;
use crate::model::consultation::GaveUp;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

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
    let answer = move |question: CallQuestion| {
        let consultant = Arc::clone(&consultant);
        async move {
            let answer = consultant.consult(&question.subject, question.clone()).await;
            (question.number, question.subject.negotiation, answer)
        }
    };
    let take = |asking: &mut AskingContractor, now, (number, negotiation, answer): (u64, NegotiationId, _)| {
        asking.contractor.handle_answer(now, &negotiation, number, answer)
    };
    tokio::spawn(handle.commander().answer_all(questions, answer, take));
    handle
}
