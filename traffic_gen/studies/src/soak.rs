//! A soak: load for hours, samples of everything that could drift, and a verdict on each series.
//!
//! | module | question it answers |
//! |---|---|
//! | [`sample`] | what is kept, and how does a soak go on? |
//! | [`scrape`] | what does a process say of itself? |
//! | [`trend`] | does a series rise or fall? (pure) |
//! | [`drift`] | which series drift, and what would be too much? (pure) |
//! | [`report`] | what comes out? |
//! | [`html`] | how is it shown? |
//! | [`measure`] | who calls, and who takes the samples? |
//! | [`subject`] | what is soaked? |

pub mod drift;
pub mod html;
pub mod measure;
pub mod report;
pub mod sample;
pub mod scrape;
pub mod subject;
pub mod trend;

use std::time::Duration;

use jiff::SignedDuration;
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
    /// Faults to inject.
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

impl Place {
    /// Whether gateway and engine are the soak's own, in its own process.
    fn is_in_process(self) -> bool {
        match self {
            Self::Embedded | Self::NatsLocal => true,
            Self::Nats | Self::Processes | Self::Running => false,
        }
    }
}

/// The faults of a soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SoakFaults {
    /// None.
    None,
    /// Contractors that refuse, are silent or late, withdraw, decline and fail now and then.
    Light,
    /// Engines, gateways and the nats-server of the run's own are killed every 2 to 5 seconds.
    Kills,
}

impl SoakPlan {
    /// Whether processes are killed on purpose.
    pub fn are_processes_killed(&self) -> bool {
        self.faults == SoakFaults::Kills
    }

    /// How long after a start nothing is judged: caches, pools and connections fill.
    pub fn warm_up_s(&self) -> f64 {
        let usual = (self.duration_s * WARM_UP_SHARE).min(WARM_UP_S_MAX);
        if self.place.is_in_process() { usual } else { usual.max(REMEMBERED_S) }
    }

    /// How many samples of a part that takes the whole duration are judged.
    pub fn judged_points(&self) -> usize {
        ((self.duration_s - self.warm_up_s()).max(0.0) / self.sample_s) as usize
    }

    /// How long, at most, calls fill the memory of an exchange of the soak's own before a part begins.
    fn fill(&self) -> Duration {
        match self.place {
            Place::Embedded | Place::NatsLocal | Place::Processes => {
                Duration::from_secs_f64((self.duration_s * FILL_SHARE).min(FILL_S_MAX))
            }
            Place::Nats | Place::Running => Duration::ZERO,
        }
    }

    /// How long, in seconds, calls fill what an exchange of the soak's own remembers before a part begins, at most.
    pub fn prepares_s(&self) -> f64 {
        (self.fill() + self.settle()).as_secs_f64()
    }

    /// How long calls come at the rate of the run before a part begins: until an exchange of the soak's own forgets as many
    /// negotiations as it meets. Runs of less than two minutes are too short to be worth it.
    fn settle(&self) -> Duration {
        let is_worth_it = self.place.is_in_process() && self.duration_s >= SETTLED_S_MIN;
        if is_worth_it { Duration::from_secs_f64(REMEMBERED_S) } else { Duration::ZERO }
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

/// A length of time as people write it: `12h`, `3m`, `1h 30m`, `250ms`; a number alone is seconds.
///
/// # Errors
/// What is expected.
pub fn length_of(text: &str) -> Result<Duration, String> {
    let expected = || format!("a length of time such as 12h, 3m, 90s or 2s is expected, at least 100ms, not `{text}`");
    let seconds = text.trim().parse::<f64>().ok();
    let length = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok()),
    };
    length.filter(|length| (LENGTH_MIN..=LENGTH_MAX).contains(length)).ok_or_else(expected)
}

/// Shortest length of time, and longest: a year.
const LENGTH_MIN: Duration = Duration::from_millis(100);
const LENGTH_MAX: Duration = Duration::from_secs(31_536_000);
/// Share of a run that is warm-up.
const WARM_UP_SHARE: f64 = 0.2;
/// Longest warm-up: half an hour.
const WARM_UP_S_MAX: f64 = 1_800.0;
/// Engines remember a negotiation for two minutes, its hard deadline, and one more: so long they grow at the rate of calls.
const REMEMBERED_S: f64 = 200.0;
/// Shortest run that is worth a wait of as long.
const SETTLED_S_MIN: f64 = 120.0;
/// Share of a run, and longest time, in which memory is filled before it begins.
const FILL_SHARE: f64 = 0.5;
const FILL_S_MAX: f64 = 120.0;

/// Why a soak could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// Its folder.
    #[error(transparent)]
    Folder(#[from] sample::SoakFolderError),
    /// The bus.
    #[error(transparent)]
    Bus(#[from] bus::BusError),
    /// The exchange.
    #[error("the exchange does not start: {0}")]
    Exchange(#[from] traffic_gen::exchange::ExchangeError),
    /// The agents.
    #[error(transparent)]
    Live(#[from] traffic_gen::live::LiveError),
    /// The control plane.
    #[error(transparent)]
    Control(#[from] agents::control::ControlError),
    /// An agent's transport.
    #[error(transparent)]
    Transport(#[from] agents::transport::TransportError),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] archive::ArchiveError),
    /// Processes of the run's own.
    #[error(transparent)]
    Processes(#[from] chaos::ChaosError),
    /// The client of scrapes.
    #[error("processes cannot be scraped: {0}")]
    Scraper(#[from] reqwest::Error),
    /// The metrics.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The report.
    #[error("the report cannot be written: {0}")]
    Report(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_as_people_write_them() {
        for (text, seconds) in [
            ("12h", 43_200.0),
            ("3m", 180.0),
            ("2s", 2.0),
            ("90", 90.0),
            ("1h 30m", 5_400.0),
            ("250ms", 0.25),
            ("0.5", 0.5),
        ] {
            assert_eq!(length_of(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["", "-1", "-3m", "0", "1ms", "NaN", "inf", "ten", "1d2", "2y", "1e99", "3 parsecs"] {
            assert!(length_of(bad).is_err(), "{bad}");
        }
    }
}
