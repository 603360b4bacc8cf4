//! The summary of a run: what `llmx demo --json` prints.

use std::collections::BTreeMap;
use std::fmt;

use policy_engine::Jain;
use serde::Serialize;

use crate::invariants::{Invariant, Tally, Verdict};
use crate::latency::Quantiles;
use crate::live::CallScenario;
use crate::models::{ModelSource, ModelSummary};
use crate::recorder::{Counts, Finished};
use crate::routines::RoutineSummary;

/// The result of a run. Counts are of distinct messages; latencies are in milliseconds, from the intended time.
#[derive(Debug, Clone, Serialize)]
pub struct CallSummary {
    /// Seed of arrivals and contractors.
    pub seed: u64,
    /// `memory` or `nats`.
    pub bus: String,
    /// The policy calls ran under; the latest of several.
    pub policy: String,
    /// Calls by the policy they ran under, as the gateway said.
    pub policies: BTreeMap<String, u64>,
    /// Contractors.
    pub agents: u32,
    /// What decided for them and for the initiator.
    pub model_source: ModelSource,
    /// What a model was asked, where contractors asked one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelSummary>,
    /// What a model was asked, where one chose for the initiator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator_model: Option<ModelSummary>,
    /// Runs of routines by what ran, where awards were carried out by routines.
    #[serde(skip_serializing_if = "RoutineSummary::is_empty")]
    pub routines: RoutineSummary,
    /// Target calls per second.
    pub rate: f64,
    /// Negotiations that ended.
    pub rounds: u64,
    /// Calls admitted.
    pub cfps: u64,
    /// Offers admitted.
    pub offers: u64,
    /// Awards registered, re-awards included.
    pub awards: u64,
    /// Of these, awards to agents that are not of the run.
    #[serde(skip_serializing_if = "is_zero")]
    pub awards_to_others: u64,
    /// Awards confirmed.
    pub confirms: u64,
    /// Offers / (calls x contractors).
    pub completion: f64,
    /// Negotiations with at least one award / negotiations that ended.
    pub award_rate: f64,
    /// Latencies.
    pub latency_ms: Latencies,
    /// Fairness among the contractors; absent without awards.
    pub jain: Option<Jain>,
    /// What any run comes to.
    #[serde(flatten)]
    pub run: RunTotals,
}

/// What a run comes to, whatever is played.
#[derive(Debug, Clone, Serialize)]
pub struct RunTotals {
    /// Checks from the agents' own observations.
    pub invariant_violations: Violations,
    /// Messages refused by a gateway, by code.
    pub rejected: BTreeMap<String, u64>,
    /// Dispositions told, by name.
    pub dispositions: BTreeMap<String, u64>,
    /// How negotiations ended.
    pub outcomes: BTreeMap<String, u64>,
    /// How it was driven.
    #[serde(flatten)]
    pub driven: Driven,
    /// Whether its end cut something off that was still owed: what it would have led to is not judged.
    #[serde(rename = "cut_off")]
    pub is_cut_off: bool,
}

/// How a run was driven.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Driven {
    /// Openings left out because too many negotiations were open.
    pub shed: u64,
    /// Seconds from the first intended opening until everything had settled.
    pub elapsed_s: f64,
    /// Whether the run was asked to end before its time: what is said is of what had begun by then.
    pub interrupted: bool,
}

impl Driven {
    /// The line before a summary, where it needs one.
    ///
    /// # Errors
    /// The formatter's.
    pub fn begin(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.interrupted { writeln!(f, "{INTERRUPTED}") } else { Ok(()) }
    }
}

impl RunTotals {
    /// Of a run that is over.
    pub fn new(finished: Finished, driven: Driven) -> (Counts, Self) {
        let Finished { mut counts, verdict, is_cut_off } = finished;
        let run = Self {
            invariant_violations: verdict.into(),
            rejected: std::mem::take(&mut counts.rejected),
            dispositions: std::mem::take(&mut counts.dispositions),
            outcomes: std::mem::take(&mut counts.outcomes),
            driven,
            is_cut_off,
        };
        (counts, run)
    }
}

/// The last lines of a summary.
impl fmt::Display for RunTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.invariant_violations)?;
        if self.is_cut_off { write!(f, "{CUT_OFF}") } else { Ok(()) }
    }
}

