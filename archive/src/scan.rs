//! A lane of an archive read from its beginning: every line is held against what the lines before it lead to.
//!
//! Writing goes through the same state, so that what was written is what will be read.

mod cursor_cache;
mod history;
mod prune;
mod report;
mod resume;
mod verify;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufReader, Read};

use schemas::{Digest, Lane, NegotiationId, Timestamp};

use crate::chain::{CHAIN_START, read_line, unframe};
use crate::comparison::{first_difference, shown};
use crate::{Begin, Closed, Expected, FORMAT, Line, LoggedLine, RegisteredLine, SegmentEnd, as_bytes, text};

use history::NegotiationHistory;
pub use report::{ArchiveCounts, ArchiveReport, Closing, Difference, LaneReport};
pub(super) use resume::resume;
pub use verify::{Positions, VerifyOptions, hear, verify};
pub(super) use writer::LaneWriter;

/// Why reading cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScanFault {
    /// The line is not what must stand here.
    Wrong(String),
    /// A later version wrote it.
    Newer(String),
}

/// How the reading of a segment ended.
#[derive(Debug)]
pub(super) enum Stop {
    /// Behind its last line.
    End,
    /// In a last line without its end.
    Torn,
    /// At bytes that are no line, or not the line whose chain they carry.
    Garbled(String),
    /// At a line whose content is wrong.
    Fault(ScanFault),
    /// At bytes that cannot be read.
    Unreadable(std::io::Error),
}

/// What reading a segment gave.
#[derive(Debug)]
pub(super) struct SegmentRead {
    /// Bytes of the lines taken.
    bytes: u64,
    /// Lines taken.
    lines: u64,
    pub(super) stop: Stop,
}

/// A negotiation that ended.
#[derive(Debug)]
struct Ending {
    closed: Closed,
    expected: Expected,
    /// The inputs do not give the chain the fold registered: a fault of ours.
    is_broken: bool,
}

/// What one record led to.
#[derive(Debug, Default)]
struct FoldedRecord {
    endings: Vec<Ending>,
    messages: u64,
    /// Up to this record it says that every write of the register is answered.
    answered: u64,
    /// A record of a foreign writer: engines skip it.
    is_unreadable: bool,
    /// A message whose body does not have the digest beside it, in words.
    forged: Option<String>,
}

/// The state after the lines so far.
pub(super) struct Scan {
    lane: Lane,
    lanes: u8,
    chain: Digest,
    /// Segments begun.
    segments: u32,
    /// Records in the present segment.
    records_in_segment: u64,
    chronicle: NegotiationHistory,
    /// `closed` lines that must come next.
    owed: VecDeque<Closed>,
    /// Closed negotiations without a `registered` line, by the record that ended them.
    awaiting: BTreeMap<(u64, NegotiationId), Expected>,
    /// Up to this record the log says that every write of the register is answered: what the register does not hold of
    /// negotiations that ended by then it will not hold.
    answered: u64,
    /// Whether the last line is `end`.
    is_ended: bool,
    /// Whether somebody hears of what ends: then its course is kept.
    is_heard: bool,
    tally: ArchiveCounts,
}

impl Scan {
    pub(super) fn new(lane: Lane, lanes: u8) -> Self {
        Self {
            lane,
            lanes,
            chain: CHAIN_START,
            segments: 0,
            records_in_segment: 0,
            chronicle: NegotiationHistory::new(lane),
            owed: VecDeque::new(),
            awaiting: BTreeMap::new(),
            answered: 0,
            is_ended: false,
            is_heard: false,
            tally: ArchiveCounts::default(),
        }
    }

    /// The head of the next segment, which `from` names.
    fn begin(&self, from: u64) -> Begin {
        Begin { format: FORMAT, lane: self.lane, lanes: self.lanes, segment: self.segments, from, chain: self.chain }
    }

    /// The head of the next segment was read or written.
    fn handle_begin(&mut self) {
        self.segments += 1;
        self.records_in_segment = 0;
    }

    /// Reads the segment that `from` names. `handle_line` hears the number of each line and what [`Scan::take`] says of it.
    pub(super) fn read_segment(
        &mut self,
        from: u64,
        reader: impl Read,
        handle_line: impl FnMut(u64, Taken),
    ) -> SegmentRead {
        self.read_on(from, reader, SegmentRead { bytes: 0, lines: 0, stop: Stop::End }, handle_line)
    }

