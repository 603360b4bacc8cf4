//! Runs cells: an exchange of its own, a population and a load for each, and every round as a record.
//!
//! | module | question it answers |
//! |---|---|
//! | [`rounds`] | what did the agents of a cell see, round by round? |
//! | [`misconduct`] | what do contractors send that they should not? |
//! | [`models`] | which models do contractors of a cell ask, and what did that come to? |
//! | [`files`] | how does it get into the cell's folder? |
//! | [`cell`] | how is one cell run? |
//! | [`experiment`] | how are all cells of a plan run, each once? |

pub mod cell;
pub mod experiment;
pub mod files;
pub mod misconduct;
pub mod models;
pub mod rounds;

use serde::Serialize;
use traffic_gen::metrics::running::RunningCell;

pub use cell::run_cell;
pub use experiment::{ExperimentError, ExperimentSummary, Standing, run_experiment};
pub use files::FileError;

/// How cells are run, whatever is in them.
#[derive(Clone)]
pub struct RunOptions {
    /// Over what.
    pub bus: CellBus,
    /// How many times faster than planned calls arrive.
    pub time_scale: f64,
    /// Who shows the cell that runs to Prometheus.
    pub running: Option<RunningCell>,
}

/// Over what a cell's exchange runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CellBus {
    /// The memory of this process.
    Memory,
    /// A nats-server that is started for the cell.
    Nats,
}

/// Why a cell could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The exchange.
    #[error("the exchange does not start: {0}")]
    Exchange(#[from] traffic_gen::exchange::ExchangeError),
    /// The load.
    #[error(transparent)]
    Live(#[from] traffic_gen::live::LiveError),
    /// The way to the gateway's control plane.
    #[error(transparent)]
    Control(#[from] agents::control::ControlError),
    /// The bus.
    #[error(transparent)]
    Bus(#[from] bus::BusError),
    /// The log could not be read back.
    #[error("the log cannot be read back: {0}")]
    Audit(#[from] archive::audit::AuditError),
    /// Calls of the warm-up did not end.
    #[error("the warm-up did not end within {waited_s} s: {reason}")]
    WarmUp {
        /// How long it was waited for.
        waited_s: u64,
        /// What was waited for.
        reason: String,
    },
    /// A domain file.
    #[error("{0}; put it back")]
    Domains(String),
    /// A model.
    #[error("the model of {population}: {fault}")]
    Model {
        /// The population that asks it.
        population: String,
        /// Why it cannot be asked.
        fault: String,
    },
}
