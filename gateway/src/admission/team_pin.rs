//! What the messages of teams are pinned to: a call to the policy of its tasks, an assignment to the policy it names
//! (docs/spec/team.md#tm-10).

use std::sync::Arc;

use schemas::payload::Cfp;
use schemas::policy::{Decider, TIMER_MS_MAX};
use schemas::record::{Pinned, TaskPolicy};
use schemas::team::{SPEAK_TIMES_MIN, TeamSpec};
use schemas::{Code, Envelope, Policy, Refusal};

use crate::registry::{PinnedPolicy, PolicyTable};

/// The policy of the tasks of a team, where the call is one to a team.
pub(super) fn task_policy(policies: &PolicyTable, cfp: &Cfp) -> Result<Option<TaskPolicy>, Refusal> {
    let Some(spec) = &cfp.team else { return Ok(None) };
    check_seats(spec)?;
    check_end(spec, cfp.reply_within_ms)?;
    let pointer = "/payload/team/task_policy";
    let PinnedPolicy { policy, digest } = policy_of_tasks(policies, &spec.rules.task_policy, pointer)?;
    Ok(Some(TaskPolicy { policy: Arc::clone(policy), digest: *digest }))
}

/// What an assignment that names a policy is pinned to.
pub(super) fn pin_assigned(policies: &PolicyTable, named: Option<&str>) -> Result<Option<Arc<Pinned>>, Refusal> {
    let Some(name) = named else { return Ok(None) };
    policy_of_tasks(policies, name, "/payload/policy").map(|policy| Some(Arc::new(policy.into())))
}

/// A sub-team has the id that follows from its award, and chooses none.
pub(super) fn check_sub_team(envelope: &Envelope) -> Result<(), Refusal> {
    if envelope.negotiation.is_none() {
        return Ok(());
    }
    Err(Refusal::new(Code::NotAllowed, "a sub-team has the id that follows from its award")
        .at("/envelope/negotiation")
        .expecting("no such member beside `team.of`"))
}

fn check_seats(spec: &TeamSpec) -> Result<(), Refusal> {
    let seats = spec.rules.members;
    if seats.min <= seats.max {
        return Ok(());
    }
    Err(Refusal::new(Code::OutOfRange, "a team cannot need more members than it has seats")
        .at("/payload/team/members/min")
        .expecting(format!("at most members.max, which is {}", seats.max)))
}

/// The hard end leaves time to reply, and to speak a few times behind that; it is at most a day away. Where the call names an
/// instant to reply by, only the fold knows the rest.
fn check_end(spec: &TeamSpec, reply_within_ms: Option<u64>) -> Result<(), Refusal> {
    let rules = &spec.rules;
    let least = rules.speak_ms.saturating_mul(SPEAK_TIMES_MIN).saturating_add(reply_within_ms.unwrap_or(0));
    if (least..=TIMER_MS_MAX).contains(&rules.ends_within_ms) {
        return Ok(());
    }
    Err(Refusal::new(Code::OutOfRange, "a team cannot end then")
        .at("/payload/team/ends_within_ms")
        .expecting(format!("{least} (time to reply, and {SPEAK_TIMES_MIN} times speak_ms) to {TIMER_MS_MAX}")))
}

fn policy_of_tasks<'t>(policies: &'t PolicyTable, name: &str, pointer: &str) -> Result<&'t PinnedPolicy, Refusal> {
    let named = policies.known(name).map_err(|refusal| refusal.at(pointer))?;
    if awards_tasks(&named.policy) {
        return Ok(named);
    }
    Err(Refusal::new(Code::NotAllowed, "tasks cannot be awarded under this policy")
        .at(pointer)
        .expecting("a policy with `weights`, `awards` 1 and `decider` engine, without `reputation`"))
}

fn awards_tasks(policy: &Policy) -> bool {
    // Tasks are called by the fold, which pins no reputation for them.
    let is_scored = !policy.weights.is_empty() && policy.reputation.is_none();
    is_scored && policy.awards == 1 && policy.decider == Decider::Engine
}
