//! What a family of teams said and did, put together from what its members were told.
//!
//! Each step is told to every member, but to the one whose act it was; so what any one of them was told gives the step.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agents::ActRefusal;
use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent};
use parking_lot::Mutex;
use schemas::delivery::{Closing, Disposition, Notification, Outcome};
use schemas::ids::FamilyPlace;
use schemas::team::{Floor, Spoken, TaskStatus, TeamTask};
use schemas::{AgentId, Digest, NegotiationId};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use agents::control::in_full;

/// Teams of one family that are kept: its root, and a sub-team for each task on each of four levels would be more than an
/// exchange keeps open at once.
pub const TEAMS_MAX: usize = 256;
/// Steps of one team that are kept: its turns, and two for each task.
pub const STEPS_MAX: usize = 4096;

/// What one family said and did.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Transcript {
    /// Its teams, the root first.
    pub teams: Vec<TeamStory>,
    /// SHA-256 of everything that does not depend on timing and names of the run: who said what in which turn, the tasks with
    /// their results, and how each team ended.
    pub digest: Option<Digest>,
}

/// One team.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TeamStory {
    /// Its id behind the root's: empty for the root, else as `~s1-1`.
    pub place: String,
    /// Its id.
    pub team: String,
    /// The members in the order of their seats.
    pub members: Vec<AgentId>,
    /// Who was invited and declined, by name.
    pub declined: Vec<AgentId>,
    /// What was done, in the order of steps.
    pub acts: Vec<TeamAct>,
    /// Its tasks by number.
    pub tasks: BTreeMap<u32, TeamTask>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Why, where the outcome alone does not say.
    pub detail: Option<String>,
    /// Its conclusion.
    pub conclusion: Option<String>,
    /// Who concluded.
    pub concluded_by: Option<AgentId>,
    /// Votes for and against the conclusion.
    pub votes: Option<(u32, u32)>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeamAct {
    /// The step.
    pub step: u32,
    /// The turn in which it was done.
    pub turn: u32,
    /// Who did it; absent for a timer or a task.
    pub by: Option<AgentId>,
    /// What it was.
    #[serde(flatten)]
    pub what: ActKind,
}

/// What a step was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "act", rename_all = "snake_case")]
pub enum ActKind {
    /// The team formed.
    Formed,
    /// Something was said.
    Said {
        /// The words.
        text: String,
    },
    /// Something was said again.
    Repeated {
        /// The step that said it first.
        step: u32,
    },
    /// Tasks were opened.
    Assigned {
        /// Their numbers.
        tasks: Vec<u32>,
    },
    /// Tasks ended.
    Ended {
        /// Their numbers.
        tasks: Vec<u32>,
    },
    /// A member waits for tasks.
    Paused {
        /// Their numbers.
        tasks: Vec<u32>,
    },
    /// A conclusion is put to the vote.
    Proposed {
        /// The conclusion.
        text: String,
    },
    /// The state changed in another way: a vote, a silence, somebody left.
    Moved,
    /// A message was refused, and changed nothing: it stands behind the last step that was told before.
    Refused {
        /// By the exchange; absent where the gateway refused it.
        disposition: Option<Disposition>,
        /// Why, and where it lies, as far as its sender was told.
        reason: Option<String>,
    },
}

impl TeamAct {
    fn of(floor: &Floor) -> Self {
        let numbers = |is_kind: fn(TaskStatus) -> bool| -> Vec<u32> {
            floor.tasks.iter().filter(|task| is_kind(task.status)).map(|task| task.task).collect()
        };
        let opened = numbers(|status| status == TaskStatus::Open);
        let ended = numbers(|status| matches!(status, TaskStatus::Done | TaskStatus::Failed));
        let what = match (&floor.said, &floor.conclusion) {
            _ if floor.step == 1 => ActKind::Formed,
            (_, Some(conclusion)) if floor.by.as_ref() == Some(&conclusion.by) => {
                ActKind::Proposed { text: conclusion.text.clone() }
            }
            _ if floor.by.is_some() && !opened.is_empty() => ActKind::Assigned { tasks: opened },
            _ if floor.by.is_some() && !floor.waits.is_empty() => ActKind::Paused { tasks: floor.waits.clone() },
            (Some(Spoken::Text { text }), _) => ActKind::Said { text: text.clone() },
            (Some(Spoken::Repeats { repeats }), _) => ActKind::Repeated { step: *repeats },
            (None, _) if !ended.is_empty() => ActKind::Ended { tasks: ended },
            (None, _) => ActKind::Moved,
        };
        // The notice tells the turn that follows; what a conclusion is voted in stays the same.
        let takes_turn = matches!(
            what,
            ActKind::Said { .. } | ActKind::Repeated { .. } | ActKind::Assigned { .. } | ActKind::Paused { .. }
        );
        let turn = floor.turn.saturating_sub(u32::from(takes_turn));
        Self { step: floor.step, turn, by: floor.by.clone(), what }
    }

