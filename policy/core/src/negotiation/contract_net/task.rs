//! A contract net that is the task of a team (docs/spec/team.md#tasks): how it is entered, called off, and left by a member,
//! what its team hears of it, and what a sub-team is to it.

use std::sync::Arc;

use schemas::delivery::{Call, CloseReason, Disposition, Outcome};
use schemas::payload::{Failure, FailurePhase, Inform, InformKind, Offer};
use schemas::policy::OnIncomplete;
use schemas::team::{Brief, TaskAward, TaskStatus};
use schemas::{AgentId, AwardNo, OfferId, Timestamp, WireTime};
use serde::{Deserialize, Serialize};

use super::ContractNet;
use super::SessionState;
use super::awarding::CancelAnswer;
use super::awards::AwardStage;
use super::collection::Collection;
use super::decision::CloseFacts;
use super::rules::canonical_terms;
use super::session::{CallDelivery, CollectedOffer, ContractorSession};
use crate::acceptance::decision::{AwardLoss, Cause};
use crate::acceptance::reputation::PinnedReputations;
use crate::acceptance::score;
use crate::effect::Event;
use crate::negotiation::disposition::{Incoming, ProtocolRules};
use crate::negotiation::family::{FamilyAction, FamilyOrder, SUB_TEAM_OF, SubTeamGrant, TaskOpening, TaskProgress};
use crate::negotiation::lazy_box::LazyBox;
use crate::negotiation::misunderstanding::NotUnderstoodReason;
use crate::negotiation::{CHAIN_START, Header, InputContext, Party, Refusal};
use schemas::protocols::Phase;

/// An award lost because its contractor has left the team, and a task ended because its assigner has.
const LEFT: &str = "left";

/// What makes a contract net a task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskRole {
    #[serde(with = "schemas::text::json")]
    brief: Brief,
    /// How long its owner may take, in milliseconds; absent: what the policy says.
    perform_ms: Option<u64>,
    /// Whether the assigner named its owner: the exchange has entered the offer.
    is_direct: bool,
    /// Levels of sub-teams that may stand below its team.
    depth_left: u32,
    /// The committed award for which a sub-team was called.
    sub_team: Option<AwardNo>,
    /// Leads of the team that called it off, and take no other part in it.
    leads: Vec<Party>,
    /// Whom its result is told beside the assigner.
    heir: Option<AgentId>,
    /// Why the last award was lost, where its contractor or the time said so.
    lost: Option<Box<str>>,
    /// With what code it fails, where its outcome does not say it.
    failure: Option<Box<str>>,
    /// Its result, between the report and the end, which are one input.
    result: Option<Box<str>>,
    /// Where the team believes it stands, and whose it is.
    reported: (TaskStatus, Option<usize>),
}

/// Opens a task: calls its contractors, or awards it to the owner it names. `input` begins its hash chain.
pub(crate) fn open_task(opening: TaskOpening, input: &[u8], context: &mut InputContext<'_>) -> ContractNet {
    let is_direct = opening.is_direct;
    let call = Arc::new(call_of(&opening));
    let mut task = new_task(opening, &call, context);
    task.header.link(input, context);
    task.announce(&task.pinned.id, task.collection.reply_by(), context);
    if is_direct {
        award_directly(&mut task, context);
    } else {
        let everyone: Vec<usize> = (0..task.sessions.len()).collect();
        task.deliver_call(&call, &everyone, context);
    }
    report_progress(&mut task, context);
    task
}

/// The exchange enters the offer of the owner that was named, and awards it (docs/spec/team.md#tm-32).
fn award_directly(task: &mut ContractNet, context: &mut InputContext<'_>) {
    let empty = Offer::default();
    let offer = CollectedOffer {
        id: OfferId(context.position),
        score: score::score(task.policy(), &empty.terms),
        price: None,
        payment: None,
        valid_until: Timestamp::MAX,
        terms: canonical_terms(&empty),
        document: None,
    };
    let Some(session) = task.sessions.first_mut() else { return };
    (session.offer, session.state) = (Some(Box::new(offer)), SessionState::Offered);
    task.offers = 1;
    task.deciding.note_close(CloseFacts {
        reason: CloseReason::AllResponded,
        complete: true,
        offers: 1,
        responded: 1,
        expected: 1,
        position: context.position,
        decision: None,
    });
    task.decide(None, Cause::Direct, context);
}

