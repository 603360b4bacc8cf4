//! The state of one contract net, and the small steps every state shares: timers, tallies, deliveries.

pub(crate) mod admission;
mod awarding;
mod cancelling;
mod closing;
mod collecting;
pub(crate) mod deciding;
mod ending;
pub(crate) mod opening;
mod performing;
mod ranking;
mod re_awarding;
pub(crate) mod rules;
pub(crate) mod state;

use std::sync::Arc;

use schemas::delivery::{Call, CloseReason, Notification, RejectReason, Rejection};
use schemas::ids::Position;
use schemas::{AgentId, AwardNo, Digest, Lot, Policy, RegisterKey, Timestamp};

use crate::acceptance::threshold::Period;
use crate::contract_net::state::SessionState;
use crate::effect::Deliver;
use crate::negotiation::context::InputContext;
use crate::negotiation::header::Header;
use crate::negotiation::party::{AwardStage, ContractorSession, LotState, Party, RevokedAward};
use crate::negotiation::phase::{Phase, Timer, TimerKind};

/// What the negotiation runs under; shared between all that run under the same document.
#[derive(Debug)]
pub(crate) struct PinnedPolicy {
    pub(crate) policy: Policy,
    pub(crate) digest: Digest,
    pub(crate) id: Arc<str>,
}

/// Facts of the last close, for the decisions and news that follow from it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CloseFacts {
    pub(crate) reason: CloseReason,
    pub(crate) complete: bool,
    pub(crate) offers: u32,
    pub(crate) responded: u32,
    pub(crate) expected: u32,
    pub(crate) position: Position,
    /// Digest of the last decision.
    pub(crate) decision: Option<Digest>,
}

/// The valid offers, counted. Exact while `is_stale` is false and the next expiry lies ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfferTally {
    pub(crate) valid: u32,
    pub(crate) best: Option<u32>,
    pub(crate) next_expiry: Timestamp,
    pub(crate) is_stale: bool,
}

impl OfferTally {
    pub(crate) const EMPTY: Self = Self { valid: 0, best: None, next_expiry: Timestamp::MAX, is_stale: false };

    pub(crate) fn add(&mut self, score: u32, valid_until: Timestamp) {
        self.valid += 1;
        self.best = self.best.max(Some(score));
        self.next_expiry = self.next_expiry.min(valid_until);
    }
}

/// One open negotiation.
#[derive(Debug)]
pub(crate) struct ContractNet {
    pub(crate) header: Header,
    pub(crate) pinned: Arc<PinnedPolicy>,
    pub(crate) initiator: Party,
    /// The contractors, in the order of their ids.
    pub(crate) sessions: Vec<ContractorSession>,
    pub(crate) currency: Option<Box<str>>,
    /// The call, kept only where it may have to be sent again (more rounds, extensions).
    pub(crate) call: Option<Arc<Call>>,
    pub(crate) phase: Phase,
    pub(crate) round: u32,
    /// The round's collection period as first announced.
    pub(crate) period: Period,
    pub(crate) reply_by: Timestamp,
    /// Where the round's CFPs were made: their delivery ids follow from it. The session's index is the ordinal.
    pub(crate) called_at: Position,
    /// Number of the input that made them, in the lane's count.
    pub(crate) called_input: u64,
    pub(crate) extensions: u32,
    pub(crate) expected: u32,
    pub(crate) responded: u32,
    pub(crate) tally: OfferTally,
    pub(crate) window_at: Option<Timestamp>,
    pub(crate) is_window_past: bool,
    pub(crate) crossing_at: Option<Timestamp>,
    pub(crate) decide_by: Option<Timestamp>,
    pub(crate) cancel_by: Option<Timestamp>,
    pub(crate) close: Option<CloseFacts>,
    pub(crate) lots: Vec<LotState>,
    /// Sessions held back, best first.
    pub(crate) standby: Vec<usize>,
    pub(crate) awards: u32,
    pub(crate) revoked_awards: Vec<RevokedAward>,
    pub(crate) last_key: Option<RegisterKey>,
    /// Offers with disposition `ok`, and final notices given: equal at the end.
    pub(crate) offers: u32,
    pub(crate) finals: u32,
}

impl ContractNet {
    pub(crate) fn policy(&self) -> &Policy {
        &self.pinned.policy
    }

    pub(crate) fn session_of(&self, agent: &AgentId) -> Option<usize> {
        self.sessions.binary_search_by(|session| session.party.agent.cmp(agent)).ok()
    }

