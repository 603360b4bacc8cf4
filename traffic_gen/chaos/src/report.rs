//! What a run shows: figures, verdict, targets.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::judge::{Checks, Lapses, Rounds};
use archive::audit;
use traffic_gen::latency::Quantiles;
use traffic_gen::summary::{Violations, counts};

/// The result of a run. Gaps and latencies are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct ChaosReport {
    /// What agents did.
    pub protocol: &'static str,
    /// What was hit.
    pub kill: String,
    /// Seed of faults and contractors.
    pub seed: u64,
    /// Copies of the log.
    pub replicas: u8,
    /// Agents.
    pub agents: u32,
    /// Negotiations kept open.
    pub open: u32,
    /// Seconds from the first call to the last end.
    pub elapsed_s: f64,
    /// Faults, by what was hit and how.
    pub faults: BTreeMap<String, u64>,
    /// What the rounds came to.
    pub rounds: Rounds,
    /// How negotiations ended.
    pub outcomes: BTreeMap<String, u64>,
    /// Awards that ran out unconfirmed.
    pub lapses: Lapses,
    /// What agents sent and heard.
    pub messages: Messages,
    /// From a fault that hit an engine (or a nats-server) to the next decision an agent heard, on each lane it hit.
    pub decision_gap_ms: Quantiles,
    /// The longest time without any 202 after each fault.
    pub publish_gap_ms: Quantiles,
    /// From a message's first departure to its 202, repeats included.
    pub admission_ms: Quantiles,
    /// Invariants, from the agents' own observations, the register and the replay.
    pub invariant_violations: Violations,
    /// What must hold besides.
    pub checks: Checks,
    /// What was to be checked and never was, by name; each counts as a violation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<&'static str>,
    /// Replaying the log.
    pub replay: audit::AuditReport,
    /// What the run is to reach.
    pub targets: Vec<Target>,
}

/// What agents sent and heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// Messages that left, each counted once.
    pub sent: u64,
    /// Times one left again, with the same id and bytes.
    pub resent: u64,
    /// Messages a gateway refused.
    pub refused: u64,
    /// Messages nobody answered, however often they were repeated, and those whose agent was killed before an answer came.
    pub unanswered: u64,
    /// Deliveries heard for the first time.
    pub heard: u64,
    /// Deliveries heard again; agents dropped them.
    pub repeats: u64,
    /// Of those, within a second after a paused process went on.
    pub repeats_after_wake: u64,
    /// Connections made.
    pub connections: u64,
}

/// A figure and what it is to be.
#[derive(Debug, Clone, Serialize)]
pub struct Target {
    /// What is measured.
    pub name: &'static str,
    /// The figure.
    pub value: f64,
    /// The bound.
    pub bound: String,
    /// Whether it is kept.
    pub is_met: bool,
}

impl Target {
    /// A figure that is to be at most `bound`.
    pub fn at_most(name: &'static str, value: f64, bound: f64) -> Self {
        Self { name, value, bound: format!("<= {bound}"), is_met: value <= bound }
    }

    /// A figure that is to be at least `bound`.
    pub fn at_least(name: &'static str, value: f64, bound: f64) -> Self {
        Self { name, value, bound: format!(">= {bound}"), is_met: value >= bound }
    }
}

impl ChaosReport {
    /// Violations of invariants, failed checks, and checks never made.
    pub fn violations(&self) -> u64 {
        self.invariant_violations.total + self.checks.violated() + self.unchecked.len() as u64
    }

    /// The first few violations, in words.
    pub fn examples(&self) -> impl Iterator<Item = String> {
        let found = self.invariant_violations.examples.iter().chain(&self.checks.examples).cloned();
        found.chain(self.unchecked.iter().map(|name| format!("{name}: never checked")))
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}, kill {}, R{}, {} agents, {} open, seed {}: {:.1} s",
            self.protocol, self.kill, self.replicas, self.agents, self.open, self.seed, self.elapsed_s
        )?;
        writeln!(f, "  faults {}", counts(&self.faults))?;
        let Rounds { opened, willing, completed, completion } = self.rounds;
        writeln!(f, "  rounds {opened}   willing {willing}   completed {completed} ({:.2} %)", completion * 100.0)?;
        writeln!(f, "  outcomes {}", counts(&self.outcomes))?;
        let Lapses { lapsed, before_accept } = self.lapses;
        writeln!(f, "  awards lapsed {lapsed}, of those before their ACCEPT was sent {before_accept}")?;
        let Messages { sent, resent, refused, unanswered, heard, repeats, repeats_after_wake, connections } =
            self.messages;
        writeln!(f, "  sent {sent}   again {resent}   refused {refused}   unanswered {unanswered}")?;
        writeln!(
            f,
            "  heard {heard}   again {repeats} (after a pause {repeats_after_wake})   connections {connections}"
        )?;
        for (name, gap) in [
            ("fault to next decision", &self.decision_gap_ms),
            ("longest without a 202", &self.publish_gap_ms),
            ("message to its 202", &self.admission_ms),
        ] {
            let Quantiles { p50, p99, max, count, .. } = gap;
            writeln!(f, "  {name:<24} p50 {p50:>9.1}   p99 {p99:>9.1}   max {max:>9.1}  ms   ({count})")?;
        }
        for target in &self.targets {
            let verdict = if target.is_met { "met" } else { "MISSED" };
            writeln!(f, "  target: {} {:.3} {}  {verdict}", target.name, target.value, target.bound)?;
        }
        let audit::AuditReport { records, decisions, register_entries, .. } = &self.replay;
        writeln!(f, "  replayed {records} records: {decisions} decisions, {register_entries} register entries")?;
        for (invariant, tally) in &self.invariant_violations.by_name {
            writeln!(f, "  {:<20} {:>9} checks, {} violations", invariant.as_str(), tally.checked, tally.violated)?;
        }
        for (check, tally) in &self.checks.by_name {
            writeln!(f, "  {:<20} {:>9} checks, {} violations", <&str>::from(check), tally.checked, tally.violated)?;
        }
        write!(f, "  violations {}", self.violations())?;
        for example in self.examples() {
            write!(f, "\n    {example}")?;
        }
        Ok(())
    }
}
