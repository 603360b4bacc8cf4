//! The status of an engine, for whoever asks.

use std::sync::Arc;

use tokio::sync::watch;

use super::{LanePhase, LaneStatus, Status, StopReason};
use crate::membership::LiveEngines;

/// Reads the present status of an engine. Cheap to clone; outlives the engine, and then says that its lanes stopped.
#[derive(Debug, Clone)]
pub struct StatusReader {
    lanes: Vec<watch::Receiver<LaneStatus>>,
    live: watch::Receiver<Option<Arc<LiveEngines>>>,
}

impl StatusReader {
    pub(crate) fn new(
        lanes: Vec<watch::Receiver<LaneStatus>>,
        live: watch::Receiver<Option<Arc<LiveEngines>>>,
    ) -> Self {
        Self { lanes, live }
    }

    /// The state of each lane, and what refuses readiness.
    #[must_use]
    pub fn read(&self) -> Status {
        let lanes: Vec<LaneStatus> = self.lanes.iter().map(lane_status).collect();
        let duplicate = self.live.borrow().as_ref().is_some_and(|live| live.has_duplicate_id).then(|| {
            "another engine runs under the same id; give each its own (`llmx engine --id`), or end the other".to_owned()
        });
        let stopped = lanes.iter().filter_map(|lane| match &lane.phase {
            LanePhase::Stopped(reason) => Some(format!("lane {} stopped: {reason}", lane.lane)),
            LanePhase::CatchingUp | LanePhase::Standby | LanePhase::Claiming | LanePhase::Owner => None,
        });
        let faults = stopped.chain(lanes.iter().flat_map(|lane| lane.faults.clone())).chain(duplicate).collect();
        Status { lanes, faults }
    }
}

/// The state of a lane. One that stops says so before its task ends; one that does not has panicked.
pub(crate) fn lane_status(watched: &watch::Receiver<LaneStatus>) -> LaneStatus {
    let mut status = watched.borrow().clone();
    if watched.has_changed().is_err() && !matches!(status.phase, LanePhase::Stopped(_)) {
        status.phase = LanePhase::Stopped(StopReason::TaskEnded);
        status.is_fit = false;
    }
    status
}
