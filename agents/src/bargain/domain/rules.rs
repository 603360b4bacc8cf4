//! The rules of a domain's bargains.

use schemas::bargain::{BargainSpec, CONCESSION_MAX, Concession, Issue, ROUNDS_MAX};
use schemas::policy::{STRIKES_MAX, TIMER_MS_MAX};
use serde::{Deserialize, Serialize};

use crate::bargain::DocumentFault;

/// Rounds where neither rounds nor time is bounded: enough for every strategy here to concede in steps that show.
const ROUNDS_UNSAID: u32 = 100;

/// The rules of a bargain without its outcome space; see [`BargainSpec`] for units and ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BargainRules {
    /// Rounds. Absent together with `deadline_ms`: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Milliseconds from the first turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Milliseconds one turn may take.
    pub step_ms: u64,
    /// Milliseconds the parties may take to confirm an agreement; absent: it needs no confirmation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm_ms: Option<u64>,
    /// Whether a party may not offer again what it has offered.
    pub forbid_repeat: bool,
    /// Messages out of turn after which a party has ended the bargain.
    pub max_strikes: u32,
}

impl Default for BargainRules {
    fn default() -> Self {
        Self {
            rounds: None,
            deadline_ms: None,
            step_ms: 10_000,
            confirm_ms: None,
            forbid_repeat: false,
            max_strikes: 3,
        }
    }
}

impl BargainRules {
    /// The defaults with so many rounds.
    #[must_use]
    pub fn with_rounds(rounds: u32) -> Self {
        Self { rounds: Some(rounds), ..Self::default() }
    }

    /// The rules over an outcome space.
    #[must_use]
    pub fn bargain(&self, issues: Vec<Issue>) -> BargainSpec {
        let Self { rounds, deadline_ms, step_ms, confirm_ms, forbid_repeat, max_strikes } = *self;
        let rounds = rounds.or(deadline_ms.is_none().then_some(ROUNDS_UNSAID));
        BargainSpec { issues, rounds, deadline_ms, step_ms, confirm_ms, forbid_repeat, max_strikes }
    }

    pub(super) fn check(&self) -> Result<(), DocumentFault> {
        for (pointer, value, max) in [
            ("/rounds", self.rounds.map(u64::from), u64::from(ROUNDS_MAX)),
            ("/deadline_ms", self.deadline_ms, TIMER_MS_MAX),
            ("/step_ms", Some(self.step_ms), TIMER_MS_MAX),
            ("/confirm_ms", self.confirm_ms, TIMER_MS_MAX),
            ("/max_strikes", Some(u64::from(self.max_strikes)), u64::from(STRIKES_MAX)),
        ] {
            if value.is_some_and(|value| !(1..=max).contains(&value)) {
                return Err(DocumentFault::at(pointer, format!("1 to {max}")));
            }
        }
        Ok(())
    }
}

pub(super) fn check_concession(concession: Option<Concession>) -> Result<(), DocumentFault> {
    match concession {
        Some(Concession::Boulware(exponent) | Concession::Conceder(exponent))
            if !(2..=CONCESSION_MAX).contains(&exponent) =>
        {
            Err(DocumentFault::at("", format!("an exponent from 2 to {CONCESSION_MAX}")))
        }
        Some(Concession::Boulware(_) | Concession::Conceder(_) | Concession::Linear) | None => Ok(()),
    }
}
