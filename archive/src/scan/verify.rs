//! Reading a whole archive, without a bus: every byte against the chain, every decision against what its records lead to,
//! every register entry against the decision.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use schemas::{Lane, NegotiationId};
use serde::{Deserialize, Serialize};

use super::{ArchiveCounts, ArchiveReport, Closing, Difference, LaneReport};
use super::{Scan, ScanFault, SegmentRead, Stop, Taken, cursor_cache};
use crate::chain::{CHAIN_START, read_line, unframe};
use crate::segment_store::{BEGINNING, Folder, Inventory, Media, lane_folder};
use crate::{ArchiveError, Closed, Line};

/// Segments of a lane that are opened before the first is read: an archiver may remove that many meanwhile.
const OPENED_MAX: usize = 64;
/// How often a lane is looked at that changes while it is.
const ATTEMPTS_MAX: u32 = 8;

/// What is asked of an archive.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Tell more of this negotiation.
    pub only: Option<NegotiationId>,
    /// Whether an archive may end without a clean stop, because it is still being written or its writer was killed. Then
    /// it is not seen when lines at its end were taken away.
    pub allow_open_end: bool,
    /// Say where the next reading may go on: see [`hear()`].
    pub keep_positions: bool,
}

/// How far each lane of an archive was read, and what that led to: [`hear()`] goes on there. As large as the open
/// negotiations and the ids of those that ended; of one archive, and of no use to another.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Positions(BTreeMap<Lane, LanePosition>);

/// A place behind a line of a segment, and the state there.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LanePosition {
    segment: u64,
    bytes: u64,
    lines: u64,
    /// As beside the segments, in base64.
    state: String,
}

/// Reads an archive. The first difference of each lane ends its reading; the first of all is reported.
///
/// # Errors
/// [`ArchiveError::File`] when there is no archive or it cannot be read, [`ArchiveError::Newer`].
pub fn verify(folder: &Path, options: &VerifyOptions) -> Result<ArchiveReport, ArchiveError> {
    hear(folder, options, &mut Positions::default(), &mut |_, _| {})
}

/// Reads an archive behind `positions`, and tells each negotiation that ended there, lane after lane in the order of the log.
/// With [`VerifyOptions::keep_positions`] they move to its end; of a lane that ends between a record and what that ended the
/// position stays. What was told is proved only if the report has no difference; otherwise the positions, too, are to be
/// forgotten.
///
/// # Errors
/// As [`verify()`]; [`ArchiveError::Unfit`] when the positions are of another archive, or what follows them was removed.
pub fn hear(
    folder: &Path,
    options: &VerifyOptions,
    positions: &mut Positions,
    tell: &mut dyn FnMut(Lane, &Closed),
) -> Result<ArchiveReport, ArchiveError> {
    let inventory = Inventory::of(folder).map_err(|(path, source)| ArchiveError::File { path, source })?;
    let found = inventory.lanes;
    let Some(last) = found.last() else {
        let source = io::Error::new(
            io::ErrorKind::NotFound,
            "there is no archive: it has no folder lane-0, and links are not followed",
        );
        return Err(ArchiveError::File { path: folder.to_path_buf(), source });
    };
    let lanes = found.iter().find_map(|&lane| lanes_said(folder, lane)).unwrap_or(last.0.saturating_add(1));
    let (foreign, leftovers) = (inventory.foreign, inventory.leftovers);
    let mut report = ArchiveReport { foreign, leftovers, ..ArchiveReport::default() };
    for lane in (0..lanes).map(Lane) {
        let media = Folder::new(folder, lane);
        let mut reading = Reading { media, options, positions, tell, report: &mut report };
        reading.lane(lane, lanes)?;
    }
    if let Some(lane) = found.iter().find(|lane| lane.0 >= lanes) {
        let what = format!("the log has {lanes} lanes only");
        report.note(Difference { file: lane_folder(folder, *lane), line: None, what });
    }
    Ok(report)
}

impl ArchiveReport {
    fn note(&mut self, difference: Difference) {
        self.first_difference.get_or_insert(difference);
    }
}

impl ArchiveCounts {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.unreadable += other.unreadable;
        self.messages += other.messages;
        self.negotiations += other.negotiations;
        self.decisions += other.decisions;
        self.register_entries += other.register_entries;
        self.unregistered += other.unregistered;
        self.conflicts += other.conflicts;
    }
}

/// The reading of one lane.
struct Reading<'a> {
    media: Folder,
    options: &'a VerifyOptions,
    positions: &'a mut Positions,
    tell: &'a mut dyn FnMut(Lane, &Closed),
    report: &'a mut ArchiveReport,
}

