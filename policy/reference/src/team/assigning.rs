//! Whether the tasks of an assignment can be opened, and as what (docs/spec/team.md#tm-26).

use schemas::delivery::Disposition;
use schemas::record::Pinned;
use schemas::team::{Assign, AssignedTask, AtConclusion, Brief};
use schemas::{AgentId, Policy, Timestamp};

use super::Team;
use super::opening::decides_tasks;
use crate::Moment;
use crate::contract_net::count;
use crate::contract_net::task::TaskCall;

/// Why an assignment opens nothing: the disposition, the reason, and where.
type AssignFault = (Disposition, &'static str, Option<String>);

/// The tasks of an assignment, all of them or none.
pub(super) fn plan(
    team: &Team,
    who: usize,
    assign: &Assign,
    pinned: Option<&Pinned>,
    moment: Moment,
) -> Result<Vec<TaskCall>, AssignFault> {
    if team.tasks.count() + count(assign.tasks.len()) > team.rules.tasks || assign.tasks.len() > team.family_room {
        return Err((Disposition::Malformed, "too_many_tasks", Some("/payload/tasks".to_owned())));
    }
    let policy = match &assign.policy {
        None => team.task_policy.clone(),
        Some(_) => pinned.map(|pinned| (*pinned.policy).clone()).filter(decides_tasks),
    };
    let Some(policy) = policy else {
        return Err((Disposition::Malformed, "invalid_policy", Some("/payload/policy".to_owned())));
    };
    let first = team.tasks.count() + 1;
    let tasks = (first..).zip(&assign.tasks);
    tasks.map(|(number, task)| plan_one(team, who, assign, number, task, policy.clone(), moment)).collect()
}

fn plan_one(
    team: &Team,
    who: usize,
    assign: &Assign,
    number: u32,
    task: &AssignedTask,
    mut policy: Policy,
    moment: Moment,
) -> Result<TaskCall, AssignFault> {
    let pointer = format!("/payload/tasks/{}", number - team.tasks.count() - 1);
    let contractors = match &task.owner {
        Some(owner) => {
            let is_member = team.people.iter().any(|person| person.agent == *owner && person.is_member());
            if !is_member {
                return Err((Disposition::Malformed, "unknown_member", Some(format!("{pointer}/owner"))));
            }
            vec![owner.clone()]
        }
        None => able(team, who, task),
    };
    if contractors.is_empty() {
        return Err((Disposition::PolicyReject, "no_candidate", Some(pointer)));
    }
    let is_direct = contractors.len() == 1;
    if let Some(perform_ms) = task.perform_ms {
        policy.timers_ms.perform = perform_ms;
    }
    let bound = if team.rules.at_conclusion == AtConclusion::Leave { team.ends_by } else { team.wrap_at() };
    let ends_by = moment.now.plus_ms(policy.timers_ms.hard).min(bound);
    let collect_ms = task.reply_within_ms.unwrap_or(policy.timers_ms.collect);
    let reply_by = if is_direct { moment.now } else { moment.now.plus_ms(collect_ms) };
    let is_late = |by: Timestamp| by > ends_by;
    let performs_late = task.perform_ms.is_some_and(|perform_ms| moment.now.plus_ms(perform_ms) > bound);
    if performs_late || is_late(reply_by.plus_ms(policy.timers_ms.confirm)) {
        return Err((Disposition::Malformed, "bad_deadline", Some(pointer)));
    }
    let brief = Brief {
        team: team.id.clone(),
        task: number,
        title: task.title.clone(),
        text: task.text.clone(),
        mode: assign.mode,
    };
    let id = team.id.task(number).expect("within the limit of tasks");
    let assigner = team.people[who].agent.clone();
    Ok(TaskCall { id, policy, assigner, contractors, is_direct, depth_left: team.depth_left, brief, reply_by, ends_by })
}

/// Who could do a task that names nobody: not its assigner, who calls.
fn able(team: &Team, who: usize, task: &AssignedTask) -> Vec<AgentId> {
    let has_all = |index: usize| task.requires.iter().all(|one| team.people[index].capabilities.contains(one));
    let others = team.members().into_iter().filter(|&index| index != who && team.may_speak(index));
    others.filter(|&index| has_all(index)).map(|index| team.people[index].agent.clone()).collect()
}
