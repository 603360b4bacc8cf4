//! A call opens a team, or is answered NOT_UNDERSTOOD and stores nothing (docs/spec/team.md#the-call).

use std::sync::Arc;

use schemas::delivery::Call;
use schemas::policy::{Decider, STRIKES_MAX, TIMER_MS_MAX, Timers};
use schemas::team::{
    ATTEMPTS_MAX, DEPTH_MAX, INVITED_MAX, MEMBERS_MAX, MEMBERS_MIN, REPEAT_PPM_MIN, SPEAK_MS_MAX, SPEAK_MS_MIN,
    SPEAK_TIMES_MIN, TASKS_MAX, TURNS_MAX, TeamCall, TeamRules, TeamSpec, WRAP_TIMES,
};
use schemas::{AgentId, Digest, Timestamp};

use super::repetition::DistinctSays;
use super::roster::Roster;
use super::tasks::TaskList;
use super::{POLICY_WORD, Team, call_ordinal};
use crate::acceptance::reputation::PinnedReputations;
use crate::limits::CALL_ATTEMPTS_MAX;
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::family::{FamilyAction, FamilyOrder, SubTeamGrant};
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::{Called, InputContext, Opening, Refusal, reply_by};
use crate::policy::PinnedPolicy;
use schemas::protocols::Phase;
use schemas::record::{Invitation, Qos};

/// Opens the team and calls the invited; `share` gives the shared form of an agent's name. A sub-team has a `grant`.
///
/// # Errors
/// Why it cannot be followed; nothing is stored then.
pub(crate) fn open_team(
    opening: &Opening<'_>,
    spec: &TeamSpec,
    grant: Option<SubTeamGrant>,
    context: &mut InputContext<'_>,
    share: impl FnMut(&AgentId) -> AgentId,
) -> Result<Team, Refusal> {
    let (rules, grant) = (&spec.rules, grant.as_ref());
    let invalid = |member| Refusal::malformed(NotUnderstoodReason::InvalidTeam, format!("/payload/team/{member}"));
    check_team(rules).map_err(invalid)?;
    let task_policy = opening
        .task_policy
        .clone()
        .filter(|pinned| decides_tasks(&pinned.policy))
        .ok_or_else(|| Refusal::malformed(NotUnderstoodReason::InvalidPolicy, "/payload/team/task_policy"))?;
    let invited: Vec<Called> = opening.invited().into_iter().map(called).collect();
    Refusal::check_invited(invited.len(), 1..=INVITED_MAX)?;
    let (join_by, ends_by) = team_deadlines(opening, rules, grant, context.now)?;
    let names = std::iter::once(&opening.initiator).chain(invited.iter().map(|(agent, ..)| agent)).map(share);
    let roster = Roster::new(names, opening.admitted.capabilities.clone());
    let mut team = new_team(opening, rules, task_policy, roster, (join_by, ends_by), context);
    if let Some(SubTeamGrant { of, depth_left, traceparent, .. }) = grant {
        team.depth_left = rules.depth.min(*depth_left);
        // A family is one trace.
        team.header.traceparent = traceparent.clone().or(team.header.traceparent.take());
        let action = FamilyAction::SubTeamCalled(of.award_no);
        context.orders.give(FamilyOrder { to: of.task.clone(), cause: opening.admitted.digest, action });
    }
    team.header.link(&opening.admitted.digest.0, context);
    opening.deliver_call(&team.header, team_call(opening, spec, &team), &invited, call_ordinal(1), context);
    team.acknowledge_call(0, opening, context);
    team.announce(&team.policy_id(), join_by, context);
    Ok(team)
}

/// When everybody must have joined, and the hard deadline. Those of a sub-team lie within what the contractor has left.
fn team_deadlines(
    opening: &Opening<'_>,
    rules: &TeamRules,
    grant: Option<&SubTeamGrant>,
    now: Timestamp,
) -> Result<(Timestamp, Timestamp), Refusal> {
    let join_by = reply_by(Timers::default().collect, opening.cfp, opening.envelope.scope.as_ref(), now);
    let own_end = now.plus_ms(rules.ends_within_ms);
    let ends_by = grant.map_or(own_end, |grant| grant.ends_by.min(own_end));
    let has_time = ends_by >= join_by.plus_ms(rules.speak_ms.saturating_mul(SPEAK_TIMES_MIN));
    if join_by <= now || rules.ends_within_ms > TIMER_MS_MAX || !has_time {
        return Err(Refusal::unfit(NotUnderstoodReason::BadDeadline));
    }
    Ok((join_by, ends_by))
}

