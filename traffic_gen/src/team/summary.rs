//! The part of a load's summary that only teams have.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{TeamLedger, Teams};
use crate::latency::Quantiles;
use crate::load::{LoadSummary, ProtocolSummary};
use crate::recorder::Counts;
use crate::summary::{counts as told, line};

/// What teams came to. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct TeamSummary {
    /// Teams that formed.
    pub formed: u64,
    /// Members of a team, on average.
    pub members_mean: f64,
    /// Acts of the floor that were sent, by act.
    pub turns: BTreeMap<String, u64>,
    /// The same per second, all acts together.
    pub turns_per_s: f64,
    /// Tasks of teams that ended, by how each ended.
    pub tasks: BTreeMap<String, u64>,
    /// Acts the exchange refused.
    pub acts_refused: u64,
    /// Latencies.
    pub latency_ms: TeamLatencies,
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TeamLatencies {
    /// From sending a say until the member that has the floor next knows of it.
    pub say: Quantiles,
    /// From the intended time of the call until the lead knows the end.
    pub team: Quantiles,
}

impl ProtocolSummary for TeamSummary {
    const PROTOCOL: &'static str = "team";
    const UNIT: &'static str = "teams";
    type Load = Teams;

    fn line(ledger: &TeamLedger) -> String {
        let (tally, open) = (ledger.tally(), ledger.recorder().open());
        let (formed, turns, say) = (tally.formed, tally.turns.values().sum::<u64>(), tally.say.quantiles());
        format!(
            "teams {formed:>6}   turns {turns:>8}   open {open:>4}   say to next speaker p50 {:.2} ms, p95 {:.2} ms",
            say.p50, say.p95
        )
    }

    fn new(ledger: &TeamLedger, counts: &Counts, elapsed_s: f64) -> Self {
        let tally = ledger.tally();
        let turns: u64 = tally.turns.values().sum();
        Self {
            formed: tally.formed,
            members_mean: tally.members as f64 / (tally.formed.max(1)) as f64,
            turns: tally.turns,
            turns_per_s: turns as f64 / elapsed_s.max(f64::EPSILON),
            tasks: tally.tasks,
            acts_refused: tally.refused,
            latency_ms: TeamLatencies { say: tally.say.quantiles(), team: counts.round.quantiles() },
        }
    }

    fn write(&self, summary: &LoadSummary<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LoadSummary { cfps, run, .. } = summary;
        writeln!(f, "  teams {cfps}   formed {}   members {:.2} each", self.formed, self.members_mean)?;
        writeln!(f, "  turns {} ({:.0}/s)", told(&self.turns), self.turns_per_s)?;
        writeln!(f, "  tasks {}   ends {}", told(&self.tasks), told(&run.outcomes))?;
        line(f, "say to next speaker", &self.latency_ms.say)?;
        line(f, "call to end", &self.latency_ms.team)?;
        writeln!(f, "  acts refused {}   rejected at the gateway {}", self.acts_refused, told(&run.rejected))
    }
}
