//! A contract net that is the task of a team (docs/spec/team.md#tm-26): how it is entered, called off, left by a member, and what
//! the team sees of it.

use policy_core::{AwardLoss, Cause};
use schemas::delivery::{Disposition, Outcome};
use schemas::payload::{Inform, InformKind};
use schemas::policy::WindowAnchor;
use schemas::team::{Brief, TaskStatus};
use schemas::{AgentId, AwardNo, NegotiationId, OfferId, Policy, Timestamp};

use super::opening::{self, Opened};
use super::{ContractNet, HeldOffer, SessionState, Stage};
use crate::{Moment, Wins, scoring};

/// What a team asks of a new task.
#[derive(Debug)]
pub(crate) struct TaskCall {
    pub(crate) id: NegotiationId,
    pub(crate) policy: Policy,
    pub(crate) assigner: AgentId,
    /// Who may offer; of a direct task, its owner.
    pub(crate) contractors: Vec<AgentId>,
    pub(crate) is_direct: bool,
    /// Levels of sub-teams its team may have below it.
    pub(crate) depth_left: u32,
    pub(crate) brief: Brief,
    pub(crate) reply_by: Timestamp,
    pub(crate) ends_by: Timestamp,
}

/// What makes a contract net a task.
#[derive(Debug)]
pub(crate) struct TaskPart {
    pub(super) brief: Brief,
    depth_left: u32,
    /// Who leads the team, and may call the task off.
    pub(super) lead: Option<AgentId>,
    /// Why the last award was lost.
    pub(super) lost: Option<String>,
    /// Whether it fails because its assigner has left.
    is_forsaken: bool,
    pub(super) result: Option<String>,
    /// Who led the team when it concluded without the task.
    pub(super) heir: Option<AgentId>,
}

/// How a task stands.
#[derive(Debug)]
pub(crate) struct TaskStanding {
    pub(crate) has_ended: bool,
    pub(crate) status: TaskStatus,
    pub(crate) owner: Option<AgentId>,
    pub(crate) result: Option<String>,
    pub(crate) code: Option<String>,
}

/// The contract net of a task: with a call like any other, or awarded to the owner it names.
pub(crate) fn of_task(call: TaskCall, moment: Moment, wins: &mut Wins) -> ContractNet {
    let TaskCall { id, mut policy, assigner, contractors, is_direct, depth_left, brief, reply_by, ends_by } = call;
    if is_direct {
        (policy.max_awards, policy.max_rounds, policy.standby) = (1, 1, 0);
    }
    let opened = Opened { id, policy, initiator: assigner, invited: contractors.clone(), reply_by, ends_by };
    let mut one = opening::opened(opened, moment);
    one.task =
        Some(TaskPart { brief, depth_left, lead: None, lost: None, is_forsaken: false, result: None, heir: None });
    if is_direct {
        enter_at_awarding(&mut one, &contractors[0], moment, wins);
    } else {
        one.begin_window(WindowAnchor::Cfp, moment.now);
        one.call(&contractors);
    }
    one
}

/// The exchange enters the offer of the owner that was named.
fn enter_at_awarding(net: &mut ContractNet, owner: &AgentId, moment: Moment, wins: &mut Wins) {
    let offer = HeldOffer {
        id: OfferId(moment.position),
        terms: std::iter::empty().collect(),
        score: scoring::score(&net.policy, &std::iter::empty().collect()),
        payment: None,
        valid_until: Timestamp::MAX,
        documents: Vec::new(),
    };
    let session = net.session(owner);
    (session.offer, session.state) = (Some(offer), SessionState::Offered);
    net.offers = 1;
    net.closed_at = Some(moment.position);
    net.decide(None, Cause::Direct, moment, wins);
}

/// A member has left the team: what it assigned ends, its live award is lost as by FAILURE{decommit}, its offer is none.
pub(crate) fn handle_member_left(net: &mut ContractNet, agent: &AgentId, moment: Moment, wins: &mut Wins) {
    if net.outcome.is_some() {
        return;
    }
    if net.initiator == *agent {
        net.task.as_mut().expect("a task").is_forsaken = true;
        net.take_all_back(AwardLoss::Cancelled);
        return net.end(Outcome::Cancelled, moment);
    }
    if !net.sessions.contains_key(agent) {
        return;
    }
    let Some(lot) = net.lot_of(agent) else { return net.exclude(agent, moment, wins) };
    let stage = net.lots[lot].award.as_ref().expect("live").stage;
    net.note_loss_code(Some("left".to_owned()));
    match stage {
        Stage::Awarded => net.lose(lot, AwardLoss::Failed, moment, wins),
        Stage::Committed => net.lose(lot, AwardLoss::PerformFailed, moment, wins),
        Stage::CancelPending => net.answer_cancel(lot, None, moment),
        Stage::Done => {}
    }
}

