//! A whole team written down: who takes part, what each says, and what becomes of its tasks.
//!
//! A scenario file is one JSON object. Unknown members are refused, and so is whatever does not fit; the error names the place.
//!
//! ```
//! use agents::team::Scenario;
//!
//! let scenario = Scenario::parse(r#"{
//!     "name": "greeting",
//!     "agents": [
//!         {"name": "alice"},
//!         {"name": "bob", "capabilities": ["writing"], "tasks": [{"title": "card", "result": "Welcome!"}]}
//!     ],
//!     "team": {
//!         "goal": "welcome the new colleague",
//!         "lead": "alice",
//!         "invites": ["bob"],
//!         "rules": {"members": {"min": 2, "max": 2}, "turns": 6},
//!         "members": {
//!             "alice": {"moves": [
//!                 {"act": "say", "text": "Who writes the card?"},
//!                 {"act": "assign", "mode": "sync", "tasks": [{"title": "card", "text": "write a card", "owner": "bob"}]},
//!                 {"act": "conclude", "text": "The card says: {task 1}"}
//!             ]},
//!             "bob": {"moves": [{"act": "say", "text": "I do."}]}
//!         }
//!     }
//! }"#)?;
//! assert_eq!(scenario.team.rules.turns, 6);
//! # Ok::<(), agents::fault::DocumentFault>(())
//! ```
//!
//! | member | meaning |
//! |---|---|
//! | `name` | text of 1 to 64 characters |
//! | `description` | text, for people (optional) |
//! | `agents` | 2 to [`AGENTS_MAX`]: everybody who is there, invited or found |
//! | `team` | the team at the root |
//!
//! An agent has a `name`, and where it likes a `description`, `capabilities`, and `tasks`: what it does with a task of this
//! `title` (`*`: of any). Such a task has one of `result` (its text), `failure` (a code), `refuses` (a reason) and `team` (a
//! sub-team that it calls), and where it likes `after_ms` and `offer` (the terms it offers where the task goes by award).
//!
//! A team has a `goal`, and where it likes `policy`, `rules` (as in the call), `invites` (names) and `search` (queries: the
//! best hit of each is invited as well), and `members`: by name what each says ([`MemberScript`]). The root has a `lead`; a sub-team is
//! led by the owner of its task.

mod file;

use std::collections::{BTreeMap, BTreeSet};

use schemas::AgentId;
use schemas::ids::Capability;
use schemas::payload::{FAILURE_CODE_LEN_MAX, TEXT_LEN_MAX, Terms};
use schemas::search::{QUERIES_MAX, QUERY_LEN_MAX};
use schemas::team::{
    ASSIGNED_MAX, ATTEMPTS_MAX, DEPTH_MAX, INVITED_MAX, MEMBERS_MAX, MEMBERS_MIN, SPEAK_MS_MAX, SPEAK_MS_MIN,
    SPEAK_TIMES_MIN, TASKS_MAX, TITLE_LEN_MAX, TURNS_MAX, TeamRules,
};
use serde::Deserialize;

use super::script::Vote;
use super::speaker::TeamMove;
use crate::fault::{DocumentFault, check_ranges, check_text};

/// Most agents of a scenario: as many as one team may invite, and its lead.
pub const AGENTS_MAX: usize = INVITED_MAX + 1;
/// Longest name of a scenario, in characters.
pub const NAME_LEN_MAX: usize = 64;
/// Most moves of one member.
pub const MOVES_MAX: usize = TURNS_MAX as usize;
/// Longest an agent of a scenario takes for a task, in milliseconds: one hour.
pub const AFTER_MS_MAX: u64 = 3_600_000;
/// How long the invited have to join where a file does not say, in milliseconds.
pub const REPLY_MS_DEFAULT: u64 = 5_000;
/// A team lasts a day at most, in milliseconds.
const ENDS_MS_MAX: u64 = 86_400_000;
/// The title that stands for every task.
const ANY_TITLE: &str = "*";

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub description: Option<String>,
    /// Everybody who is there.
    pub agents: Vec<AgentScript>,
    /// The team at the root.
    pub team: TeamScript,
    /// Who leads it.
    pub lead: AgentId,
}