    /// The same behind what was read of it before; `reader` begins there.
    fn read_on(
        &mut self,
        from: u64,
        reader: impl Read,
        mut read: SegmentRead,
        mut handle_line: impl FnMut(u64, Taken),
    ) -> SegmentRead {
        let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
        loop {
            match read_line(&mut reader, &mut line) {
                Ok(0) => return read,
                Ok(_) if line.last() != Some(&b'\n') => return SegmentRead { stop: Stop::Torn, ..read },
                Ok(_) => {}
                Err(error) => return SegmentRead { stop: Stop::Unreadable(error), ..read },
            }
            let framed = match unframe(&line, self.chain) {
                Ok(framed) if framed.is_chained => framed,
                Ok(_) => {
                    let what =
                        "it, or the line before it, was altered, or a line between them is missing: the chain differs";
                    return SegmentRead { stop: Stop::Garbled(what.to_owned()), ..read };
                }
                Err(what) => return SegmentRead { stop: Stop::Garbled(what), ..read },
            };
            let taken = if read.lines == 0 { self.take_begin(framed.line, from) } else { self.take(framed.line) };
            match taken {
                Ok(taken) => handle_line(read.lines + 1, taken),
                Err(fault) => return SegmentRead { stop: Stop::Fault(fault), ..read },
            }
            self.chain = framed.chain;
            read.lines += 1;
            read.bytes += line.len() as u64;
        }
    }

    fn take_begin(&mut self, line: &str, from: u64) -> Result<Taken, ScanFault> {
        let Line::Begin(found) = parse(line)? else { return Err(wrong("a segment must begin with its head")) };
        if found.format > FORMAT {
            return Err(ScanFault::Newer(format!("its format is {}, this build knows up to {FORMAT}", found.format)));
        }
        let expected = self.begin(from);
        if found != expected {
            let (found, expected) = (Line::Begin(found), Line::Begin(expected));
            let difference = first_difference(&text(&expected), &text(&found));
            return Err(ScanFault::Wrong(format!("another segment must stand here: {difference}")));
        }
        self.handle_begin();
        Ok(Taken::default())
    }

    /// Takes the next line.
    fn take(&mut self, line: &str) -> Result<Taken, ScanFault> {
        let document = parse(line)?;
        if let Line::Closed(found) = document {
            return self.take_closed(found.get());
        }
        if let Some(owed) = self.owed.front() {
            let what = format!("negotiation {} ended with record {}, and that is not said", owed.negotiation, owed.seq);
            return Err(ScanFault::Wrong(what));
        }
        let was_ended = std::mem::take(&mut self.is_ended);
        match document {
            Line::Begin(_) => Err(wrong("a segment begins in the middle of a file")),
            Line::Closed(found) => self.take_closed(found.get()),
            Line::Record(record) => self.take_record(&record),
            Line::Registered(registered) => self.take_registered(&registered),
            Line::End(SegmentEnd { position }) if position == self.chronicle.position && !was_ended => {
                self.is_ended = true;
                Ok(Taken::default())
            }
            Line::End(_) => Err(wrong("an end that is none")),
        }
    }

    fn take_closed(&mut self, found: &str) -> Result<Taken, ScanFault> {
        let owed = self.owed.pop_front().ok_or_else(|| wrong("no negotiation ended here"))?;
        let expected = text(&owed);
        if found != expected {
            let difference = first_difference(&expected, found);
            return Err(ScanFault::Wrong(format!("negotiation {}: {difference}", owed.negotiation)));
        }
        Ok(Taken { closed: Some(owed), ..Taken::default() })
    }

    fn take_record(&mut self, found: &LoggedLine<'_>) -> Result<Taken, ScanFault> {
        let bytes = as_bytes(found.record, found.base64.as_deref()).map_err(ScanFault::Wrong)?;
        let bytes = bytes.ok_or_else(|| wrong("a record without content"))?;
        if found.seq <= self.chronicle.position || found.time < self.chronicle.time {
            return Err(ScanFault::Wrong(format!(
                "record {} stands behind record {}, and time does not go back",
                found.seq, self.chronicle.position
            )));
        }
        let (closed, finding) = self.fold(found.seq, found.time, &bytes)?;
        self.owed.extend(closed);
        Ok(Taken { finding, ..Taken::default() })
    }

