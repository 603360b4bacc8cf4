//! The contract net on the ladder (`negotiation/disposition.rs`): who speaks, and what follows from a message that was admitted. `rules.rs`
//! finds the verdict and changes nothing; what follows is in the file of each state.

use schemas::delivery::Disposition;
use schemas::payload::{Failure, Inform};
use schemas::{AgentId, AwardNo, Payload, RegisterKey};

use crate::acceptance::gate::GateFault;
use crate::contract_net::ContractNet;
use crate::contract_net::state::SessionState;
use crate::effect::AwardLoss;
use crate::limits::Limits;
use crate::negotiation::context::InputContext;
use crate::negotiation::disposition::{Incoming, ProtocolRules, Ruling};
use crate::negotiation::header::Header;
use crate::negotiation::party::{CollectedOffer, LiveAward, Party};
use crate::negotiation::phase::is_numbered;

/// Which party speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    Initiator,
    Contractor(usize),
}

/// What follows from a message that was admitted.
#[derive(Debug, Default)]
pub(crate) enum ContractNetAction {
    #[default]
    Nothing,
    Strike,
    Record(Box<CollectedOffer>),
    GateFailed,
    Decline(SessionState),
    Withdraw,
    Confirm(usize),
    LoseAward(usize, AwardLoss, Failure),
    Perform(usize, Inform),
    AnswerCancel(usize, CancelAnswer),
    Cancel,
    Choose(usize),
}

/// How a contractor answers a CANCEL (docs/spec/contract-net.md#cn-56).
#[derive(Debug)]
pub(crate) enum CancelAnswer {
    Informed(Inform),
    Failed(Failure),
}

impl ProtocolRules for ContractNet {
    type Speaker = Speaker;
    type Action = ContractNetAction;

    fn header(&self) -> &Header {
        &self.header
    }

    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
    }

    fn speaker(&self, agent: &AgentId) -> Option<Speaker> {
        if *agent == self.initiator.agent {
            Some(Speaker::Initiator)
        } else {
            self.session_of(agent).map(Speaker::Contractor)
        }
    }

    fn party(&self, speaker: Speaker) -> &Party {
        match speaker {
            Speaker::Initiator => &self.initiator,
            Speaker::Contractor(index) => &self.sessions[index].party,
        }
    }

    fn party_mut(&mut self, speaker: Speaker) -> &mut Party {
        match speaker {
            Speaker::Initiator => &mut self.initiator,
            Speaker::Contractor(index) => &mut self.sessions[index].party,
        }
    }

    fn invited(&self) -> usize {
        self.sessions.len()
    }

    fn messages_max(&self, limits: &Limits) -> usize {
        limits.messages_per_party_max
    }

    /// A CANCEL is only the beginning of an end.
    fn leaves(&self, _: Self::Speaker, _: &Payload) -> bool {
        false
    }

    fn is_numbered(disposition: Disposition) -> bool {
        is_numbered(disposition)
    }

    fn gate_code(&self, fault: GateFault) -> String {
        fault.code(self.policy())
    }

    fn hear(&mut self, speaker: Speaker, context: &InputContext<'_>) {
        if let Speaker::Contractor(index) = speaker {
            self.sessions[index].heard = context.input;
        }
    }

    fn judge(&self, speaker: Speaker, incoming: &Incoming, context: &InputContext<'_>) -> Ruling<ContractNetAction> {
        self.judge_message(speaker, &incoming.payload, &incoming.msg_id, context)
    }

    fn register(
        &mut self,
        action: &ContractNetAction,
        context: &mut InputContext<'_>,
    ) -> Option<(AwardNo, Option<RegisterKey>)> {
        let ContractNetAction::Confirm(lot) = action else { return None };
        self.register_commitment(*lot, context).map(|(award_no, key)| (award_no, Some(key)))
    }

    fn commitment_key(&self, award_no: AwardNo) -> Option<RegisterKey> {
        self.lot_of_award(award_no).map(|lot| self.end_key(lot, award_no))
    }

    fn follow(&mut self, speaker: Speaker, action: ContractNetAction, context: &mut InputContext<'_>) {
        match (speaker, action) {
            (_, ContractNetAction::Cancel) => self.cancel(context),
            (_, ContractNetAction::Choose(chosen)) => self.choose(chosen, context),
            (Speaker::Contractor(index), action) => self.act_for(index, action, context),
            (Speaker::Initiator, _) => {}
        }
    }
}

impl ContractNet {
    fn act_for(&mut self, index: usize, action: ContractNetAction, context: &mut InputContext<'_>) {
        match action {
            // The last two are the initiator's, and done by then.
            ContractNetAction::Nothing | ContractNetAction::Cancel | ContractNetAction::Choose(_) => {}
            ContractNetAction::Strike => self.strike(index, context),
            ContractNetAction::Record(offer) => self.record_offer(index, offer, context),
            ContractNetAction::GateFailed => self.drop_offer(index, context),
            ContractNetAction::Decline(state) => self.decline(index, state, context),
            ContractNetAction::Withdraw => self.withdraw(index, context),
            ContractNetAction::Confirm(lot) => self.commit(lot, context),
            ContractNetAction::LoseAward(lot, loss, failure) => self.lose_award(lot, loss, failure, context),
            ContractNetAction::Perform(lot, inform) => self.perform(lot, inform, context),
            ContractNetAction::AnswerCancel(lot, answer) => self.answer_cancel(lot, answer, context),
        }
    }

    fn lot_of_award(&self, award_no: AwardNo) -> Option<usize> {
        let is_it = |award: &LiveAward| award.award_no == award_no;
        let live = self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(is_it));
        live.or_else(|| self.revoked_awards.iter().find(|past| past.award_no == award_no).map(|past| past.lot))
    }
}

/// A failure in the exchange's own words, for what a contractor did not call a failure itself.
pub(super) fn said(code: &str) -> Failure {
    Failure { phase: schemas::payload::FailurePhase::Perform, code: code.to_owned(), retryable: false, penalty: None }
}
