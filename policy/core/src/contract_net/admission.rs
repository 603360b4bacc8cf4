//! The contract net on the ladder (`ladder.rs`): who speaks, and what follows from a message that was admitted. `judging.rs`
//! finds the verdict and changes nothing; what follows is in the file of each state.

use schemas::delivery::Disposition;
use schemas::payload::{Failure, Inform};
use schemas::{AgentId, AwardNo, Payload, RegisterKey};

use crate::acceptance::gate::GateFault;
use crate::contract_net::state::SessionState;
use crate::effect::AwardLoss;
use crate::ladder::{Incoming, Ladder};
use crate::limits::Limits;
use crate::matter::Matter;
use crate::negotiation::Negotiation;
use crate::session::{LiveAward, Offer, Party};
use crate::state::is_numbered;
use crate::step::Step;

/// Which party speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    Initiator,
    Contractor(usize),
}

/// What follows from a message that was admitted.
#[derive(Debug, Default)]
pub(crate) enum Action {
    #[default]
    Nothing,
    Strike,
    Record(Box<Offer>),
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

/// How a contractor answers a CANCEL (row 17).
#[derive(Debug)]
pub(crate) enum CancelAnswer {
    Informed(Inform),
    Failed(Failure),
}

/// What becomes of a message.
pub(super) type Verdict = crate::ladder::Verdict<Action>;

impl Ladder for Negotiation {
    type Speaker = Speaker;
    type Action = Action;

    fn matter(&self) -> &Matter {
        &self.matter
    }

    fn matter_mut(&mut self) -> &mut Matter {
        &mut self.matter
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

    fn hear(&mut self, speaker: Speaker, step: &Step<'_>) {
        if let Speaker::Contractor(index) = speaker {
            self.sessions[index].heard = step.input;
        }
    }

    fn judge(&self, speaker: Speaker, incoming: &Incoming, step: &Step<'_>) -> Verdict {
        self.judge_message(speaker, &incoming.payload, &incoming.msg_id, step)
    }

    fn register(&mut self, action: &Action, step: &mut Step<'_>) -> Option<(AwardNo, Option<RegisterKey>)> {
        let Action::Confirm(lot) = action else { return None };
        self.register_commitment(*lot, step).map(|(award_no, key)| (award_no, Some(key)))
    }

    fn commitment_key(&self, award_no: AwardNo) -> Option<RegisterKey> {
        self.lot_of_award(award_no).map(|lot| self.end_key(lot, award_no))
    }

    fn follow(&mut self, speaker: Speaker, action: Action, step: &mut Step<'_>) {
        match (speaker, action) {
            (_, Action::Cancel) => self.cancel(step),
            (_, Action::Choose(chosen)) => self.choose(chosen, step),
            (Speaker::Contractor(index), action) => self.act_for(index, action, step),
            (Speaker::Initiator, _) => {}
        }
    }
}

impl Negotiation {
    fn act_for(&mut self, index: usize, action: Action, step: &mut Step<'_>) {
        match action {
            // The last two are the initiator's, and done by then.
            Action::Nothing | Action::Cancel | Action::Choose(_) => {}
            Action::Strike => self.strike(index, step),
            Action::Record(offer) => self.record_offer(index, offer, step),
            Action::GateFailed => self.drop_offer(index, step),
            Action::Decline(state) => self.decline(index, state, step),
            Action::Withdraw => self.withdraw(index, step),
            Action::Confirm(lot) => self.commit(lot, step),
            Action::LoseAward(lot, loss, failure) => self.lose_award(lot, loss, failure, step),
            Action::Perform(lot, inform) => self.perform(lot, inform, step),
            Action::AnswerCancel(lot, answer) => self.answer_cancel(lot, answer, step),
        }
    }

    fn lot_of_award(&self, award_no: AwardNo) -> Option<usize> {
        let is_it = |award: &LiveAward| award.award_no == award_no;
        let live = self.lots.iter().position(|lot| lot.award.as_ref().is_some_and(is_it));
        live.or_else(|| self.past_awards.iter().find(|past| past.award_no == award_no).map(|past| past.lot))
    }
}

/// A failure in the exchange's own words, for what a contractor did not call a failure itself.
pub(super) fn said(code: &str) -> Failure {
    Failure { phase: schemas::payload::FailurePhase::Perform, code: code.to_owned(), retryable: false, penalty: None }
}