/// A lead that calls a task off is heard from then on, whatever its part in it.
pub(crate) fn admit_lead(net: &mut ContractNet, incoming: &Incoming) {
    let is_new = incoming.leads && net.speaker(&incoming.from).is_none();
    if let Some(role) = net.task.as_mut().filter(|_| is_new) {
        role.leads.push(Party::new(incoming.from.clone()));
    }
}

/// Does what the team above or a sub-team below orders.
pub(crate) fn handle_order(task: &mut ContractNet, action: FamilyAction, context: &mut InputContext<'_>) {
    match action {
        FamilyAction::CallOff => handle_call_off(task, context),
        FamilyAction::Abort => task.handle_abort("team_aborted", context),
        FamilyAction::MemberLeft(agent) => handle_member_left(task, &agent, context),
        FamilyAction::DetachFromTeam(lead) => detach_from_team(task, lead),
        FamilyAction::SubTeamCalled(award_no) => note_sub_team(task, award_no),
        FamilyAction::SubTeamConcluded(award_no, text) => handle_conclusion(task, award_no, &text, context),
        FamilyAction::OpenTask(_) | FamilyAction::Progress(..) | FamilyAction::ParentEnded => {
            debug_assert!(false, "an order goes to the parent or a child");
        }
    }
}

/// The team calls a task off.
fn handle_call_off(task: &mut ContractNet, context: &mut InputContext<'_>) {
    if task.phase != Phase::Cancelling {
        task.cancel(context);
    }
}

/// A member has left the team (docs/spec/team.md#tm-51): a task that it assigned ends, its award is lost as by
/// FAILURE{decommit}, and without one it is out of the running.
fn handle_member_left(task: &mut ContractNet, agent: &AgentId, context: &mut InputContext<'_>) {
    if task.initiator.agent == *agent {
        if let Some(role) = task.task.as_mut() {
            role.failure = Some(Box::from(LEFT));
        }
        task.take_all_back(AwardLoss::Cancelled, context);
        return task.end(Outcome::Cancelled, Some(LEFT), context);
    }
    let Some(index) = task.session_of(agent) else { return };
    let Some((lot, award)) = task.awards.of_session(index) else { return task.exclude(index, context) };
    let failure = Failure { phase: FailurePhase::Decommit, code: LEFT.to_owned(), retryable: false, penalty: None };
    match award.stage {
        AwardStage::Awarded => task.lose_award(lot, AwardLoss::Failed, failure, context),
        AwardStage::Committed => task.lose_award(lot, AwardLoss::PerformFailed, failure, context),
        AwardStage::CancelPending => task.answer_cancel(lot, CancelAnswer::Failed(failure), context),
        AwardStage::Done => {}
    }
}

/// The team has concluded without a task: its lead is told the result as well (docs/spec/team.md#tm-49).
fn detach_from_team(task: &mut ContractNet, lead: AgentId) {
    let is_told = lead == task.initiator.agent;
    if let Some(role) = task.task.as_mut().filter(|_| !is_told) {
        role.heir = Some(lead);
    }
}

