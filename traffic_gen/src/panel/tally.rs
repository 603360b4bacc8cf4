//! What came of many panels of one file.

use std::collections::BTreeMap;
use std::fmt;

use schemas::AgentId;
use serde::Serialize;

use super::{PlayedPanel, as_unit};

/// See the module.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PanelTally {
    /// Panels played.
    pub panels: u64,
    /// By how they ended.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// By asks, as the agents counted them.
    pub asks: BTreeMap<u32, u64>,
    /// Panels whose result says another number of asks than its agents counted.
    pub miscounted: u64,
    /// Panels whose result is right.
    pub right: u64,
    /// By seat.
    pub seats: BTreeMap<AgentId, SeatTally>,
}

/// What came of one seat.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SeatTally {
    /// Asks.
    pub asked: u64,
    /// Results it agreed with.
    pub agreed: u64,
    /// Its shares, added up; 1 000 000 is that of the mean of all seats.
    pub relative_ppm: u64,
    /// Results that name it.
    pub results: u64,
}

impl PanelTally {
    /// Adds a panel.
    pub fn add(&mut self, played: &PlayedPanel) {
        self.panels += 1;
        *self.outcomes.entry(played.outcome).or_default() += 1;
        *self.asks.entry(played.asks.total()).or_default() += 1;
        self.right += u64::from(played.is_right == Some(true));
        let Some(finding) = &played.finding else { return };
        self.miscounted += u64::from(!played.asks.are_those_of(finding));
        for panelist in &finding.panelists {
            let seat = self.seats.entry(panelist.agent.clone()).or_default();
            seat.asked += u64::from(played.asks.by_agent.get(&panelist.agent).copied().unwrap_or(0));
            seat.agreed += u64::from(panelist.agreed);
            seat.relative_ppm += panelist.relative_ppm;
            seat.results += 1;
        }
    }

    /// Asks of a panel, in the mean.
    pub fn asks_mean(&self) -> f64 {
        let all: u64 = self.asks.iter().map(|(&asks, &panels)| u64::from(asks) * panels).sum();
        mean(all, self.panels)
    }
}

impl fmt::Display for PanelTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes: Vec<String> = self.outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        let asks: Vec<String> = self.asks.iter().map(|(asks, count)| format!("{count} with {asks}")).collect();
        writeln!(f, "panels  {}: {}; {} right", self.panels, outcomes.join(", "), self.right)?;
        writeln!(f, "asks    {:.3} a panel: {}; {} miscounted", self.asks_mean(), asks.join(", "), self.miscounted)?;
        write!(f, "{:<16} {:>7} {:>7} {:>6}", "panelist", "asked", "agrees", "share")?;
        for (agent, seat) in &self.seats {
            let share = as_unit(seat.relative_ppm, 1e6) / (seat.results.max(1) as f64);
            let (asked, agreed) = (mean(seat.asked, seat.results), mean(seat.agreed, seat.results));
            write!(f, "\n{:<16} {asked:>7.3} {agreed:>7.3} {share:>6.2}", agent.as_str())?;
        }
        Ok(())
    }
}

fn mean(sum: u64, count: u64) -> f64 {
    sum as f64 / count.max(1) as f64
}
