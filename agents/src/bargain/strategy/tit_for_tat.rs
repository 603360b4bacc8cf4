//! Giving as one is given to.

use std::sync::Arc;

use super::{BargainStrategy, Move, OfferMade, TurnView, accept_or_offer};
use crate::bargain::utility::Preferences;

/// Relative tit-for-tat over one step (Faratin, Sierra, Jennings 1998), on the party's own utilities: when the other's last
/// offer is worth twice the one before, it asks half of what it asked last; when the other takes back, it takes back as
/// much. It begins with its best outcome, and never asks less than its reservation value or more than its best.
///
/// Among more than two parties, the other is who made the last offer that is not its own.
#[derive(Debug, Clone)]
pub struct TitForTat {
    preferences: Arc<Preferences>,
}

impl TitForTat {
    /// A party with these preferences.
    #[must_use]
    pub fn new(preferences: Arc<Preferences>) -> Self {
        Self { preferences }
    }

    /// What it asks next.
    fn target(&self, view: &TurnView<'_>, least: f64, most: f64) -> f64 {
        let utility = |offer: &OfferMade| self.preferences.utility(offer.outcome);
        let Some(asked) = view.offers.iter().rfind(|offer| offer.party == view.party).map(utility) else { return most };
        let Some(other) = view.offers.iter().rfind(|offer| offer.party != view.party) else { return asked };
        let mut theirs = view.offers.iter().rev().filter(|offer| offer.party == other.party).map(utility);
        let (Some(last), Some(before)) = (theirs.next(), theirs.next()) else { return asked };
        // From nothing to something is a step beyond all measure; from nothing to nothing is none.
        let ratio = if last > 0.0 {
            before / last
        } else if before > 0.0 {
            f64::INFINITY
        } else {
            1.0
        };
        (asked * ratio).clamp(least, most)
    }
}

impl BargainStrategy for TitForTat {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let Some((least, most)) = self.preferences.span() else { return Move::End };
        let target = self.target(view, least, most);
        let position = self.preferences.position_at_least(target);
        let ranking = self.preferences.ranking();
        match ranking.get(position).copied().or_else(|| self.preferences.best()) {
            Some(proposal) => accept_or_offer(&self.preferences, view, self.preferences.utility(proposal), proposal),
            None => Move::End,
        }
    }
}
