//! The summary of a run of teams: what `llmx demo --protocol team --json` prints.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{TeamScenario, TeamTally};
use crate::latency::Quantiles;
use crate::recorder::Counts;
use crate::summary::{RunTotals, counts as told, line};

/// The result of a run. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct TeamSummary {
    /// `team`.
    pub protocol: &'static str,
    /// Seed of arrivals, members and what they do.
    pub seed: u64,
    /// `memory` or `nats`.
    pub bus: String,
    /// Agents.
    pub agents: u32,
    /// Target teams per second.
    pub rate: f64,
    /// Calls to a team admitted.
    pub cfps: u64,
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
    /// What any run comes to.
    #[serde(flatten)]
    pub run: RunTotals,
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TeamLatencies {
    /// From sending a say until the member that has the floor next knows of it.
    pub say: Quantiles,
    /// From the intended time of the call until the lead knows the end.
    pub team: Quantiles,
}

impl TeamSummary {
    /// Puts a run's results together.
    #[must_use]
    pub fn new(scenario: &TeamScenario, bus: &str, tally: TeamTally, counts: &Counts, run: RunTotals) -> Self {
        let turns: u64 = tally.turns.values().sum();
        Self {
            protocol: "team",
            seed: scenario.seed,
            bus: bus.to_owned(),
            agents: scenario.agents,
            rate: scenario.rate,
            cfps: counts.cfps,
            formed: tally.formed,
            members_mean: tally.members as f64 / (tally.formed.max(1)) as f64,
            turns: tally.turns,
            turns_per_s: turns as f64 / run.driven.elapsed_s.max(f64::EPSILON),
            tasks: tally.tasks,
            acts_refused: tally.refused,
            latency_ms: TeamLatencies { say: tally.say.quantiles(), team: counts.round.quantiles() },
            run,
        }
    }
}

impl fmt::Display for TeamSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.driven.begin(f)?;
        writeln!(
            f,
            "teams on {}, {} agents, {} teams/s, seed {}: {:.1} s",
            self.bus, self.agents, self.rate, self.seed, self.run.driven.elapsed_s
        )?;
        writeln!(f, "  teams {}   formed {}   members {:.2} each", self.cfps, self.formed, self.members_mean)?;
        writeln!(f, "  turns {} ({:.0}/s)", told(&self.turns), self.turns_per_s)?;
        writeln!(f, "  tasks {}   ends {}", told(&self.tasks), told(&self.run.outcomes))?;
        line(f, "say to next speaker", &self.latency_ms.say)?;
        line(f, "call to end", &self.latency_ms.team)?;
        writeln!(f, "  acts refused {}   rejected at the gateway {}", self.acts_refused, told(&self.run.rejected))?;
        write!(f, "{}", self.run)
    }
}
