//! The state of a lane when a segment began, kept beside the segments.
//!
//! As `resume` it spares going on to read the segments before it, and is a cache: when it is missing or does not fit, the
//! archive is read from its beginning, and verification never uses it. As `beginning` it stands for segments that were
//! removed: reading begins with it, and there is nothing it could be compared with but what follows. Either file is a line of JSON, the fold's snapshot, and the SHA-256 of both.

use schemas::{Digest, Lane, NegotiationId, Timestamp};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::history::NegotiationRecords;
use super::{ArchiveCounts, Scan};
use crate::Expected;

/// Version of the format.
const FORMAT: u32 = 1;
/// Bytes of the digest at the end.
const DIGEST_LEN: usize = 32;

/// The state beside the fold's.
#[derive(Serialize, Deserialize)]
struct CachedState<D, A> {
    format: u32,
    lane: Lane,
    lanes: u8,
    /// The segment that began.
    segment: u64,
    /// Segments before it.
    segments: u32,
    chain: Digest,
    is_ended: bool,
    position: u64,
    time: Timestamp,
    last: Digest,
    tally: ArchiveCounts,
    dossiers: D,
    awaiting: A,
}

/// The state before the segment that `segment` names begins.
pub(super) fn encode(walk: &Scan, segment: u64) -> Vec<u8> {
    let chronicle = &walk.chronicle;
    let awaiting: Vec<_> = walk.awaiting.iter().map(|((seq, id), expected)| (seq, id, expected)).collect();
    let state = CachedState {
        format: FORMAT,
        lane: walk.lane,
        lanes: walk.lanes,
        segment,
        segments: walk.segments,
        chain: walk.chain,
        is_ended: walk.is_ended,
        position: chronicle.position,
        time: chronicle.time,
        last: chronicle.last,
        tally: walk.tally,
        dossiers: &chronicle.dossiers,
        awaiting,
    };
    let mut bytes = serde_json::to_vec(&state).expect("integers, texts and documents read before can all be written");
    bytes.push(b'\n');
    bytes.extend_from_slice(&chronicle.snapshot());
    let digest = Digest::of_bytes(&bytes);
    bytes.extend_from_slice(&digest.0);
    bytes
}

/// How many lanes the log has, as a document says; nothing when it is damaged.
pub(super) fn lanes(bytes: &[u8]) -> Option<u8> {
    let line = content(bytes).ok()?.split(|byte| *byte == b'\n').next()?;
    Some(serde_json::from_slice::<CachedState<IgnoredAny, IgnoredAny>>(line).ok()?.lanes)
}

/// What stands before the digest, if that is its digest.
fn content(bytes: &[u8]) -> Result<&[u8], String> {
    let split = bytes.len().checked_sub(DIGEST_LEN).ok_or("it is too short")?;
    let (content, digest) = bytes.split_at(split);
    if Digest::of_bytes(content).0 == digest { Ok(content) } else { Err("it is damaged".to_owned()) }
}

/// The segment, and the state before it begins.
///
/// # Errors
/// Why the document cannot be used.
pub(super) fn decode(bytes: &[u8], lane: Lane, lanes: u8) -> Result<(u64, Scan), String> {
    let content = content(bytes)?;
    let end = content.iter().position(|byte| *byte == b'\n').ok_or("it has no line")?;
    let state: CachedState<NegotiationRecords, Vec<(u64, NegotiationId, Expected)>> =
        serde_json::from_slice(&content[..end]).map_err(|error| error.to_string())?;
    if (state.format, state.lane, state.lanes) != (FORMAT, lane, lanes) {
        return Err("it is of another format, lane or log".to_owned());
    }
    let mut walk = Scan::new(lane, lanes);
    walk.chronicle.restore(&content[end + 1..], lane).map_err(|error| error.to_string())?;
    (walk.segments, walk.chain, walk.is_ended, walk.tally) = (state.segments, state.chain, state.is_ended, state.tally);
    walk.awaiting = state.awaiting.into_iter().map(|(seq, id, expected)| ((seq, id), expected)).collect();
    let chronicle = &mut walk.chronicle;
    (chronicle.position, chronicle.time, chronicle.last) = (state.position, state.time, state.last);
    chronicle.dossiers = state.dossiers;
    Ok((state.segment, walk))
}