/// What the contractor of an award may call a sub-team with (docs/spec/team.md#tm-64).
///
/// # Errors
/// Why not.
pub(crate) fn grant_sub_team(
    net: &ContractNet,
    contractor: &AgentId,
    award_no: AwardNo,
) -> Result<SubTeamGrant, Refusal> {
    let not_its_own = || Refusal::silent(Disposition::Unauthorized);
    let (Some(role), Some(session)) = (&net.task, net.session_of(contractor)) else { return Err(not_its_own()) };
    if net.awards.is_revoked(award_no, session) {
        return Err(Refusal::silent(Disposition::Revoked));
    }
    let live = net.awards.of_session(session).filter(|(_, award)| award.award_no == award_no);
    let (_, award) = live.ok_or_else(not_its_own)?;
    match award.stage {
        AwardStage::Awarded => return Err(Refusal::out_of_turn(NotUnderstoodReason::NotAwarded)),
        AwardStage::CancelPending => return Err(Refusal::silent(Disposition::Revoked)),
        AwardStage::Done => return Err(Refusal::silent(Disposition::Closed)),
        AwardStage::Committed => {}
    }
    let no_level = || Refusal::malformed(NotUnderstoodReason::Depth, SUB_TEAM_OF);
    Ok(SubTeamGrant {
        of: TaskAward { task: net.header.id.clone(), award_no },
        ends_by: award.deadline,
        depth_left: role.depth_left.checked_sub(1).ok_or_else(no_level)?,
        traceparent: net.header.traceparent.clone(),
    })
}

/// The contractor of an award has called a sub-team for it.
fn note_sub_team(task: &mut ContractNet, award_no: AwardNo) {
    if let Some(role) = task.task.as_mut() {
        role.sub_team = Some(award_no);
    }
}

/// What the sub-team of an award has concluded is the result of its contractor (docs/spec/team.md#tm-65).
fn handle_conclusion(task: &mut ContractNet, award_no: AwardNo, text: &str, context: &mut InputContext<'_>) {
    if let Some(lot) = task.awards.committed_lot(award_no) {
        let result = Some(text.to_owned());
        task.perform(lot, Inform { kind: InformKind::Result, result, routine: None }, context);
    }
}

/// Tells the team where a task stands, if that has changed, and its sub-team if it has lost the award that it works for. A
/// contract net that is no task has neither.
pub(crate) fn report_progress(net: &mut ContractNet, context: &mut InputContext<'_>) {
    let Some(role) = net.task.as_mut() else { return };
    if let Some(award_no) = role.sub_team.filter(|award_no| net.awards.committed_lot(*award_no).is_none()) {
        role.sub_team = None;
        let is_aborted = net.header.outcome == Some(Outcome::Aborted);
        let action = if is_aborted { FamilyAction::Abort } else { FamilyAction::ParentEnded };
        let order = net.header.id.sub_team(award_no).map(|to| FamilyOrder { to, cause: net.header.chain, action });
        order.into_iter().for_each(|order| context.orders.give(order));
    }
    let (status, owner) = match net.header.outcome {
        None => match net.awards.bound_session() {
            Some(session) => (TaskStatus::Running, Some(session)),
            None => (TaskStatus::Open, None),
        },
        Some(Outcome::Completed) => (TaskStatus::Done, net.awards.session_at(AwardStage::Done)),
        Some(_) => (TaskStatus::Failed, None),
    };
    if role.reported == (status, owner) {
        return;
    }
    role.reported = (status, owner);
    if matches!(status, TaskStatus::Done | TaskStatus::Failed) {
        let (negotiation, is_done) = (net.header.id.clone(), status == TaskStatus::Done);
        let (mode, is_direct) = (role.brief.mode, role.is_direct);
        context.event(Event::TaskEnded { negotiation, mode, is_direct, is_done });
    }
    let progress = TaskProgress {
        status,
        owner: owner.and_then(|index| net.sessions.get(index)).map(|session| session.party.agent.clone()),
        result: role.result.take(),
        code: net.header.outcome.filter(|_| status == TaskStatus::Failed).map(|outcome| role.failure_code(outcome)),
    };
    let action = FamilyAction::Progress(role.brief.task, progress);
    context.orders.give(FamilyOrder { to: role.brief.team.clone(), cause: net.header.chain, action });
}

impl TaskRole {
    /// What is to be done.
    pub(super) fn brief(&self) -> Box<Brief> {
        Box::new(self.brief.clone())
    }

    /// How long its owner may take, in milliseconds, where the assignment says so.
    pub(super) fn perform_ms(&self) -> Option<u64> {
        self.perform_ms
    }

