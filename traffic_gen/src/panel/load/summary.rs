//! The summary of a run of panels: what `llmx demo --protocol panel --json` prints.

use std::fmt;

use serde::Serialize;

use super::PanelScenario;
use crate::latency::Quantiles;
use crate::panel::tally::PanelTally;
use crate::recorder::Counts;
use crate::summary::{RunTotals, counts as told, line};

/// The result of a run. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct PanelSummary {
    /// `panel`.
    pub protocol: &'static str,
    /// Seed of everything drawn.
    pub seed: u64,
    /// `memory` or `nats`.
    pub bus: String,
    /// Panelists.
    pub agents: u32,
    /// Target panels per second.
    pub rate: f64,
    /// Calls admitted.
    pub cfps: u64,
    /// What panels came to.
    pub tally: PanelTally,
    /// Asks of a panel, in the mean, as agents counted them.
    pub asks_mean: f64,
    /// From the intended time of the call until the initiator knows the end.
    pub panel_ms: Quantiles,
    /// What any run comes to.
    #[serde(flatten)]
    pub run: RunTotals,
}

impl PanelSummary {
    /// Puts a run's results together.
    #[must_use]
    pub fn new(scenario: &PanelScenario, bus: &str, tally: PanelTally, counts: &Counts, run: RunTotals) -> Self {
        Self {
            protocol: "panel",
            seed: scenario.seed,
            bus: bus.to_owned(),
            agents: scenario.agents,
            rate: scenario.rate,
            cfps: counts.cfps,
            asks_mean: tally.asks_mean(),
            tally,
            panel_ms: counts.round.quantiles(),
            run,
        }
    }
}

impl fmt::Display for PanelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.driven.begin(f)?;
        writeln!(
            f,
            "panels on {}, {} agents, {} panels/s, seed {}: {:.1} s",
            self.bus, self.agents, self.rate, self.seed, self.run.driven.elapsed_s
        )?;
        writeln!(f, "{}", self.tally)?;
        line(f, "call to end", &self.panel_ms)?;
        writeln!(f, "  outcomes {}", told(&self.run.outcomes))?;
        writeln!(f, "  rejected at the gateway {}", told(&self.run.rejected))?;
        write!(f, "{}", self.run)
    }
}