    /// Folds a record; gives back what must be said behind it, and what is wrong with it in itself.
    fn fold(&mut self, seq: u64, time: Timestamp, bytes: &[u8]) -> Result<(Vec<Closed>, Option<String>), ScanFault> {
        let folded: FoldedRecord =
            self.chronicle.handle_record(seq, time, bytes, self.is_heard).map_err(ScanFault::Newer)?;
        self.records_in_segment += 1;
        self.answered = self.answered.max(folded.answered);
        self.tally.records += 1;
        self.tally.unreadable += u64::from(folded.is_unreadable);
        self.tally.messages += folded.messages;
        let mut finding = folded.forged;
        let mut closed = Vec::with_capacity(folded.endings.len());
        for ending in folded.endings {
            self.tally.negotiations += 1;
            self.tally.decisions += ending.closed.decisions.len() as u64;
            self.tally.unregistered += ending.expected.entries.len() as u64;
            self.tally.conflicts += u64::from(ending.expected.is_conflict);
            if ending.is_broken && finding.is_none() {
                finding = Some(format!("negotiation {}: its inputs do not give its chain", ending.closed.negotiation));
            }
            self.awaiting.insert((seq, ending.closed.negotiation.clone()), ending.expected);
            closed.push(ending.closed);
        }
        Ok((closed, finding))
    }

    fn take_registered(&mut self, found: &RegisteredLine<'_>) -> Result<Taken, ScanFault> {
        let id = (found.seq, found.negotiation.clone());
        let expected = self.awaiting.remove(&id).ok_or_else(|| wrong("no such negotiation waits for its entries"))?;
        if found.entries.len() != expected.entries.len() {
            return Err(wrong("other register entries than the record leads to"));
        }
        let mut taken = Taken { registered: Some(id), ..Taken::default() };
        for (found, entry) in found.entries.iter().zip(&expected.entries) {
            let key = &entry.key;
            if found.key != *key {
                return Err(ScanFault::Wrong(format!("register key {key} was expected, there stands {}", found.key)));
            }
            let bytes = as_bytes(found.value, found.base64.as_deref()).map_err(ScanFault::Wrong)?;
            let Some(bytes) = bytes else { continue };
            self.note_registered();
            let recomputed = entry.canonical();
            if *bytes != *recomputed && !expected.is_conflict && taken.finding.is_none() {
                let (recomputed, registered) = (shown(&recomputed), shown(&bytes));
                let what = format!("register key {key}\n  recomputed {recomputed}\n  registered {registered}");
                taken.finding = Some(what);
            }
        }
        Ok(taken)
    }

    /// A register entry was read or written.
    fn note_registered(&mut self) {
        self.tally.register_entries += 1;
        self.tally.unregistered -= 1;
    }

    /// Counts from here on: what was counted before was of segments that are not there.
    fn begin_tally(&mut self) {
        let unregistered = self.awaiting.values().map(|expected| expected.entries.len() as u64).sum();
        self.tally = ArchiveCounts { unregistered, ..ArchiveCounts::default() };
    }

    /// The last record taken.
    pub(super) fn position(&self) -> u64 {
        self.chronicle.position
    }

    /// What must still be said about the last record; it was interrupted in the middle of it.
    pub(super) fn take_owed(&mut self) -> VecDeque<Closed> {
        std::mem::take(&mut self.owed)
    }
}

/// What a line said.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// What is wrong with the log or the register themselves: the archive holds what they held.
    finding: Option<String>,
    /// A negotiation that ended.
    closed: Option<Closed>,
    /// A negotiation whose register entries were compared, with the record that ended it.
    registered: Option<(u64, NegotiationId)>,
}

fn parse(line: &str) -> Result<Line<'_>, ScanFault> {
    serde_json::from_str(line).map_err(|error| ScanFault::Wrong(format!("it is no line of an archive: {error}")))
}

fn wrong(what: &str) -> ScanFault {
    ScanFault::Wrong(what.to_owned())
}