/// One agent of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentScript {
    /// Its name.
    pub name: AgentId,
    /// What it says of itself; a search reads it.
    pub description: Option<String>,
    /// What it can do.
    pub capabilities: Vec<Capability>,
    /// What it does with tasks.
    pub tasks: Vec<TaskScript>,
}

/// What an agent does with tasks of one title.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskScript {
    /// The title, or `*`.
    pub title: String,
    /// What becomes of it.
    pub course: TaskBehaviour,
    /// How long that takes, in milliseconds.
    pub after_ms: u64,
    /// What it offers where the task goes by award.
    pub offer: Terms,
}

/// What becomes of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskBehaviour {
    /// It is done, with this result.
    Result(String),
    /// It fails, with this code.
    Failure(String),
    /// It is declined, for this reason.
    Refuses(String),
    /// A sub-team does it.
    Team(Box<TeamScript>),
}

/// One team of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct TeamScript {
    /// The goal.
    pub goal: String,
    /// The policy that ranks who joins.
    pub policy: Option<String>,
    /// How long the invited have to join, in milliseconds.
    pub reply_within_ms: u64,
    /// The rules.
    pub rules: TeamRules,
    /// Who is invited.
    pub invites: Vec<AgentId>,
    /// What is searched for; whoever is found is invited as well.
    pub search: Vec<String>,
    /// What each says.
    pub members: BTreeMap<AgentId, MemberScript>,
}

/// What one agent does in one team.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemberScript {
    /// The terms it joins with, which the policy of the call scores.
    pub join: Terms,
    /// Why it does not join.
    pub refuses: Option<String>,
    /// Its moves, in their order.
    pub moves: Vec<TeamMove>,
    /// What it concludes with where it must, and no move says so.
    pub conclusion: Option<String>,
    /// Its votes, in their order; yes behind the last.
    pub votes: Vec<Vote>,
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// The first [`DocumentFault`].
    pub fn parse(json: &str) -> Result<Self, DocumentFault> {
        let scenario = file::parse(json)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// An agent.
    #[must_use]
    pub fn agent(&self, name: &AgentId) -> Option<&AgentScript> {
        self.agents.iter().find(|agent| agent.name == *name)
    }

    fn check(&self) -> Result<(), DocumentFault> {
        check_text(&self.name, 1..=NAME_LEN_MAX).map_err(|fault| fault.under("/name"))?;
        if !(2..=AGENTS_MAX).contains(&self.agents.len()) {
            return Err(DocumentFault::at("/agents", format!("2 to {AGENTS_MAX} agents")));
        }
        let mut names = BTreeSet::new();
        for (index, agent) in self.agents.iter().enumerate() {
            let pointer = format!("/agents/{index}");
            if !names.insert(&agent.name) {
                return Err(DocumentFault::at(pointer + "/name", format!("another agent is named `{}`", agent.name)));
            }
        }
        if !names.contains(&self.lead) {
            return Err(unknown("/team/lead", &self.lead));
        }
        self.team.check(&self.lead, &names).map_err(|fault| fault.under("/team"))?;
        for (index, agent) in self.agents.iter().enumerate() {
            let check = |(number, task): (usize, &TaskScript)| {
                let fault = task.check(&agent.name, &names, self.team.rules.depth);
                fault.map_err(|fault| fault.under(&format!("/agents/{index}/tasks/{number}")))
            };
            agent.tasks.iter().enumerate().try_for_each(check)?;
        }
        Ok(())
    }
}

