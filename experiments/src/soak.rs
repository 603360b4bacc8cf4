//! A soak: load for hours, samples of everything that could drift, and a verdict on each series.
//!
//! | module | question it answers |
//! |---|---|
//! | [`sample`] | what is kept, and how does a soak go on? |
//! | [`scrape`] | what does a process say of itself? |
//! | [`trend`] | does a series rise or fall? (pure) |
//! | [`drift`] | which series drift, and what would be too much? (pure) |

pub mod drift;
pub mod sample;
pub mod scrape;
pub mod trend;

use serde::{Deserialize, Serialize};

/// What is soaked, and how; the same in every part of a soak but for its duration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoakPlan {
    /// `embedded`, `nats_local`, `nats`, `processes` or `running`.
    pub place: Place,
    /// Contractors.
    pub agents: u32,
    /// Acceptance policy, such as `high@1`.
    pub policy: String,
    /// Calls per second.
    pub rate: f64,
    /// Which faults come.
    pub faults: SoakFaults,
    /// Seconds between two samples.
    pub sample_s: f64,
    /// Seed of arrivals, contractors and faults.
    pub seed: u64,
    /// Where processes are scraped.
    pub metrics: Vec<String>,
    /// Seconds it is to last, all parts together.
    pub duration_s: f64,
}

/// What is soaked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Place {
    /// An exchange in this process, in its memory.
    Embedded,
    /// An exchange in this process, on a nats-server of the run's own.
    NatsLocal,
    /// An exchange in this process, on a NATS that is kept.
    Nats,
    /// Processes of the run's own.
    Processes,
    /// Processes that run elsewhere.
    Running,
}

/// Which faults come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SoakFaults {
    /// None.
    None,
    /// Contractors that refuse, are silent or late, withdraw, decline and fail, now and then.
    Light,
    /// Engines and gateways are killed.
    Kills,
}

impl SoakPlan {
    /// Whether processes are killed on purpose.
    #[must_use]
    pub fn are_processes_killed(&self) -> bool {
        self.faults == SoakFaults::Kills
    }

    /// How long after a start nothing is judged: caches, pools and connections fill.
    #[must_use]
    pub fn warm_up_s(&self) -> f64 {
        (self.duration_s * WARM_UP_SHARE).min(WARM_UP_S_MAX)
    }

    /// The member in which another plan differs, but for its duration.
    fn difference(&self, other: &Self) -> Option<&'static str> {
        let members = [
            ("where it runs", self.place == other.place),
            ("--agents", self.agents == other.agents),
            ("--policy", self.policy == other.policy),
            ("--rate", self.rate == other.rate),
            ("--faults", self.faults == other.faults),
            ("--sample", self.sample_s == other.sample_s),
            ("--seed", self.seed == other.seed),
            ("--metrics", self.metrics == other.metrics),
        ];
        members.into_iter().find(|(_, is_same)| !is_same).map(|(name, _)| name)
    }
}

/// Share of a run that is warm-up.
const WARM_UP_SHARE: f64 = 0.2;
/// Longest warm-up: half an hour.
const WARM_UP_S_MAX: f64 = 1_800.0;
