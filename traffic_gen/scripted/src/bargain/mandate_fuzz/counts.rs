//! What the check of mandates counts.

use std::fmt;

use schemas::delivery::Disposition;
use serde::Serialize;

use super::CASES;

/// What many runs showed. `breaches` must be 0, `missed` and `impossible` too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FuzzCounts {
    /// Runs.
    pub runs: u64,
    /// Deals of each case.
    pub deals: [u64; CASES.len()],
    /// Runs of each case.
    pub runs_of: [u64; CASES.len()],
    /// Runs in which a party was injected.
    pub injected: u64,
    /// Acts outside the actor's own mandate that were tried.
    pub tried: u64,
    /// Those that were refused as `mandate_violation`.
    pub refused: u64,
    /// Agreements made by a policy for a party, not by the party's own ACCEPT.
    pub delegated: u64,
    /// Agreements outside a mandate, and acts outside that were not refused.
    pub breaches: u64,
    /// Deals that exist and were not made.
    pub missed: u64,
    /// Deals where none exists.
    pub impossible: u64,
}

impl FuzzCounts {
    /// Whether every mandate held, and a deal came where one exists and nowhere else.
    pub fn holds(&self) -> bool {
        self.breaches == 0 && self.missed == 0 && self.impossible == 0 && self.tried == self.refused
    }

    /// Counts an act that was known to be outside.
    pub(super) fn note_try(&mut self, disposition: Disposition) {
        self.tried += 1;
        if disposition == Disposition::MandateViolation {
            self.refused += 1;
        } else {
            self.breaches += 1;
        }
    }
}

impl fmt::Display for FuzzCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (((reserve, budget), deals), runs) in CASES.iter().zip(self.deals).zip(self.runs_of) {
            let is_possible = if reserve <= budget { "exists" } else { "does not" };
            writeln!(
                f,
                "  reserve {reserve:>3}   budget {budget:>3}   a deal {is_possible}   {deals:>6} deals in {runs:>6} runs"
            )?;
        }
        writeln!(f, "  {} runs, {} with a party that tries to leave its mandate", self.runs, self.injected)?;
        writeln!(f, "  {} such acts, {} refused as mandate_violation", self.tried, self.refused)?;
        writeln!(f, "  {} deals whose accepting party had delegated to a policy", self.delegated)?;
        let Self { breaches, missed, impossible, .. } = self;
        write!(f, "  {breaches} breaches, {missed} deals missed, {impossible} impossible deals")
    }
}
