//! The summary of a run of panels: what `llmx demo --protocol panel --json` prints.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::PanelScenario;
use crate::invariants::Verdict;
use crate::latency::Quantiles;
use crate::panel::tally::PanelTally;
use crate::recorder::Counts;
use crate::summary::{CUT_OFF, INTERRUPTED, Violations, counts as told};

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
    /// Checks from the agents' own observations.
    pub invariant_violations: Violations,
    /// Messages refused by a gateway, by code.
    pub rejected: BTreeMap<String, u64>,
    /// Dispositions told, by name.
    pub dispositions: BTreeMap<String, u64>,
    /// How panels ended.
    pub outcomes: BTreeMap<String, u64>,
    /// Panels not called because too many were open.
    pub shed: u64,
    /// Seconds from the first intended call until everything had settled.
    pub elapsed_s: f64,
    /// Whether the run was asked to end before its time: what is said is of what had begun by then.
    pub interrupted: bool,
    /// Whether that cut something off that was still owed: what it would have led to is not judged.
    #[serde(rename = "cut_off")]
    pub is_cut_off: bool,
}

impl PanelSummary {
    /// Puts a run's results together.
    #[must_use]
    pub fn new(
        scenario: &PanelScenario,
        bus: &str,
        tally: PanelTally,
        counts: Counts,
        verdict: Verdict,
        (shed, elapsed_s): (u64, f64),
    ) -> Self {
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
            invariant_violations: verdict.into(),
            rejected: counts.rejected,
            dispositions: counts.dispositions,
            outcomes: counts.outcomes,
            shed,
            elapsed_s,
            interrupted: false,
            is_cut_off: false,
        }
    }
}

impl fmt::Display for PanelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.interrupted {
            writeln!(f, "{INTERRUPTED}")?;
        }
        writeln!(
            f,
            "panels on {}, {} agents, {} panels/s, seed {}: {:.1} s",
            self.bus, self.agents, self.rate, self.seed, self.elapsed_s
        )?;
        writeln!(f, "{}", self.tally)?;
        let Quantiles { p50, p95, p99, max, .. } = self.panel_ms;
        writeln!(f, "  call to end            p50 {p50:>8.2}   p95 {p95:>8.2}   p99 {p99:>8.2}   max {max:>8.2}  ms")?;
        writeln!(f, "  outcomes {}", told(&self.outcomes))?;
        writeln!(f, "  rejected at the gateway {}", told(&self.rejected))?;
        write!(f, "{}", self.invariant_violations)?;
        if self.is_cut_off { write!(f, "{CUT_OFF}") } else { Ok(()) }
    }
}
