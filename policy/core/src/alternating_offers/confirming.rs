//! CONFIRMING: everybody has accepted, and is asked to confirm (docs/spec/alternating-offers.md#ao-36).

use std::sync::Arc;

use schemas::delivery::{Award, Notification, Outcome};
use schemas::{Lot, WireTime};

use super::ending::UNCONFIRMED;
use super::state::{AWARD, Bargain};
use crate::effect::Deliver;
use crate::negotiation::context::InputContext;
use crate::negotiation::phase::Phase;

impl Bargain {
    /// Everybody has accepted: the agreement, unless it has to be confirmed.
    pub(super) fn agree(&mut self, context: &mut InputContext<'_>) {
        let Some(confirm_ms) = self.rules.confirm_ms else { return self.end(Outcome::Agreement, None, context) };
        self.confirm_by = context.clock.plus_ms(confirm_ms).min(self.header.ends_by);
        self.enter(Phase::Confirming, context);
        let Some(agreed) = self.standing.as_deref() else { return };
        let told = Arc::new(Notification::Accept(Award {
            offer_id: agreed.id,
            lot: Lot(0),
            award_no: AWARD,
            terms: agreed.terms.clone(),
            terms_digest: agreed.digest,
            payment: None,
            confirm_by: WireTime(self.confirm_by),
        }));
        for one in &self.parties {
            let delivery = self.header.delivery(context, &one.party.agent, Arc::clone(&told));
            context.deliver(Deliver { expires: self.confirm_by, ..delivery });
        }
    }

    /// A party confirms (docs/spec/alternating-offers.md#ao-37).
    pub(super) fn confirm(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.parties[index].has_confirmed = true;
        if self.parties.iter().all(|party| party.has_confirmed) {
            self.end(Outcome::Agreement, None, context);
        }
    }

    /// `confirm_by`: somebody has not confirmed in time.
    pub(super) fn handle_confirm_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::NoAgreement, Some(UNCONFIRMED), context);
    }
}
