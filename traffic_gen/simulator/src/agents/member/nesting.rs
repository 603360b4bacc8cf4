//! What owners of tasks do with sub-teams: they call one, report or go away while it is open, and work alone when nothing comes of
//! it. Others call one for a task that is not theirs.

use std::collections::BTreeMap;

use rand::seq::SliceRandom;
use schemas::delivery::{Closing, Delivery, Outcome};
use schemas::ids::FamilyPlace;
use schemas::payload::{Cfp, FailurePhase, Inform, InformKind, Reasoned};
use schemas::team::{TaskAward, TeamSpec};
use schemas::{Address, AgentId, AwardNo, NegotiationId, Payload, WireTime};

use super::SimulatedMember;
use crate::agents::{AgentContext, Draft, Job, contractor, failure};
use crate::faults::AgentFault;
use crate::points::Point;
use crate::scenario::{CONTRACTORS, agent, teams};

/// Owners that call a sub-team where a level is left, in per mille.
const CALLED: u32 = 750;
/// Owners that call one where none is left, in per mille.
const CALLED_IN_VAIN: u32 = 30;
/// Calls for tasks of others, in per mille of the notices that a member is told.
const USURPED: u32 = 15;
/// Leads of sub-teams of which a task is open that give up the award they work for, in per mille of the notices they are told.
const GIVEN_UP: u32 = 80;
/// Members of the team above that are invited, at most.
const INVITED_MAX: usize = 3;
/// Sub-teams to which somebody else is invited as well, in per mille.
const STRANGER_INVITED: u32 = 300;

/// The owner of a task is bound to it: it may call a sub-team. Whether it does.
pub(crate) fn call_sub_team(
    context: &mut AgentContext,
    task: &NegotiationId,
    award_no: Option<AwardNo>,
    members: &mut BTreeMap<NegotiationId, SimulatedMember>,
) -> bool {
    let (Some(award_no), Some(team)) = (award_no, task.parent()) else { return false };
    let Some(above) = members.get(&team) else { return false };
    let rate = if above.depth_left > 0 { CALLED } else { CALLED_IN_VAIN };
    if !context.happens(rate) {
        return false;
    }
    let of = TaskAward { task: task.clone(), award_no };
    let Some((draft, depth)) = above.sub_team(context, of.clone()) else { return false };
    let sub_team = draft.negotiation.clone();
    let after_ms = context.draw(0..60);
    context.say(after_ms, draft);
    if context.errs(AgentFault::SpeakUnasked)
        && let Some((again, _)) = above.sub_team(context, of)
    {
        let again_ms = context.draw(0..500);
        context.say(again_ms, again);
    }
    let lead = SimulatedMember::leading(above.depth_left.saturating_sub(1).min(depth));
    go_away(context, task, &team, &sub_team);
    members.insert(sub_team, lead);
    true
}

/// What some owners do while their sub-team is open.
fn go_away(context: &mut AgentContext, task: &NegotiationId, team: &NegotiationId, sub_team: &NegotiationId) {
    let after_ms = context.draw(300..2500);
    let reasoned = Reasoned::default();
    match context.draw(0..20) {
        0 => contractor::perform(context, task),
        1..3 => report_alone(context, after_ms, task),
        3 => {
            context.reached(Point::OwnerKilled);
            context.plan(after_ms, Job::Crash);
        }
        4 => context.say(after_ms, Draft::new(sub_team, Payload::Cancel(reasoned))),
        5 | 8 => context.say(after_ms, Draft::new(sub_team, Payload::End(reasoned))),
        6 => context.say(after_ms, Draft::new(team, Payload::End(reasoned))),
        7 => context.say(after_ms, Draft::new(task, failure(FailurePhase::Perform))),
        _ => {}
    }
}

fn report_alone(context: &mut AgentContext, after_ms: u64, task: &NegotiationId) {
    let result = Some("by myself".to_owned());
    let report = Inform { kind: InformKind::Result, result, routine: None };
    context.say(after_ms, Draft::new(task, Payload::Inform(report)));
}

/// An owner whose sub-team was refused, or came to nothing, works alone.
pub(crate) fn work_alone(
    context: &mut AgentContext,
    sub_team: &NegotiationId,
    members: &BTreeMap<NegotiationId, SimulatedMember>,
) {
    let FamilyPlace::SubTeam { .. } = sub_team.place() else { return };
    let is_own = members.get(sub_team).is_some_and(|member| member.is_caller);
    if let Some(task) = sub_team.parent().filter(|_| is_own) {
        contractor::perform(context, &task);
    }
}

