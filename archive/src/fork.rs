//! Going on after the log has lost its end: what a folder and the log have in common is copied to another folder, and the first
//! one stays as it is. What it holds beyond stands nowhere else.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use bus::{Bus, BusError, Log};
use bytes::Bytes;
use futures_util::StreamExt;
use schemas::{Digest, Lane, Timestamp};
use serde::Serialize;

use super::chain::{CHAIN_START, read_line, unframe};
use super::follow::lock;
use super::scan::Difference;
use super::segment_store::{BEGINNING, Folder, Media};
use super::{ArchiveError, Line, as_bytes, position_name};

/// Bytes that are copied, and synced, at a time.
const COPIED_BYTES: u64 = 8 * 1024 * 1024;

/// What became of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForkedLane {
    /// The lane.
    pub lane: Lane,
    /// The last record that folder and log have in common, 0 for none: what is copied ends with it.
    pub common: u64,
    /// Records behind it that the folder alone holds.
    pub lost: u64,
}

/// A record of the folder.
struct Mark {
    seq: u64,
    time: Timestamp,
    digest: Digest,
    /// Where its line begins.
    segment: u64,
    at: u64,
    /// Nothing but its head stands before it in its segment.
    is_first: bool,
}

/// The records of a lane that the log may still hold.
struct Untrimmed {
    marks: Vec<Mark>,
    /// The last record before them.
    before: (u64, Timestamp),
}

/// A lane to be copied: its records, and how many of them the log holds alike.
struct Fork {
    media: Folder,
    marks: Vec<Mark>,
    alike: usize,
    report: ForkedLane,
}

/// Copies what the folder `from` and the log have in common to the empty folder `to`, where archiving can go on behind it.
/// Engines that were told of records the log has lost are told of the others only.
///
/// # Errors
/// [`ArchiveError::Unfit`] where a folder is not what it must be, and nothing is copied; what reading, writing or asking leads
/// to: empty `to` before it is tried again.
pub async fn fork(bus: &Bus, from: &Path, to: &Path) -> Result<Vec<ForkedLane>, ArchiveError> {
    let unfit = |folder: &Path, what| ArchiveError::Unfit { folder: folder.to_path_buf(), what };
    let _locks = (lock(from)?, lock(to)?);
    let mut forks = Vec::new();
    for lane in (0..bus.log.lanes()).map(Lane) {
        let target = Folder::new(to, lane);
        if !target.segments().map_err(|source| file_error(target.folder().to_path_buf(), source))?.is_empty() {
            return Err(unfit(
                to,
                "it holds an archive already: name an empty folder, or leave --fork-of away to go on there",
            ));
        }
        forks.push(Fork::of(bus, Folder::new(from, lane)).await?);
    }
    if forks.iter().all(|fork| fork.report.lost == 0) {
        return Err(unfit(from, "the log holds every record of it: go on there, without --fork-of"));
    }
    if forks.iter().all(|fork| fork.alike == 0) {
        return Err(unfit(from, "the log holds no record of it: it is of another log"));
    }
    let mut reports = Vec::new();
    for fork in forks {
        let (report, mut target) = (fork.report.clone(), Folder::new(to, fork.report.lane));
        let copied = tokio::task::spawn_blocking(move || fork.copy(&mut target)).await;
        copied.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        take_back(bus, &report).await?;
        reports.push(report);
    }
    Ok(reports)
}

/// Tells the engines that what was archived behind the last common record is not: they would trim what now stands there.
async fn take_back(bus: &Bus, report: &ForkedLane) -> Result<(), BusError> {
    let name = position_name(report.lane);
    if let Some(told) = bus.blobs.version(name.clone()).await?.filter(|told| *told > report.common) {
        let document = format!(r#"{{"position":{},"registered":0}}"#, report.common);
        bus.blobs.put(name, told, Bytes::from(document)).await?;
    }
    Ok(())
}

impl Fork {
    async fn of(bus: &Bus, media: Folder) -> Result<Self, ArchiveError> {
        let lane = media.lane();
        let trimmed = bus.log.trimmed(lane).await?;
        let reading = tokio::task::spawn_blocking(move || Untrimmed::of(&media, trimmed).map(|found| (media, found)));
        let read = reading.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let (media, Untrimmed { marks, before }) = read?;
        let last = marks.last().map_or(before.0, |last| last.seq);
        if last < trimmed {
            return Err(ArchiveError::Trimmed { lane, trimmed, position: last });
        }
        let alike = alike(&*bus.log, lane, (trimmed, before.1), &marks).await?;
        if alike == 0 && !marks.is_empty() && trimmed > 0 {
            return Err(ArchiveError::Foreign { lane, position: last });
        }
        let common = alike.checked_sub(1).and_then(|index| marks.get(index)).map_or(before.0, |mark| mark.seq);
        let lost = (marks.len() - alike) as u64;
        Ok(Self { media, marks, alike, report: ForkedLane { lane, common, lost } })
    }

    /// Copies every line before the first record that the log does not hold alike.
    fn copy(&self, target: &mut Folder) -> Result<(), ArchiveError> {
        let Self { media, marks, alike, .. } = self;
        let cut = marks.get(*alike);
        for segment in media.segments().map_err(|source| file_error(media.folder().to_path_buf(), source))? {
            let end = match cut {
                // A segment whose first record is another one has another name.
                Some(cut) if segment > cut.segment || (segment == cut.segment && cut.is_first) => break,
                Some(cut) if segment == cut.segment => cut.at,
                Some(_) | None => u64::MAX,
            };
            copy_segment(media, target, segment, end).map_err(|source| file_error(media.path(segment), source))?;
        }
        let beginning = media.document(BEGINNING).map_err(|source| file_error(media.folder().to_path_buf(), source))?;
        let kept = beginning.map_or(Ok(()), |bytes| target.keep(BEGINNING, &bytes));
        kept.map_err(|source| file_error(target.folder().to_path_buf(), source))
    }
}

fn copy_segment(media: &Folder, target: &mut Folder, segment: u64, end: u64) -> std::io::Result<()> {
    let mut reader = media.read(segment)?.take(end);
    let mut at = 0;
    loop {
        let mut bytes = Vec::new();
        reader.by_ref().take(COPIED_BYTES).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(());
        }
        target.store(segment, at, &bytes)?;
        at += bytes.len() as u64;
    }
}