impl AgentScript {
    /// What it does with a task of this title.
    #[must_use]
    pub fn task(&self, title: &str) -> Option<&TaskScript> {
        let named = self.tasks.iter().find(|task| task.title == title);
        named.or_else(|| self.tasks.iter().find(|task| task.title == ANY_TITLE))
    }
}

impl TaskScript {
    fn check(&self, owner: &AgentId, names: &BTreeSet<&AgentId>, depth: u32) -> Result<(), DocumentFault> {
        check_text(&self.title, 1..=TITLE_LEN_MAX).map_err(|fault| fault.under("/title"))?;
        if self.after_ms > AFTER_MS_MAX {
            return Err(DocumentFault::at("/after_ms", format!("at most {AFTER_MS_MAX}")));
        }
        match &self.course {
            TaskBehaviour::Result(text) => check_text(text, 0..=TEXT_LEN_MAX).map_err(|fault| fault.under("/result")),
            TaskBehaviour::Failure(code) => {
                check_text(code, 1..=FAILURE_CODE_LEN_MAX).map_err(|fault| fault.under("/failure"))
            }
            TaskBehaviour::Refuses(reason) => {
                check_text(reason, 0..=TEXT_LEN_MAX).map_err(|fault| fault.under("/refuses"))
            }
            TaskBehaviour::Team(_) if depth == 0 => {
                Err(DocumentFault::at("/team", "the root's rules allow no sub-team: its `depth` is 0"))
            }
            TaskBehaviour::Team(team) => team.check(owner, names).map_err(|fault| fault.under("/team")),
        }
    }
}

impl TeamScript {
    fn check(&self, lead: &AgentId, names: &BTreeSet<&AgentId>) -> Result<(), DocumentFault> {
        check_text(&self.goal, 1..=TEXT_LEN_MAX).map_err(|fault| fault.under("/goal"))?;
        check_rules(&self.rules, self.reply_within_ms)?;
        if self.invites.is_empty() && self.search.is_empty() {
            return Err(DocumentFault::at("/invites", "somebody is invited, or searched for"));
        }
        for (index, invited) in self.invites.iter().enumerate() {
            let pointer = format!("/invites/{index}");
            if invited == lead {
                return Err(DocumentFault::at(pointer, "the lead invites others, not itself"));
            }
            if !names.contains(invited) {
                return Err(unknown(&pointer, invited));
            }
            if self.invites[..index].contains(invited) {
                return Err(DocumentFault::at(pointer, format!("`{invited}` is invited already")));
            }
        }
        if self.search.len() > QUERIES_MAX {
            return Err(DocumentFault::at("/search", format!("at most {QUERIES_MAX} queries")));
        }
        for (index, query) in self.search.iter().enumerate() {
            check_text(query, 1..=QUERY_LEN_MAX).map_err(|fault| fault.under(&format!("/search/{index}")))?;
        }
        let most = 1 + self.invites.len() + self.search.len();
        if self.rules.members.min as usize > most {
            let why = format!("at most {most}: the lead, and who is invited or searched for");
            return Err(DocumentFault::at("/rules/members/min", why));
        }
        for (name, member) in &self.members {
            let pointer = format!("/members/{name}");
            if !names.contains(name) {
                return Err(unknown(&pointer, name));
            }
            member.check(names).map_err(|fault| fault.under(&pointer))?;
        }
        Ok(())
    }
}

impl MemberScript {
    fn check(&self, names: &BTreeSet<&AgentId>) -> Result<(), DocumentFault> {
        if self.moves.len() > MOVES_MAX {
            return Err(DocumentFault::at("/moves", format!("at most {MOVES_MAX} moves")));
        }
        for (index, next) in self.moves.iter().enumerate() {
            check_move(next, names).map_err(|fault| fault.under(&format!("/moves/{index}")))?;
        }
        if let Some(conclusion) = &self.conclusion {
            check_text(conclusion, 1..=TEXT_LEN_MAX).map_err(|fault| fault.under("/conclusion"))?;
        }
        if self.votes.len() > ATTEMPTS_MAX as usize {
            return Err(DocumentFault::at("/votes", format!("at most {ATTEMPTS_MAX} votes")));
        }
        Ok(())
    }
}

