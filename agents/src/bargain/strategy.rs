//! Bargaining strategies: what a party does in its turn.
//!
//! | strategy | proposes | accepts |
//! |---|---|---|
//! | [`TimeDependent`] | its least outcome at or above an aspiration that falls with time | what is worth the aspiration |
//! | [`TitForTat`] | gives up the fraction of utility the other gave it | what is worth its next proposal |
//! | [`Micro`] | its outcomes, best first; a new one only if the others made as many | what is worth its least willing offer |
//! | [`RandomOffers`] | any outcome it may agree to | what is worth a random outcome |
//! | [`Scripted`] | what it was told to | when it was told to |
//!
//! All but the scripted one never offer or accept what the party may not agree to, and end the bargain when it may agree to
//! nothing.

mod kind;
mod micro;
mod time_dependent;
mod tit_for_tat;

use std::collections::VecDeque;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::utility::Preferences;

pub use kind::{StrategyKind, StrategyKindError};
pub use micro::Micro;
pub use time_dependent::TimeDependent;
pub use tit_for_tat::TitForTat;

/// What a party does in its turn. No clock, no input or output; randomness only from a seed given at construction.
pub trait BargainStrategy: Send {
    /// Decides one turn. Called again for the same turn when the move could not be made, or the standing offer is gone.
    fn decide(&mut self, view: &TurnView<'_>) -> Move;

    /// Takes what somebody else has decided for its turn of a round. Most decide themselves.
    fn advise(&mut self, _round: u32, _next: Move) {}
}

/// A turn as the party whose it is sees it.
#[derive(Debug, Clone, Copy)]
pub struct TurnView<'a> {
    /// The party, counted from 0 in the order of turns.
    pub party: usize,
    /// How many parties there are.
    pub parties: usize,
    /// The round, counted from 1.
    pub round: u32,
    /// The last round, where rounds are bounded.
    pub rounds: Option<u32>,
    /// Relative time, 0 to 1: the larger of round / (rounds + 1) and elapsed / deadline.
    pub t: f64,
    /// The outcome of the standing offer, where the party can accept it.
    pub standing: Option<usize>,
    /// All offers so far, its own among them, in their order.
    pub offers: &'a [OfferMade],
}

impl TurnView<'_> {
    /// Relative time of a round of so many, as NegMAS counts it.
    #[must_use]
    pub fn relative_time(round: u32, rounds: u32) -> f64 {
        f64::from(round) / (f64::from(rounds) + 1.0)
    }
}

/// A turn as a party sees it whose strategy decides later.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    /// The party, counted from 0 in the order of turns.
    pub party: usize,
    /// The round, counted from 1.
    pub round: u32,
    /// The last round, where rounds are bounded.
    pub rounds: Option<u32>,
    /// The outcome of the standing offer, where the party can accept it.
    pub standing: Option<usize>,
    /// All offers so far, in their order.
    pub offers: Vec<OfferMade>,
}

impl OpenTurn {
    /// A turn as a strategy sees it.
    #[must_use]
    pub fn of(view: &TurnView<'_>) -> Self {
        let TurnView { party, round, rounds, standing, offers, .. } = *view;
        Self { party, round, rounds, standing, offers: offers.to_vec() }
    }
}

/// One offer of a bargain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct OfferMade {
    /// Turns taken before it, in all rounds.
    pub step: u32,
    /// The round, counted from 1.
    pub round: u32,
    /// Who offered, counted from 0 in the order of turns.
    pub party: usize,
    /// What.
    pub outcome: usize,
}

/// What a party can do in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Offer an outcome.
    Offer(usize),
    /// Accept the standing offer.
    Accept,
    /// End the bargain.
    End,
}

/// Accepts a standing offer that the party may agree to and that is worth at least `least`; otherwise proposes.
fn accept_or_offer(preferences: &Preferences, view: &TurnView<'_>, least: f64, proposal: usize) -> Move {
    let is_enough = |outcome: usize| preferences.is_acceptable(outcome) && preferences.utility(outcome) >= least;
    if view.standing.is_some_and(is_enough) { Move::Accept } else { Move::Offer(proposal) }
}

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

/// Makes the moves of a list, one each time it is asked, whatever they are worth; ends the bargain after the last.
#[derive(Debug, Clone)]
pub struct Scripted {
    moves: VecDeque<Move>,
}

impl Scripted {
    /// These moves.
    #[must_use]
    pub fn new(moves: impl IntoIterator<Item = Move>) -> Self {
        Self { moves: moves.into_iter().collect() }
    }
}

impl BargainStrategy for Scripted {
    fn decide(&mut self, _view: &TurnView<'_>) -> Move {
        self.moves.pop_front().unwrap_or(Move::End)
    }
}

#[cfg(test)]
mod tests;
