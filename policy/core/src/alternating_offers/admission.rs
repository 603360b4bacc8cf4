//! A bargain on the ladder (`negotiation/disposition.rs`): who speaks, and what follows from a message that was admitted.

use schemas::delivery::{Disposition, Outcome};
use schemas::{AgentId, AwardNo, Payload, RegisterKey};

use super::ending::UNCONFIRMED;
use super::state::{AWARD, Bargain, Pledge, Sealed, StandingOffer};
use crate::acceptance::gate::GateFault;
use crate::effect::Protocol;
use crate::limits::Limits;
use crate::negotiation::context::InputContext;
use crate::negotiation::disposition::{Incoming, ProtocolRules, Ruling};
use crate::negotiation::header::Header;
use crate::negotiation::party::Party;

/// What follows from a message.
#[derive(Debug, Default)]
pub(crate) enum BargainAction {
    #[default]
    Nothing,
    Strike,
    Join(Option<Sealed<Pledge>>),
    Offer(Box<StandingOffer>),
    Accept,
    Withdraw,
    Confirm,
    /// The agreement is not confirmed.
    Unconfirmed,
    /// The party has had enough.
    End,
    Cancel,
}

impl ProtocolRules for Bargain {
    /// The index of the party.
    type Speaker = usize;
    type Action = BargainAction;

    fn header(&self) -> &Header {
        &self.header
    }

    fn header_mut(&mut self) -> &mut Header {
        &mut self.header
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

    fn hear(&mut self, _: usize, _: &InputContext<'_>) {}

    fn judge(&self, speaker: usize, incoming: &Incoming, context: &InputContext<'_>) -> Ruling<BargainAction> {
        self.judge_message(speaker, incoming, context)
    }

    /// A confirmation binds nobody before the last one: the agreement itself is what is registered.
    fn register(&mut self, action: &BargainAction, _: &mut InputContext<'_>) -> Option<(AwardNo, Option<RegisterKey>)> {
        matches!(action, BargainAction::Confirm).then_some((AWARD, None))
    }

    fn commitment_key(&self, _: AwardNo) -> Option<RegisterKey> {
        None
    }

    fn follow(&mut self, speaker: usize, action: BargainAction, context: &mut InputContext<'_>) {
        match action {
            BargainAction::Nothing => {}
            BargainAction::Strike => self.strike(speaker, context),
            BargainAction::Join(pledge) => self.join(speaker, pledge, context),
            BargainAction::Offer(standing) => self.offer(*standing, context),
            BargainAction::Accept => self.accept(speaker, context),
            BargainAction::Withdraw => self.withdraw(speaker, context),
            BargainAction::Confirm => self.confirm(speaker, context),
            BargainAction::Unconfirmed => self.end(Outcome::NoAgreement, Some(UNCONFIRMED), context),
            BargainAction::End => self.end_by(speaker, context),
            BargainAction::Cancel => self.end(Outcome::Cancelled, None, context),
        }
    }
}
