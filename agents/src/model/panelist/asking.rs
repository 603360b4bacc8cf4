//! A model panelist and the task that takes its questions to the model.

use std::sync::Arc;

use schemas::delivery::Delivery;
use schemas::{NegotiationId, Timestamp};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{AskedQuestion, ModelPanelist, ModelPanelistCounts};
use crate::agent::{Agent, AgentHandle, AgentOptions, QUESTIONS_MAX};
use crate::identity::Identity;
use crate::model::consultant::{Consultant, ConsultationCost};
use crate::model::consultation::GaveUp;
use crate::strategy::{Action, Sent, Strategy};
use crate::transport::Transport;

/// A model panelist that hands its questions on.
#[derive(Debug)]
pub struct AskingPanelist {
    panelist: ModelPanelist,
    questions: mpsc::Sender<AskedQuestion>,
}

impl AskingPanelist {
    /// What its asks came to.
    #[must_use]
    pub fn counts(&self) -> ModelPanelistCounts {
        self.panelist.counts()
    }

    /// Hands the panelist's questions on, after whatever it was told.
    fn pass(&mut self, now: Timestamp, mut actions: Vec<Action>) -> Vec<Action> {
        while let Some(question) = self.panelist.poll_question() {
            if let Err(unasked) = self.questions.try_send(question) {
                let AskedQuestion { number, subject, .. } = unasked.into_inner();
                let given_up = (Err(GaveUp::Budget), ConsultationCost::default());
                actions.extend(self.panelist.handle_answer(now, &subject.negotiation, number, given_up));
            }
        }
        actions
    }
}

impl Strategy for AskingPanelist {
    fn handle(&mut self, now: Timestamp, delivery: &Delivery) -> Vec<Action> {
        let actions = self.panelist.handle(now, delivery);
        self.pass(now, actions)
    }

    fn handle_sent(&mut self, now: Timestamp, sent: &Sent) -> Vec<Action> {
        let actions = self.panelist.handle_sent(now, sent);
        self.pass(now, actions)
    }
}

/// Runs a model panelist in a task of its own, and its questions in another, which ends with it. It takes part in panels, and
/// refuses every other call.
#[must_use]
pub fn spawn(
    panelist: ModelPanelist,
    consultant: Arc<Consultant>,
    (transport, identity, options): (Arc<dyn Transport>, Identity, AgentOptions),
    cancel: CancellationToken,
) -> AgentHandle<AskingPanelist> {
    let (sender, questions) = mpsc::channel(QUESTIONS_MAX);
    let asking = AskingPanelist { panelist, questions: sender };
    let handle = Agent::new(transport, identity, asking).with_options(options).spawn(cancel);
    let answer = move |asked: AskedQuestion| {
        let consultant = Arc::clone(&consultant);
        async move {
            let AskedQuestion { number, subject, question } = asked;
            let answer = consultant.consult_counted(&subject, question).await;
            (number, subject.negotiation, answer)
        }
    };
    let take = |asking: &mut AskingPanelist, now, (number, panel, answer): (u64, NegotiationId, _)| {
        asking.panelist.handle_answer(now, &panel, number, answer)
    };
    tokio::spawn(handle.commander().answer_all(questions, answer, take));
    handle
}
