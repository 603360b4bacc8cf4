//! When a team that waits for tasks goes on: in the step in which the last of them has ended, and not before
//! (docs/spec/team.md#tm-45).

use std::collections::{BTreeMap, BTreeSet};

use schemas::team::{Floor, TaskStatus, TeamState};
use schemas::{Act, AgentId, NegotiationId};

use super::AppliedAct;
use crate::invariants::{Invariant, Verdict};

/// The steps of a team as its members were told them, each with the one before.
pub(super) struct WaitingSteps<'a> {
    id: &'a NegotiationId,
    /// Who waits, while somebody does and it is known.
    setter: Option<&'a AgentId>,
    members: &'a [AgentId],
    muted: &'a [AgentId],
    opened: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// Whether every step so far is known.
    is_whole: bool,
}

impl<'a> WaitingSteps<'a> {
    pub(super) fn of(id: &'a NegotiationId) -> Self {
        Self {
            id,
            setter: None,
            members: &[],
            muted: &[],
            opened: BTreeSet::new(),
            ended: BTreeSet::new(),
            is_whole: true,
        }
    }

    /// Checks each step of which the one before is known, too.
    pub(super) fn judge(
        mut self,
        floors: &'a BTreeMap<u32, BTreeMap<AgentId, Floor>>,
        applied: &BTreeMap<u32, AppliedAct>,
        verdict: &mut Verdict,
    ) {
        let steps = floors.values().filter_map(|told| told.values().next());
        let mut before: Option<&Floor> = None;
        for floor in steps {
            if !floor.members.is_empty() {
                self.members = &floor.members;
            }
            if !floor.muted.is_empty() {
                self.muted = &floor.muted;
            }
            self.is_whole &= floor.step == before.map_or(1, |before| before.step + 1);
            self.opened.extend(floor.tasks.iter().map(|task| task.task));
            if let Some(AppliedAct { act: Act::Assign, tasks, .. }) = applied.get(&floor.step) {
                self.opened.extend(tasks);
            }
            let known = before.filter(|before| before.step + 1 == floor.step);
            if let Some(before) = known.filter(|before| is_waiting(before)) {
                self.judge_step(before, floor, verdict);
            }
            if is_waiting(floor) && !known.is_some_and(is_waiting) {
                self.setter = known.and(floor.by.as_ref());
                self.judge_begin(floor, applied.get(&floor.step), verdict);
            }
            self.ended.extend(ended(floor));
            before = Some(floor);
        }
    }

    /// The step in which it begins to wait: for all that the act names, and has not ended.
    fn judge_begin(&self, floor: &Floor, applied: Option<&AppliedAct>, verdict: &mut Verdict) {
        // Where turns are used up it waits for every task there is, whatever the act.
        let is_own = match applied.map(|applied| applied.act) {
            Some(Act::Pause) => floor.state == TeamState::Paused,
            Some(Act::Assign) => floor.state == TeamState::Awaiting,
            Some(_) | None => false,
        };
        let Some(AppliedAct { tasks, .. }) = applied.filter(|_| is_own && self.is_whole) else { return };
        let mut due: BTreeSet<u32> = tasks.iter().copied().filter(|task| !self.ended.contains(task)).collect();
        // An act that names ended tasks alone begins no waiting (docs/spec/team.md#tm-29), but may take the last turn
        // (docs/spec/team.md#tm-41).
        if due.is_empty() && floor.turns_left == 0 && floor.state == TeamState::Paused {
            due = self.opened.difference(&self.ended).copied().collect();
        }
        verdict.check(Invariant::Wakes, floor.waits.iter().eq(&due), || {
            format!("{}: it is to wait for {due:?}, and waits for {:?}", self.id, floor.waits)
        });
    }

    /// One step of a team that waited.
    fn judge_step(&self, before: &Floor, after: &Floor, verdict: &mut Verdict) {
        let ended: BTreeSet<u32> = ended(after).collect();
        let left: Vec<u32> = before.waits.iter().copied().filter(|task| !ended.contains(task)).collect();
        // Turns or time are used up.
        let is_forced = after.turns_left == 0;
        let holds = if left.is_empty() {
            let waits_for_others = !after.waits.iter().any(|task| before.waits.contains(task));
            !is_waiting(after) || (is_forced && after.state == TeamState::Paused && waits_for_others)
        } else {
            let is_timer = after.by.is_none() && ended.is_empty();
            let is_wrapped = is_forced && is_timer && after.state == TeamState::Concluding;
            (after.state == before.state && after.waits == left) || is_wrapped
        };
        verdict.check(Invariant::Wakes, holds, || {
            let id = self.id;
            format!("{id} waited for {:?}, is {:?} for {:?} after {after:?}", before.waits, after.state, after.waits)
        });
        // A member that leaves is told of.
        let is_silent = after.said.is_none() && (after.by.is_none() || !after.members.is_empty());
        verdict.check(Invariant::Wakes, is_silent, || {
            format!("{}: an act of {:?} was applied while it waited for {:?}", self.id, after.by, before.waits)
        });
        let is_known = !self.members.is_empty() && after.state == TeamState::Discussing;
        if let Some(setter) = self.setter.filter(|_| is_known) {
            let due = self.due(setter);
            verdict.check(Invariant::Wakes, after.speaker.as_ref() == due, || {
                format!("{}: {setter} waited, {due:?} was to speak, and {:?} does", self.id, after.speaker)
            });
        }
    }

    /// Who speaks in the turn of a member: itself, or the lead if it may not.
    fn due(&self, member: &'a AgentId) -> Option<&'a AgentId> {
        let mut active = self.members.iter().filter(|member| !self.muted.contains(member));
        if active.clone().any(|active| active == member) { Some(member) } else { active.next() }
    }
}

fn is_waiting(floor: &Floor) -> bool {
    matches!(floor.state, TeamState::Awaiting | TeamState::Paused)
}

/// The tasks that end in a step.
fn ended(floor: &Floor) -> impl Iterator<Item = u32> {
    let ended = floor.tasks.iter().filter(|task| matches!(task.status, TaskStatus::Done | TaskStatus::Failed));
    ended.map(|task| task.task)
}
