//! Whether the tasks of an assignment can be opened, and as what (docs/spec/team.md#tm-33). Judging changes nothing.

use std::sync::Arc;

use schemas::delivery::Disposition;
use schemas::team::{Assign, AssignedTask, AtConclusion, Brief};
use schemas::{AgentId, Timestamp};

use super::Team;
use super::opening::decides_tasks;
use crate::negotiation::disposition::Incoming;
use crate::negotiation::family::TaskOpening;
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::{InputContext, Refusal};
use crate::policy::PinnedPolicy;

/// An assignment, as it meets its team.
pub(super) struct Assignment<'a> {
    pub(super) team: &'a Team,
    /// Index of the assigner.
    pub(super) assigner: usize,
    pub(super) assign: &'a Assign,
    pub(super) incoming: &'a Incoming,
    pub(super) context: &'a InputContext<'a>,
}

impl Assignment<'_> {
    /// Its tasks, all of them or none.
    pub(super) fn openings(&self) -> Result<Vec<TaskOpening>, Refusal> {
        let (known, more) = (self.team.tasks.count(), self.assign.tasks.len());
        let count = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(known);
        if count > self.team.rules.tasks || more > self.incoming.room {
            return Err(Refusal::malformed(NotUnderstoodReason::TooManyTasks, "/payload/tasks"));
        }
        let policy = match &self.assign.policy {
            None => Some(&self.team.task_policy),
            Some(_) => self.incoming.policy.as_ref().filter(|pinned| decides_tasks(&pinned.policy)),
        };
        let policy = policy.ok_or_else(|| Refusal::malformed(NotUnderstoodReason::InvalidPolicy, "/payload/policy"))?;
        let tasks = (known + 1..).zip(self.assign.tasks.iter().enumerate());
        tasks
            .map(|(number, (index, task))| self.opening(number, task, policy, &format!("/payload/tasks/{index}")))
            .collect()
    }

    fn opening(
        &self,
        number: u32,
        task: &AssignedTask,
        policy: &Arc<PinnedPolicy>,
        pointer: &str,
    ) -> Result<TaskOpening, Refusal> {
        let contractors = self.contractors(task, pointer)?;
        let is_direct = contractors.len() == 1;
        let (reply_by, ends_by) = self
            .deadlines(task, policy, is_direct)
            .ok_or_else(|| Refusal::malformed(NotUnderstoodReason::BadDeadline, pointer))?;
        // The number is within the rules of the team, which the ids have room for.
        let id = self
            .team
            .header
            .id
            .task(number)
            .ok_or_else(|| Refusal::malformed(NotUnderstoodReason::TooManyTasks, "/payload/tasks"))?;
        Ok(TaskOpening {
            id,
            policy: Arc::clone(policy),
            perform_ms: task.perform_ms,
            assigner: self.team.roster.agent(self.assigner).clone(),
            contractors,
            is_direct,
            depth_left: self.team.depth_left,
            requires: task.requires.clone(),
            brief: Brief {
                team: self.team.header.id.clone(),
                task: number,
                title: task.title.clone(),
                text: task.text.clone(),
                mode: self.assign.mode,
            },
            reply_by,
            ends_by,
            msg_id: self.incoming.msg_id.clone(),
            traceparent: self.team.header.traceparent.clone(),
        })
    }

    /// Who may offer, in the order of their ids (docs/spec/team.md#tm-32): the owner that is named, or everybody that could do it. The assigner, who
    /// writes the call, must not offer in it.
    fn contractors(&self, task: &AssignedTask, pointer: &str) -> Result<Vec<AgentId>, Refusal> {
        let roster = &self.team.roster;
        if let Some(owner) = &task.owner {
            return match roster.index_of(owner).filter(|index| roster.member(*index).is_seated()) {
                Some(index) => Ok(vec![roster.agent(index).clone()]),
                None => {
                    let pointer = format!("{pointer}/owner");
                    Err(Refusal::malformed(NotUnderstoodReason::UnknownMember, pointer))
                }
            };
        }
        let is_able = |index: &usize| {
            let member = roster.member(*index);
            let has_all = task.requires.iter().all(|capability| member.capabilities.contains(capability));
            *index != self.assigner && member.is_active() && has_all
        };
        let mut able: Vec<AgentId> = roster.seated().filter(is_able).map(|index| roster.agent(index).clone()).collect();
        able.sort();
        if able.is_empty() {
            return Err(Refusal::at(Disposition::PolicyReject, NotUnderstoodReason::NoCandidate, pointer));
        }
        Ok(able)
    }

    /// When offers are due, and the hard deadline (docs/spec/team.md#tm-37); absent where the team has no time left for a confirmation, or for what the
    /// owner may take.
    fn deadlines(&self, task: &AssignedTask, policy: &PinnedPolicy, is_direct: bool) -> Option<(Timestamp, Timestamp)> {
        let (now, timers) = (self.context.now, &policy.policy.timers_ms);
        let is_left = self.team.rules.at_conclusion == AtConclusion::Leave;
        let bound = if is_left { self.team.header.ends_by } else { self.team.wrap_at };
        let ends_by = now.plus_ms(timers.hard).min(bound);
        let reply_by = if is_direct { now } else { now.plus_ms(task.reply_within_ms.unwrap_or(timers.collect)) };
        let performs_in_time = task.perform_ms.is_none_or(|perform_ms| now.plus_ms(perform_ms) <= bound);
        (performs_in_time && reply_by.plus_ms(timers.confirm) <= ends_by).then_some((reply_by, ends_by))
    }
}