impl SimulatedMember {
    /// A call to a sub-team for an award of a task of its team, and the levels that it allows.
    fn sub_team(&self, context: &mut AgentContext, of: TaskAward) -> Option<(Draft, u32)> {
        let id = of.task.sub_team(of.award_no)?;
        let mut invited: Vec<AgentId> = self.members.iter().filter(|member| **member != context.id).cloned().collect();
        invited.shuffle(&mut context.rng);
        invited.truncate(1 + context.index(INVITED_MAX));
        if context.happens(STRANGER_INVITED) {
            let stranger = agent(CONTRACTORS[context.index(CONTRACTORS.len())]);
            if stranger != context.id && !invited.contains(&stranger) {
                invited.push(stranger);
            }
        }
        if invited.is_empty() {
            return None;
        }
        let join_within_ms = context.draw(80..200);
        let rules = teams::rules_below(&mut context.rng, join_within_ms);
        let depth = rules.depth;
        let cfp = Cfp {
            task: Some("carry some of the parcels".to_owned()),
            policy: context.happens(200).then(|| "team-seats".to_owned()),
            reply_within_ms: Some(join_within_ms),
            team: Some(Box::new(TeamSpec { rules, of: Some(of) })),
            ..Cfp::default()
        };
        let to = invited.into_iter().map(Address::Agent).collect();
        Some((Draft { to, ..Draft::new(&id, Payload::Cfp(cfp)) }, depth))
    }

    /// Gives up the award that its sub-team works for, while one of the sub-team's tasks may have a sub-team of its own.
    pub(super) fn give_up(&self, context: &mut AgentContext, delivery: &Delivery) {
        let sub_team = &delivery.envelope.negotiation;
        let FamilyPlace::SubTeam { .. } = sub_team.place() else { return };
        let Some((task, team)) = sub_team.parent().and_then(|task| Some((task.clone(), task.parent()?))) else {
            return;
        };
        if !self.is_caller || self.open.is_empty() || self.depth_left == 0 || !context.happens(GIVEN_UP) {
            return;
        }
        let after_ms = context.draw(200..800);
        match context.draw(0..3) {
            0 => report_alone(context, after_ms, &task),
            1 => context.say(after_ms, Draft::new(&task, failure(FailurePhase::Perform))),
            _ => context.say(after_ms, Draft::new(&team, Payload::End(Reasoned::default()))),
        }
    }

    /// Calls a sub-team for a task that is another's, or was never awarded.
    pub(super) fn usurp(&self, context: &mut AgentContext, delivery: &Delivery) {
        let Some(task) = self.open.last().and_then(|task| delivery.envelope.negotiation.task(*task)) else { return };
        if !context.happens(USURPED) {
            return;
        }
        let award_no = AwardNo(1 + u32::from(context.happens(200)));
        if let Some((draft, _)) = self.sub_team(context, TaskAward { task, award_no }) {
            let after_ms = context.draw(0..300);
            context.say(after_ms, draft);
        }
    }
}

/// How a negotiation ended, as an agent was told.
#[derive(Debug, Clone, Copy)]
struct NegotiationEnd {
    outcome: Outcome,
    is_orphaned: bool,
    at: WireTime,
}

/// How every negotiation ended that an agent saw end.
#[derive(Debug, Default)]
pub(crate) struct Ends(BTreeMap<NegotiationId, NegotiationEnd>);

impl Ends {
    /// Whether it was told of the end of a negotiation.
    pub(crate) fn has(&self, negotiation: &NegotiationId) -> bool {
        self.0.contains_key(negotiation)
    }

    /// Notes an end, and counts what it says together with those before; whether it is the first of its negotiation.
    pub(crate) fn note(&mut self, context: &AgentContext, delivery: &Delivery, closing: &Closing) -> bool {
        let id = &delivery.envelope.negotiation;
        if self.has(id) {
            return false;
        }
        let is_orphaned = closing.outcome == Outcome::Cancelled && closing.detail.as_deref() == Some("orphaned");
        let end = NegotiationEnd { outcome: closing.outcome, is_orphaned, at: delivery.envelope.ts };
        if let FamilyPlace::SubTeam { .. } = id.place() {
            match (end.outcome, is_orphaned) {
                (Outcome::Concluded, _) => context.reached(Point::ConclusionRaised),
                (_, true) => context.reached(Point::SubTeamOrphaned),
                (_, false) => context.reached(Point::SubTeamInVain),
            }
        }
        for (other, known) in &self.0 {
            count_pair(context, (id, end), (other, *known));
            count_pair(context, (other, *known), (id, end));
        }
        self.0.insert(id.clone(), end);
        true
    }
}

/// Counts what the end of a negotiation and that of a sub-team below it say together.
fn count_pair(
    context: &AgentContext,
    (upper, above): (&NegotiationId, NegotiationEnd),
    (lower, below): (&NegotiationId, NegotiationEnd),
) {
    let FamilyPlace::SubTeam { .. } = lower.place() else { return };
    let Some(task) = lower.parent() else { return };
    if task == *upper && below.is_orphaned && above.outcome == Outcome::Completed && above.at == below.at {
        context.reached(Point::OwnerReportedAlone);
    }
    let is_next = matches!(upper.place(), FamilyPlace::SubTeam { .. }) && task.parent().as_ref() == Some(upper);
    if is_next && (above.outcome, below.outcome) == (Outcome::Concluded, Outcome::Concluded) {
        context.reached(Point::ConclusionRaisedTwice);
    }
    if is_next && above.is_orphaned && below.is_orphaned && above.at == below.at {
        context.reached(Point::SubTeamOrphanedTwice);
    }
}
