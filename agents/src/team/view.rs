//! What a member knows of its team: kept up by every notice, read by its [`Speaker`](super::Speaker). Pure.

use std::collections::BTreeMap;

use schemas::team::{Floor, ProposedConclusion, Spoken, TaskStatus, TeamRules, TeamState, TeamTask};
use schemas::{AgentId, NegotiationId};

/// Says that are remembered: as many as the exchange repeats to a member that has lost its memory.
pub const RECAP_MAX: usize = 5;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamView {
    /// The team.
    pub team: NegotiationId,
    /// The member whose view it is.
    pub me: AgentId,
    /// The goal, as the call told it.
    pub goal: String,
    /// Who leads; as the call said, until the first member of a notice says otherwise.
    pub lead: AgentId,
    /// The rules.
    pub rules: TeamRules,
    /// The members in the order of their seats; empty until they are told.
    pub members: Vec<AgentId>,
    /// Members that get the floor no more.
    pub muted: Vec<AgentId>,
    /// The latest step that was told; 0 before the team has formed.
    pub step: u32,
    /// The turn.
    pub turn: u32,
    /// Turns of discussion left, this one included.
    pub turns_left: u32,
    /// What the team does.
    pub state: TeamState,
    /// Who holds the floor, as far as that was told.
    pub speaker: Option<AgentId>,
    /// The tasks by number.
    pub tasks: BTreeMap<u32, TeamTask>,
    /// What is voted on.
    pub conclusion: Option<ProposedConclusion>,
    /// The latest says by step, at most [`RECAP_MAX`].
    pub recap: BTreeMap<u32, Remark>,
}

/// Something a member said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Who.
    pub by: AgentId,
    /// What.
    pub said: Spoken,
}

impl TeamView {
    /// What is known before the team has formed.
    #[must_use]
    pub fn new(team: NegotiationId, me: AgentId, goal: String, lead: AgentId, rules: TeamRules) -> Self {
        Self {
            team,
            me,
            goal,
            lead,
            turns_left: rules.turns,
            rules,
            members: Vec::new(),
            muted: Vec::new(),
            step: 0,
            turn: 0,
            state: TeamState::Discussing,
            speaker: None,
            tasks: BTreeMap::new(),
            conclusion: None,
            recap: BTreeMap::new(),
        }
    }

    /// Takes a notice, in whatever order notices come; whether it is the latest.
    pub fn handle_floor(&mut self, floor: &Floor) -> bool {
        floor.tasks.iter().for_each(|task| self.note_task(task));
        if let (Some(by), Some(said)) = (&floor.by, &floor.said) {
            self.note_said(floor.step, by.clone(), said.clone());
        }
        let is_latest = floor.step > self.step;
        // The first notice may come behind a later one, and it alone tells who takes part.
        if !floor.members.is_empty() && (is_latest || self.members.is_empty()) {
            self.members.clone_from(&floor.members);
            self.lead.clone_from(&floor.members[0]);
        }
        if !is_latest {
            return false;
        }
        let Floor { step, turn, turns_left, state, speaker, conclusion, muted, .. } = floor;
        (self.step, self.turn, self.turns_left, self.state) = (*step, *turn, *turns_left, *state);
        self.speaker.clone_from(speaker);
        self.conclusion.clone_from(conclusion);
        if !muted.is_empty() {
            self.muted.clone_from(muted);
        }
        true
    }

    /// Notes a task. One that has ended stays as it ended.
    pub fn note_task(&mut self, task: &TeamTask) {
        let known = self.tasks.entry(task.task).or_insert_with(|| task.clone());
        if is_over(known) || known.status > task.status {
            return;
        }
        let title = task.title.clone().or_else(|| known.title.take());
        *known = TeamTask { title, ..task.clone() };
    }

    /// Notes what was said in a step.
    pub fn note_said(&mut self, step: u32, by: AgentId, said: Spoken) {
        self.recap.insert(step, Remark { by, said });
        while self.recap.len() > RECAP_MAX {
            self.recap.pop_first();
        }
    }

    /// Whether this member holds the floor, as far as it was told.
    #[must_use]
    pub fn has_floor(&self) -> bool {
        let takes_acts = matches!(self.state, TeamState::Discussing | TeamState::Concluding);
        takes_acts && self.speaker.as_ref() == Some(&self.me)
    }

    /// Whether this member leads.
    #[must_use]
    pub fn is_lead(&self) -> bool {
        self.lead == self.me
    }

    /// Whether an agent may get the floor.
    #[must_use]
    pub fn may_speak(&self, agent: &AgentId) -> bool {
        self.members.contains(agent) && !self.muted.contains(agent)
    }

    /// Who gets the floor when nobody is named: the next seat that may.
    #[must_use]
    pub fn next_seat(&self) -> Option<&AgentId> {
        let own = self.members.iter().position(|member| *member == self.me)?;
        let others = self.members.iter().cycle().skip(own + 1).take(self.members.len());
        others.into_iter().find(|member| !self.muted.contains(member))
    }

    /// The numbers of the tasks that have not ended.
    pub fn open_tasks(&self) -> impl Iterator<Item = u32> + '_ {
        self.tasks.values().filter(|task| !is_over(task)).map(|task| task.task)
    }
}

/// Whether a task has ended.
fn is_over(task: &TeamTask) -> bool {
    matches!(task.status, TaskStatus::Done | TaskStatus::Failed)
}