    /// The timer that is due first.
    pub(crate) fn next_timer(&self) -> Option<Timer> {
        let mut first = match self.phase {
            Phase::Ended => return None,
            Phase::Cancelling
            | Phase::Deciding
            | Phase::Awarding
            | Phase::Performing
            | Phase::Collecting
            | Phase::Joining
            | Phase::Bargaining
            | Phase::Confirming => (self.header.ends_by, TimerKind::Hard),
        };
        let mut consider = |deadline: Option<Timestamp>, kind: TimerKind| {
            if let Some(deadline) = deadline {
                first = first.min((deadline, kind));
            }
        };
        if self.phase == Phase::Collecting {
            consider(Some(self.reply_by), TimerKind::Collect);
            consider(self.window_at, TimerKind::Window);
            consider(self.crossing_at, TimerKind::Crossing);
        }
        consider(self.decide_by, TimerKind::Decide);
        consider(self.cancel_by, TimerKind::Cancel);
        for (index, lot) in (0..).zip(&self.lots) {
            let Some(award) = &lot.award else { continue };
            match award.stage {
                AwardStage::Awarded => consider(Some(award.deadline), TimerKind::Confirm(index)),
                AwardStage::Committed => consider(Some(award.deadline), TimerKind::Perform(index)),
                AwardStage::Done | AwardStage::CancelPending => {}
            }
        }
        Some(first)
    }

    /// What a timer does.
    pub(crate) fn fire(&mut self, kind: TimerKind, context: &mut InputContext<'_>) {
        let lot = |lot: u32| usize::try_from(lot).unwrap_or(usize::MAX);
        match kind {
            TimerKind::Hard => self.handle_hard_deadline(context),
            TimerKind::Collect => self.handle_collect(context),
            TimerKind::Window => self.handle_window(context),
            TimerKind::Crossing => self.handle_crossing(context),
            TimerKind::Decide => self.handle_decide(context),
            TimerKind::Confirm(number) => self.handle_confirm_timeout(lot(number), context),
            TimerKind::Perform(number) => self.handle_perform_timeout(lot(number), context),
            TimerKind::Cancel => self.handle_cancel_timeout(context),
            // Of bargains.
            TimerKind::Join | TimerKind::Deadline | TimerKind::Turn | TimerKind::Standing | TimerKind::Agreement => {}
        }
    }

    pub(crate) fn enter(&mut self, phase: Phase, context: &mut InputContext<'_>) {
        if self.phase != phase {
            self.header.note_transition(self.phase, phase, context);
            self.phase = phase;
        }
    }

    /// Changes a session's state and keeps the count of responses.
    pub(crate) fn set_state(&mut self, index: usize, state: SessionState) {
        let (round, phase) = (self.round, self.phase);
        let session = &mut self.sessions[index];
        if phase == Phase::Collecting && session.round == round {
            self.responded -= u32::from(session.state.is_response());
            self.responded += u32::from(state.is_response());
        }
        session.state = state;
    }

    /// Brings the tally up to `now`. Counts all offers only when one left the running or has expired since.
    pub(crate) fn refresh_tally(&mut self, now: Timestamp) {
        if self.tally.is_stale || self.tally.next_expiry < now {
            self.tally = OfferTally::EMPTY;
            for session in &self.sessions {
                if let (SessionState::Offered, Some(offer)) = (session.state, &session.offer)
                    && offer.is_valid(now)
                {
                    self.tally.add(offer.score, offer.valid_until);
                }
            }
        }
    }

    /// A delivery to the initiator about its call.
    pub(crate) fn report(&self, context: &mut InputContext<'_>, told: Notification, after: Option<RegisterKey>) {
        let delivery = self.header.delivery(context, &self.initiator.agent, told);
        context.deliver(Deliver { in_reply_to: Some(self.header.call_msg_id.clone()), after, ..delivery });
    }

    /// The final notice REJECT for the offer a session has in the running; the offer leaves it.
    pub(crate) fn reject(
        &mut self,
        index: usize,
        reason: RejectReason,
        state: SessionState,
        context: &mut InputContext<'_>,
    ) {
        self.reject_offer(index, reason, context);
        self.set_state(index, state);
    }

    /// As [`Self::reject`], without a change of state.
    pub(crate) fn reject_offer(&mut self, index: usize, reason: RejectReason, context: &mut InputContext<'_>) {
        let Some(offer) = self.sessions[index].offer.take() else { return };
        self.tally.is_stale = true;
        self.finals += 1;
        let told = Notification::Reject(Rejection { offer_id: Some(offer.id), reason, code: None });
        let delivery = self.header.delivery(context, &self.sessions[index].party.agent, told);
        context.deliver(Deliver { in_reply_to: Some(offer.msg_id), ..delivery });
    }

    pub(crate) fn award_key(&self, lot: usize, award_no: AwardNo) -> RegisterKey {
        RegisterKey::Award(self.header.id.clone(), lot_number(lot), award_no)
    }

    pub(crate) fn end_key(&self, lot: usize, award_no: AwardNo) -> RegisterKey {
        RegisterKey::AwardEnd(self.header.id.clone(), lot_number(lot), award_no)
    }

    /// The lot a session has a live award for.
    pub(crate) fn lot_of(&self, session: usize) -> Option<usize> {
        self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(|award| award.session == session))
    }

    pub(crate) fn has_stage(&self, stage: AwardStage) -> bool {
        self.lots.iter().any(|lot| lot.award.as_ref().is_some_and(|award| award.stage == stage))
    }
}

/// The number of a lot. Policies have at most [`crate::policy::COUNT_MAX`] of them.
pub(crate) fn lot_number(index: usize) -> Lot {
    Lot(u32::try_from(index).unwrap_or(u32::MAX))
}
