use bus::BusError;
use schemas::Lane;

use crate::status::StopReason;

/// Why an engine could not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The bus refused a subscription or a reading. The caller may try again.
    #[error("the engine cannot use the bus: {0}")]
    Bus(#[from] BusError),
    /// The configuration names a lane the log does not have.
    #[error("lane {lane} does not exist: the log has {lanes} lanes, counted from 0; correct `lanes`")]
    NoSuchLane {
        /// The lane.
        lane: Lane,
        /// Lanes of the log.
        lanes: u8,
    },
    /// Another engine runs under this id. Give each its own, or end the other.
    #[error("another engine runs under the id `{0}`: give each its own (--id, LLMX_ENGINE_ID), or end the other")]
    IdInUse(String),
    /// The configuration names no lane, or an empty id.
    #[error("the engine's configuration is not usable: {0}")]
    Config(&'static str),
    /// A lane stopped before it was ready.
    #[error("lane {lane} stopped: {reason}")]
    LaneStopped {
        /// The lane.
        lane: Lane,
        /// Why.
        reason: StopReason,
    },
}
