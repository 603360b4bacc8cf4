//! The heartbeat: a JSON document on `engine.<id>.heartbeat`.

use schemas::{Lane, subject};
use serde::{Deserialize, Serialize};

use crate::digests::DigestPoint;
use crate::status::LaneStatus;

/// Largest heartbeat read: every lane a log can have, with its digests, fits into half of it.
const HEARTBEAT_BYTES_MAX: usize = 256 * 1024;

/// The phase of a lane that was given up, as [`LanePhase::as_str`](crate::LanePhase::as_str) names it.
const STOPPED: &str = "stopped";

/// The phase of a lane that an engine owns.
const OWNER: &str = "owner";

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    /// The engine; as in the subject.
    pub(crate) engine: String,
    /// When it started, in microseconds by its own clock: tells two engines of one name apart.
    pub(crate) started: u64,
    /// It hands its lanes over and takes none.
    pub(crate) is_leaving: bool,
    /// The newest rules version it folds.
    pub(crate) rules_newest: u32,
    /// The lanes it folds.
    pub(crate) lanes: Vec<LaneHeartbeat>,
}

/// What an engine says of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaneHeartbeat {
    /// The lane.
    pub(crate) lane: Lane,
    /// What the engine does with it.
    pub(crate) phase: String,
    /// It has caught up with the lane and could own it at once.
    pub(crate) is_fit: bool,
    /// Sequence of the last folded record.
    pub(crate) position: u64,
    /// The lane's epoch.
    pub(crate) epoch: u64,
    /// The lane's rules version.
    pub(crate) rules: u32,
    /// Digests of its state at recent positions.
    pub(crate) digests: Vec<DigestPoint>,
}

impl LaneHeartbeat {
    /// Whether the engine has caught up with the lane, or has given it up.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_fit || self.phase == STOPPED
    }

    /// Whether the engine owns the lane.
    pub(crate) fn is_owned(&self) -> bool {
        self.phase == OWNER
    }

    pub(crate) fn of(status: &LaneStatus) -> Self {
        Self {
            lane: status.lane,
            phase: status.phase.as_str().to_owned(),
            is_fit: status.is_fit,
            position: status.position,
            epoch: status.epoch,
            rules: status.rules,
            digests: status.digests.clone(),
        }
    }
}

impl Heartbeat {
    /// Reads a heartbeat; nothing when it is too large, not readable, or not of the engine its subject names.
    pub(crate) fn read(subject: &str, payload: &[u8]) -> Option<Self> {
        if payload.len() > HEARTBEAT_BYTES_MAX {
            return None;
        }
        let heartbeat: Self = serde_json::from_slice(payload).ok()?;
        (subject::engine_of(subject)? == heartbeat.engine).then_some(heartbeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::LaneStatus;

    #[test]
    fn a_heartbeat_reads_back_as_it_was_written() {
        let heartbeat = heartbeat();
        let written = serde_json::to_vec(&heartbeat).unwrap();
        assert_eq!(Heartbeat::read("engine.engine-1.heartbeat", &written), Some(heartbeat));
    }

    #[test]
    fn what_is_no_heartbeat_of_its_subjects_engine_is_ignored() {
        let written = serde_json::to_vec(&heartbeat()).unwrap();
        assert_eq!(Heartbeat::read("engine.engine-2.heartbeat", &written), None, "another engine's subject");
        assert_eq!(Heartbeat::read("engine.engine-1.other", &written), None, "another subject");
        assert_eq!(Heartbeat::read("engine.engine-1.heartbeat", &written[1..]), None, "not JSON");
        let padded = [written, vec![b' '; HEARTBEAT_BYTES_MAX]].concat();
        assert_eq!(Heartbeat::read("engine.engine-1.heartbeat", &padded), None, "too large");
    }

    fn heartbeat() -> Heartbeat {
        Heartbeat {
            engine: "engine-1".to_owned(),
            started: 17,
            is_leaving: false,
            rules_newest: 1,
            lanes: vec![LaneHeartbeat::of(&LaneStatus::new(Lane(3)))],
        }
    }
}