impl Reading<'_> {
    fn lane(&mut self, lane: Lane, lanes: u8) -> Result<(), ArchiveError> {
        let Some(begun) = self.begin(lane, lanes)? else {
            self.conclude(&Scan::new(lane, lanes), None, 0);
            return Ok(());
        };
        let BegunLane { removed_below, mut walk, segments, mut before } = begun;
        let (count, mut last) = (segments.len(), None);
        for (number, (segment, reader)) in (1..).zip(segments) {
            let (file, before) = (self.media.path(segment), std::mem::take(&mut before));
            let (lines, what) = self.segment(&mut walk, (segment, reader), before, number == count)?;
            if let Some(what) = what {
                self.report.note(Difference { file, line: Some(lines + 1), what });
                self.conclude(&walk, removed_below, number as u64);
                return Ok(());
            }
            last = Some((file, lines));
        }
        match last {
            None => {
                let file = self.media.path(1);
                self.report.note(Difference { file, line: None, what: "the lane is missing".to_owned() });
            }
            Some((file, lines)) if !walk.is_ended && !self.options.allow_open_end => {
                let what = "there is no end: it was cut off here, or is still being written (--allow-open-end)";
                self.report.note(Difference { file, line: Some(lines), what: what.to_owned() });
            }
            Some(_) => {}
        }
        self.conclude(&walk, removed_below, count as u64);
        Ok(())
    }

    /// Opens the lane, and takes the state that reading begins with; nothing where that is damaged, which is noted.
    fn begin(&mut self, lane: Lane, lanes: u8) -> Result<Option<BegunLane>, ArchiveError> {
        let opened = match open(&self.media) {
            Ok(opened) => opened,
            Err((file, source)) if source.kind() == io::ErrorKind::InvalidData => {
                self.report.note(Difference { file, line: None, what: source.to_string() });
                return Ok(None);
            }
            Err((path, source)) => return Err(ArchiveError::File { path, source }),
        };
        let (removed_below, walk) = match opened.beginning.map(|bytes| cursor_cache::decode(&bytes, lane, lanes)) {
            None => (None, Scan::new(lane, lanes)),
            Some(Ok((from, walk))) => (Some(from), walk),
            Some(Err(what)) => {
                let what = format!("the state the lane begins with cannot be read: {what}");
                self.report.note(Difference { file: self.media.path(1).with_file_name(BEGINNING), line: None, what });
                return Ok(None);
            }
        };
        let readers = opened.readers.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let mut segments: BTreeMap<u64, Option<Box<dyn Read>>> = opened.segments.into_iter().zip(readers).collect();
        let kept = segments.split_off(&removed_below.unwrap_or(0));
        for &segment in segments.keys() {
            let what = "a segment an archiver was removing when it was interrupted".to_owned();
            self.report.leftovers.push(Difference { file: self.media.path(segment), line: None, what });
        }
        let mut begun = BegunLane { removed_below, walk, segments: kept, before: (0, 0) };
        self.go_on(&mut begun)?;
        begun.walk.begin_tally();
        begun.walk.is_heard = true;
        Ok(Some(begun))
    }

    /// Goes on where the lane was read before.
    fn go_on(&self, begun: &mut BegunLane) -> Result<(), ArchiveError> {
        let (lane, lanes) = (begun.walk.lane, begun.walk.lanes);
        let Some(at) = self.positions.0.get(&lane) else { return Ok(()) };
        let what =
            "the positions are of another archive, or it has removed what follows them: read it from its beginning";
        let unfit = || ArchiveError::Unfit { folder: self.media.folder().to_path_buf(), what };
        let state = BASE64_STANDARD.decode(&at.state).map_err(|_| unfit())?;
        let (segment, walk) = cursor_cache::decode(&state, lane, lanes).map_err(|_| unfit())?;
        if segment != at.segment || !begun.segments.contains_key(&segment) {
            return Err(unfit());
        }
        begun.segments = begun.segments.split_off(&segment);
        (begun.walk, begun.before) = (walk, (at.bytes, at.lines));
        Ok(())
    }

    /// Reads a segment behind so many bytes and lines; gives its lines, and what is wrong behind them.
    fn segment(
        &mut self,
        walk: &mut Scan,
        (segment, reader): (u64, Option<Box<dyn Read>>),
        (bytes, lines): (u64, u64),
        is_last: bool,
    ) -> Result<(u64, Option<String>), ArchiveError> {
        let (lane, path) = (walk.lane, self.media.path(segment));
        let reader = match reader {
            _ if bytes > 0 => read_behind(&path, bytes),
            Some(reader) => Ok(reader),
            None => self.media.read(segment),
        };
        let reader = reader.map_err(|source| ArchiveError::File { path: path.clone(), source })?;
        let before = SegmentRead { bytes, lines, stop: Stop::End };
        let SegmentRead { bytes, lines, stop } =
            walk.read_on(segment, reader, before, |line, taken| self.hear(lane, &path, line, taken));
        if is_last && self.options.keep_positions && walk.owed.is_empty() {
            let state = BASE64_STANDARD.encode(cursor_cache::encode(walk, segment));
            self.positions.0.insert(lane, LanePosition { segment, bytes, lines, state });
        }
        let what = match stop {
            Stop::End => None,
            Stop::Torn if is_last && self.options.allow_open_end => None,
            Stop::Torn => Some("its end is missing".to_owned()),
            Stop::Garbled(what) | Stop::Fault(ScanFault::Wrong(what)) => Some(what),
            Stop::Fault(ScanFault::Newer(what)) => return Err(ArchiveError::Newer { lane, what }),
            Stop::Unreadable(source) => return Err(ArchiveError::File { path, source }),
        };
        Ok((lines, what))
    }

    fn hear(&mut self, lane: Lane, path: &Path, line: u64, taken: Taken) {
        if let Some(closed) = &taken.closed {
            (self.tell)(lane, closed);
        }
        if let Some(what) = taken.finding {
            self.report.note(Difference { file: path.to_path_buf(), line: Some(line), what });
        }
        let only = self.options.only.as_ref();
        if let Some(closed) = taken.closed.filter(|closed| only == Some(&closed.negotiation)) {
            self.report.closings.push(Closing {
                file: path.to_path_buf(),
                line,
                at: closed.at,
                seq: closed.seq,
                outcome: closed.outcome,
                chain: closed.chain,
                inputs: closed.inputs.len(),
                decisions: closed.decisions.len(),
                register_entries: closed.register.len(),
                is_registered: false,
            });
        }
        if let Some((seq, _)) = taken.registered.filter(|(_, negotiation)| only == Some(negotiation)) {
            let mine = self.report.closings.iter_mut().filter(|closing| closing.seq == seq);
            mine.for_each(|closing| closing.is_registered = true);
        }
    }

    fn conclude(&mut self, walk: &Scan, removed_below: Option<u64>, segments: u64) {
        self.report.total.add(&walk.tally);
        self.report.lanes.push(LaneReport {
            lane: walk.lane,
            segments,
            removed_below,
            position: walk.position(),
            chain: walk.chain,
            is_ended: walk.is_ended,
            open: walk.chronicle.open_count(),
            tally: walk.tally,
        });
    }
}