    /// Whether it is in the digest: what depends on timing is not.
    fn is_told_alike(&self) -> bool {
        !matches!(self.what, ActKind::Ended { .. } | ActKind::Paused { .. } | ActKind::Moved | ActKind::Refused { .. })
    }
}

impl Transcript {
    fn of(root: &NegotiationId, teams: &BTreeMap<NegotiationId, TeamNotices>) -> Self {
        let family = teams.iter().filter(|(team, _)| team.root() == root.as_str());
        let mut stories: Vec<TeamStory> = family.map(|(team, heard)| heard.story(root, team)).collect();
        stories.sort_by(|one, other| one.place.cmp(&other.place));
        let digest = Digest::of(&stories.iter().map(TeamStory::alike).collect::<Vec<_>>()).ok();
        Self { teams: stories, digest }
    }
}

/// What of a story does not depend on timing.
#[derive(Serialize)]
struct StoryAlike<'a> {
    place: &'a str,
    members: &'a [AgentId],
    acts: Vec<(u32, &'a Option<AgentId>, &'a ActKind)>,
    tasks: Vec<(u32, TaskStatus, &'a Option<String>)>,
    outcome: Option<Outcome>,
    conclusion: &'a Option<String>,
}

impl TeamStory {
    fn alike(&self) -> StoryAlike<'_> {
        let Self { place, members, acts, tasks, outcome, conclusion, .. } = self;
        let acts = acts.iter().filter(|act| act.is_told_alike()).map(|act| (act.turn, &act.by, &act.what)).collect();
        let tasks = tasks.values().map(|task| (task.task, task.status, &task.result)).collect();
        StoryAlike { place, members, acts, tasks, outcome: *outcome, conclusion }
    }
}

/// What the members of one team were told.
#[derive(Debug, Default)]
struct TeamNotices {
    floors: BTreeMap<u32, Floor>,
    closing: Option<Closing>,
    /// Who refused something, whether the call or a conclusion.
    refused: BTreeSet<AgentId>,
    /// What members said and the exchange refused, in the order they were told.
    refusals: Vec<TeamAct>,
}

impl TeamNotices {
    /// A member's message was refused.
    fn refuse(&mut self, by: &AgentId, disposition: Option<Disposition>, reason: Option<String>) {
        if self.refusals.len() < STEPS_MAX {
            let (step, turn) = self.floors.last_key_value().map_or((0, 0), |(step, floor)| (*step, floor.turn));
            let what = ActKind::Refused { disposition, reason };
            self.refusals.push(TeamAct { step, turn, by: Some(by.clone()), what });
        }
    }

    /// Why the last refused message of a member was.
    fn explain(&mut self, member: &AgentId, why: String) {
        let last = self.refusals.iter_mut().rfind(|act| act.by.as_ref() == Some(member));
        if let Some(TeamAct { what: ActKind::Refused { reason, .. }, .. }) = last {
            reason.get_or_insert(why);
        }
    }

    fn story(&self, root: &NegotiationId, team: &NegotiationId) -> TeamStory {
        let place = team.as_str().strip_prefix(root.as_str()).unwrap_or_default().to_owned();
        let mut story = TeamStory { place, team: team.to_string(), ..TeamStory::default() };
        for floor in self.floors.values() {
            if story.members.is_empty() || !floor.members.is_empty() {
                story.members.clone_from(&floor.members);
            }
            story.acts.push(TeamAct::of(floor));
            for task in &floor.tasks {
                let title =
                    task.title.clone().or_else(|| story.tasks.get(&task.task).and_then(|task| task.title.clone()));
                story.tasks.insert(task.task, TeamTask { title, ..task.clone() });
            }
        }
        story.acts.extend(self.refusals.iter().cloned());
        story.acts.sort_by_key(|act| act.step);
        let is_seated = |agent: &AgentId| self.floors.values().any(|floor| floor.members.contains(agent));
        story.declined = self.refused.iter().filter(|agent| !is_seated(agent)).cloned().collect();
        if let Some(closing) = &self.closing {
            story.outcome = Some(closing.outcome);
            story.detail.clone_from(&closing.detail);
            if let Some(conclusion) = closing.conclusion.as_deref() {
                story.conclusion = Some(conclusion.text.clone());
                story.concluded_by = Some(conclusion.by.clone());
                story.votes = conclusion.votes.map(|votes| (votes.yes, votes.no));
            }
        }
        story
    }
}

/// Keeps what the members of families are told. Give it to all of them as their [`Observer`].
#[derive(Default)]
pub struct TranscriptKeeper {
    kept: Mutex<HeardTeams>,
    ended: Notify,
}

