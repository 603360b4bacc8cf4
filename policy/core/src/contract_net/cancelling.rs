//! CANCELLING: the initiator calls it off (docs/spec/contract-net.md#cn-55).

use schemas::delivery::{ContractorFailure, Notification, Outcome, RejectReason};
use schemas::payload::InformKind;
use schemas::register::AwardEnd;

use crate::contract_net::ContractNet;
use crate::contract_net::admission::CancelAnswer;
use crate::contract_net::state::SessionState;
use crate::effect::{AwardLoss, Deliver};
use crate::negotiation::context::InputContext;
use crate::negotiation::party::{AwardStage, RevokedAward};
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// CANCEL of the initiator (docs/spec/contract-net.md#cn-55).
    pub(super) fn cancel(&mut self, context: &mut InputContext<'_>) {
        self.standby.clear();
        for index in 0..self.sessions.len() {
            if matches!(self.sessions[index].state, SessionState::Offered | SessionState::Standby) {
                self.reject(index, RejectReason::Cancelled, SessionState::Rejected, context);
            }
        }
        for lot in 0..self.lots.len() {
            self.call_off(lot, context);
        }
        self.decide_by = None;
        if self.has_stage(AwardStage::CancelPending) {
            self.cancel_by = Some(context.clock.plus_ms(self.policy().timers_ms.cancel).min(self.header.ends_by));
            self.enter(Phase::Cancelling, context);
        } else {
            self.end(Outcome::Cancelled, None, context);
        }
    }

    /// Asks the contractor of a lot to stop.
    fn call_off(&mut self, lot: usize, context: &mut InputContext<'_>) {
        let Some(award) = self.lots[lot].award.as_mut() else { return };
        let (award_no, session, stage) = (award.award_no, award.session, award.stage);
        match stage {
            AwardStage::Done | AwardStage::CancelPending => return,
            AwardStage::Awarded | AwardStage::Committed => award.stage = AwardStage::CancelPending,
        }
        if stage == AwardStage::Awarded {
            self.register_end(lot, award_no, AwardEnd::Revoked, context);
            self.revoked_awards.push(RevokedAward { award_no, session, lot });
        }
        self.cancel_award(lot, session, award_no, AwardLoss::Cancelled, context);
        self.set_state(session, SessionState::CancelPending);
    }

    /// The contractor answers (docs/spec/contract-net.md#cn-56).
    pub(super) fn answer_cancel(&mut self, lot: usize, answer: CancelAnswer, context: &mut InputContext<'_>) {
        let Some(award) = &self.lots[lot].award else { return };
        let (award_no, session) = (award.award_no, award.session);
        let (state, detail) = match answer {
            CancelAnswer::Informed(inform) => {
                let kind = inform.kind;
                self.report_inform(lot, inform, context);
                match kind {
                    InformKind::Cancelled => (SessionState::Cancelled, None),
                    InformKind::Done | InformKind::Result => (SessionState::Done, Some("done_before_cancel")),
                }
            }
            CancelAnswer::Failed(failure) => {
                let contractor = self.sessions[session].party.agent.clone();
                let told =
                    Notification::Failure(ContractorFailure { contractor: contractor.clone(), award_no, failure });
                let delivery = self.header.delivery(context, &self.initiator.agent, told);
                context.deliver(Deliver {
                    from: Some(contractor),
                    in_reply_to: Some(self.header.call_msg_id.clone()),
                    ..delivery
                });
                (SessionState::Failed, Some("cannot_cancel"))
            }
        };
        self.lots[lot].award = None;
        self.set_state(session, state);
        if !self.has_stage(AwardStage::CancelPending) {
            self.end(Outcome::Cancelled, detail, context);
        }
    }

    /// The contractors have not answered in time (docs/spec/contract-net.md#cn-57).
    pub(crate) fn handle_cancel_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::Cancelled, Some("cancel_timeout"), context);
    }
}