/// A segment behind its first `at` bytes.
fn read_behind(path: &Path, at: u64) -> io::Result<Box<dyn Read>> {
    let found = std::fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() < at {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not the file that was read before, or shorter"));
    }
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    Ok(Box::new(file))
}

/// Where the reading of a lane begins.
struct BegunLane {
    /// See [`LaneReport::removed_below`].
    removed_below: Option<u64>,
    walk: Scan,
    /// Those to be read, opened or not.
    segments: BTreeMap<u64, Option<Box<dyn Read>>>,
    /// Bytes and lines of the first of them that were read before.
    before: (u64, u64),
}

/// What of a lane is read.
struct OpenedLane {
    beginning: Option<Vec<u8>>,
    segments: Vec<u64>,
    /// The first of them, at most [`OPENED_MAX`].
    readers: Vec<Box<dyn Read>>,
}

/// Opens what a lane holds. An archiver that removes its oldest segments may be at work: then it is looked again.
fn open(media: &Folder) -> Result<OpenedLane, (PathBuf, io::Error)> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let beginning_of =
            || media.document(BEGINNING).map_err(|source| (media.path(1).with_file_name(BEGINNING), source));
        let segments = media.segments().map_err(|source| (media.folder().to_path_buf(), source))?;
        let beginning = beginning_of()?;
        let read = |segment: &u64| media.read(*segment).map_err(|source| (media.path(*segment), source));
        let readers: Result<Vec<_>, _> = segments.iter().take(OPENED_MAX).map(read).collect();
        let is_same = beginning_of()? == beginning;
        match readers {
            Ok(readers) if is_same || attempts == ATTEMPTS_MAX => {
                return Ok(OpenedLane { beginning, segments, readers });
            }
            Err(fault) if fault.1.kind() != io::ErrorKind::NotFound || attempts == ATTEMPTS_MAX => return Err(fault),
            Ok(_) | Err(_) => {}
        }
    }
}

/// How many lanes the head of a lane's first segment says there are; nothing when it is damaged, which is found later.
fn lanes_said(folder: &Path, lane: Lane) -> Option<u8> {
    let media = Folder::new(folder, lane);
    if let Some(beginning) = media.document(BEGINNING).ok()? {
        return cursor_cache::lanes(&beginning);
    }
    let mut line = Vec::new();
    read_line(&mut BufReader::new(media.read(*media.segments().ok()?.first()?).ok()?), &mut line).ok()?;
    let framed = unframe(&line, CHAIN_START).ok().filter(|framed| framed.is_chained)?;
    match serde_json::from_str(framed.line).ok()? {
        Line::Begin(begin) => Some(begin.lanes),
        Line::Record(_) | Line::Closed(_) | Line::Registered(_) | Line::End(_) => None,
    }
}
