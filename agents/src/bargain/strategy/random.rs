//! No plan at all.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::{BargainStrategy, Move, TurnView, accept_or_offer};
use crate::bargain::utility::Preferences;

/// Draws one of the outcomes the party may agree to, all equally often; accepts what is worth at least as much, otherwise
/// proposes it.
#[derive(Debug, Clone)]
pub struct RandomOffers {
    preferences: Arc<Preferences>,
    rng: ChaCha12Rng,
}

impl RandomOffers {
    /// A party with these preferences.
    #[must_use]
    pub fn new(preferences: Arc<Preferences>, seed: u64) -> Self {
        Self { preferences, rng: ChaCha12Rng::seed_from_u64(seed) }
    }
}

impl BargainStrategy for RandomOffers {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let ranking = self.preferences.ranking();
        if ranking.is_empty() {
            return Move::End;
        }
        let proposal = ranking[self.rng.random_range(0..ranking.len())];
        accept_or_offer(&self.preferences, view, self.preferences.utility(proposal), proposal)
    }
}
