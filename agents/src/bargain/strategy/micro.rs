//! Minimal concession.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::{BargainStrategy, Move, TurnView, accept_or_offer};
use crate::bargain::utility::Preferences;

/// `MiCRO` (de Jonge, 2022): proposes its outcomes from the best down, and a new one only when every other party has made at
/// least as many different offers as itself; otherwise it repeats one of its own, drawn from the seed. It accepts what is
/// worth the least it is willing to offer: that new outcome, or the least it has offered. It knows neither time nor the
/// others' utilities.
#[derive(Debug, Clone)]
pub struct Micro {
    preferences: Arc<Preferences>,
    rng: ChaCha12Rng,
}

impl Micro {
    /// A party with these preferences.
    #[must_use]
    pub fn new(preferences: Arc<Preferences>, seed: u64) -> Self {
        Self { preferences, rng: ChaCha12Rng::seed_from_u64(seed) }
    }
}

impl BargainStrategy for Micro {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let of = |party: usize| -> BTreeSet<usize> {
            view.offers.iter().filter(|offer| offer.party == party).map(|offer| offer.outcome).collect()
        };
        let made = of(view.party);
        let others = (0..view.parties).filter(|&party| party != view.party).map(|party| of(party).len()).min();
        let may_concede = made.len() <= others.unwrap_or(0);
        let new = self.preferences.ranking().iter().rev().copied().find(|outcome| !made.contains(outcome));
        let utility = |outcome: usize| self.preferences.utility(outcome);
        if let Some(new) = new.filter(|_| may_concede) {
            return accept_or_offer(&self.preferences, view, utility(new), new);
        }
        let made: Vec<usize> = made.into_iter().collect();
        if made.is_empty() {
            return Move::End;
        }
        let least = made.iter().map(|&outcome| utility(outcome)).fold(f64::INFINITY, f64::min);
        let again = made[self.rng.random_range(0..made.len())];
        accept_or_offer(&self.preferences, view, least, again)
    }
}
