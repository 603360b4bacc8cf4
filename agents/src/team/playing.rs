//! An agent that plays its part of a scenario.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemas::payload::Terms;
use schemas::team::{Brief, TeamCall};
use schemas::{AgentId, NegotiationId};

use super::scenario::{MemberScript, Scenario, TaskBehaviour, TaskScript, TeamScript};
use super::script::ScriptedSpeaker;
use super::worker::{WorkRequest, Worker};
use super::{MemberPlan, TaskPlan, TeamPlanner, TeamRequest};
use crate::routine::RoutineFault;

/// Code of a task that an agent of a scenario can only do with a sub-team, which has come to nothing.
pub const NO_TEAM: &str = "no_team";

/// Decides for one agent of a scenario.
#[derive(Debug, Clone)]
pub struct ScenarioPlanner {
    scenario: Arc<Scenario>,
    agent: AgentId,
}

impl ScenarioPlanner {
    /// Plays this agent's part.
    #[must_use]
    pub fn new(scenario: Arc<Scenario>, agent: AgentId) -> Self {
        Self { scenario, agent }
    }

    /// The call of the team at the root.
    #[must_use]
    pub fn root(scenario: &Scenario) -> TeamRequest {
        request(&scenario.team, &scenario.lead)
    }

    /// The team with this goal under this lead.
    fn team(&self, goal: &str, lead: &AgentId) -> Option<&TeamScript> {
        let Scenario { team, lead: root_lead, agents, .. } = &*self.scenario;
        if team.goal == goal && root_lead == lead {
            return Some(team);
        }
        let tasks = agents.iter().filter(|agent| agent.name == *lead).flat_map(|agent| &agent.tasks);
        let mut teams = tasks.filter_map(|task| match &task.course {
            TaskBehaviour::Team(team) => Some(&**team),
            TaskBehaviour::Result(_) | TaskBehaviour::Failure(_) | TaskBehaviour::Refuses(_) => None,
        });
        teams.find(|team| team.goal == goal)
    }

    fn task(&self, title: &str) -> Result<&TaskScript, String> {
        let task = self.scenario.agent(&self.agent).and_then(|agent| agent.task(title));
        task.ok_or_else(|| "knows no such task".to_owned())
    }
}

impl TeamPlanner for ScenarioPlanner {
    fn join(&mut self, _team: &NegotiationId, goal: &str, call: &TeamCall) -> Result<MemberPlan, String> {
        let team = self.team(goal, &call.lead).ok_or("knows no such team")?;
        let script = team.members.get(&self.agent).cloned().unwrap_or_default();
        let MemberScript { join, refuses, moves, conclusion, votes } = script;
        refuses.map_or(Ok(()), Err)?;
        let speaker = Box::new(ScriptedSpeaker::new(moves, conclusion, votes));
        Ok(MemberPlan { terms: join, speaker })
    }

    fn offer(&mut self, brief: &Brief) -> Result<Terms, String> {
        let task = self.task(&brief.title)?;
        match &task.course {
            TaskBehaviour::Refuses(reason) => Err(reason.clone()),
            TaskBehaviour::Result(_) | TaskBehaviour::Failure(_) | TaskBehaviour::Team(_) => Ok(task.offer.clone()),
        }
    }

    fn take(&mut self, brief: &Brief) -> Result<TaskPlan, String> {
        match &self.task(&brief.title)?.course {
            TaskBehaviour::Refuses(reason) => Err(reason.clone()),
            TaskBehaviour::Result(_) | TaskBehaviour::Failure(_) => Ok(TaskPlan::Alone),
            TaskBehaviour::Team(team) => Ok(TaskPlan::Team(Box::new(request(team, &self.agent)))),
        }
    }
}

/// The call of a team under a lead.
fn request(team: &TeamScript, lead: &AgentId) -> TeamRequest {
    let TeamScript { goal, policy, reply_within_ms, rules, invites, search, members } = team.clone();
    let MemberScript { moves, conclusion, votes, .. } = members.get(lead).cloned().unwrap_or_default();
    let speaker = Box::new(ScriptedSpeaker::new(moves, conclusion, votes));
    TeamRequest { goal, policy, reply_within_ms, rules, invites, search, speaker }
}

/// Carries tasks out as a scenario says.
#[derive(Debug, Clone)]
pub struct ScenarioWorker {
    scenario: Arc<Scenario>,
}

impl ScenarioWorker {
    /// Works for the agents of this scenario.
    #[must_use]
    pub fn new(scenario: Arc<Scenario>) -> Self {
        Self { scenario }
    }
}

impl Worker for ScenarioWorker {
    fn run(&self, request: WorkRequest) -> BoxFuture<'static, Result<String, RoutineFault>> {
        let agent = self.scenario.agent(&request.agent);
        let (after_ms, outcome) = match agent.and_then(|agent| agent.task(&request.title)) {
            None => (0, Err("unknown_task".to_owned())),
            Some(task) => {
                let outcome = match &task.course {
                    TaskBehaviour::Result(result) => Ok(result.clone()),
                    TaskBehaviour::Failure(code) => Err(code.clone()),
                    TaskBehaviour::Refuses(_) | TaskBehaviour::Team(_) => Err(NO_TEAM.to_owned()),
                };
                (task.after_ms, outcome)
            }
        };
        async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            outcome.map_err(RoutineFault::Failed)
        }
        .boxed()
    }
}
