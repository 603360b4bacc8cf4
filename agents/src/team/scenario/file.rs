//! The file as it is written: every member typed, none unknown.

use std::collections::BTreeMap;

use schemas::AgentId;
use schemas::ids::Capability;
use schemas::payload::Terms;
use schemas::team::{TeamRules, VoteOf, VoteRules};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{AgentScript, MemberScript, REPLY_MS_DEFAULT, Scenario, TaskBehaviour, TaskScript, TeamScript};
use crate::fault::{DocumentFault, read_json};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    name: String,
    description: Option<String>,
    agents: Vec<AgentFile>,
    team: TeamFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFile {
    name: AgentId,
    description: Option<String>,
    #[serde(default)]
    capabilities: Vec<Capability>,
    #[serde(default)]
    tasks: Vec<TaskFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    title: String,
    result: Option<String>,
    failure: Option<String>,
    refuses: Option<String>,
    team: Option<Box<TeamFile>>,
    #[serde(default)]
    after_ms: u64,
    #[serde(default)]
    offer: Terms,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TeamFile {
    lead: Option<AgentId>,
    goal: String,
    policy: Option<String>,
    reply_within_ms: Option<u64>,
    #[serde(default, deserialize_with = "rules")]
    rules: TeamRules,
    #[serde(default)]
    invites: Vec<AgentId>,
    #[serde(default)]
    search: Vec<String>,
    #[serde(default)]
    members: BTreeMap<AgentId, MemberScript>,
}

pub(super) fn parse(json: &str) -> Result<Scenario, DocumentFault> {
    let ScenarioFile { name, description, agents, mut team } = read_json(json)?;
    let agent = |(index, file): (usize, AgentFile)| {
        let AgentFile { name, description, capabilities, tasks } = file;
        let read = |(number, task)| {
            task_of(task).map_err(|fault: DocumentFault| fault.under(&format!("/agents/{index}/tasks/{number}")))
        };
        let tasks = tasks.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(AgentScript { name, description, capabilities, tasks })
    };
    let agents = agents.into_iter().enumerate().map(agent).collect::<Result<_, DocumentFault>>()?;
    let lead = team.lead.take().ok_or_else(|| DocumentFault::at("/team", "the root has a `lead`"))?;
    let team = team_of(team).map_err(|fault| fault.under("/team"))?;
    Ok(Scenario { name, description, agents, team, lead })
}

fn task_of(file: TaskFile) -> Result<TaskScript, DocumentFault> {
    let TaskFile { title, result, failure, refuses, team, after_ms, offer } = file;
    let course = match (result, failure, refuses, team) {
        (Some(result), None, None, None) => TaskBehaviour::Result(result),
        (None, Some(code), None, None) => TaskBehaviour::Failure(code),
        (None, None, Some(reason), None) => TaskBehaviour::Refuses(reason),
        (None, None, None, Some(team)) => {
            TaskBehaviour::Team(Box::new(team_of(*team).map_err(|fault| fault.under("/team"))?))
        }
        _ => return Err(DocumentFault::at("", "a task has one of `result`, `failure`, `refuses`, `team`")),
    };
    Ok(TaskScript { title, course, after_ms, offer })
}

fn team_of(file: TeamFile) -> Result<TeamScript, DocumentFault> {
    let TeamFile { lead, goal, policy, reply_within_ms, rules, invites, search, members } = file;
    if lead.is_some() {
        return Err(DocumentFault::at("/lead", "a sub-team is led by the owner of its task"));
    }
    let reply_within_ms = reply_within_ms.unwrap_or(REPLY_MS_DEFAULT);
    Ok(TeamScript { goal, policy, reply_within_ms, rules, invites, search, members })
}

/// The rules of a team, which know no further member here either.
fn rules<'de, D: Deserializer<'de>>(source: D) -> Result<TeamRules, D::Error> {
    let document = Map::<String, Value>::deserialize(source)?;
    let vote = Some(VoteRules { of: VoteOf::All, vote_ms: 0, attempts: 0 });
    let known = serde_json::to_value(TeamRules { vote, ..TeamRules::default() }).map_err(D::Error::custom)?;
    if let Some(unknown) = document.keys().find(|name| known.get(name).is_none()) {
        return Err(D::Error::custom(format_args!("unknown rule `{unknown}`")));
    }
    let read: Result<TeamRules, _> = serde_path_to_error::deserialize(Value::Object(document));
    read.map_err(|error| D::Error::custom(format_args!("{}: {}", error.path(), error.inner())))
}
