//! PERFORMING: the contractor reports (docs/spec/contract-net.md#cn-54), or cannot be reached
//! (docs/spec/contract-net.md#cn-18).

use schemas::delivery::{ContractorReport, Notification, ProgressReport};
use schemas::payload::{Inform, InformKind};
use schemas::{AgentId, DeliveryId};

use crate::contract_net::admission::said;
use crate::contract_net::state::SessionState;
use crate::contract_net::{ContractNet, lot_number};
use crate::effect::{AwardLoss, Deliver};
use crate::negotiation::context::{InputContext, delivery_id};
use crate::negotiation::party::AwardStage;

impl ContractNet {
    /// The work is done (docs/spec/contract-net.md#cn-54).
    pub(super) fn perform(&mut self, lot: usize, inform: Inform, context: &mut InputContext<'_>) {
        let Some(award) = self.lots[lot].award.as_mut() else { return };
        award.stage = AwardStage::Done;
        let session = award.session;
        self.set_state(session, SessionState::Done);
        self.report_inform(lot, inform, context);
        self.settle(context);
    }

    /// Passes a contractor's INFORM on to the initiator.
    pub(super) fn report_inform(&self, lot: usize, inform: Inform, context: &mut InputContext<'_>) {
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
        let delivery = self.header.delivery(context, &self.initiator.agent, Notification::Inform(news));
        context.deliver(Deliver {
            from: Some(contractor),
            in_reply_to: Some(self.header.call_msg_id.clone()),
            ..delivery
        });
    }

    /// FAILURE{delivery}: counts for a CFP to an INVITED and an ACCEPT to an AWARDED contractor from whom nothing later was
    /// folded; otherwise the contractor lives, and its timers judge it. A CFP nobody waits for any more may still be answered.
    pub(crate) fn handle_delivery_failure(
        &mut self,
        delivery: DeliveryId,
        to: &AgentId,
        may_answer: bool,
        context: &mut InputContext<'_>,
    ) {
        self.header.link(b"delivery_failed", context);
        let Some(index) = self.session_of(to) else { return };
        if let Some((position, ordinal)) = self.unanswered_call(index)
            && delivery_id(context.lane, &self.header.id, position, ordinal, to) == delivery
        {
            let state = if may_answer { SessionState::Undelivered } else { SessionState::Failed };
            self.decline(index, state, context);
        } else if let Some(lot) = self.lot_of(index)
            && let Some(award) = &self.lots[lot].award
            && award.stage == AwardStage::Awarded
            && award.accept.0 == delivery
            && self.sessions[index].heard <= award.accept.1
        {
            self.lose_award(lot, AwardLoss::Undelivered, said("undelivered"), context);
        }
    }
}
