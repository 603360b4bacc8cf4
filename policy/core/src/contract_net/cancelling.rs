//! CANCELLING: the initiator calls it off (rows 16 and 17).

use schemas::delivery::{ContractorFailure, Notification, Outcome, RejectReason};
use schemas::payload::InformKind;
use schemas::register::AwardEnd;

use crate::contract_net::admission::CancelAnswer;
use crate::contract_net::state::SessionState;
use crate::effect::{AwardLoss, Deliver};
use crate::negotiation::Negotiation;
use crate::session::{AwardStage, PastAward};
use crate::state::Phase;
use crate::step::Step;

impl Negotiation {
    /// Row 16.
    pub(super) fn cancel(&mut self, step: &mut Step<'_>) {
        self.standby.clear();
        for index in 0..self.sessions.len() {
            if matches!(self.sessions[index].state, SessionState::Offered | SessionState::Standby) {
                self.reject(index, RejectReason::Cancelled, SessionState::Rejected, step);
            }
        }
        for lot in 0..self.lots.len() {
            self.call_off(lot, step);
        }
        self.decide_by = None;
        if self.has_stage(AwardStage::CancelPending) {
            self.cancel_by = Some(step.clock.plus_ms(self.policy().timers_ms.cancel).min(self.matter.ends_by));
            self.enter(Phase::Cancelling, step);
        } else {
            self.end(Outcome::Cancelled, None, step);
        }
    }

    /// Asks the contractor of a lot to stop.
    fn call_off(&mut self, lot: usize, step: &mut Step<'_>) {
        let Some(award) = self.lots[lot].award.as_mut() else { return };
        let (award_no, session, stage) = (award.award_no, award.session, award.stage);
        match stage {
            AwardStage::Done | AwardStage::CancelPending => return,
            AwardStage::Awarded | AwardStage::Committed => award.stage = AwardStage::CancelPending,
        }
        if stage == AwardStage::Awarded {
            self.register_end(lot, award_no, AwardEnd::Revoked, step);
            self.past_awards.push(PastAward { award_no, session, lot });
        }
        self.cancel_award(lot, session, award_no, AwardLoss::Cancelled, step);
        self.set_state(session, SessionState::CancelPending);
    }

    /// Row 17: the contractor answers.
    pub(super) fn answer_cancel(&mut self, lot: usize, answer: CancelAnswer, step: &mut Step<'_>) {
        let Some(award) = &self.lots[lot].award else { return };
        let (award_no, session) = (award.award_no, award.session);
        let (state, detail) = match answer {
            CancelAnswer::Informed(inform) => {
                let kind = inform.kind;
                self.report_inform(lot, inform, step);
                match kind {
                    InformKind::Cancelled => (SessionState::Cancelled, None),
                    InformKind::Done | InformKind::Result => (SessionState::Done, Some("done_before_cancel")),
                }
            }
            CancelAnswer::Failed(failure) => {
                let contractor = self.sessions[session].party.agent.clone();
                let told =
                    Notification::Failure(ContractorFailure { contractor: contractor.clone(), award_no, failure });
                let letter = self.matter.letter(step, &self.initiator.agent, told);
                step.post(Deliver {
                    from: Some(contractor),
                    in_reply_to: Some(self.matter.call_msg_id.clone()),
                    ..letter
                });
                (SessionState::Failed, Some("cannot_cancel"))
            }
        };
        self.lots[lot].award = None;
        self.set_state(session, state);
        if !self.has_stage(AwardStage::CancelPending) {
            self.end(Outcome::Cancelled, detail, step);
        }
    }

    /// Row 17: `T_cancel`.
    pub(crate) fn handle_cancel_timeout(&mut self, step: &mut Step<'_>) {
        self.end(Outcome::Cancelled, Some("cancel_timeout"), step);
    }
}
