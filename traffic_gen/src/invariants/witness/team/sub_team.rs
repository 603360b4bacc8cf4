//! What a sub-team is to the task that it works for: it is open only while its award is committed (docs/spec/team.md#tm-66), and what
//! it concludes is the result, in the same record (docs/spec/team.md#tm-65). All that one record leads to bears the time of that record.

use schemas::delivery::Outcome;
use schemas::team::{TaskStatus, TeamTask};
use schemas::{NegotiationId, Timestamp};

use super::{SubTeamFound, TaskFound};
use crate::invariants::witness::When;
use crate::invariants::{Invariant, Verdict};

/// See the module.
pub(super) struct SubTeamOfTask<'a> {
    /// The team whose task it is.
    pub(super) id: &'a NegotiationId,
    pub(super) number: u32,
    pub(super) task: &'a TaskFound<'a>,
    pub(super) sub_team: &'a SubTeamFound<'a>,
    /// How the task ended, and when, as a step of its team says.
    pub(super) ended: Option<(&'a TeamTask, Timestamp)>,
}

impl SubTeamOfTask<'_> {
    /// Judges it, if anybody was called to it.
    pub(super) fn judge(&self, when: When, verdict: &mut Verdict) {
        let Some(called_at) = self.sub_team.team.called_at else { return };
        self.judge_award(called_at, when, verdict);
        self.judge_conclusion(when, verdict);
    }

    /// Nothing is told of it before its award is committed, nor after the award is lost or it has ended itself.
    fn judge_award(&self, called_at: Timestamp, when: When, verdict: &mut Verdict) {
        let SubTeamFound { award_no, team, unreached } = self.sub_team;
        let named = || format!("the sub-team of award {award_no} of task {} of {}", self.number, self.id);
        if let Some(committed_at) = self.task.task.committed_at(*award_no) {
            verdict.check(Invariant::NoOrphan, committed_at <= called_at, || {
                format!("{} was called at {called_at:?}, and the award committed at {committed_at:?}", named())
            });
        }
        let ended_at = team.ended_at();
        let told_at = team.stepped_at.values().copied().chain([called_at]).max().unwrap_or(called_at);
        if let Some(ended_at) = ended_at {
            verdict.check(Invariant::NoOrphan, told_at <= ended_at, || {
                format!("{} ended at {ended_at:?} and went on until {told_at:?}", named())
            });
        }
        let Some(lost_at) = self.task.task.lost_at(*award_no) else { return };
        let last_at = ended_at.map_or(told_at, |ended_at| ended_at.max(told_at));
        let is_over = ended_at.is_some() || when == When::Early || !unreached.is_empty();
        verdict.check(Invariant::NoOrphan, last_at <= lost_at && is_over, || {
            format!("{} was open at {last_at:?}, ended at {ended_at:?}, its award lost at {lost_at:?}", named())
        });
    }

    /// Its conclusion is the result of the task in the same record, and a text that it has not concluded is none.
    fn judge_conclusion(&self, when: When, verdict: &mut Verdict) {
        let SubTeamFound { award_no, team, .. } = self.sub_team;
        let Some(ended_at) = team.ended_at() else { return };
        let named = || format!("the sub-team of award {award_no} of task {} of {}", self.number, self.id);
        let Some(conclusion) = team.concluded.first() else {
            let Some((task, _)) = self.ended else { return };
            let is_foreign = task.result.as_ref().is_none_or(|result| {
                let is_own = task.owner.as_ref().is_some_and(|owner| self.task.task.has_reported(owner, Some(result)));
                is_own || !team.proposed.contains(result)
            });
            return verdict.check(Invariant::FlowsUp, is_foreign, || {
                format!("{} concluded nothing, and its words became {task:?}", named())
            });
        };
        let holds = match (self.ended, self.task.task.ended()) {
            (Some((task, at)), _) => {
                (task.status, task.result.as_ref(), at) == (TaskStatus::Done, Some(conclusion), ended_at)
            }
            // Its team has ended before, or was not told.
            (None, Some((at, outcome, is_answer))) => {
                outcome == Outcome::Completed && (at == ended_at || is_answer && at > ended_at)
            }
            (None, None) if when == When::Early || !self.task.unreached.is_empty() => return,
            (None, None) => false,
        };
        verdict.check(Invariant::FlowsUp, holds, || {
            let (told, task) = (self.ended, self.task.task.ended());
            format!("{} concluded {conclusion:?} at {ended_at:?}, and the task is {told:?}, {task:?}", named())
        });
    }
}
