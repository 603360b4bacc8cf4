//! What only summaries of runs of bargains have.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{BargainLedger, Bargains};
use crate::bargain::figures::Figures;
use crate::latency::Quantiles;
use crate::load::{LoadSummary, ProtocolSummary};
use crate::recorder::Counts;
use crate::summary::{counts as told, line};

/// What bargains came to. Latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct BargainSummary {
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

impl ProtocolSummary for BargainSummary {
    const PROTOCOL: &'static str = "alternating";
    const UNIT: &'static str = "bargains";
    const TITLE: &'static str = "alternating offers";
    type Load = Bargains;

    fn policy(load: &Bargains) -> Option<Option<String>> {
        Some(load.policy.clone())
    }

    fn line(ledger: &BargainLedger) -> String {
        let (traded, open) = (ledger.traded(), ledger.recorder().open());
        let (bargains, agreed, step) = (traded.tally.bargains(), traded.tally.agreements(), traded.step.quantiles());
        format!(
            "bargains {bargains:>6}   agreed {agreed:>6}   moves {:>8}   open {open:>4}   \
             move to next turn p50 {:.2} ms, p95 {:.2} ms",
            step.count, step.p50, step.p95
        )
    }

    fn new(ledger: &BargainLedger, counts: &Counts, elapsed_s: f64) -> Self {
        let traded = ledger.traded();
        let domain = |(name, (bargains, agreements)): (&String, &(u64, u64))| {
            (name.clone(), DomainCounts { bargains: *bargains, agreements: *agreements })
        };
        Self {
            steps: traded.steps,
            steps_per_s: traded.steps as f64 / elapsed_s.max(f64::EPSILON),
            figures: traded.tally.figures(None),
            by_domain: traded.by_domain.iter().map(domain).collect(),
            without_agreement: traded.without,
            latency_ms: BargainLatencies { step: traded.step.quantiles(), bargain: counts.round.quantiles() },
            moves_refused: traded.refused,
            declined: traded.declined,
        }
    }

    fn write(&self, summary: &LoadSummary<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  bargains {}   steps {} ({:.0}/s)", self.figures.bargains, self.steps, self.steps_per_s)?;
        for (name, DomainCounts { bargains, agreements }) in &self.by_domain {
            writeln!(f, "    {name:<20} {agreements:>5} agreements in {bargains:>5} bargains")?;
        }
        writeln!(f, "{}", self.figures)?;
        writeln!(f, "  without agreement {}", told(&self.without_agreement))?;
        line(f, "move to next turn", &self.latency_ms.step)?;
        line(f, "call to end", &self.latency_ms.bargain)?;
        writeln!(f, "  moves refused {}   declined {}", self.moves_refused, self.declined)?;
        writeln!(f, "  rejected at the gateway {}", told(&summary.run.rejected))
    }

    fn fault(&self) -> Option<String> {
        let irrational = self.figures.irrational;
        (irrational > 0).then(|| format!("{irrational} agreements outside a party's mandate"))
    }
}
