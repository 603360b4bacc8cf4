//! Moves from a list.

use std::collections::VecDeque;

use super::{BargainStrategy, Move, TurnView};

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
