//! What reading an archive tells: where it is not as it must be, and what it holds.

use std::fmt;
use std::path::{Path, PathBuf};

use schemas::delivery::Outcome;
use schemas::{Digest, Lane, Timestamp};
use serde::{Deserialize, Serialize};

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCounts {
    /// Records.
    pub records: u64,
    /// Of which none of the exchange's; engines skip them.
    pub unreadable: u64,
    /// Messages in the records.
    pub messages: u64,
    /// Negotiations that ended.
    pub negotiations: u64,
    /// Decisions recomputed, of negotiations that ended.
    pub decisions: u64,
    /// Register entries compared with what the register held.
    pub register_entries: u64,
    /// Register entries the register had no answer for when it was asked, or was not asked for.
    pub unregistered: u64,
    /// Negotiations aborted because the register held another value: the difference is in the log.
    pub conflicts: u64,
}

/// Where an archive is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The file, or the folder that lacks one.
    #[serde(serialize_with = "as_text")]
    pub file: PathBuf,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// What is wrong there.
    pub what: String,
}

/// A path as text: one that is no UTF-8 has no other place in JSON.
fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, " line {line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// One end of the negotiation asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Closing {
    /// Its file.
    #[serde(serialize_with = "as_text")]
    pub file: PathBuf,
    /// Its line.
    pub line: u64,
    /// When it ended.
    pub at: Timestamp,
    /// The record that ended it.
    pub seq: u64,
    /// How.
    pub outcome: Outcome,
    /// Head of the hash chain over its inputs.
    pub chain: Digest,
    /// Its inputs.
    pub inputs: usize,
    /// Its decisions.
    pub decisions: usize,
    /// Register entries it leads to.
    pub register_entries: usize,
    /// Whether they were compared with what the register held.
    pub is_registered: bool,
}

/// One lane.
#[derive(Debug, Clone, Serialize)]
pub struct LaneReport {
    /// The lane.
    pub lane: Lane,
    /// Segments read.
    pub segments: u64,
    /// Everything below this record was removed to keep the archive small: what it led to is stated, and taken as it is.
    /// Absent when the archive is whole.
    pub removed_below: Option<u64>,
    /// The last record.
    pub position: u64,
    /// The chain at the end: whoever noted it earlier knows that nothing before it was rewritten.
    pub chain: Digest,
    /// Whether it ends with a clean stop.
    pub is_ended: bool,
    /// Negotiations still open at the end.
    pub open: usize,
    /// What was read.
    #[serde(flatten)]
    pub tally: ArchiveCounts,
}

/// What reading an archive showed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ArchiveReport {
    /// The sum of all lanes.
    #[serde(flatten)]
    pub total: ArchiveCounts,
    /// The lanes.
    pub lanes: Vec<LaneReport>,
    /// The ends of the negotiation asked for.
    pub closings: Vec<Closing>,
    /// The first difference; absent when everything is as it must be.
    pub first_difference: Option<Difference>,
    /// Files and folders that are not of the archive, in the order of their paths. What is of it may be whole all the same.
    pub foreign: Vec<Difference>,
    /// Temporary files that an interrupted archiver is known to leave. They are no fault.
    pub leftovers: Vec<Difference>,
}
