//! A goal, from its text to whom to call for it and what a lead without a model says. Pure but for [`CandidateSearch`].
//!
//! | module | question it answers |
//! |---|---|
//! | here, [`Candidates`] | who was found for the goal so far, and whom does the rule of [`forming`](super::forming) call? |
//! | here, [`GoalSpeaker`] | what does a lead say that has no model? |

use std::collections::{BTreeMap, BTreeSet};

use agents::team::speaker::{Speaker, TeamMove};
use agents::team::view::TeamView;
use futures_util::future::BoxFuture;
use schemas::AgentId;
use schemas::control::AgentKind;
use schemas::team::{Spoken, TeamState};
use search::ProfileDocument;

use super::contacts::ContactBook;
use super::forming::{Formation, FoundAgent, WordWeights, clauses, form};

/// Candidates that are remembered for one goal: what ten searches of eight texts find, three each.
pub const CANDIDATES_MAX: usize = 240;

/// Looks for agents in the name of whoever has the goal.
pub trait CandidateSearch: Send + Sync {
    /// The agents that fit a text best, best first; those that are present and would take a call. Nobody where it fails.
    fn search(&self, text: String) -> BoxFuture<'static, Vec<Candidate>>;
}

/// An agent that a search has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The agent.
    pub agent: AgentId,
    /// What it is.
    pub kind: AgentKind,
    /// What it says of itself: description, tags, capabilities.
    pub profile: Vec<String>,
    /// Its score for the text, in millionths.
    pub score: u64,
}

/// Who was found for one goal.
#[derive(Debug, Clone)]
pub struct Candidates {
    me: AgentId,
    goal: String,
    own_profile: Option<String>,
    /// What was searched for, and who was found for it.
    found_by_text: Vec<(String, Vec<Candidate>)>,
}

impl Candidates {
    /// Nobody yet. `own_profile` is what the agent with the goal says of itself.
    pub fn new(me: AgentId, goal: impl Into<String>, own_profile: Option<String>) -> Self {
        Self { me, goal: goal.into(), own_profile, found_by_text: Vec::new() }
    }

    /// The goal.
    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// What there is to search for: the clauses of the goal that were not searched for yet.
    pub fn clauses_left(&self) -> Vec<String> {
        let is_left = |clause: &String| self.found_by_text.iter().all(|(text, _)| text != clause);
        clauses(&self.goal).into_iter().filter(is_left).collect()
    }

    /// Takes who was found for a text. Known agents that were found for the same text before join them, with the score they had.
    pub fn handle_found(&mut self, text: String, mut found: Vec<Candidate>, book: Option<&ContactBook>) {
        found.retain(|candidate| candidate.agent != self.me);
        for (agent, contact) in book.iter().flat_map(|book| book.found_for(&text)) {
            let is_new = *agent != self.me && found.iter().all(|candidate| candidate.agent != *agent);
            if is_new {
                let (kind, profile) = (AgentKind::default(), Vec::new());
                found.push(Candidate { agent: agent.clone(), kind, profile, score: contact.score });
            }
        }
        let room = CANDIDATES_MAX.saturating_sub(self.found_by_text.iter().map(|(_, found)| found.len()).sum());
        found.truncate(room);
        self.found_by_text.retain(|(known, _)| *known != text);
        self.found_by_text.push((text, found));
    }

    /// What was searched for, and who was found for it.
    pub fn found(&self) -> &[(String, Vec<Candidate>)] {
        &self.found_by_text
    }

    /// Everybody that was found, each once, in the order of being found.
    pub fn agents(&self) -> Vec<&Candidate> {
        let mut agents: Vec<&Candidate> = Vec::new();
        for candidate in self.found_by_text.iter().flat_map(|(_, found)| found) {
            if agents.iter().all(|known| known.agent != candidate.agent) {
                agents.push(candidate);
            }
        }
        agents
    }

    /// How much of the goal the own profile covers, in millionths, by how rare its words are among the profiles that are known.
    pub fn covered_ppm(&self) -> u64 {
        let Some(own) = &self.own_profile else { return 0 };
        let document = |texts: &[String]| ProfileDocument::of_texts(texts.iter().map(String::as_str));
        let own = ProfileDocument::of_texts([own.as_str()]);
        let mut profiles: BTreeMap<&AgentId, ProfileDocument> =
            self.agents().into_iter().map(|candidate| (&candidate.agent, document(&candidate.profile))).collect();
        profiles.insert(&self.me, own.clone());
        WordWeights::among(profiles.values()).covered_ppm(&self.goal, &own)
    }

    /// Whom to call without a model, at most `recruits_max`.
    pub fn form(&self, recruits_max: usize) -> Formation {
        let hit = |candidate: &Candidate| FoundAgent { agent: candidate.agent.clone(), score: candidate.score };
        let found: Vec<Vec<FoundAgent>> =
            self.found_by_text.iter().map(|(_, found)| found.iter().map(hit).collect()).collect();
        form(self.covered_ppm(), &found, recruits_max)
    }
}

/// A lead without a model: it says the goal, asks in the order of their seats every member that has not spoken, once each, and
/// concludes with what they said.
#[derive(Debug, Clone, Default)]
pub struct GoalSpeaker {
    has_opened: bool,
    /// At most the members of a team.
    asked: BTreeSet<AgentId>,
}

impl GoalSpeaker {
    fn conclusion(view: &TeamView) -> String {
        let mut lines = Vec::new();
        for remark in view.recap.values().filter(|remark| remark.by != view.me) {
            let said = match &remark.said {
                Spoken::Repeats { repeats } => view.recap.get(repeats).map(|earlier| &earlier.said),
                said @ Spoken::Text { .. } => Some(said),
            };
            if let Some(Spoken::Text { text }) = said {
                let line = format!("{}: {text}", remark.by);
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        if lines.is_empty() { "nobody had anything to say".to_owned() } else { lines.join("\n") }
    }
}

impl Speaker for GoalSpeaker {
    fn speak(&mut self, view: &TeamView) -> TeamMove {
        let conclude = || TeamMove::Conclude { text: Self::conclusion(view) };
        if view.state == TeamState::Concluding {
            return conclude();
        }
        let has_spoken = |member: &AgentId| view.recap.values().any(|remark| remark.by == *member);
        let is_left = |member: &&AgentId| {
            **member != view.me && !view.muted.contains(member) && !has_spoken(member) && !self.asked.contains(*member)
        };
        let next = view.members.iter().find(is_left).cloned();
        self.asked.extend(next.clone());
        if !std::mem::replace(&mut self.has_opened, true) {
            let text = format!("{}\nEach of you in turn: what do you know of it, or do for it?", view.goal);
            return TeamMove::Say { text, next };
        }
        let Some(next) = next else { return conclude() };
        TeamMove::Say { text: format!("{next}, what do you know of it, or do for it?"), next: Some(next) }
    }
}

#[cfg(test)]
mod tests;