    /// Whether it may hold an offer that came in no message.
    pub(super) fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Leads of the team that called it off, and take no other part in it.
    pub(super) fn leads(&self) -> &[Party] {
        &self.leads
    }

    /// As [`Self::leads`].
    pub(super) fn leads_mut(&mut self) -> &mut [Party] {
        &mut self.leads
    }

    /// Whom its result is told beside the assigner.
    pub(super) fn heir(&self) -> Option<&AgentId> {
        self.heir.as_ref()
    }

    /// Remembers why an award was lost: where nothing better is known, the task failed for want of a candidate.
    pub(super) fn note_loss(&mut self, loss: AwardLoss, failure: &Failure) {
        self.lost = match loss {
            AwardLoss::ConfirmTimeout | AwardLoss::PerformTimeout => Some(Box::from("timeout")),
            AwardLoss::Failed | AwardLoss::PerformFailed => Some(Box::from(failure.code.as_str())),
            AwardLoss::Refused
            | AwardLoss::Undelivered
            | AwardLoss::Cancelled
            | AwardLoss::Timeout
            | AwardLoss::Aborted => None,
        };
    }

    /// Remembers what the owner reports, until the team is told.
    pub(super) fn note_result(&mut self, result: Option<&str>) {
        self.result = result.map(Box::from);
    }

    /// Why it has failed.
    fn failure_code(&self, outcome: Outcome) -> Box<str> {
        if let Some(code) = &self.failure {
            return code.clone();
        }
        if matches!(outcome, Outcome::NoOffers | Outcome::Incomplete) {
            Box::from(Outcome::NoOffers.as_str())
        } else if matches!(outcome, Outcome::Cancelled | Outcome::Timeout | Outcome::Aborted) {
            Box::from(outcome.as_str())
        } else {
            self.lost.clone().unwrap_or_else(|| Box::from(Outcome::NoCandidate.as_str()))
        }
    }
}

/// The call of a task that goes by award.
fn call_of(opening: &TaskOpening) -> Call {
    let (reply_by, ends_by) = (WireTime(opening.reply_by), WireTime(opening.ends_by));
    Call {
        requires: opening.requires.clone(),
        brief: Some(Box::new(opening.brief.clone())),
        ..Call::new(reply_by, ends_by, opening.policy.policy.id.clone(), opening.policy.digest)
    }
}

/// A task in which nothing was said yet.
fn new_task(opening: TaskOpening, call: &Arc<Call>, context: &InputContext<'_>) -> ContractNet {
    let TaskOpening { id, policy, perform_ms, assigner, contractors, is_direct, depth_left, .. } = opening;
    let TaskOpening { brief, ends_by, reply_by, .. } = opening;
    let may_call_again =
        policy.policy.max_rounds > 1 || matches!(policy.policy.on_incomplete, OnIncomplete::Extend { .. });
    let sessions: Box<[ContractorSession]> =
        contractors.into_iter().map(|agent| ContractorSession::new(agent, CallDelivery::AtLeastOnce)).collect();
    ContractNet {
        header: Header {
            id,
            call_msg_id: opening.msg_id,
            left_out: 0,
            notices: None,
            traceparent: opening.traceparent,
            started_at: context.now,
            ends_by,
            outcome: None,
            chain: CHAIN_START,
        },
        initiator: Party::new(assigner),
        collection: Collection::new(&policy.policy, sessions.len(), reply_by, context),
        pinned: policy,
        sessions,
        currency: None,
        documents: None,
        call: (may_call_again && !is_direct).then(|| Arc::clone(call)),
        phase: if is_direct { Phase::Awarding } else { Phase::Collecting },
        round: 1,
        deciding: LazyBox::default(),
        awards: LazyBox::default(),
        offers: 0,
        finals: 0,
        reputations: PinnedReputations::default(),
        task: Some(Box::new(TaskRole {
            brief,
            perform_ms,
            is_direct,
            depth_left,
            sub_team: None,
            leads: Vec::new(),
            heir: None,
            lost: None,
            failure: None,
            result: None,
            reported: (TaskStatus::Open, None),
        })),
    }
}
