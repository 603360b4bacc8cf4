//! What the questions of strategies to a model come to, counted.

use std::ops::AddAssign;

use tokio::sync::oneshot;

use super::consultant::{Consultant, Subject};
use crate::agent::AgentHandle;
use crate::asking::{Answers, Asks};

pub use crate::asking::{Asking, spawn};

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

/// A question on its way to the model.
#[derive(Debug, Clone)]
pub struct AskedQuestion<Q> {
    /// Its number, by which the answer comes back.
    pub number: u64,
    /// Who asks, about what, until when.
    pub subject: Subject,
    /// The question.
    pub question: Q,
}

/// A strategy whose questions are for a model.
pub trait AsksModel: Asks {
    /// Takes a question to the model.
    fn consult(consultant: &Consultant, question: &Self::Question) -> impl Future<Output = Self::Answer> + Send;

    /// The answer to a question that too many others are in front of.
    fn unasked() -> Self::Answer;
}

impl<S: AsksModel> Answers<S> for Consultant {
    fn answer(&self, question: &S::Question) -> impl Future<Output = S::Answer> + Send {
        S::consult(self, question)
    }

    fn turn_away(&self, _question: &S::Question) -> S::Answer {
        S::unasked()
    }
}

/// A strategy whose questions to a model are counted.
pub trait CountsQuestions: AsksModel {
    /// What its questions came to.
    fn counts(&self) -> ModelCounts;
}

/// What the questions of an agent came to; nothing of one that has ended.
pub async fn counts<S: CountsQuestions>(agent: &AgentHandle<Asking<S>>) -> ModelCounts {
    let (sender, counts) = oneshot::channel();
    let tell = move |asking: &mut Asking<S>, _| {
        // Whoever asked may have gone.
        let _ = sender.send(asking.strategy().counts());
        Vec::new()
    };
    match agent.command(tell).await {
        Ok(()) => counts.await.unwrap_or_default(),
        Err(_) => ModelCounts::default(),
    }
}
