//! A bargain on the ladder (`ladder.rs`): who speaks, and what follows from a message that was admitted.

use schemas::delivery::{Disposition, Outcome};
use schemas::{AgentId, AwardNo, Payload, RegisterKey};

use super::ending::UNCONFIRMED;
use super::state::{AWARD, Bargaining, Pledge, Sealed, Standing};
use crate::acceptance::gate::GateFault;
use crate::effect::Protocol;
use crate::ladder::{Incoming, Ladder};
use crate::limits::Limits;
use crate::matter::Matter;
use crate::session::Party;
use crate::step::Step;

/// What follows from a message.
#[derive(Debug, Default)]
pub(crate) enum Action {
    #[default]
    Nothing,
    Strike,
    Join(Option<Sealed<Pledge>>),
    Offer(Box<Standing>),
    Accept,
    Withdraw,
    Confirm,
    /// The agreement is not confirmed.
    Unconfirmed,
    /// The party has had enough.
    End,
    Cancel,
}

/// What becomes of a message.
pub(super) type Verdict = crate::ladder::Verdict<Action>;

impl Ladder for Bargaining {
    /// The index of the party.
    type Speaker = usize;
    type Action = Action;

    fn matter(&self) -> &Matter {
        &self.matter
    }

    fn matter_mut(&mut self) -> &mut Matter {
        &mut self.matter
    }

    fn speaker(&self, agent: &AgentId) -> Option<usize> {
        self.index_of(agent)
    }

    fn party(&self, speaker: usize) -> &Party {
        &self.parties[speaker].party
    }

    fn party_mut(&mut self, speaker: usize) -> &mut Party {
        &mut self.parties[speaker].party
    }

    fn invited(&self) -> usize {
        self.parties.len().saturating_sub(1)
    }

    fn messages_max(&self, _: &Limits) -> usize {
        self.messages_kept()
    }

    /// One that names a round may be of an earlier one, and ends nothing then.
    fn leaves(&self, speaker: usize, payload: &Payload) -> bool {
        match payload {
            Payload::End(reasoned) => reasoned.round.is_none(),
            Payload::Cancel(reasoned) => speaker == 0 && reasoned.round.is_none(),
            Payload::Cfp(_)
            | Payload::Offer(_)
            | Payload::Refuse(_)
            | Payload::NotUnderstood(_)
            | Payload::Withdraw(_)
            | Payload::Accept(_)
            | Payload::Confirm(_)
            | Payload::Inform(_)
            | Payload::Failure(_)
            | Payload::Join(_) => false,
        }
    }

    /// A refused offer is nothing anybody could refer to.
    fn is_numbered(disposition: Disposition) -> bool {
        disposition == Disposition::Ok
    }

    /// There are no gates: mandates take their place.
    fn gate_code(&self, _: GateFault) -> String {
        Protocol::AlternatingOffers.as_str().to_owned()
    }

    fn hear(&mut self, _: usize, _: &Step<'_>) {}

    fn judge(&self, speaker: usize, incoming: &Incoming, step: &Step<'_>) -> Verdict {
        self.judge_message(speaker, incoming, step)
    }

    /// A confirmation binds nobody before the last one: the agreement itself is what is registered.
    fn register(&mut self, action: &Action, _: &mut Step<'_>) -> Option<(AwardNo, Option<RegisterKey>)> {
        matches!(action, Action::Confirm).then_some((AWARD, None))
    }

    fn commitment_key(&self, _: AwardNo) -> Option<RegisterKey> {
        None
    }

    fn follow(&mut self, speaker: usize, action: Action, step: &mut Step<'_>) {
        match action {
            Action::Nothing => {}
            Action::Strike => self.strike(speaker, step),
            Action::Join(pledge) => self.join(speaker, pledge, step),
            Action::Offer(standing) => self.offer(*standing, step),
            Action::Accept => self.accept(speaker, step),
            Action::Withdraw => self.withdraw(speaker, step),
            Action::Confirm => self.confirm(speaker, step),
            Action::Unconfirmed => self.end(Outcome::NoAgreement, Some(UNCONFIRMED), step),
            Action::End => self.end_by(speaker, step),
            Action::Cancel => self.end(Outcome::Cancelled, None, step),
        }
    }
}
