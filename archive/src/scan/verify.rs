//! Reading a whole archive, without a bus: every byte against the chain, every decision against what its records lead to,
//! every register entry against the decision.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use schemas::delivery::Outcome;
use schemas::{Digest, Lane, NegotiationId, Timestamp};
use serde::Serialize;

use super::{ArchiveCounts, Scan, ScanFault, SegmentRead, Stop, Taken, cursor_cache};
use crate::chain::{CHAIN_START, read_line, unframe};
use crate::segment_store::{BEGINNING, Folder, Inventory, Media, lane_folder};
use crate::{ArchiveError, Line};

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

/// Reads an archive. The first difference of each lane ends its reading; the first of all is reported.
///
/// # Errors
/// [`ArchiveError::File`] when there is no archive or it cannot be read, [`ArchiveError::Newer`].
pub fn verify(folder: &Path, options: &VerifyOptions) -> Result<ArchiveReport, ArchiveError> {
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
        let mut reading = Reading { media: Folder::new(folder, lane), options, report: &mut report };
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
    report: &'a mut ArchiveReport,
}

impl Reading<'_> {
    fn lane(&mut self, lane: Lane, lanes: u8) -> Result<(), ArchiveError> {
        let file_error = |path: PathBuf, source| ArchiveError::File { path, source };
        let OpenedLane { beginning, mut segments, readers } = match open(&self.media) {
            Ok(opened) => opened,
            Err((file, source)) if source.kind() == io::ErrorKind::InvalidData => {
                self.report.note(Difference { file, line: None, what: source.to_string() });
                self.conclude(&Scan::new(lane, lanes), None, 0);
                return Ok(());
            }
            Err((path, source)) => return Err(file_error(path, source)),
        };
        let (removed_below, mut walk) = match beginning.map(|bytes| cursor_cache::decode(&bytes, lane, lanes)) {
            None => (None, Scan::new(lane, lanes)),
            Some(Ok((from, mut walk))) => {
                walk.begin_tally();
                (Some(from), walk)
            }
            Some(Err(what)) => {
                let what = format!("the state the lane begins with cannot be read: {what}");
                self.report.note(Difference { file: self.media.path(1).with_file_name(BEGINNING), line: None, what });
                self.conclude(&Scan::new(lane, lanes), None, 0);
                return Ok(());
            }
        };
        for &segment in segments.iter().filter(|segment| removed_below.is_some_and(|from| **segment < from)) {
            let what = "a segment an archiver was removing when it was interrupted".to_owned();
            self.report.leftovers.push(Difference { file: self.media.path(segment), line: None, what });
        }
        let mut readers = segments.iter().copied().zip(readers).collect::<BTreeMap<_, _>>();
        segments.retain(|segment| removed_below.is_none_or(|from| *segment >= from));
        let mut last = None;
        for (number, &segment) in segments.iter().enumerate() {
            let path = self.media.path(segment);
            let reader = readers.remove(&segment).map_or_else(|| self.media.read(segment), Ok);
            let reader = reader.map_err(|source| file_error(path.clone(), source))?;
            let SegmentRead { lines, stop, .. } =
                walk.read_segment(segment, reader, |line, taken| self.hear(&path, line, taken));
            let is_last = number + 1 == segments.len();
            last = Some((path.clone(), lines));
            let what = match stop {
                Stop::End => continue,
                Stop::Torn if is_last && self.options.allow_open_end => continue,
                Stop::Torn => "its end is missing".to_owned(),
                Stop::Garbled(what) | Stop::Fault(ScanFault::Wrong(what)) => what,
                Stop::Fault(ScanFault::Newer(what)) => return Err(ArchiveError::Newer { lane, what }),
                Stop::Unreadable(source) => return Err(file_error(path, source)),
            };
            self.report.note(Difference { file: path, line: Some(lines + 1), what });
            self.conclude(&walk, removed_below, number as u64 + 1);
            return Ok(());
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
        self.conclude(&walk, removed_below, segments.len() as u64);
        Ok(())
    }

    fn hear(&mut self, path: &Path, line: u64, taken: Taken) {
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
