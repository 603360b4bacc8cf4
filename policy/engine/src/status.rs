//! What an engine reports about itself.

use schemas::{Lane, Timestamp};
use serde::Serialize;

/// The state of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its lanes, in order.
    pub lanes: Vec<LaneStatus>,
}

impl Status {
    /// Whether every lane is owned and emitting.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.lanes.is_empty() && self.lanes.iter().all(|lane| lane.phase == LanePhase::Owner)
    }
}

/// The state of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaneStatus {
    /// The lane.
    pub lane: Lane,
    /// What the engine does with it.
    pub phase: LanePhase,
    /// Sequence of the last folded record.
    pub position: u64,
    /// The lane's epoch.
    pub epoch: u64,
    /// Log time of the last folded record.
    pub now: Timestamp,
    /// Open negotiations.
    pub open: usize,
    /// Deliveries not yet acknowledged or given up.
    pub outbox: usize,
    /// Register writes not yet answered.
    pub register_pending: usize,
}

impl LaneStatus {
    pub(crate) fn new(lane: Lane) -> Self {
        Self {
            lane,
            phase: LanePhase::CatchingUp,
            position: 0,
            epoch: 0,
            now: Timestamp(0),
            open: 0,
            outbox: 0,
            register_pending: 0,
        }
    }
}

/// What an engine does with a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LanePhase {
    /// Folds the stored log silently.
    CatchingUp,
    /// Has asked for the lane with a `claim` entry.
    Claiming,
    /// Owns the lane and emits its effects.
    Owner,
    /// Has stopped; nothing is emitted any more.
    Stopped(StopReason),
}

/// Why a lane stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The engine was shut down.
    #[error("the engine was shut down")]
    Shutdown,
    /// Another engine claimed the lane.
    #[error("another engine claimed the lane with epoch {epoch}")]
    Outbid {
        /// The epoch of its claim.
        epoch: u64,
    },
    /// The claim could not be appended, or was outbid each time.
    #[error("the lane could not be claimed: {0}")]
    Unclaimed(String),
    /// The log could not be read.
    #[error("the log cannot be read: {0}")]
    LogUnreadable(String),
    /// The log or its rules are of a version this build does not know.
    #[error("the log needs a newer engine: {0}")]
    NewerVersion(String),
    /// More deliveries were found unacknowledged in the log than the engine may hold.
    #[error("{held} deliveries of the log are unacknowledged, at most {limit} are held; raise `outbox.in_flight_max`")]
    BacklogTooLarge {
        /// Deliveries held.
        held: usize,
        /// The limit.
        limit: usize,
    },
    /// The register contradicts this log in too many negotiations: it belongs to another log.
    #[error("the register contradicts the log in {0} negotiations; it belongs to another log")]
    RegisterForeign(usize),
    /// The bus refused a subscription.
    #[error("the bus refused a subscription: {0}")]
    Bus(String),
    /// Folding a record panicked, and no single negotiation is to blame.
    #[error("folding record {seq} panicked; the lane stays stopped until the fault is mended")]
    FoldPanicked {
        /// The record.
        seq: u64,
    },
    /// The lane's task ended unexpectedly.
    #[error("the lane's task ended unexpectedly")]
    TaskEnded,
}
