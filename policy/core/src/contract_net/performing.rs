//! PERFORMING: the contractor reports (row 14), or is not heard of again (section 7).

use schemas::delivery::{ContractorReport, Notification, ProgressReport};
use schemas::payload::{Inform, InformKind};
use schemas::{AgentId, DeliveryId};

use crate::contract_net::admission::said;
use crate::contract_net::state::SessionState;
use crate::effect::{AwardLoss, Deliver};
use crate::negotiation::{Negotiation, lot_number};
use crate::session::AwardStage;
use crate::step::{Step, delivery_id};

impl Negotiation {
    /// Row 14: the work is done.
    pub(super) fn perform(&mut self, lot: usize, inform: Inform, step: &mut Step<'_>) {
        let Some(award) = self.lots[lot].award.as_mut() else { return };
        award.stage = AwardStage::Done;
        let session = award.session;
        self.set_state(session, SessionState::Done);
        self.report_inform(lot, inform, step);
        self.settle(step);
    }

    /// Passes a contractor's INFORM on to the initiator.
    pub(super) fn report_inform(&self, lot: usize, inform: Inform, step: &mut Step<'_>) {
        let Some(award) = &self.lots[lot].award else { return };
        let contractor = self.sessions[award.session].party.agent.clone();
        let news = ContractorReport {
            contractor: contractor.clone(),
            award_no: award.award_no,
            lot: lot_number(lot),
            result: inform.result,
        };
        let news = match inform.kind {
            InformKind::Done => ProgressReport::Done(news),
            InformKind::Result => ProgressReport::Result(news),
            InformKind::Cancelled => ProgressReport::Cancelled(news),
        };
        let letter = self.matter.letter(step, &self.initiator.agent, Notification::Inform(news));
        step.post(Deliver { from: Some(contractor), in_reply_to: Some(self.matter.call_msg_id.clone()), ..letter });
    }

    /// FAILURE{delivery}: counts for a CFP to an INVITED and an ACCEPT to an AWARDED contractor from whom nothing later was
    /// folded; otherwise the contractor lives, and its timers judge it. A CFP nobody waits for any more may still be answered.
    pub(crate) fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        step: &mut Step<'_>,
    ) {
        self.matter.link(b"delivery_failed", step);
        let Some(index) = self.session_of(to) else { return };
        if let Some((position, ordinal)) = self.unanswered_call(index)
            && delivery_id(step.lane, &self.matter.id, position, ordinal, to) == delivery
        {
            let state = if may_answer { SessionState::Undelivered } else { SessionState::Failed };
            self.decline(index, state, step);
        } else if let Some(lot) = self.lot_of(index)
            && let Some(award) = &self.lots[lot].award
            && award.stage == AwardStage::Awarded
            && award.accept.0 == delivery
            && self.sessions[index].heard <= award.accept.1
        {
            self.lose_award(lot, AwardLoss::Undelivered, said("undelivered"), step);
        }
    }
}
