//! Benchmarks, each beside its ceiling in the same run (docs/performance.md). Driven by `llmx-lab bench`; never a test.
//!
//! | module | measures |
//! |---|---|
//! | [`bare`] | the ceiling: a round's messages on the bare bus |
//! | [`rounds`] | whole rounds through gateway, log, engine and register: closed loop, and latency at a low rate |
//! | [`steps`] | steps of bargains: the core alone, through everything, and the bare bus |
//! | [`budget`] | each stage of an offer, beside what it must cost at least |
//! | [`admission`] | one message through the gateway's checks |
//! | [`durability`] | the log alone: with and without group commit, an fsync before every answer, three copies |
//! | [`recovery`] | a killed engine: time until ready, memory before and after |
//! | [`overhead`] | what metrics and traces cost |
//! | [`processes`] | what a round costs with the processes users run |
//! | [`fold`] | one message through the core, with few and with many open negotiations; memory |
//! | [`teams`] | teams through the core and through everything, beside rounds and bargains; memory |
//! | [`panels`] | answers of panels through the core and through everything, beside steps of bargains; memory, results, recovery |
//! | [`mod@search`] | searches for agents, among few and among many |
//! | [`agora`] | transactions of Agora by kind of routine, beside a bare HTTP service; one run of a routine |

pub mod admission;
pub mod agora;
pub mod bare;
pub mod budget;
pub mod durability;
pub mod fold;
pub mod overhead;
pub mod panels;
pub mod processes;
pub mod recovery;
pub mod rounds;
pub mod search;
pub mod service;
pub mod steps;
pub mod suite;
pub mod teams;
pub mod units;
pub mod usage;

use serde::Serialize;

/// One result.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What limits it, in the same unit, measured in the same run.
    pub ceiling: Option<f64>,
    /// `value / ceiling`.
    pub ratio: Option<f64>,
    /// Allocations per message, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<f64>,
    /// Target for the ratio, or for the value where there is no ceiling, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl Row {
    /// A figure without a ceiling.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, ceiling: None, ratio: None, allocations: None, target: None }
    }

    /// Sets the ceiling.
    pub fn under(mut self, ceiling: f64) -> Self {
        self.ceiling = Some(ceiling);
        self.ratio = (ceiling > 0.0).then(|| self.value / ceiling);
        self
    }

    /// Names the target.
    pub fn aiming_at(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }
}
