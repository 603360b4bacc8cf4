//! What a run is to be.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::schedule::FaultKind;
use traffic_gen::invariants::Invariant;
use traffic_gen::trace::TraceFile;

/// What is hit in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, clap::ValueEnum)]
#[strum(serialize_all = "snake_case")]
pub enum Victims {
    /// Nothing: the same traffic on a quiet exchange.
    Nobody,
    /// Engines.
    Engines,
    /// Gateways.
    Gateways,
    /// nats-servers.
    Nats,
    /// Connections to nats-server: cut, or half open.
    Links,
    /// Processes that run agents, a quarter of them each; not of contract nets.
    Agents,
    /// Engines, gateways and nats-servers, and agents, but of contract nets.
    All,
}

/// What agents do in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Traffic {
    /// Contract nets: four agents call, the others offer.
    ContractNet,
    /// Bargains of two and three parties over the shipped domains.
    #[serde(rename = "alternating")]
    #[strum(serialize = "alternating")]
    #[value(name = "alternating")]
    Bargain,
    /// Teams of two to five that speak in turn, vote and conclude.
    Team,
    /// Panels of four to twelve that answer one question in rounds.
    Panel,
    /// English auctions: as contract nets, but contractors bid against each other.
    Auction,
}

impl Traffic {
    /// Whether agents call for offers and keep so many calls open.
    pub(super) fn is_of_nets(self) -> bool {
        matches!(self, Self::ContractNet | Self::Auction)
    }

    /// Whether a run can show an invariant.
    pub(super) fn shows(self, invariant: Invariant) -> bool {
        use Invariant as I;
        let is_of_nets = matches!(invariant, I::OneAward | I::NoLateWinner | I::FinalNotice | I::Pinned | I::Sealed);
        let is_of_all = !invariant.needs_more_than_rounds();
        let is_common = is_of_all && !is_of_nets;
        match self {
            Self::ContractNet => is_of_all,
            // Its calls name no documents.
            Self::Auction => (is_of_all && invariant != I::Pinned) || invariant == I::StandingBid,
            Self::Bargain => is_common || invariant == I::TurnOrder,
            // Teams of the load assign no tasks.
            Self::Team => {
                let is_of_tasks = matches!(invariant, I::Wakes | I::OneResult | I::FlowsUp | I::NoOrphan);
                !is_of_tasks && (is_common || invariant.is_of_teams())
            }
            // No act of an agent is passed on as its own, and not every run comes to a selection.
            Self::Panel => {
                let is_rare = matches!(invariant, I::Authentic | I::SelectionFinal);
                !is_rare && (is_common || invariant.is_of_panels())
            }
        }
    }
}

/// A run.
pub struct ChaosPlan {
    /// What agents do.
    pub traffic: Traffic,
    /// What is hit.
    pub victims: Victims,
    /// Processes are paused instead of killed.
    pub pauses: bool,
    /// The exchange is one `llmx serve`, counted as a gateway.
    pub is_served: bool,
    /// How long faults come.
    pub duration: Duration,
    /// Copies of the log: 1, or 3 with as many nats-servers.
    pub replicas: u8,
    /// Agents.
    pub agents: u32,
    /// Negotiations kept open; of the other protocols, which last as long as their agents take, as many are called in ten seconds.
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
        let agents = (!self.traffic.is_of_nets()).then_some(FaultKind::Agents);
        match self.victims {
            Victims::Nobody => Vec::new(),
            Victims::Engines => vec![FaultKind::Engine],
            Victims::Gateways => vec![FaultKind::Gateway],
            Victims::Nats => vec![FaultKind::Nats],
            Victims::Links => vec![FaultKind::Link],
            Victims::Agents => agents.into_iter().collect(),
            Victims::All => {
                [FaultKind::Engine, FaultKind::Gateway, FaultKind::Nats].into_iter().chain(agents).collect()
            }
        }
    }
}
