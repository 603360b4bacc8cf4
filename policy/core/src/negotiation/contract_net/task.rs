//! A contract net that is the task of a team (docs/spec/team.md#tasks): how it is entered, called off, and left by a member, and
//! what its team hears of it.

use std::sync::Arc;

use schemas::delivery::{Call, CloseReason, Notification, Outcome};
use schemas::payload::{Failure, FailurePhase, Offer};
use schemas::policy::OnIncomplete;
use schemas::team::{Brief, TaskStatus};
use schemas::{AgentId, OfferId, Timestamp, WireTime};
use serde::{Deserialize, Serialize};

use super::ContractNet;
use super::awarding::CancelAnswer;
use super::awards::{AwardStage, Awards};
use super::collection::Collection;
use super::decision::{CloseFacts, Deciding};
use super::rules::canonical_terms;
use super::session::{CallDelivery, CollectedOffer, ContractorSession};
use crate::acceptance::decision::{AwardLoss, Cause};
use crate::acceptance::score;
use crate::effect::Deliver;
use crate::negotiation::disposition::{Incoming, ProtocolRules};
use crate::negotiation::family::{FamilyDeed, FamilyOrder, TaskOpening, TaskProgress};
use crate::negotiation::{CHAIN_START, Header, InputContext, Party};
use crate::protocol::{Phase, Protocol, SessionState};

/// An award lost because its contractor has left the team.
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
    /// Leads of the team that called it off, and take no other part in it.
    leads: Vec<Party>,
    /// Whom its result is told beside the assigner.
    heir: Option<AgentId>,
    /// Why the last award was lost, where its contractor or the time said so.
    lost: Option<Box<str>>,
    /// Its result, between the report and the end, which are one input.
    result: Option<Box<str>>,
    /// Where the team believes it stands, and whose it is.
    reported: (TaskStatus, Option<usize>),
}

impl TaskRole {
    /// Leads of the team that called it off.
    pub(super) fn leads_mut(&mut self) -> &mut [Party] {
        &mut self.leads
    }
}

impl ContractNet {
    /// Opens a task: calls its contractors, or awards it to the owner it names. `input` begins its hash chain.
    pub(crate) fn open_task(opening: TaskOpening, input: &[u8], context: &mut InputContext<'_>) -> Self {
        let is_direct = opening.is_direct;
        let call = Arc::new(call_of(&opening));
        let mut task = new_task(opening, &call, context);
        task.header.link(input, context);
        let (invited, reply_by) = (task.sessions.len(), task.collection.reply_by());
        task.header.announce(Protocol::ContractNet, &task.pinned.id, invited, reply_by, context);
        if is_direct {
            task.award_directly(context);
        } else {
            let everyone: Vec<usize> = (0..task.sessions.len()).collect();
            task.deliver_call(&call, &everyone, context);
        }
        task.report_progress(context);
        task
    }

    /// The exchange enters the offer of the owner that was named, and awards it (docs/spec/team.md#tm-32).
    fn award_directly(&mut self, context: &mut InputContext<'_>) {
        let empty = Offer::default();
        let offer = CollectedOffer {
            id: OfferId(context.position),
            score: score::score(self.policy(), &empty.terms),
            price: None,
            payment: None,
            valid_until: Timestamp::MAX,
            terms: canonical_terms(&empty),
            document: None,
        };
        let Some(session) = self.sessions.first_mut() else { return };
        (session.offer, session.state) = (Some(Box::new(offer)), SessionState::Offered);
        self.offers = 1;
        self.deciding.note_close(CloseFacts {
            reason: CloseReason::AllResponded,
            complete: true,
            offers: 1,
            responded: 1,
            expected: 1,
            position: context.position,
            decision: None,
        });
        self.decide(None, Cause::Direct, context);
    }

    /// What is to be done, of a task.
    pub(super) fn brief(&self) -> Option<Box<Brief>> {
        self.task.as_ref().map(|task| Box::new(task.brief.clone()))
    }

    /// How long a contractor may take that is bound, in milliseconds.
    pub(super) fn perform_ms(&self) -> u64 {
        let own = self.task.as_ref().and_then(|task| task.perform_ms);
        own.unwrap_or(self.policy().timers_ms.perform)
    }

