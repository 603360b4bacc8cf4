//! DECIDING: under `decider: initiator` all valid offers are revealed at once, and the initiator's ACCEPT, or its silence,
//! decides (docs/spec/contract-net.md#cn-35).

use schemas::delivery::{Notification, OfferNews, OffersReport, Outcome, ProgressReport};
use schemas::{Digest, OfferId, Timestamp, WireTime};

use crate::Cause;
use crate::contract_net::ContractNet;
use crate::contract_net::state::SessionState;
use crate::negotiation::context::InputContext;
use crate::negotiation::party::CollectedOffer;
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// Reveals the valid offers in a permutation nobody could foresee: ascending SHA-256(negotiation, closing position,
    /// offer id).
    pub(super) fn ask_initiator(&mut self, context: &mut InputContext<'_>) {
        let decide_by = context.clock.plus_ms(self.policy().decide_ms).min(self.header.ends_by);
        self.decide_by = Some(decide_by);
        self.enter(Phase::Deciding, context);
        let closing = context.position.to_string();
        let mut offers: Vec<OfferNews> = self
            .sessions
            .iter()
            .filter(|session| session.state == SessionState::Offered)
            .filter_map(|session| {
                let offer = session.offer.as_ref()?;
                Some(OfferNews {
                    offer_id: offer.id,
                    contractor: session.party.agent.clone(),
                    terms: terms_of(offer),
                    score: offer.score,
                })
            })
            .collect();
        offers.sort_by_cached_key(|offer| {
            let id = offer.offer_id.to_string();
            Digest::of_parts(&[self.header.id.as_str().as_bytes(), closing.as_bytes(), id.as_bytes()])
        });
        let news = ProgressReport::Offers(OffersReport { offers, decide_by: WireTime(decide_by) });
        self.report(context, Notification::Inform(news), None);
    }

    /// The session whose offer the initiator names, if that offer is in the running and still valid.
    pub(super) fn chosen(&self, offer_id: OfferId, now: Timestamp) -> Option<usize> {
        self.sessions.iter().position(|session| {
            session.state == SessionState::Offered
                && session.offer.as_ref().is_some_and(|offer| offer.id == offer_id && offer.is_valid(now))
        })
    }

    /// The initiator has chosen; the score orders the runners-up.
    pub(super) fn choose(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.reject_expired(context);
        self.decide(Some(index), Cause::Initiator, context);
    }

    /// `decide_by`: silence falls back to the score, among what is still valid.
    pub(crate) fn handle_decide(&mut self, context: &mut InputContext<'_>) {
        self.decide_by = None;
        self.reject_expired(context);
        if self.sessions.iter().any(|session| session.state == SessionState::Offered) {
            self.decide(None, Cause::InitiatorSilent, context);
        } else {
            self.conclude_round(Outcome::NoOffers, context);
        }
    }
}

/// The terms of a stored offer.
pub(crate) fn terms_of(offer: &CollectedOffer) -> schemas::payload::Terms {
    serde_json::from_str(&offer.terms).expect("the terms were written by this crate")
}
