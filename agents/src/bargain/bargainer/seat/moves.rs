//! Choosing a move and putting it into words.

use schemas::payload::{Accept, Offer, Reasoned};
use schemas::{Payload, Timestamp};

use super::{MOVES_PER_STEP, Made, REFUSALS_MAX, Saying, Seat};
use crate::bargain::plan::Fallback;
use crate::bargain::strategy::{Move, OfferMade};

impl Seat {
    /// Acts in this turn.
    pub(super) fn act(&mut self, now: Timestamp) -> Option<Saying> {
        let turn = self.turn.clone()?;
        let standing = self.standing(now, &turn);
        // Taken out while the strategy looks at them: it is a part of the seat, and may change.
        let offers = std::mem::take(&mut self.offers);
        let view = self.view(&turn, standing.map(|(outcome, ..)| outcome), &offers);
        let decided = self.plan.strategy.decide(&view);
        self.offers = offers;
        let decided = match decided {
            Move::Accept if standing.is_none() => self.instead_of(decided),
            Move::Offer(outcome) if !self.may_offer(outcome) => self.instead_of(decided),
            Move::Offer(_) | Move::Accept | Move::End => decided,
        };
        self.make(now, decided)
    }

    /// Acts again, after a move was refused.
    pub(super) fn act_again(&mut self, now: Timestamp, refused: Move) -> Option<Saying> {
        if self.refusals > REFUSALS_MAX {
            return self.make(now, Move::End);
        }
        match refused {
            // Its offer stands no more, or cannot be accepted: what would the strategy do without it?
            Move::Accept => self.act(now),
            Move::Offer(_) | Move::End => {
                let next = self.instead_of(refused);
                self.make(now, next)
            }
        }
    }

    /// What it does instead of a move that cannot be made.
    fn instead_of(&self, refused: Move) -> Move {
        match self.plan.fallback {
            Fallback::End => Move::End,
            Fallback::NextBest => self.next_best(refused).map_or(Move::End, Move::Offer),
        }
    }

    /// What it may offer next to the refused outcome: the nearest better one when that was outside its mandate, otherwise the
    /// nearest worse one; on the other side when there is none. Instead of anything else, its best.
    fn next_best(&self, refused: Move) -> Option<usize> {
        let preferences = &self.plan.preferences;
        let ranking = preferences.ranking();
        let (at, is_outside) = match refused {
            Move::Offer(outcome) if outcome < self.rules.space.len() => {
                (preferences.position_at_least(preferences.utility(outcome)), self.outside.contains(&outcome))
            }
            Move::Offer(_) | Move::Accept | Move::End => (ranking.len(), false),
        };
        let (worse, better) = ranking.split_at(at);
        let nearest_worse = || worse.iter().rev().copied().find(|&outcome| self.may_offer(outcome));
        let nearest_better = || better.iter().copied().find(|&outcome| self.may_offer(outcome));
        if is_outside { nearest_better().or_else(nearest_worse) } else { nearest_worse().or_else(nearest_better) }
    }

    fn may_offer(&self, outcome: usize) -> bool {
        let is_own = |offer: &OfferMade| offer.party == self.party && offer.outcome == outcome;
        let is_refused = self.outside.contains(&outcome) || self.refused.contains(&outcome);
        let is_repeat = self.rules.forbid_repeat && self.offers.iter().any(is_own);
        outcome < self.rules.space.len() && !is_refused && !is_repeat
    }

    fn make(&mut self, now: Timestamp, decided: Move) -> Option<Saying> {
        let turn = self.turn.clone()?;
        let payload = match decided {
            Move::Offer(outcome) => {
                let offer = Payload::Offer(Offer { terms: self.terms(outcome)?, ..Offer::default() });
                self.note(turn.step, outcome, self.parties?);
                offer
            }
            Move::Accept => {
                let (_, offer_id, terms_digest) = self.standing(now, &turn)?;
                Payload::Accept(Accept { offer_id, terms_digest: Some(terms_digest) })
            }
            Move::End => Payload::End(Reasoned::default()),
        };
        self.made = Some(Made { step: turn.step, what: decided, is_confirmed: false });
        let number = turn.step.saturating_mul(MOVES_PER_STEP).saturating_add(self.refusals);
        Some(Saying { payload, number })
    }
}