/// How many of the first records the log, which was trimmed up to here, holds as they are archived.
async fn alike(
    log: &dyn Log,
    lane: Lane,
    (trimmed, mut time): (u64, Timestamp),
    marks: &[Mark],
) -> Result<usize, BusError> {
    let last = log.last_seq(lane).await?;
    if last <= trimmed {
        return Ok(0);
    }
    let mut records = log.read(lane, trimmed + 1).await?;
    for (index, mark) in marks.iter().enumerate() {
        if mark.seq > last {
            return Ok(index);
        }
        let found = records.next().await.unwrap_or(Err(BusError::Closed))?;
        time = time.max(found.time);
        if (found.seq, time, Digest::of_bytes(&found.bytes)) != (mark.seq, mark.time, mark.digest) {
            return Ok(index);
        }
    }
    Ok(marks.len())
}

impl Untrimmed {
    /// Reads a lane; records up to `trimmed` are passed over.
    fn of(media: &Folder, trimmed: u64) -> Result<Self, ArchiveError> {
        let mut found = Self { marks: Vec::new(), before: (0, Timestamp(0)) };
        let segments = media.segments().map_err(|source| file_error(media.folder().to_path_buf(), source))?;
        let mut chain = None;
        for (number, &segment) in segments.iter().enumerate() {
            let reader = media.read(segment).map_err(|source| file_error(media.path(segment), source))?;
            let is_last = number + 1 == segments.len();
            found.read(&mut BufReader::new(reader), (segment, is_last), &mut chain, trimmed).map_err(
                |(line, what)| ArchiveError::Damaged(Difference { file: media.path(segment), line: Some(line), what }),
            )?;
        }
        Ok(found)
    }

    /// Reads a segment. What a crash left at the end of the last one is cut off where archiving goes on.
    ///
    /// # Errors
    /// The line that is damaged, and how.
    fn read(
        &mut self,
        reader: &mut BufReader<Box<dyn Read>>,
        (segment, is_last): (u64, bool),
        chain: &mut Option<Digest>,
        trimmed: u64,
    ) -> Result<(), (u64, String)> {
        let (mut line, mut at, mut number, mut is_first) = (Vec::new(), 0, 0, true);
        loop {
            number += 1;
            let len = read_line(reader, &mut line).map_err(|error| (number, error.to_string()))?;
            if len == 0 || (is_last && line.last() != Some(&b'\n')) {
                return Ok(());
            }
            let document = unchain(&line, chain).map_err(|what| (number, what))?;
            if let Line::Record(record) = document {
                let bytes = as_bytes(record.record, record.base64.as_deref()).map_err(|what| (number, what))?;
                let digest = Digest::of_bytes(&bytes.unwrap_or_default());
                let mark = Mark { seq: record.seq, time: record.time, digest, segment, at, is_first };
                is_first = false;
                if mark.seq > trimmed { self.marks.push(mark) } else { self.before = (mark.seq, mark.time) }
            }
            at += len as u64;
        }
    }
}

/// What a line says, if it is the one that follows. The first one says by itself which chain it follows, where segments before
/// it were removed.
fn unchain<'a>(line: &'a [u8], chain: &mut Option<Digest>) -> Result<Line<'a>, String> {
    let parsed = |text: &'a str| serde_json::from_str::<Line<'a>>(text).map_err(|error| error.to_string());
    let before = match *chain {
        Some(before) => before,
        None => match parsed(unframe(line, CHAIN_START)?.line)? {
            Line::Begin(begin) => begin.chain,
            Line::Record(_) | Line::Closed(_) | Line::Registered(_) | Line::End(_) => CHAIN_START,
        },
    };
    let framed = unframe(line, before)?;
    if !framed.is_chained {
        return Err("its chain is not that of the lines before it".to_owned());
    }
    *chain = Some(framed.chain);
    parsed(framed.line)
}

fn file_error(path: PathBuf, source: std::io::Error) -> ArchiveError {
    ArchiveError::File { path, source }
}