#[derive(Default)]
struct HeardTeams {
    teams: BTreeMap<NegotiationId, TeamNotices>,
    /// Roots of which somebody heard that they ended, or that they never began.
    over: BTreeSet<NegotiationId>,
    refused: BTreeMap<NegotiationId, String>,
}

impl TranscriptKeeper {
    /// One that has heard nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What a family has said and done so far.
    pub fn transcript(&self, root: &NegotiationId) -> Transcript {
        Transcript::of(root, &self.kept.lock().teams)
    }

    /// Waits until a team has ended, as its lead was told; in words why its call was refused.
    ///
    /// # Errors
    /// Why there is no such team.
    pub async fn ended(&self, root: &NegotiationId) -> Result<(), String> {
        loop {
            let changed = self.ended.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let kept = self.kept.lock();
                if let Some(why) = kept.refused.get(root) {
                    return Err(why.clone());
                }
                if kept.over.contains(root) {
                    return Ok(());
                }
            }
            changed.await;
        }
    }
}

impl Observer for TranscriptKeeper {
    fn handle(&self, agent: &AgentId, _at: Instant, event: Observed<'_>) {
        if let Observed::Delivered { delivery, is_repeat: false } = event {
            let id = &delivery.envelope.negotiation;
            if matches!(id.place(), FamilyPlace::Task(_)) {
                return;
            }
            self.kept.lock().told(id, agent, &delivery.payload);
        } else if let Observed::Settled { sent, .. } = event {
            self.kept.lock().settled(agent, sent);
        } else {
            return;
        }
        self.ended.notify_waiters();
    }
}

impl HeardTeams {
    /// Whether somebody was told a step or the end of it.
    fn has_begun(&self, id: &NegotiationId) -> bool {
        self.teams.get(id).is_some_and(|heard| !heard.floors.is_empty() || heard.closing.is_some())
    }

    fn settled(&mut self, agent: &AgentId, sent: &Sent) {
        let id = &sent.negotiation;
        match (&sent.outcome, sent.act) {
            (SendOutcome::Refused(refusal), schemas::Act::Cfp) => {
                self.refused.insert(id.clone(), in_full(refusal));
            }
            (SendOutcome::Accepted { .. }, schemas::Act::Refuse) => {
                if !matches!(id.place(), FamilyPlace::Task(_)) {
                    self.refused_by(id, agent);
                }
            }
            (SendOutcome::Refused(refusal), act) if act != schemas::Act::Refuse => {
                if let Some(heard) = self.teams.get_mut(id) {
                    heard.refuse(agent, None, Some(in_full(refusal)));
                }
            }
            (_, _) => {}
        }
    }

    fn refused_by(&mut self, id: &NegotiationId, agent: &AgentId) {
        if self.teams.len() < TEAMS_MAX || self.teams.contains_key(id) {
            self.teams.entry(id.clone()).or_default().refused.insert(agent.clone());
        }
    }

    fn told(&mut self, id: &NegotiationId, agent: &AgentId, told: &Notification) {
        let has_room = self.teams.len() < TEAMS_MAX;
        match (told, id.initiator() == agent.as_str()) {
            (Notification::Floor(floor), _) => {
                if !has_room && !self.teams.contains_key(id) {
                    return;
                }
                let heard = self.teams.entry(id.clone()).or_default();
                if heard.floors.len() < STEPS_MAX {
                    heard.floors.entry(floor.step).or_insert_with(|| (**floor).clone());
                }
            }
            (Notification::Closed(closing), is_initiator) => {
                if let Some(heard) = self.teams.get_mut(id) {
                    heard.closing.get_or_insert_with(|| closing.clone());
                }
                if is_initiator && id.place() == FamilyPlace::Root {
                    self.teams.entry(id.clone()).or_default().closing.get_or_insert_with(|| closing.clone());
                    self.over.insert(id.clone());
                }
            }
            (Notification::NotUnderstood(why), true) if !self.has_begun(id) => {
                self.refused.insert(id.clone(), ActRefusal::from(why).to_string());
            }
            (Notification::NotUnderstood(why), _) => {
                if let Some(heard) = self.teams.get_mut(id) {
                    heard.explain(agent, ActRefusal::from(why).to_string());
                }
            }
            (Notification::Ack(receipt), _) if is_refusal(receipt.disposition) => {
                if let Some(heard) = self.teams.get_mut(id) {
                    heard.refuse(agent, Some(receipt.disposition), None);
                }
            }
            (_, _) => {}
        }
    }
}

/// Whether a message with this disposition changed nothing, and was not known before.
fn is_refusal(disposition: Disposition) -> bool {
    !matches!(disposition, Disposition::Ok | Disposition::Duplicate | Disposition::Committed)
}

#[cfg(test)]
mod tests;