    /// Whether it may hold an offer that came in no message.
    pub(super) fn is_direct(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.is_direct)
    }

    /// Leads of the team that called it off, and take no other part in it.
    pub(super) fn leads(&self) -> &[Party] {
        self.task.as_ref().map_or(&[], |task| &task.leads)
    }

    /// As [`Self::leads`].
    pub(super) fn leads_mut(&mut self) -> &mut [Party] {
        self.task.as_mut().map_or(&mut [], |task| task.leads_mut())
    }

    /// A lead that calls the task off is heard from then on, whatever its part in it.
    pub(crate) fn admit_lead(&mut self, incoming: &Incoming) {
        let is_new = incoming.leads && self.speaker(&incoming.from).is_none();
        if let Some(task) = self.task.as_mut().filter(|_| is_new) {
            task.leads.push(Party::new(incoming.from.clone()));
        }
    }

    /// The team calls it off.
    pub(crate) fn handle_call_off(&mut self, context: &mut InputContext<'_>) {
        if self.phase != Phase::Cancelling {
            self.cancel(context);
        }
    }

    /// A member has left the team: its award is lost as by FAILURE{decommit} (docs/spec/team.md#tm-51).
    pub(crate) fn handle_member_left(&mut self, agent: &AgentId, context: &mut InputContext<'_>) {
        let Some((lot, award)) = self.session_of(agent).and_then(|index| self.awards.of_session(index)) else { return };
        let failure = Failure { phase: FailurePhase::Decommit, code: LEFT.to_owned(), retryable: false, penalty: None };
        match award.stage {
            AwardStage::Awarded => self.lose_award(lot, AwardLoss::Failed, failure, context),
            AwardStage::Committed => self.lose_award(lot, AwardLoss::PerformFailed, failure, context),
            AwardStage::CancelPending => self.answer_cancel(lot, CancelAnswer::Failed(failure), context),
            AwardStage::Done => {}
        }
    }

    /// The team has concluded without it: its lead is told the result as well (docs/spec/team.md#tm-49).
    pub(crate) fn outlive_team(&mut self, lead: AgentId) {
        let is_told = lead == self.initiator.agent;
        if let Some(task) = self.task.as_mut().filter(|_| !is_told) {
            task.heir = Some(lead);
        }
    }

    /// Tells the lead of a team that has concluded what the assigner is told.
    pub(super) fn tell_heir(&self, from: &AgentId, told: &Notification, context: &mut InputContext<'_>) {
        if let Some(heir) = self.task.as_ref().and_then(|task| task.heir.as_ref()) {
            let delivery = self.header.delivery(context, heir, told.clone());
            context.deliver(Deliver { from: Some(from.clone()), ..delivery });
        }
    }

    /// Remembers why an award was lost: where nothing better is known, the task failed for want of a candidate.
    pub(super) fn note_loss(&mut self, loss: AwardLoss, failure: &Failure) {
        let Some(task) = &mut self.task else { return };
        task.lost = match loss {
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
        if let Some(task) = &mut self.task {
            task.result = result.map(Box::from);
        }
    }

    /// Tells the team where the task stands, if that has changed.
    pub(crate) fn report_progress(&mut self, context: &mut InputContext<'_>) {
        let (status, owner) = match self.header.outcome {
            None => match self.awards.session_at(AwardStage::Committed) {
                Some(session) => (TaskStatus::Running, Some(session)),
                None => (TaskStatus::Open, None),
            },
            Some(Outcome::Completed) => (TaskStatus::Done, self.awards.session_at(AwardStage::Done)),
            Some(_) => (TaskStatus::Failed, None),
        };
        let code = (status == TaskStatus::Failed).then(|| self.failure_code());
        let Some(task) = self.task.as_mut().filter(|task| task.reported != (status, owner)) else { return };
        task.reported = (status, owner);
        let progress = TaskProgress {
            status,
            owner: owner.and_then(|index| self.sessions.get(index)).map(|session| session.party.agent.clone()),
            result: task.result.take(),
            code,
        };
        let deed = FamilyDeed::Progress(task.brief.task, progress);
        context.orders.give(FamilyOrder { to: task.brief.team.clone(), cause: self.header.chain, deed });
    }

    /// Why a task has failed.
    fn failure_code(&self) -> Box<str> {
        let lost = self.task.as_ref().and_then(|task| task.lost.clone());
        match self.header.outcome {
            Some(Outcome::NoOffers | Outcome::Incomplete) => Box::from("no_offers"),
            Some(Outcome::Cancelled) => Box::from("cancelled"),
            Some(Outcome::Timeout) => Box::from("timeout"),
            Some(Outcome::Aborted) => Box::from("aborted"),
            Some(_) | None => lost.unwrap_or_else(|| Box::from("no_candidate")),
        }
    }
}

/// The call of a task that goes by award.
fn call_of(opening: &TaskOpening) -> Call {
    Call {
        task: None,
        round: 1,
        reply_by: WireTime(opening.reply_by),
        ends_by: WireTime(opening.ends_by),
        policy: opening.policy.policy.id.clone(),
        policy_digest: opening.policy.digest,
        lots: 1,
        requires: opening.requires.clone(),
        constraints: Offer::default().terms,
        currency: None,
        documents: None,
        bargain: None,
        team: None,
        brief: Some(Box::new(opening.brief.clone())),
    }
}

/// A task in which nothing was said yet.
fn new_task(opening: TaskOpening, call: &Arc<Call>, context: &InputContext<'_>) -> ContractNet {
    let TaskOpening { id, policy, perform_ms, assigner, contractors, is_direct, brief, ends_by, reply_by, .. } =
        opening;
    let may_call_again =
        policy.policy.max_rounds > 1 || matches!(policy.policy.on_incomplete, OnIncomplete::Extend { .. });
    let sessions: Vec<ContractorSession> =
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
        deciding: Deciding::default(),
        awards: Awards::default(),
        offers: 0,
        finals: 0,
        task: Some(Box::new(TaskRole {
            brief,
            perform_ms,
            is_direct,
            leads: Vec::new(),
            heir: None,
            lost: None,
            result: None,
            reported: (TaskStatus::Open, None),
        })),
    }
}
