//! What negotiations of one family do to each other (docs/spec/team.md#tm-2): orders, carried out within the input that caused
//! them, at its position.

use std::sync::Arc;

use schemas::ids::Capability;
use schemas::team::{Brief, TaskAward, TaskStatus};
use schemas::{AgentId, AwardNo, Digest, MsgId, NegotiationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::policy::PinnedPolicy;

/// What one negotiation does to another.
#[derive(Debug)]
pub(crate) struct FamilyOrder {
    pub(crate) to: NegotiationId,
    /// Head of the hash chain of whoever orders: it becomes an input of the other.
    pub(crate) cause: Digest,
    pub(crate) action: FamilyAction,
}

/// What is done.
#[derive(Debug)]
pub(crate) enum FamilyAction {
    /// A team opens a task.
    OpenTask(Box<TaskOpening>),
    /// A team calls a task off.
    CallOff,
    /// A team that is aborted takes its tasks with it, and an aborted task its sub-team.
    Abort,
    /// A member has left the team: its award in the task is lost.
    MemberLeft(AgentId),
    /// The team has concluded, and the task goes on: its result is told the lead as well.
    DetachFromTeam(AgentId),
    /// The task with this number stands otherwise than before.
    Progress(u32, TaskProgress),
    /// The contractor of an award of the task has called a sub-team for it.
    SubTeamCalled(AwardNo),
    /// The sub-team of an award of the task has concluded with this text.
    SubTeamConcluded(AwardNo, Box<str>),
    /// The award that a sub-team works for is committed no longer.
    ParentEnded,
}

/// What a sub-team is called with: what its task allows it.
#[derive(Debug)]
pub(crate) struct SubTeamGrant {
    /// The task, and the award.
    pub(crate) of: TaskAward,
    /// It ends then at the latest: when the contractor must have performed.
    pub(crate) ends_by: Timestamp,
    /// Levels of sub-teams that may stand below it.
    pub(crate) depth_left: u32,
    /// The trace of its family.
    pub(crate) traceparent: Option<Arc<str>>,
}

/// Where a call to a sub-team names its award.
pub(crate) const SUB_TEAM_OF: &str = "/payload/team/of";

/// A task that a team opens.
#[derive(Debug)]
pub(crate) struct TaskOpening {
    pub(crate) id: NegotiationId,
    pub(crate) policy: Arc<PinnedPolicy>,
    /// How long its owner may take, in milliseconds, where the assignment says so.
    pub(crate) perform_ms: Option<u64>,
    pub(crate) assigner: AgentId,
    /// Who may offer, in the order of their ids; of a direct task its owner alone.
    pub(crate) contractors: Vec<AgentId>,
    pub(crate) is_direct: bool,
    /// Levels of sub-teams that may stand below its team.
    pub(crate) depth_left: u32,
    pub(crate) requires: Vec<Capability>,
    pub(crate) brief: Brief,
    pub(crate) reply_by: Timestamp,
    pub(crate) ends_by: Timestamp,
    /// The ASSIGN.
    pub(crate) msg_id: MsgId,
    pub(crate) traceparent: Option<Arc<str>>,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskProgress {
    pub(crate) status: TaskStatus,
    /// Who is bound, or was to its end.
    pub(crate) owner: Option<AgentId>,
    pub(crate) result: Option<Box<str>>,
    /// Of one that failed: why.
    pub(crate) code: Option<Box<str>>,
}

impl TaskProgress {
    /// Of a task to which nobody is bound.
    pub(crate) const OPEN: Self = Self { status: TaskStatus::Open, owner: None, result: None, code: None };

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status, TaskStatus::Done | TaskStatus::Failed)
    }
}

impl FamilyOrder {
    /// What the hash chain of the other is extended by.
    pub(crate) fn input(&self) -> Vec<u8> {
        let tag: &[u8] = match &self.action {
            FamilyAction::OpenTask(_) => b"task_opened",
            FamilyAction::CallOff => b"called_off",
            FamilyAction::Abort => b"aborted_above",
            FamilyAction::MemberLeft(_) => b"member_left",
            FamilyAction::DetachFromTeam(_) => b"team_concluded",
            FamilyAction::Progress(..) => b"task_progress",
            FamilyAction::SubTeamCalled(_) => b"sub_team_called",
            FamilyAction::SubTeamConcluded(..) => b"sub_team_concluded",
            FamilyAction::ParentEnded => b"orphaned",
        };
        [&self.cause.0, tag].concat()
    }

    fn is_upward(&self) -> bool {
        match self.action {
            FamilyAction::Progress(..) | FamilyAction::SubTeamCalled(_) | FamilyAction::SubTeamConcluded(..) => true,
            FamilyAction::OpenTask(_)
            | FamilyAction::CallOff
            | FamilyAction::Abort
            | FamilyAction::MemberLeft(_)
            | FamilyAction::DetachFromTeam(_)
            | FamilyAction::ParentEnded => false,
        }
    }
}

/// The orders of one input. A negotiation gives each one below it a few at most, and the one above it as many, so that no more
/// wait than a family has negotiations ([`schemas::team::FAMILY_OPEN_MAX`]), times that few.
#[derive(Debug, Default)]
pub(crate) struct FamilyOrders {
    /// Given by the negotiation that was last at work.
    given: Vec<FamilyOrder>,
    /// Those before, the next one last.
    waiting: Vec<FamilyOrder>,
}

impl FamilyOrders {
    pub(crate) fn give(&mut self, order: FamilyOrder) {
        self.given.push(order);
    }

    /// The next one to carry out: what a negotiation leads to comes before what was given earlier, and of its orders first
    /// those to its parent, then those to its children by their ids.
    pub(crate) fn take_next(&mut self) -> Option<FamilyOrder> {
        self.given.sort_by(|one, other| other.is_upward().cmp(&one.is_upward()).then_with(|| one.to.cmp(&other.to)));
        self.waiting.extend(self.given.drain(..).rev());
        self.waiting.pop()
    }
}
