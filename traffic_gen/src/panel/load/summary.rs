//! What only summaries of runs of panels have.

use std::fmt;

use serde::Serialize;

use super::Panels;
use crate::latency::Quantiles;
use crate::load::LoadSummary;
use crate::panel::tally::PanelTally;
use crate::recorder::Counts;
use crate::summary::{counts as told, line};

/// What panels came to. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct PanelSummary {
    /// What panels came to.
    pub tally: PanelTally,
    /// Asks of a panel, in the mean, as agents counted them.
    pub asks_mean: f64,
    /// From the intended time of the call until the initiator knows the end.
    pub panel_ms: Quantiles,
}

impl PanelSummary {
    /// Of a run.
    #[must_use]
    pub fn new(tally: PanelTally, counts: &Counts) -> Self {
        Self { asks_mean: tally.asks_mean(), tally, panel_ms: counts.round.quantiles() }
    }

    /// Writes a summary's lines.
    ///
    /// # Errors
    /// The formatter's.
    pub fn write(&self, summary: &LoadSummary<Panels>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.tally)?;
        line(f, "call to end", &self.panel_ms)?;
        writeln!(f, "  outcomes {}", told(&summary.run.outcomes))?;
        writeln!(f, "  rejected at the gateway {}", told(&summary.run.rejected))
    }
}