fn new_team(
    opening: &Opening<'_>,
    rules: &TeamRules,
    task_policy: Arc<PinnedPolicy>,
    roster: Roster,
    (join_by, ends_by): (Timestamp, Timestamp),
    context: &InputContext<'_>,
) -> Team {
    let wrap_ms = rules.speak_ms.saturating_mul(WRAP_TIMES);
    Team {
        header: opening.header(ends_by, context.now),
        policy: Arc::clone(&opening.policy),
        reputations: PinnedReputations::of(&opening.policy.policy, opening.invited().into_iter()),
        task_policy,
        rules: Box::new(rules.clone()),
        is_ranked: opening.cfp.policy.is_some(),
        depth_left: rules.depth,
        roster,
        phase: Phase::Forming,
        join_by,
        called_at: context.position,
        wrap_at: Timestamp(ends_by.0.saturating_sub(wrap_ms.saturating_mul(1000))),
        has_wrapped: false,
        step: 0,
        turn: 0,
        holder: 0,
        act_by: ends_by,
        asked: Vec::new(),
        ballot: None,
        attempts: 0,
        recap: std::collections::VecDeque::new(),
        says: DistinctSays::default(),
        tasks: TaskList::default(),
        awaited: None,
        ended: None,
    }
}

fn team_call(opening: &Opening<'_>, spec: &TeamSpec, team: &Team) -> Call {
    let rules = TeamRules::clone(&team.rules);
    let digest = Digest::of(&rules).expect("rules are integers and texts");
    let policy_digest = if team.is_ranked { team.policy.digest } else { digest };
    let policy = if team.is_ranked { team.policy.policy.id.clone() } else { POLICY_WORD.to_owned() };
    let lead = opening.initiator.clone();
    Call {
        team: Some(Box::new(TeamCall { lead, rules, depth_left: team.depth_left, of: spec.of.clone() })),
        ..opening.call(policy, policy_digest, team.join_by, team.header.ends_by)
    }
}

fn called(invitation: &Invitation) -> Called {
    let is_awaited = invitation.qos == Qos::AtLeastOnce && !invitation.durable;
    (invitation.agent.clone(), invitation.qos, is_awaited.then_some(CALL_ATTEMPTS_MAX))
}

/// Whether tasks can be awarded under a policy (docs/spec/team.md#tm-9).
pub(super) fn decides_tasks(policy: &schemas::Policy) -> bool {
    !policy.weights.is_empty() && policy.awards == 1 && policy.decider == Decider::Engine
}

/// The rules as the schema bounds them: of another writer they may be anything. The member that is out of range.
fn check_team(rules: &TeamRules) -> Result<(), &'static str> {
    let ensure = |holds: bool, member| if holds { Ok(()) } else { Err(member) };
    let seats = rules.members;
    ensure(seats.min >= MEMBERS_MIN && seats.min <= seats.max, "members/min")?;
    ensure(seats.max <= MEMBERS_MAX, "members/max")?;
    ensure((1..=TURNS_MAX).contains(&rules.turns), "turns")?;
    ensure((SPEAK_MS_MIN..=SPEAK_MS_MAX).contains(&rules.speak_ms), "speak_ms")?;
    ensure(rules.depth <= DEPTH_MAX, "depth")?;
    ensure((1..=TASKS_MAX).contains(&rules.tasks), "tasks")?;
    let is_vote = rules
        .vote
        .is_none_or(|vote| (1..=TIMER_MS_MAX).contains(&vote.vote_ms) && (1..=ATTEMPTS_MAX).contains(&vote.attempts));
    ensure(is_vote, "vote")?;
    ensure((REPEAT_PPM_MIN..=1_000_000).contains(&rules.repeat_ppm), "repeat_ppm")?;
    ensure((1..=STRIKES_MAX).contains(&rules.max_strikes), "max_strikes")
}
