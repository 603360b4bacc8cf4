//! Concession in time: Boulware, linear, conceder.

use std::sync::Arc;

use super::{BargainStrategy, Move, TurnView, accept_or_offer};
use crate::bargain::utility::Preferences;

/// How far below its aspiration a party already accepts and proposes. That of NegMAS, so that the same bargain takes the
/// same course.
const SLACK: f64 = 1e-4;
/// An outcome this little below that bound is proposed when it is the nearest to it.
const NEARLY: f64 = 1e-6;

/// Aspires to 1 - t^e between the least it could agree to (0) and its best (1). In its turn it accepts what is worth its
/// aspiration, otherwise it proposes the least of its outcomes that is.
#[derive(Debug, Clone)]
pub struct TimeDependent {
    preferences: Arc<Preferences>,
    exponent: f64,
}

impl TimeDependent {
    /// Concedes late: e = 4.
    #[must_use]
    pub fn boulware(preferences: Arc<Preferences>) -> Self {
        Self { preferences, exponent: 4.0 }
    }

    /// Concedes steadily: e = 1.
    #[must_use]
    pub fn linear(preferences: Arc<Preferences>) -> Self {
        Self { preferences, exponent: 1.0 }
    }

    /// Concedes early: e = 1/4.
    #[must_use]
    pub fn conceder(preferences: Arc<Preferences>) -> Self {
        Self { preferences, exponent: 0.25 }
    }

    /// The least utility it accepts and proposes at relative time `t`; absent when it may agree to nothing. It never rises
    /// with time.
    #[must_use]
    pub fn aspiration(&self, t: f64) -> Option<f64> {
        let (least, most) = self.preferences.span()?;
        let part = 1.0 - t.clamp(0.0, 1.0).powf(self.exponent);
        Some(((most - least) * part + least - SLACK).clamp(least, most))
    }

    fn proposal(&self, aspiration: f64) -> Option<usize> {
        let preferences = &*self.preferences;
        let position = preferences.position_at_least(aspiration);
        let above = preferences.ranking().get(position).copied();
        let below = position.checked_sub(1).and_then(|below| preferences.ranking().get(below)).copied();
        let distance = |outcome: usize| (preferences.utility(outcome) - aspiration).abs();
        let is_nearer =
            |below: usize| distance(below) <= NEARLY && above.is_none_or(|above| distance(below) < distance(above));
        below.filter(|&below| is_nearer(below)).or(above).or_else(|| preferences.best())
    }
}

impl BargainStrategy for TimeDependent {
    fn decide(&mut self, view: &TurnView<'_>) -> Move {
        let aspiration = self.aspiration(view.t);
        let Some((aspiration, proposal)) = aspiration.and_then(|least| Some((least, self.proposal(least)?))) else {
            return Move::End;
        };
        accept_or_offer(&self.preferences, view, aspiration, proposal)
    }
}
