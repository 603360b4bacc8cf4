//! What only summaries of runs of panels have.

use std::fmt;

use serde::Serialize;

use super::{PanelLedger, Panels};
use crate::latency::Quantiles;
use crate::load::{LoadSummary, ProtocolSummary};
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

impl ProtocolSummary for PanelSummary {
    const PROTOCOL: &'static str = "panel";
    const UNIT: &'static str = "panels";
    type Load = Panels;

    fn line(ledger: &PanelLedger) -> String {
        let (open, tally) = (ledger.recorder().open(), ledger.lock());
        let (panels, right, asks) = (tally.panels, tally.right, tally.asks_mean());
        format!("panels {panels:>6}   right {right:>6}   asks a panel {asks:>6.2}   open {open:>4}")
    }

    fn new(ledger: &PanelLedger, counts: &Counts, _elapsed_s: f64) -> Self {
        let tally = ledger.lock().clone();
        Self { asks_mean: tally.asks_mean(), tally, panel_ms: counts.round.quantiles() }
    }

    fn write(&self, summary: &LoadSummary<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.tally)?;
        line(f, "call to end", &self.panel_ms)?;
        writeln!(f, "  outcomes {}", told(&summary.run.outcomes))?;
        writeln!(f, "  rejected at the gateway {}", told(&summary.run.rejected))
    }

    fn fault(&self) -> Option<String> {
        let miscounted = self.tally.miscounted;
        (miscounted > 0).then(|| format!("{miscounted} findings count other asks than the agents"))
    }
}
