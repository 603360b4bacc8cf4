//! Lost awards and what follows: the next runner-up, a new round, or the end (docs/spec/contract-net.md#cn-51).

use schemas::AwardNo;
use schemas::delivery::{Cancellation, ContractorFailure, Notification, Outcome, RejectReason};
use schemas::payload::Failure;
use schemas::policy::HoldUntil;
use schemas::register::AwardEnd;

use crate::acceptance::decision::Cause;
use crate::acceptance::tie_break::OfferCandidate;
use crate::contract_net::admission::said;
use crate::contract_net::state::SessionState;
use crate::contract_net::{ContractNet, lot_number};
use crate::effect::{AwardLoss, Deliver, Event};
use crate::negotiation::context::InputContext;
use crate::negotiation::party::{AwardStage, RevokedAward};
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// No CONFIRM in time (docs/spec/contract-net.md#cn-47).
    pub(crate) fn handle_confirm_timeout(&mut self, lot: usize, context: &mut InputContext<'_>) {
        self.lose_award(lot, AwardLoss::ConfirmTimeout, said("confirm_timeout"), context);
    }

    /// No report in time (docs/spec/contract-net.md#cn-50).
    pub(crate) fn handle_perform_timeout(&mut self, lot: usize, context: &mut InputContext<'_>) {
        self.lose_award(lot, AwardLoss::PerformTimeout, said("perform_timeout"), context);
    }

    /// The award is taken back, the initiator told, the next runner-up tried.
    pub(crate) fn lose_award(&mut self, lot: usize, loss: AwardLoss, failure: Failure, context: &mut InputContext<'_>) {
        let Some((award_no, session)) = self.take_back(lot, loss, context) else { return };
        let state = if loss == AwardLoss::ConfirmTimeout { SessionState::Lapsed } else { SessionState::Failed };
        self.set_state(session, state);
        let contractor = self.sessions[session].party.agent.clone();
        let told = Notification::Failure(ContractorFailure { contractor, award_no, failure });
        let after = Some(self.end_key(lot, award_no));
        self.report(context, told, after);
        self.award_next(lot, loss, context);
        self.settle(context);
    }

    /// Ends a live award: the register learns that it never bound, the contractor gets its CANCEL. After the contractor's
    /// own FAILURE while bound there is no CANCEL: the CLOSED at the end is then its final notice.
    pub(super) fn take_back(
        &mut self,
        lot: usize,
        loss: AwardLoss,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, usize)> {
        let award = self.lots[lot].award.take()?;
        let (award_no, session) = (award.award_no, award.session);
        // An aborted negotiation may be one whose register entry is refused: nothing may wait for it.
        if award.stage == AwardStage::Awarded && loss != AwardLoss::Aborted {
            self.register_end(lot, award_no, AwardEnd::Revoked, context);
        }
        self.revoked_awards.push(RevokedAward { award_no, session, lot });
        let contractor = self.sessions[session].party.agent.clone();
        if loss != AwardLoss::PerformFailed && award.stage != AwardStage::CancelPending {
            self.cancel_award(lot, session, award_no, loss, context);
        }
        context.event(Event::AwardLost {
            negotiation: self.header.id.clone(),
            lot: lot_number(lot),
            award_no,
            contractor,
            loss,
        });
        Some((award_no, session))
    }

    /// CANCEL after an ACCEPT: the final notice of the award's offer.
    pub(super) fn cancel_award(
        &mut self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        loss: AwardLoss,
        context: &mut InputContext<'_>,
    ) {
        let reason = match loss {
            AwardLoss::ConfirmTimeout => "confirm_timeout",
            AwardLoss::PerformTimeout => "perform_timeout",
            AwardLoss::Cancelled => "cancelled",
            AwardLoss::Timeout => "timeout",
            AwardLoss::Aborted => "aborted",
            AwardLoss::Refused | AwardLoss::Failed | AwardLoss::PerformFailed | AwardLoss::Undelivered => "revoked",
        };
        let told = Notification::Cancel(Cancellation { award_no, reason: reason.to_owned() });
        let delivery = self.header.delivery(context, &self.sessions[session].party.agent, told);
        let after = (loss != AwardLoss::Aborted).then(|| self.end_key(lot, award_no));
        context.deliver(Deliver { after, ..delivery });
        let session = &mut self.sessions[session];
        self.finals += u32::from(session.offer.take().is_some());
        session.is_owed_closed = false;
    }

    /// The next runner-up whose offer stands long enough to be confirmed (docs/spec/contract-net.md#cn-51).
    fn award_next(&mut self, lot: usize, loss: AwardLoss, context: &mut InputContext<'_>) {
        let needed_until = context.clock.plus_ms(self.policy().timers_ms.confirm);
        while self.lots[lot].tries < self.policy().max_awards && !self.standby.is_empty() {
            let session = self.standby.remove(0);
            let stands = self.sessions[session].offer.as_ref().is_some_and(|offer| offer.is_valid(needed_until));
            if !stands {
                self.reject(session, RejectReason::Expired, SessionState::Rejected, context);
                continue;
            }
            let held: Vec<OfferCandidate> = std::iter::once(&session)
                .chain(&self.standby)
                .filter_map(|&index| self.candidate(index, false, context))
                .collect();
            let decision = self.decision(&held, &[(lot, session)], Cause::ReAward(loss), context);
            return self.award(lot, session, decision, context);
        }
    }

    /// After every change of a lot: where the negotiation stands now (docs/spec/contract-net.md#cn-53).
    pub(super) fn settle(&mut self, context: &mut InputContext<'_>) {
        if matches!(self.phase, Phase::Ended | Phase::Cancelling | Phase::Collecting) {
            return;
        }
        let (awarded, committed) = (self.has_stage(AwardStage::Awarded), self.has_stage(AwardStage::Committed));
        if awarded {
            return self.enter(Phase::Awarding, context);
        }
        if committed {
            if self.policy().hold_until == HoldUntil::Confirm {
                self.release_standby(context);
            }
            return self.enter(Phase::Performing, context);
        }
        if self.has_stage(AwardStage::Done) {
            return self.end(Outcome::Completed, None, context);
        }
        // 12b: everyone but those who failed or lapsed is called again.
        let called: Vec<usize> = (0..self.sessions.len())
            .filter(|&index| {
                let state = self.sessions[index].state;
                !matches!(
                    state,
                    SessionState::Failed | SessionState::Undelivered | SessionState::Lapsed | SessionState::Excluded
                )
            })
            .collect();
        if !self.begin_round(&called, context) {
            self.end(Outcome::NoCandidate, None, context);
        }
    }

    /// The runners-up are let go (docs/spec/contract-net.md#cn-52).
    fn release_standby(&mut self, context: &mut InputContext<'_>) {
        for index in std::mem::take(&mut self.standby) {
            self.reject(index, RejectReason::Awarded, SessionState::Rejected, context);
        }
    }
}