/// A line of latencies in milliseconds.
///
/// # Errors
/// The formatter's.
pub fn line(f: &mut fmt::Formatter<'_>, name: &str, quantiles: &Quantiles) -> fmt::Result {
    let Quantiles { p50, p95, p99, max, .. } = quantiles;
    writeln!(f, "  {name:<22} p50 {p50:>8.2}   p95 {p95:>8.2}   p99 {p99:>8.2}   max {max:>8.2}  ms")
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latencies {
    /// From the call's intended time until it left: how far the generator is behind its schedule.
    pub lag: Quantiles,
    /// From the call's intended time until its initiator knows the award (or that there is none). The paper's "round".
    pub decision: Quantiles,
    /// From the call's intended time until its initiator knows the end: confirmed and performed.
    pub round: Quantiles,
    /// From the call's intended time until an offer is accepted by a gateway, per offer.
    pub offer: Quantiles,
}

/// Violations of the invariants.
#[derive(Debug, Clone, Serialize)]
pub struct Violations {
    /// All of them.
    pub total: u64,
    /// By name, each with how often it was checked.
    pub by_name: BTreeMap<Invariant, Tally>,
    /// The first few, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

impl fmt::Display for CallSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.run.driven.begin(f)?;
        writeln!(
            f,
            "{} on {}, {} contractors, {} calls/s, seed {}: {:.1} s",
            policies(&self.policy, &self.policies),
            self.bus,
            self.agents,
            self.rate,
            self.seed,
            self.run.driven.elapsed_s
        )?;
        writeln!(
            f,
            "  rounds {}   calls {}   offers {}   awards {}   confirms {}",
            self.rounds, self.cfps, self.offers, self.awards, self.confirms
        )?;
        if self.awards_to_others > 0 {
            writeln!(f, "  awards to agents of others {}", self.awards_to_others)?;
        }
        writeln!(f, "  completion {:.1} %   award rate {:.1} %", self.completion * 100.0, self.award_rate * 100.0)?;
        line(f, "call to decision", &self.latency_ms.decision)?;
        line(f, "call to end", &self.latency_ms.round)?;
        line(f, "call to offer admitted", &self.latency_ms.offer)?;
        if let Some(jain) = &self.jain {
            writeln!(
                f,
                "  fairness (Jain) {:.3}, a fair draw of {} awards gives {:.3}",
                jain.index, jain.awards, jain.null
            )?;
        }
        writeln!(f, "  outcomes {}", counts(&self.run.outcomes))?;
        writeln!(f, "  rejected at the gateway {}", counts(&self.run.rejected))?;
        if !self.routines.is_empty() {
            writeln!(f, "  routines {}", self.routines)?;
        }
        if let Some(model) = &self.model {
            writeln!(f, "  {model}")?;
        }
        if let Some(model) = &self.initiator_model {
            writeln!(f, "  initiator: {model}")?;
        }
        write!(f, "{}", self.run)
    }
}

/// Begins the summary of a run that was asked to end before its time.
const INTERRUPTED: &str = "INTERRUPTED: what follows is of what had begun by then";
/// Ends the summary of one whose end cut something off.
pub const CUT_OFF: &str = "\n  not judged: what was still owed when the run was cut off";

impl From<Verdict> for Violations {
    fn from(verdict: Verdict) -> Self {
        Self { total: verdict.violated(), by_name: verdict.by_name, examples: verdict.examples }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checked: u64 = self.by_name.values().map(|tally| tally.checked).sum();
        write!(f, "  invariants: {} violations in {checked} checks", self.total)?;
        for example in &self.examples {
            write!(f, "\n    {example}")?;
        }
        Ok(())
    }
}

/// The policy of a run, or its policies with the calls under each.
pub fn policies(latest: &str, calls_by_policy: &BTreeMap<String, u64>) -> String {
    if calls_by_policy.len() < 2 {
        return format!("policy {latest}");
    }
    let each: Vec<String> = calls_by_policy.iter().map(|(policy, calls)| format!("{policy} ({calls} calls)")).collect();
    format!("policies {}", each.join(", "))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counts on one line.
pub fn counts(map: &BTreeMap<String, u64>) -> String {
    if map.is_empty() {
        return "none".to_owned();
    }
    map.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

impl CallSummary {
    /// The same, with what models were asked by contractors and initiator.
    pub fn with_models(mut self, contractors: Option<ModelSummary>, initiator: Option<ModelSummary>) -> Self {
        let sources = contractors.iter().chain(&initiator).map(|model| model.source);
        self.model_source = sources.max().unwrap_or(ModelSource::Scripted);
        (self.model, self.initiator_model) = (contractors, initiator);
        self
    }

    /// Puts a run's results together.
    pub fn new(scenario: &CallScenario, bus: &str, policy: &str, counts: &Counts, run: RunTotals) -> Self {
        let wins: Vec<u64> = (0..scenario.contractors)
            .map(|n| counts.wins.get(&scenario.contractor_name(n)).copied().unwrap_or(0))
            .collect();
        let asked = counts.cfps * u64::from(scenario.contractors);
        Self {
            seed: scenario.seed,
            bus: bus.to_owned(),
            policy: counts.policy.clone().unwrap_or_else(|| policy.to_owned()),
            policies: counts.policies.clone(),
            agents: scenario.contractors,
            model_source: ModelSource::Scripted,
            model: None,
            initiator_model: None,
            routines: RoutineSummary::of(&scenario.routines),
            rate: scenario.rate,
            rounds: counts.rounds,
            cfps: counts.cfps,
            offers: counts.offers,
            awards: counts.awards,
            awards_to_others: counts.awards_to_others,
            confirms: counts.confirms,
            completion: ratio(counts.offers, asked),
            award_rate: ratio(counts.awarded, counts.rounds),
            latency_ms: Latencies {
                lag: counts.lag.quantiles(),
                decision: counts.decision.quantiles(),
                round: counts.round.quantiles(),
                offer: counts.offer.quantiles(),
            },
            jain: Jain::of(&wins),
            run,
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