/// What the contractor of an award may call a sub-team with: its end at the latest, and the levels below it.
pub(crate) fn sub_team(
    net: &ContractNet,
    contractor: &AgentId,
    award_no: AwardNo,
) -> Result<(Timestamp, u32), (Disposition, Option<&'static str>)> {
    let award = net.lots.iter().filter_map(|lot| lot.award.as_ref());
    let award = award.into_iter().find(|award| award.no == award_no && award.contractor == *contractor);
    let is_past = net.past.contains(&(award_no, contractor.clone()));
    let was_asked = net.sessions.contains_key(contractor);
    match (award, &net.task) {
        (_, Some(_)) if is_past => Err((Disposition::Revoked, None)),
        (_, Some(_)) if was_asked && net.outcome.is_some() => Err((Disposition::Closed, None)),
        (Some(award), Some(_)) if award.stage == Stage::CancelPending => Err((Disposition::Revoked, None)),
        (Some(award), Some(_)) if award.stage == Stage::Awarded => Err((Disposition::OutOfTurn, Some("not_awarded"))),
        (Some(_), Some(task)) if task.depth_left == 0 => Err((Disposition::Malformed, Some("depth"))),
        (Some(award), Some(task)) => Ok((award.deadline, task.depth_left - 1)),
        (_, _) => Err((Disposition::Unauthorized, None)),
    }
}

/// Whether this award is committed now.
pub(crate) fn is_committed(net: &ContractNet, award_no: AwardNo) -> bool {
    let mut awards = net.lots.iter().filter_map(|lot| lot.award.as_ref());
    awards.any(|award| award.no == award_no && award.stage == Stage::Committed)
}

/// The sub-team of an award has concluded: its contractor has a result (docs/spec/team.md#tm-65).
pub(crate) fn take_conclusion(net: &mut ContractNet, award_no: AwardNo, text: &str, moment: Moment) {
    if is_committed(net, award_no) {
        let lot = net.lots.iter().position(|lot| lot.award.as_ref().is_some_and(|award| award.no == award_no));
        let inform = Inform { kind: InformKind::Result, result: Some(text.to_owned()), routine: None };
        net.perform(lot.expect("it is committed"), &inform, moment);
    }
}

/// How it stands.
pub(crate) fn standing(net: &ContractNet) -> TaskStanding {
    let bound = |state: SessionState| {
        let sessions = net.sessions.iter();
        sessions.filter(|(_, session)| session.state == state).map(|(agent, _)| agent.clone()).next()
    };
    let lost = net.task.as_ref().and_then(|task| task.lost.clone());
    let result = net.task.as_ref().and_then(|task| task.result.clone());
    let status = |status, owner| TaskStanding { has_ended: false, status, owner, result: None, code: None };
    let code = match net.outcome {
        None => {
            let was_bound = |award: &&super::Award| match award.stage {
                Stage::Committed => true,
                Stage::CancelPending => !net.past.contains(&(award.no, award.contractor.clone())),
                Stage::Awarded | Stage::Done => false,
            };
            let owner = net.lots.iter().filter_map(|lot| lot.award.as_ref()).find(was_bound);
            let is = if owner.is_some() { TaskStatus::Running } else { TaskStatus::Open };
            return status(is, owner.map(|award| award.contractor.clone()));
        }
        Some(Outcome::Completed) => {
            let done = status(TaskStatus::Done, bound(SessionState::Done));
            return TaskStanding { has_ended: true, result, ..done };
        }
        Some(_) if net.task.as_ref().is_some_and(|task| task.is_forsaken) => "left".to_owned(),
        Some(Outcome::NoOffers | Outcome::Incomplete) => "no_offers".to_owned(),
        Some(Outcome::Cancelled) => "cancelled".to_owned(),
        Some(Outcome::Timeout) => "timeout".to_owned(),
        Some(Outcome::Aborted) => "aborted".to_owned(),
        Some(_) => lost.unwrap_or_else(|| "no_candidate".to_owned()),
    };
    TaskStanding { has_ended: true, code: Some(code), ..status(TaskStatus::Failed, None) }
}