fn check_move(next: &TeamMove, names: &BTreeSet<&AgentId>) -> Result<(), DocumentFault> {
    let spoken = |text: &str| check_text(text, 1..=TEXT_LEN_MAX).map_err(|fault| fault.under("/text"));
    match next {
        TeamMove::Say { text, next } => {
            spoken(text)?;
            next.as_ref().filter(|next| !names.contains(next)).map_or(Ok(()), |next| Err(unknown("/next", next)))
        }
        TeamMove::Conclude { text } => spoken(text),
        TeamMove::Pause { triggers, text } => {
            text.as_deref().map_or(Ok(()), spoken)?;
            let is_number = |number: &u32| (1..=TASKS_MAX).contains(number);
            let numbers = triggers.as_deref().unwrap_or(&[1]);
            let distinct: BTreeSet<&u32> = numbers.iter().collect();
            if numbers.is_empty() || distinct.len() != numbers.len() || !numbers.iter().all(is_number) {
                return Err(DocumentFault::at("/triggers", format!("distinct numbers from 1 to {TASKS_MAX}")));
            }
            Ok(())
        }
        TeamMove::Assign(assign) => {
            if !(1..=ASSIGNED_MAX).contains(&assign.tasks.len()) {
                return Err(DocumentFault::at("/tasks", format!("1 to {ASSIGNED_MAX} tasks")));
            }
            for (index, task) in assign.tasks.iter().enumerate() {
                let pointer = format!("/tasks/{index}");
                check_text(&task.title, 1..=TITLE_LEN_MAX)
                    .map_err(|fault| fault.under(&(pointer.clone() + "/title")))?;
                check_text(&task.text, 1..=TEXT_LEN_MAX).map_err(|fault| fault.under(&(pointer.clone() + "/text")))?;
                if let Some(owner) = task.owner.as_ref().filter(|owner| !names.contains(owner)) {
                    return Err(unknown(&(pointer + "/owner"), owner));
                }
                if task.owner.is_some() && !task.requires.is_empty() {
                    return Err(DocumentFault::at(pointer + "/requires", "a task with an `owner` requires nothing"));
                }
            }
            Ok(())
        }
    }
}

/// The ranges that a call must keep (docs/spec/team.md).
fn check_rules(rules: &TeamRules, reply_ms: u64) -> Result<(), DocumentFault> {
    let (min, max) = (u64::from(rules.members.min), u64::from(rules.members.max));
    let least_ms = reply_ms.saturating_add(SPEAK_TIMES_MIN.saturating_mul(rules.speak_ms));
    check_ranges([
        ("/rules/members/min", Some(min), MEMBERS_MIN.into(), MEMBERS_MAX.into()),
        ("/rules/members/max", Some(max), min, MEMBERS_MAX.into()),
        ("/rules/turns", Some(rules.turns.into()), 1, TURNS_MAX.into()),
        ("/rules/speak_ms", Some(rules.speak_ms), SPEAK_MS_MIN, SPEAK_MS_MAX),
        ("/rules/depth", Some(rules.depth.into()), 0, DEPTH_MAX.into()),
        ("/rules/tasks", Some(rules.tasks.into()), 1, TASKS_MAX.into()),
        ("/rules/vote/attempts", rules.vote.map(|vote| vote.attempts.into()), 1, ATTEMPTS_MAX.into()),
        ("/rules/ends_within_ms", Some(rules.ends_within_ms), least_ms, ENDS_MS_MAX),
    ])
}

fn unknown(pointer: &str, name: &AgentId) -> DocumentFault {
    DocumentFault::at(pointer, format!("there is no agent `{name}`"))
}

#[cfg(test)]
mod tests;
