//! The course of a bargain, as far as one party is told of it.

use schemas::delivery::{Closing, Turn};

use super::{Made, Seat};
use crate::bargain::bargainer::report::BargainOutcome;
use crate::bargain::strategy::OfferMade;

impl Seat {
    /// Notes the standing offer, in whatever order notices come. The acceptances since tell in which step it was made.
    pub(super) fn note_standing(&mut self, turn: &Turn, parties: usize) {
        let Some(standing) = turn.standing.as_ref().filter(|standing| standing.by != self.agent) else { return };
        let accepted = u32::try_from(standing.accepted_by.len()).unwrap_or(u32::MAX);
        let step = turn.step.checked_sub(accepted.saturating_add(1));
        if let (Some(step), Some(outcome)) = (step, self.rules.space.outcome(&standing.terms)) {
            self.note(step, outcome, parties);
        }
    }

    pub(super) fn note(&mut self, step: u32, outcome: usize, parties: usize) {
        let per_round = u32::try_from(parties).unwrap_or(u32::MAX);
        let offer = OfferMade { step, round: step / per_round + 1, party: (step % per_round) as usize, outcome };
        if let Err(at) = self.offers.binary_search_by_key(&step, |offer| offer.step) {
            self.offers.insert(at, offer);
        }
    }

    pub(super) fn take_back(&mut self, made: Made) {
        self.made = None;
        self.offers.retain(|offer| offer.step != made.step);
    }

    /// How the bargain ended for this party.
    pub(in crate::bargain::bargainer) fn outcome(&mut self, closing: &Closing) -> BargainOutcome {
        let agreement = closing.agreement.as_deref();
        let last = agreement.map(|agreement| agreement.step);
        let told = self.turn.as_ref().map_or(0, |turn| turn.step);
        // A later step, an agreement or a receipt shows that the last move was applied; otherwise the end came before it.
        let is_applied = |made: Made| made.is_confirmed || made.step < told.max(last.unwrap_or(0));
        if let Some(made) = self.made.filter(|made| !is_applied(*made)) {
            self.take_back(made);
        }
        let steps = last.unwrap_or_else(|| told.max(self.made.map_or(0, |made| made.step + 1)));
        let agreed = agreement.and_then(|agreement| self.rules.space.outcome(&agreement.terms));
        // Accepted in this party's name, the offer was never told; all others accepted it one after the other.
        if let (Some(outcome), Some(last), Some(parties)) = (agreed, last, self.parties)
            && let Some(step) = u32::try_from(parties).ok().and_then(|parties| last.checked_sub(parties))
        {
            self.note(step, outcome, parties);
        }
        BargainOutcome {
            outcome: closing.outcome,
            detail: closing.detail.clone(),
            party: self.party,
            parties: self.parties.unwrap_or(0),
            agreement: agreement.cloned(),
            agreed,
            utility: agreed.map(|outcome| self.plan.preferences.utility(outcome)),
            steps,
            round: agreement
                .map_or_else(|| self.turn.as_ref().map_or(0, |turn| turn.round), |agreement| agreement.round),
            offers: std::mem::take(&mut self.offers),
        }
    }
}
