//! The summary of a run of bargains: what `llmx demo --protocol alternating --json` prints.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{BargainScenario, Traded};
use crate::bargain::figures::Figures;
use crate::latency::Quantiles;
use crate::recorder::Counts;
use crate::summary::{RunTotals, counts as told, line};

/// The result of a run. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct BargainSummary {
    /// `alternating`.
    pub protocol: &'static str,
    /// Seed of arrivals, parties, domains and strategies.
    pub seed: u64,
    /// `memory` or `nats`.
    pub bus: String,
    /// The policy all delegated to; absent: agents accepted themselves.
    pub policy: Option<String>,
    /// Agents.
    pub agents: u32,
    /// Target bargains per second.
    pub rate: f64,
    /// Calls to a bargain admitted.
    pub cfps: u64,
    /// Turns taken in bargains that ended.
    pub steps: u64,
    /// The same per second.
    pub steps_per_s: f64,
    /// The figures over all domains, without the anchoring, which compares bargains over one.
    pub figures: Figures,
    /// By domain.
    pub by_domain: BTreeMap<String, DomainCounts>,
    /// Bargains without an agreement, by reason.
    pub without_agreement: BTreeMap<String, u64>,
    /// Latencies.
    pub latency_ms: BargainLatencies,
    /// Moves the exchange refused.
    pub moves_refused: u64,
    /// Agents that would not take part.
    pub declined: u64,
    /// What any run comes to.
    #[serde(flatten)]
    pub run: RunTotals,
}

/// Bargains over one domain.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DomainCounts {
    /// That ended.
    pub bargains: u64,
    /// With an agreement.
    pub agreements: u64,
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BargainLatencies {
    /// From sending a move until the party whose turn is next knows of it, or the first party the end.
    pub step: Quantiles,
    /// From the intended time of the call until the first party knows the end.
    pub bargain: Quantiles,
}

impl BargainSummary {
    /// Puts a run's results together.
    #[must_use]
    pub fn new(scenario: &BargainScenario, bus: &str, traded: &Traded, counts: &Counts, run: RunTotals) -> Self {
        let domain = |(name, (bargains, agreements)): (&String, &(u64, u64))| {
            (name.clone(), DomainCounts { bargains: *bargains, agreements: *agreements })
        };
        Self {
            protocol: "alternating",
            seed: scenario.seed,
            bus: bus.to_owned(),
            policy: scenario.protocol.policy.clone(),
            agents: scenario.agents,
            rate: scenario.rate,
            cfps: counts.cfps,
            steps: traded.steps,
            steps_per_s: traded.steps as f64 / run.driven.elapsed_s.max(f64::EPSILON),
            figures: traded.tally.figures(None),
            by_domain: traded.by_domain.iter().map(domain).collect(),
            without_agreement: traded.without.clone(),
            latency_ms: BargainLatencies { step: traded.step.quantiles(), bargain: counts.round.quantiles() },
            moves_refused: traded.refused,
            declined: traded.declined,
            run,
        }
    }
}

impl fmt::Display for BargainSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.driven.begin(f)?;
        let policy = self.policy.as_deref().unwrap_or("agents accept themselves");
        writeln!(
            f,
            "alternating offers on {}, {} agents, {} bargains/s, {policy}, seed {}: {:.1} s",
            self.bus, self.agents, self.rate, self.seed, self.run.driven.elapsed_s
        )?;
        writeln!(f, "  bargains {}   steps {} ({:.0}/s)", self.figures.bargains, self.steps, self.steps_per_s)?;
        for (name, DomainCounts { bargains, agreements }) in &self.by_domain {
            writeln!(f, "    {name:<20} {agreements:>5} agreements in {bargains:>5} bargains")?;
        }
        writeln!(f, "{}", self.figures)?;
        writeln!(f, "  without agreement {}", told(&self.without_agreement))?;
        line(f, "move to next turn", &self.latency_ms.step)?;
        line(f, "call to end", &self.latency_ms.bargain)?;
        writeln!(f, "  moves refused {}   declined {}", self.moves_refused, self.declined)?;
        writeln!(f, "  rejected at the gateway {}", told(&self.run.rejected))?;
        write!(f, "{}", self.run)
    }
}
