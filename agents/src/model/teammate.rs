//! A member of a team whose turns a model takes, and a model that works on tasks (docs/teams.md#models).
//!
//! What a model says is a move that the exchange takes: names of strangers are dropped, a pause without an open task is a word,
//! an assignment to nobody is one. Without a usable answer another speaker of the owner's choice speaks.

mod question;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::Timestamp;
use telemetry::TraceContext;

use super::config::ModelAgentConfig;
use super::consultant::{Consultant, Subject};
use super::routine::ModelRoutine;
use crate::routine::{Routine, RoutineFault, RoutineRequest};
use crate::team::{Advisor, TeamMove, TeamView, WorkRequest, Worker};

pub use question::TurnOfTeam;

/// How long before the end of a turn a model's answer is of use at the latest: the act has to be admitted as well. Of a turn
/// shorter than four times this, a quarter.
const SPEAK_MARGIN_MS: u64 = 500;
/// Time that a model has for a task: whoever runs the worker limits it besides.
const WORK_MS: u64 = 60_000;

/// A model as what advises members.
#[derive(Clone)]
pub struct ModelAdvisor {
    config: Arc<ModelAgentConfig>,
    consultant: Arc<Consultant>,
    marker_seed: u64,
}

impl ModelAdvisor {
    /// A model with the owner's words to it. `marker_seed` makes the markers around words of others, who must not know it.
    #[must_use]
    pub fn new(config: Arc<ModelAgentConfig>, consultant: Arc<Consultant>, marker_seed: u64) -> Self {
        Self { config, consultant, marker_seed }
    }
}

impl Advisor for ModelAdvisor {
    fn advise(&self, asked_at: Timestamp, view: TeamView) -> BoxFuture<'static, Option<TeamMove>> {
        let margin_ms = SPEAK_MARGIN_MS.min(view.rules.speak_ms / 4);
        let deadline = asked_at.plus_ms(view.rules.speak_ms - margin_ms);
        let subject = Subject::new(&view.me, &view.team, None, (asked_at, deadline));
        let question = TurnOfTeam::new(view, &self.config.team.instructions, self.marker_seed);
        let consultant = Arc::clone(&self.consultant);
        async move {
            let advice = consultant.consult(&subject, question).await;
            advice
                .inspect_err(|reason| {
                    let Subject { agent, negotiation, .. } = &subject;
                    tracing::debug!(%agent, %negotiation, reason = reason.as_str(), "a turn passes without the model");
                })
                .ok()
        }
        .boxed()
    }
}

/// A model as what carries the tasks of a team out. The task is quoted in the prompt.
pub struct ModelWorker {
    routine: ModelRoutine,
}

impl ModelWorker {
    /// A model with the owner's words to it, as [`ModelRoutine::new`].
    #[must_use]
    pub fn new(consultant: Arc<Consultant>, instructions: &str, marker_seed: u64) -> Self {
        Self { routine: ModelRoutine::new(consultant, instructions, marker_seed) }
    }
}

impl Worker for ModelWorker {
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let WorkRequest { agent, task, title, text } = request;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let asked_at = Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or_default());
        self.routine.run(RoutineRequest {
            agent,
            context: TraceContext::of(None, &task),
            negotiation: task,
            asked_at,
            deadline: asked_at.plus_ms(WORK_MS),
            document: None,
            text: if title.is_empty() { text } else { format!("{title}\n{text}") },
        })
    }
}

#[cfg(test)]
mod tests;
