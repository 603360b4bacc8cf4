//! A party of a bargain whose moves a model chooses (docs/models.md#bargaining).
//!
//! Own limits are checked twice: behind the model, which is not told them, and by the exchange, to which the party has declared
//! its mandate when it joined. Without a usable answer the party ends the bargain, or plays the strategy its owner names.

mod asking;
mod question;

use std::sync::Arc;

use super::config::{ModelAgentConfig, ModelFallback};
use crate::bargain::{BargainStrategy, Move, Preferences, Space, TurnView};

pub use asking::{AskingBargainer, ModelBargainer, spawn};
pub use question::TurnQuestion;

/// How long before the end of a turn a model's answer is of use at the latest: the move has to be admitted as well.
pub const TURN_MARGIN_MS: u64 = 500;

/// What a party bargains about, and how.
#[derive(Debug, Clone)]
pub struct PartyTable {
    /// The outcomes. Their names and texts are the owner's: a party takes part in bargains over its own domain only.
    pub space: Space,
    /// What they are worth to it, and which it may agree to.
    pub preferences: Arc<Preferences>,
    /// The owner's words to the model.
    pub config: Arc<ModelAgentConfig>,
    /// Makes the markers around words of others, who must not know it.
    pub marker_seed: u64,
}

/// Plays what somebody else has decided for the turn, and otherwise what the owner wants instead.
pub struct AdvisedStrategy {
    advice: Option<(u32, Move)>,
    fallback: ModelFallback,
    scripted: Box<dyn BargainStrategy>,
}

impl AdvisedStrategy {
    /// A strategy without advice.
    #[must_use]
    pub fn new(fallback: ModelFallback, scripted: Box<dyn BargainStrategy>) -> Self {
        Self { advice: None, fallback, scripted }
    }
}

impl BargainStrategy for AdvisedStrategy {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        match (self.advice.take(), self.fallback) {
            (Some((round, advised)), _) if round == view.round => advised,
            (_, ModelFallback::Refuse) => Move::End,
            (_, ModelFallback::Scripted) => self.scripted.decide(view),
        }
    }

    fn advise(&mut self, round: u32, next: Move) {
        self.advice = Some((round, next));
    }
}

#[cfg(test)]
mod tests;
