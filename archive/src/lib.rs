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
//! Reading order: `Line` and below (the lines), [`verify()`], [`hear()`] and `scan` (reading), `scan/writer` and `follow` (writing),
//! `segment_store` (the disk), [`fork()`] (after a loss).
//!
//! The chain shows damage and alteration, not forgery by someone who writes the whole archive anew: keep the chain that
//! `llmx audit verify` prints elsewhere, or the copies on media that cannot be rewritten.

pub mod audit;
mod chain;
pub mod comparison;
mod follow;
mod fork;
mod lane;
mod scan;
mod segment_store;
mod status;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bus::BusError;
use schemas::delivery::{Notification, Outcome};
use schemas::digest::canonical;
use schemas::{AgentId, Digest, Lane, NegotiationId, OfferId, RegisterValue, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use follow::{ArchiveOptions, SEGMENT_BYTES_DEFAULT, run};
pub use fork::{ForkedLane, fork};
pub use scan::{ArchiveCounts, ArchiveReport, Closing, Difference, LaneReport, Positions, VerifyOptions, hear, verify};
pub use status::{ArchiveStatus, LaneStatus};

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
         gone from the log. Go on in the folder that was archived to before (it holds everything up to {trimmed}; where \
         it is ahead of the log, name it with --fork-of); without it, an archive of this log can only begin anew with a new \
         log"
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
         the log lost records after they were archived. Keep the folder, and archive this log to another one; with \
         --fork-of and this folder, what both hold is taken over"
    )]
    Foreign {
        /// The lane.
        lane: Lane,
        /// The last record of the archive.
        position: u64,
    },
    /// A folder is not what going on in another one takes.
    #[error("{}: {what}", folder.display())]
    Unfit {
        /// The folder.
        folder: PathBuf,
        /// What it is, and what to do.
        what: &'static str,
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

/// Version of the format this build writes.
const FORMAT: u32 = 1;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    /// The first of every segment.
    Begin(Begin),
    /// A record of the log.
    #[serde(borrow)]
    Record(LoggedLine<'a>),
    /// What a record ended: see [`Closed`].
    Closed(&'a RawValue),
    /// What the register held.
    Registered(RegisteredLine<'a>),
    /// A clean stop.
    End(SegmentEnd),
}

/// The head of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Begin {
    format: u32,
    lane: Lane,
    /// Lanes of the log.
    lanes: u8,
    /// Number of the segment within the lane, from 0.
    segment: u32,
    /// No record of the lane from this sequence on stands in an earlier segment; the name of the file.
    from: u64,
    /// The chain after the last line of the segment before.
    chain: Digest,
}

/// A record of the log: `record` or `base64`.
#[derive(Debug, Serialize, Deserialize)]
struct LoggedLine<'a> {
    seq: u64,
    time: Timestamp,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    record: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// What the register held for a negotiation that the record `seq` ended.
#[derive(Debug, Serialize, Deserialize)]
struct RegisteredLine<'a> {
    negotiation: NegotiationId,
    seq: u64,
    #[serde(borrow)]
    entries: Vec<RegisteredEntry<'a>>,
}

/// One key: `value`, or `base64`, or neither when the register had no answer.
#[derive(Debug, Serialize, Deserialize)]
struct RegisteredEntry<'a> {
    key: String,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// A clean stop.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SegmentEnd {
    /// The last record of the lane, 0 for none.
    position: u64,
}

/// Bytes as they stand in a line: as they are when they are one JSON object on one line, otherwise in base64.
fn as_content(bytes: &[u8]) -> (Option<&RawValue>, Option<String>) {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.starts_with('{') && !text.contains(['\n', '\r']));
    let json = text.and_then(|text| serde_json::from_str::<&RawValue>(text).ok().filter(|json| json.get() == text));
    let base64 = json.is_none().then(|| BASE64_STANDARD.encode(bytes));
    (json, base64)
}

/// The bytes of a line's content; none where nothing stands.
///
/// # Errors
/// When the base64 is none.
fn as_bytes<'a>(json: Option<&'a RawValue>, base64: Option<&str>) -> Result<Option<Cow<'a, [u8]>>, String> {
    match (json, base64) {
        (Some(json), _) => Ok(Some(Cow::Borrowed(json.get().as_bytes()))),
        (None, Some(base64)) => {
            Ok(Some(Cow::Owned(BASE64_STANDARD.decode(base64).map_err(|error| format!("its base64: {error}"))?)))
        }
        (None, None) => Ok(None),
    }
}

/// A document of ours as one line of JSON.
fn text(document: &impl Serialize) -> String {
    serde_json::to_string(document).expect("integers, texts and documents read before can all be written")
}

/// What an archive says about a negotiation that ended.
#[derive(Debug, Serialize)]
pub struct Closed {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The record that ended it.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// Head of the hash chain, as the fold has it.
    pub chain: Digest,
    /// What the chain runs over, from [`policy_core::CHAIN_START`].
    pub inputs: Vec<Input>,
    /// The decision records, as compact JSON in canonical form.
    pub decisions: Vec<Box<RawValue>>,
    /// What is to be registered, in the order of the fold.
    pub register: Vec<RegisterEntry>,
    /// What led there, where it was read to be heard ([`hear()`]); no line says it.
    #[serde(skip)]
    pub course: NegotiationCourse,
}

/// What is kept of an open negotiation for whoever hears its end.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NegotiationCourse {
    /// Bodies of the calls and offers among its inputs, by their place in the lane.
    pub bodies: BTreeMap<OfferId, Arc<RawValue>>,
    /// Reports and closings its agents are told, in order.
    pub told: Vec<(AgentId, Arc<Notification>)>,
    /// At its end: id of its policy; of a bargain the name of the protocol.
    pub policy: String,
    /// At its end: whether an engine logged that the register holds another value, so that what is to be registered is not.
    pub is_conflict: bool,
}

/// One input of a negotiation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Input {
    /// Sequence of its record.
    pub seq: u64,
    /// Its index in the record.
    pub index: u32,
    /// The instant it was evaluated at.
    pub at: Timestamp,
    /// Of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Of a timer or an engine's record: its tag in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

/// One entry of the register, as the log leads to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegisterEntry {
    /// The key, as text.
    pub key: String,
    /// The value.
    pub value: RegisterValue,
}

/// What the register is to be asked for a closed negotiation.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Expected {
    entries: Vec<RegisterEntry>,
    /// Whether an engine logged that the register holds another value: then a difference is explained.
    is_conflict: bool,
}

impl RegisterEntry {
    /// The value as the register holds it.
    fn canonical(&self) -> Vec<u8> {
        canonical(&self.value).expect("digests, ids and names always have a canonical form")
    }
}

#[cfg(test)]
mod line_tests {
    use super::*;

    #[test]
    fn any_bytes_survive_their_line() {
        for bytes in [
            br#"{"v":1}"#.as_slice(),
            br#" {"v":1}"#,
            b"{\"v\":\n1}",
            br#"{"v":1"#,
            b"null",
            b"",
            &[0xff, 0x00],
            "{\"é\":\"\u{2028}\"}".as_bytes(),
        ] {
            let (record, base64) = as_content(bytes);
            let line = text(&Line::Record(LoggedLine { seq: 1, time: Timestamp(2), record, base64 }));
            assert!(!line.contains('\n'), "{line}");
            let Ok(Line::Record(read)) = serde_json::from_str(&line) else { panic!("{line}") };
            let found = as_bytes(read.record, read.base64.as_deref()).unwrap();
            assert_eq!(found.as_deref(), Some(bytes), "{line}");
        }
    }
}
