//! What a run is to be.

use std::time::Duration;

use super::schedule::FaultKind;
use traffic_gen::trace::TraceFile;

/// What is hit in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Victims {
    /// Nothing: what the same traffic is like on a quiet exchange.
    Nobody,
    /// Engines.
    Engines,
    /// Gateways.
    Gateways,
    /// nats-servers.
    Nats,
    /// The connections of engines and gateways to nats-server.
    Links,
    /// Engines, gateways and nats-servers.
    All,
}

impl Victims {
    /// The name as it stands on the command line and in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A run.
pub struct ChaosPlan {
    /// What is hit.
    pub victims: Victims,
    /// Processes are paused instead of killed.
    pub pauses: bool,
    /// How long faults come.
    pub duration: Duration,
    /// Copies of the log: 1, or 3 with as many nats-servers.
    pub replicas: u8,
    /// Agents.
    pub agents: u32,
    /// Negotiations kept open.
    pub open: u32,
    /// Engines.
    pub engines: usize,
    /// Engines that stand by for each lane.
    pub standbys: u8,
    /// How long entries of the register stay at least, in seconds; absent: as long as by default.
    pub register_keep_s: Option<u32>,
    /// Gateways.
    pub gateways: usize,
    /// Lanes of the log.
    pub lanes: u8,
    /// Seed of faults and contractors.
    pub seed: u64,
    /// Gets every message of every agent.
    pub trace: Option<TraceFile>,
}

impl ChaosPlan {
    /// What the schedule draws from.
    pub(super) fn kinds(&self) -> Vec<FaultKind> {
        match self.victims {
            Victims::Nobody => Vec::new(),
            Victims::Engines => vec![FaultKind::Engine],
            Victims::Gateways => vec![FaultKind::Gateway],
            Victims::Nats => vec![FaultKind::Nats],
            Victims::Links => vec![FaultKind::Link],
            Victims::All => vec![FaultKind::Engine, FaultKind::Gateway, FaultKind::Nats],
        }
    }
}
