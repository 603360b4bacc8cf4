//! Going on with an archive: the state is taken from where a segment began, or recomputed from the beginning, and what a
//! crash left unfinished is cut off.

use schemas::Lane;

use super::{Difference, LaneWriter, Scan, ScanFault, SegmentRead, Stop, cursor_cache};
use crate::ArchiveError;
use crate::segment_store::{BEGINNING, MEMO, Media};

/// The first segment of a lane.
const FIRST: u64 = 1;

/// The first segment that is kept, and the state it begins with.
fn beginning<M: Media>(media: &M, lane: Lane, lanes: u8) -> Result<(u64, Scan), ArchiveError> {
    let file = media.path(FIRST).with_file_name(BEGINNING);
    let bytes = media.document(BEGINNING).map_err(|source| ArchiveError::File { path: file.clone(), source })?;
    let Some(bytes) = bytes else { return Ok((0, Scan::new(lane, lanes))) };
    cursor_cache::decode(&bytes, lane, lanes)
        .map_err(|what| ArchiveError::Damaged(Difference { file, line: None, what }))
}

/// Opens a lane of an archive to write behind its end. What is gone from the log, up to `trimmed`, must be whole; behind
/// it a crash may have left anything, and the log still has it.
///
/// # Errors
/// [`ArchiveError::Damaged`] and [`ArchiveError::Trimmed`] when it is not; [`ArchiveError::File`], [`ArchiveError::Newer`].
pub(crate) fn resume<M: Media>(
    media: M,
    (lane, lanes): (Lane, u8),
    trimmed: u64,
    segment_bytes_max: u64,
) -> Result<LaneWriter<M>, ArchiveError> {
    let file_error = |segment, source| ArchiveError::File { path: media.path(segment), source };
    let segments = media.segments().map_err(|source| file_error(FIRST, source))?;
    let kept = media.document(MEMO).map_err(|source| file_error(FIRST, source))?.and_then(|bytes| {
        let kept = cursor_cache::decode(&bytes, lane, lanes);
        kept.inspect_err(|fault| tracing::info!(lane = lane.0, fault, "the archive is read from its beginning")).ok()
    });
    let (from, mut walk) = match kept.filter(|(from, _)| segments.contains(from)) {
        Some(kept) => kept,
        None => beginning(&media, lane, lanes)?,
    };
    let segments: Vec<u64> = segments.into_iter().filter(|segment| *segment >= from).collect();
    let mut end = None;
    for (number, &segment) in segments.iter().enumerate() {
        let reader = media.read(segment).map_err(|source| file_error(segment, source))?;
        let SegmentRead { bytes, lines, stop } = walk.read_segment(segment, reader, |_, _| {});
        let is_last = number + 1 == segments.len();
        let damaged =
            |what: String| ArchiveError::Damaged(Difference { file: media.path(segment), line: Some(lines + 1), what });
        match stop {
            Stop::End => {}
            Stop::Torn | Stop::Garbled(_) if is_last && walk.position() >= trimmed => {}
            Stop::Torn => return Err(damaged("its end is missing".to_owned())),
            Stop::Garbled(what) | Stop::Fault(ScanFault::Wrong(what)) => return Err(damaged(what)),
            Stop::Fault(ScanFault::Newer(what)) => return Err(ArchiveError::Newer { lane, what }),
            Stop::Unreadable(source) => return Err(file_error(segment, source)),
        }
        end = Some((segment, bytes, lines));
    }
    let position = walk.position();
    if position < trimmed {
        return Err(ArchiveError::Trimmed { lane, trimmed, position });
    }
    let owed = walk.take_owed();
    let mut writer = match end {
        Some((segment, bytes, lines)) if lines > 0 => LaneWriter::new(media, walk, segment, bytes, segment_bytes_max),
        // Nothing yet, or not even a whole head.
        Some(_) | None => {
            let segment = end.map_or(FIRST, |(segment, ..)| segment);
            let mut writer = LaneWriter::new(media, walk, segment, 0, segment_bytes_max);
            writer.begin(segment);
            writer
        }
    };
    writer.say_closed(&owed);
    Ok(writer)
}
