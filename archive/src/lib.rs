//! The archive: every record of every lane in a folder, with what came of each negotiation, so that the log may be trimmed.
//!
//! ```text
//! DIR/lane-<n>/<first sequence, 20 digits>.jsonl
//! ```
//!
//! Each line is `{"line":…,"chain":"…"}` as in an export; the chain runs through all segments of a lane. The lines:
//!
//! | line | says |
//! |---|---|
//! | `begin` | a segment begins: its lane of how many, its number, the first sequence it may hold, the chain so far |
//! | `record` | a record of the log, as its bytes were (`base64` when they are no JSON document on one line) |
//! | `closed` | the record before ended this negotiation: outcome, inputs, the head of their hash chain, decisions, and the register entries they lead to |
//! | `registered` | what the register held for a closed negotiation when it was asked; no value when it had no answer |
//! | `end` | stopped cleanly here; a later run goes on behind it |
//!
//! All but `registered` and `end` follow from the log alone, so an archiver that was killed at any byte goes on as if it had
//! not been. It tells the engines how far it has come (`archived-<lane>`) only after that is synced, and never says more.
//!
//! Beside the segments of a lane stands `resume`: the state when the last of them began, which spares an archiver reading
//! the others when it starts. It proves nothing, and may be deleted. Where the oldest segments were removed to keep the
//! archive small, `beginning` is the state when the first that is left began; reading begins with it.
//!
//! Reading order: `format` (the lines), [`verify`] and `scan` (reading), `writer` and `follow` (writing), `segment_store` and `inventory`
//! (the disk).
//!
//! The chain shows damage and alteration, not forgery by someone who writes the whole archive anew: keep the chain that
//! `llmx audit verify` prints elsewhere, or the copies on media that cannot be rewritten.

pub mod audit;
mod chain;
mod cursor_cache;
mod difference;
mod follow;
mod format;
mod history;
mod inventory;
mod lane;
mod prune;
mod resume;
mod scan;
mod segment_store;
mod status;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use bus::BusError;
use schemas::Lane;

pub use follow::{ArchiveOptions, SEGMENT_BYTES_DEFAULT, run};
pub use scan::ArchiveCounts;
pub use status::{ArchiveStatus, LaneStatus};
pub use verify::{ArchiveReport, Closing, Difference, LaneReport, VerifyOptions, verify};

/// What stops an archiver, or the reading of an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The bus.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// What was read or written.
        path: PathBuf,
        /// The fault.
        source: std::io::Error,
    },
    /// Another process writes to the folder.
    #[error("{} is in use by another archiver; one log needs one archiver", .0.display())]
    Busy(PathBuf),
    /// What the archive holds is damaged. Nothing was changed: put a copy in its place, or, while the log holds every
    /// record, begin in an empty folder.
    #[error("the archive is damaged: {0}; put back a copy, or begin in an empty folder while the log is not trimmed")]
    Damaged(Difference),
    /// The log no longer holds what the folder lacks.
    #[error(
        "lane {lane}: the log was trimmed up to {trimmed}, the folder holds it up to {position}: what lies between is \
         gone from the log. Go on in the folder that was archived to before (it holds everything up to {trimmed}); \
         without it, an archive of this log can only begin anew with a new log"
    )]
    Trimmed {
        /// The lane.
        lane: Lane,
        /// Trimmed up to here.
        trimmed: u64,
        /// Held up to here.
        position: u64,
    },
    /// The folder belongs to another log, or the log has lost what it acknowledged.
    #[error(
        "lane {lane}: the log does not hold record {position} as the archive does: the folder belongs to another log, or \
         the log lost records after they were archived. Keep the folder, and archive this log to another one"
    )]
    Foreign {
        /// The lane.
        lane: Lane,
        /// The last record of the archive.
        position: u64,
    },
    /// Written by a later version.
    #[error("lane {lane}: {what}; use that version of llmx")]
    Newer {
        /// The lane.
        lane: Lane,
        /// What is newer.
        what: String,
    },
}

/// Name of the document that tells engines how far a lane is archived.
fn position_name(lane: Lane) -> String {
    format!("archived-{lane}")
}
