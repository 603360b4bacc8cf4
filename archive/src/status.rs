//! How far an archiver has come, for whoever shows it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use schemas::Lane;
use serde::Serialize;

use super::scan::ArchiveCounts;

/// How far one lane has come.
#[derive(Debug, Clone, Serialize)]
pub struct LaneStatus {
    /// The lane.
    pub lane: Lane,
    /// The last record that is synced to the archive, 0 for none.
    pub position: u64,
    /// The last record the engines were told is archived.
    pub told: u64,
    /// What the lane's archive holds.
    pub tally: ArchiveCounts,
    /// Why it does not go on at the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// How far every lane has come.
#[derive(Debug, Default)]
pub struct ArchiveStatus {
    lanes: Mutex<BTreeMap<Lane, LaneStatus>>,
}

impl ArchiveStatus {
    /// The lanes, in order; those whose archive is still being read are missing.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneStatus> {
        self.lanes.lock().values().cloned().collect()
    }

    pub(super) fn update(&self, lane: Lane, update: impl FnOnce(&mut LaneStatus)) {
        let mut lanes = self.lanes.lock();
        update(lanes.entry(lane).or_insert_with(|| LaneStatus {
            lane,
            position: 0,
            told: 0,
            tally: ArchiveCounts::default(),
            fault: None,
        }));
    }
}
