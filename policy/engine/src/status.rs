//! What an engine reports about itself.

mod digests;

use schemas::admission::LaneAdmission;
use schemas::{Digest, Lane, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub(crate) use digests::Digests;

/// The state of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Its lanes, in order.
    pub lanes: Vec<LaneStatus>,
    /// What refuses readiness, each with its remedy; empty when all is well.
    pub faults: Vec<String>,
}

impl Status {
    /// Whether every lane is owned, stood by or other engines', and nothing refuses readiness.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let is_served =
            |lane: &LaneStatus| matches!(lane.phase, LanePhase::Owner | LanePhase::Standby | LanePhase::Elsewhere);
        !self.lanes.is_empty() && self.lanes.iter().all(is_served) && self.faults.is_empty()
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
    /// The lane's rules version.
    pub rules: u32,
    /// Log time of the last folded record.
    pub now: Timestamp,
    /// Open negotiations.
    pub open: usize,
    /// Deliveries not yet acknowledged or given up.
    pub outbox: usize,
    /// Register writes not yet answered, or not yet known to be.
    pub register_pending: usize,
    /// How much the lane may be asked to open, as its owner last told gateways; absent where another engine owns it.
    pub admission: Option<LaneAdmission>,
    /// Digests of the state at recent positions.
    pub(crate) digests: Vec<DigestPoint>,
    /// What is wrong with the lane, each with its remedy.
    pub(crate) faults: Vec<String>,
    /// It has caught up, and could be owned at once.
    #[serde(skip)]
    pub(crate) is_fit: bool,
}

impl LaneStatus {
    pub(crate) fn new(lane: Lane) -> Self {
        Self {
            lane,
            phase: LanePhase::CatchingUp,
            position: 0,
            epoch: 0,
            rules: 0,
            now: Timestamp(0),
            open: 0,
            outbox: 0,
            register_pending: 0,
            admission: None,
            digests: Vec::new(),
            faults: Vec::new(),
            is_fit: false,
        }
    }
}

/// The state digest of a lane after one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DigestPoint {
    /// Sequence of the record.
    position: u64,
    /// The time the log gave it: where a log has lost its end, another record stands under the same sequence.
    stamped: Timestamp,
    /// Rules version of the lane then; states under different rules may differ.
    rules: u32,
    /// The digest.
    digest: Digest,
}

/// What an engine does with a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LanePhase {
    /// Is not assigned the lane and folds nothing of it: other engines own it and stand by.
    Elsewhere,
    /// Reads the lane's checkpoint, and folds the stored log silently.
    CatchingUp,
    /// Folds silently what another engine owns, and hears what is acknowledged to it.
    Standby,
    /// Has asked for the lane with a `claim` entry.
    Claiming,
    /// Owns the lane and emits its effects.
    Owner,
    /// Has stopped; nothing is emitted any more.
    Stopped(StopReason),
}

impl LanePhase {
    /// The name as it stands in heartbeats.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.into()
    }

    /// Why it has stopped, if it has.
    #[must_use]
    pub fn stopped(&self) -> Option<&StopReason> {
        if let Self::Stopped(reason) = self { Some(reason) } else { None }
    }
}

/// Why a lane stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The engine was shut down.
    #[error("the engine was shut down")]
    Shutdown,
    /// The log could not be read.
    #[error("the log cannot be read: {0}")]
    LogUnreadable(String),
    /// The log or its rules are of a version this build does not know.
    #[error("the log needs a newer engine: {0}")]
    NewerVersion(String),
    /// The state can neither be restored nor rebuilt.
    #[error(
        "the log begins behind sequence {trimmed}, and the checkpoint for what came before cannot be used: {checkpoint}; \
         restore the blob `checkpoint-<lane>` from a copy, or run the build and limits that wrote it"
    )]
    Unrecoverable {
        /// Up to here the log was trimmed.
        trimmed: u64,
        /// What is wrong with the checkpoint.
        checkpoint: String,
    },
    /// Another engine has another state after the same records; which of the two is wrong, nobody knows.
    #[error(
        "after record {position} engine {engine} has another state (ours {ours}, theirs {theirs}): keep the log and both \
         engines' checkpoints, replay the log with each build (`llmx replay`), and end the engine that differs from it"
    )]
    DigestMismatch {
        /// The other engine.
        engine: String,
        /// After this record.
        position: u64,
        /// Our digest.
        ours: String,
        /// Theirs.
        theirs: String,
    },
    /// More deliveries were found unacknowledged in the log than the engine may hold.
    #[error("{held} deliveries of the log are unacknowledged, at most {limit} are held; raise `outbox.in_flight_max`")]
    BacklogTooLarge {
        /// Deliveries held.
        held: usize,
        /// The limit.
        limit: usize,
    },
    /// More register writes are not known to be answered than the engine may hold.
    #[error(
        "{pending} register writes are not known to be answered, at most {limit} are held; see that the register takes \
         writes and an engine that owns the lane logs it, then start this one again"
    )]
    WritesTooMany {
        /// Writes held.
        pending: usize,
        /// The limit.
        limit: usize,
    },
    /// The register contradicts this log in too many negotiations, or under too many keys: it belongs to another log.
    #[error("the register contradicts the log in {0} places; it belongs to another log")]
    RegisterForeign(usize),
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

/// Reads the present status of an engine. Cheap to clone; outlives the engine, and then says that its lanes stopped.
#[derive(Debug, Clone)]
pub struct StatusReader {
    lanes: Vec<watch::Receiver<LaneStatus>>,
    has_duplicate_id: watch::Receiver<bool>,
}

impl StatusReader {
    pub(crate) fn new(lanes: Vec<watch::Receiver<LaneStatus>>, has_duplicate_id: watch::Receiver<bool>) -> Self {
        Self { lanes, has_duplicate_id }
    }

    /// The state of each lane, and what refuses readiness.
    #[must_use]
    pub fn read(&self) -> Status {
        let lanes: Vec<LaneStatus> = self.lanes.iter().map(lane_status).collect();
        let duplicate = self.has_duplicate_id.borrow().then(|| {
            "another engine runs under the same id; give each its own (`llmx engine --id`), or end the other".to_owned()
        });
        let stopped = lanes.iter().filter_map(|lane| {
            let reason = lane.phase.stopped()?;
            Some(format!("lane {} stopped: {reason}", lane.lane))
        });
        let faults = stopped.chain(lanes.iter().flat_map(|lane| lane.faults.clone())).chain(duplicate).collect();
        Status { lanes, faults }
    }
}

/// The state of a lane. One that stops says so before its task ends; one that does not has panicked.
pub(crate) fn lane_status(watched: &watch::Receiver<LaneStatus>) -> LaneStatus {
    let mut status = watched.borrow().clone();
    if watched.has_changed().is_err() && status.phase.stopped().is_none() {
        status.phase = LanePhase::Stopped(StopReason::TaskEnded);
        status.is_fit = false;
    }
    status
}
