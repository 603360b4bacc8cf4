//! Keeping a lane's archive small: its oldest segments go, and the state they led to is stated instead.
//!
//! The state is on the disk before the segment goes, so an archiver that is killed in between leaves a segment too many and
//! nothing too few.

use std::io;

use schemas::Lane;

use super::{Scan, SegmentRead, Stop, cursor_cache};
use crate::segment_store::{BEGINNING, Media};

/// Removes the oldest segments while all of them, and one more of `segment_bytes`, take more than `keep_bytes`. The last
/// one stays.
///
/// # Errors
/// The disk's, or what is wrong with the oldest segment: it stays then, whatever it takes.
pub(super) fn prune<M: Media>(
    media: &mut M,
    (lane, lanes): (Lane, u8),
    keep_bytes: u64,
    segment_bytes: u64,
) -> io::Result<()> {
    loop {
        let segments = media.segments()?;
        let mut total = segment_bytes;
        for &segment in &segments {
            total = total.saturating_add(media.size(segment)?);
        }
        let [oldest, next, ..] = segments[..] else { return Ok(()) };
        if total <= keep_bytes {
            return Ok(());
        }
        let (from, mut walk) = match media.document(BEGINNING)? {
            Some(bytes) => cursor_cache::decode(&bytes, lane, lanes).map_err(io::Error::other)?,
            None => (oldest, Scan::new(lane, lanes)),
        };
        // One below the beginning is what an interrupted removal left.
        if oldest >= from {
            let reader = media.read(oldest)?;
            let SegmentRead { lines, stop, .. } = walk.read_segment(oldest, reader, |_, _| {});
            if !matches!(stop, Stop::End) {
                let file = media.path(oldest);
                let what = format!("{} line {}: it is not removed: {stop:?}", file.display(), lines + 1);
                return Err(io::Error::other(what));
            }
            media.keep(BEGINNING, &cursor_cache::encode(&walk, next))?;
        }
        media.remove(oldest)?;
        tracing::info!(lane = lane.0, segment = oldest, "the oldest segment of the archive was removed");
    }
}
