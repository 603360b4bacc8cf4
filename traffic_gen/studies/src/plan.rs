//! Plans: what an experiment asks, as TOML. A plan is checked whole before anything of it runs, and becomes a list of cells.
//!
//! | module | question it answers |
//! |---|---|
//! | [`mod@file`] | what may stand in a file? |
//! | [`check`] | does it make sense, and which cells does it ask for? |
//! | [`behaviour`] | what do contractors do? |
//! | [`population`] | which of them do otherwise? |
//! | [`domain`] | what are bargains about? |
//! | [`fault`] | what is wrong, where, and what would be right? |
//! | [`hypothesis`] | what is claimed, and does it hold? |
//! | here, [`PRESETS`] | which plans come along? |

pub mod behaviour;
pub mod check;
pub mod domain;
pub mod fault;
pub mod file;
pub mod hypothesis;
pub mod population;

use std::collections::BTreeMap;

use agents::ContractorConfig;
use schemas::Policy;
use serde::{Deserialize, Serialize};
use traffic_gen::arrivals::Load;

pub use behaviour::Misconduct;
pub use check::{Asked, read};
pub use domain::DomainFile;
pub use fault::{PlanFault, PlanFaults};
pub use hypothesis::Hypothesis;
pub use population::PopulationSpec;

/// The protocols of cells, as plans and records name them.
pub const CONTRACT_NET: &str = "contract-net";
/// Alternating offers.
pub const ALTERNATING: &str = "alternating";

/// Names and texts of the plans that come along.
pub const PRESETS: [(&str, &str); 7] = [
    ("paper", include_str!("../plans/paper.toml")),
    ("policies", include_str!("../plans/policies.toml")),
    ("population", include_str!("../plans/population.toml")),
    ("faults", include_str!("../plans/faults.toml")),
    ("griefing", include_str!("../plans/griefing.toml")),
    ("claims", include_str!("../plans/claims.toml")),
    ("bargains", include_str!("../plans/bargains.toml")),
];

/// The text of a plan by its name.
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// A plan that was checked: what it asks, cell by cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub text: String,
    /// How many times faster than planned calls arrive.
    pub time_scale: f64,
    /// What it claims.
    pub hypotheses: Vec<Hypothesis>,
    /// What is run, in this order: every cell of the first seed, then those of the next.
    pub cells: Vec<CellSpec>,
}

impl Plan {
    /// How long calls arrive in all cells together, in seconds, as time is scaled.
    pub fn length_s(&self) -> f64 {
        self.cells.iter().map(|cell| cell.duration_s).sum::<f64>() / self.time_scale
    }
}

/// What a cell is asked to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Name of its folder.
    pub id: String,
    /// Contractors; agents that bargain.
    pub contractors: u32,
    /// The acceptance policy, whole. Parties of bargains delegate their acceptances to it.
    pub policy: Policy,
    /// Calls or bargains per second, before time is scaled.
    pub rate: f64,
    /// How they are spread over time, before it is scaled.
    pub load: Load,
    /// How long calls arrive, in seconds, before time is scaled.
    pub duration_s: f64,
    /// Seed of arrivals and contractors.
    pub seed: u64,
    /// How contractors behave that are in no population.
    pub contractor: ContractorConfig,
    /// What each of them sends besides.
    #[serde(default, skip_serializing_if = "Misconduct::is_none")]
    pub misconduct: Misconduct,
    /// The others: the contractors of the first have the lowest numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub populations: Vec<PopulationSpec>,
    /// What contractors in no population add to their own cost, as a share of it.
    pub markup: f64,
    /// Calls made one after another before the measured ones.
    pub warm_up_rounds: u32,
    /// Collection deadline of each call, in milliseconds.
    pub reply_within_ms: u64,
    /// What parties of bargains draw their strategies from; empty where the cell plays the contract net.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<String>,
    /// What bargains are about; empty: the shipped domains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainFile>,
    /// Requests per second that a gateway takes of one agent, where they are limited on purpose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<u32>,
    /// What is true of every round and is no column of its own.
    pub labels: BTreeMap<String, String>,
}

impl CellSpec {
    /// The protocol it plays.
    pub fn protocol(&self) -> &'static str {
        if self.strategies.is_empty() { CONTRACT_NET } else { ALTERNATING }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_that_comes_along_is_a_plan_under_its_name() {
        for (name, text) in PRESETS {
            let plan = read(name, text, Asked::default()).unwrap();
            assert_eq!(plan.name, name);
            assert!(!plan.cells.is_empty());
        }
    }

    #[test]
    fn the_paper_is_run_in_both_readings_and_three_sizes_and_for_as_long_as_it_was() {
        let plan = read("paper", preset("paper").unwrap(), Asked::default()).unwrap();
        let count = |of: &dyn Fn(&CellSpec) -> bool| plan.cells.iter().filter(|cell| of(cell)).count();
        assert_eq!(count(&|cell| cell.id.starts_with("short-")), 3 * 6 * 3);
        assert_eq!(count(&|cell| cell.duration_s == 7_200.0 && cell.contractors == 12), 2);
        assert_eq!(count(&|cell| cell.duration_s == 43_200.0 && cell.policy.name() == "high"), 1);
        // The rate under which the paper's three long runs had 145, 129 and 806 rounds.
        assert!(plan.cells.iter().all(|cell| (cell.rate * 60.0 - 1.125).abs() < 1e-9));
        let scaled = Asked { time_scale: Some(60.0), ..Asked::default() };
        let minutes = read("paper", preset("paper").unwrap(), scaled).unwrap().length_s() / 60.0;
        assert!(minutes < 18.5, "{minutes} minutes and the starts of its cells");
    }
}
