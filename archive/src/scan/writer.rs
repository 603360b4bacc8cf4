//! One lane of an archive being written: lines are collected, and stored with one sync.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;

use bus::LogRecord;
use bytes::Bytes;
use schemas::{Digest, NegotiationId};

use super::prune::prune;
use super::{ArchiveCounts, Scan, ScanFault, cursor_cache};
use crate::chain::frame;
use crate::segment_store::{MEMO, Media};
use crate::{Closed, Expected, Line, LoggedLine, RegisteredEntry, RegisteredLine, SegmentEnd, as_content, text};

/// Bytes of one segment that are not stored yet.
#[derive(Debug)]
struct Chunk {
    segment: u64,
    at: u64,
    bytes: Vec<u8>,
}

/// Writes one lane.
pub(crate) struct LaneWriter<M> {
    media: M,
    walk: Scan,
    /// The segment written to.
    segment: u64,
    /// Its bytes, those not stored yet included.
    len: u64,
    segment_bytes_max: u64,
    /// In order; each is stored before the next.
    pending: VecDeque<Chunk>,
    /// The last record that is stored.
    stored: u64,
    /// The state when the present segment began, until that is stored.
    memo: Option<Vec<u8>>,
    /// Whether a segment was stored since the oldest ones were looked at.
    is_prune_due: bool,
}

impl<M: Media> LaneWriter<M> {
    /// Goes on where `walk` ended: in `segment`, which then has `len` bytes. Nothing counts as stored before the first
    /// [`LaneWriter::commit`]: what was read may lack what is said about its last record.
    pub(super) fn new(media: M, walk: Scan, segment: u64, len: u64, segment_bytes_max: u64) -> Self {
        Self {
            media,
            walk,
            segment,
            len,
            segment_bytes_max,
            pending: VecDeque::new(),
            stored: 0,
            memo: None,
            is_prune_due: true,
        }
    }

    /// What was said so far, stored or not.
    pub(crate) fn counts(&self) -> ArchiveCounts {
        self.walk.tally
    }

    /// Closed negotiations without a `registered` line, by the record that ended them; and up to which record the log says
    /// that the register is answered.
    pub(crate) fn awaiting(&self) -> (&BTreeMap<(u64, NegotiationId), Expected>, u64) {
        (&self.walk.awaiting, self.walk.answered)
    }

    /// Digest of the last record taken.
    pub(crate) fn last(&self) -> Digest {
        self.walk.chronicle.last
    }

    /// The last record taken, stored or not.
    pub(crate) fn position(&self) -> u64 {
        self.walk.position()
    }

    /// The last record that is stored, with everything that is said about it.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// Bytes not stored yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.iter().map(|chunk| chunk.bytes.len()).sum()
    }

    /// Where it writes, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.media.path(self.segment)
    }

    /// Begins the segment that `from` names.
    pub(super) fn begin(&mut self, from: u64) {
        (self.segment, self.len) = (from, 0);
        let begin = Line::Begin(self.walk.begin(from));
        self.walk.handle_begin();
        self.push(&begin);
    }

    /// Takes a record; one that stands there already is left out.
    ///
    /// # Errors
    /// A later version wrote it. Nothing more may be written then.
    pub(crate) fn handle_record(&mut self, found: &LogRecord) -> Result<(), ScanFault> {
        if found.seq <= self.position() {
            return Ok(());
        }
        // A reader that began in the middle of the lane cannot know how late it was before.
        let time = found.time.max(self.walk.chronicle.time);
        if self.len >= self.segment_bytes_max && self.walk.records_in_segment > 0 {
            self.memo = Some(cursor_cache::encode(&self.walk, found.seq));
            self.begin(found.seq);
        }
        let (closed, _) = self.walk.fold(found.seq, time, &found.bytes)?;
        let (record, base64) = as_content(&found.bytes);
        self.push(&Line::Record(LoggedLine { seq: found.seq, time, record, base64 }));
        self.say_closed(&closed);
        Ok(())
    }

    /// Says what a record ended.
    pub(super) fn say_closed<'a>(&mut self, closed: impl IntoIterator<Item = &'a Closed>) {
        for closed in closed {
            let document = serde_json::value::to_raw_value(closed);
            self.push(&Line::Closed(&document.expect("integers, texts and digests can all be written")));
        }
    }

    /// Says what the register held for a closed negotiation, key by key.
    pub(crate) fn handle_registered(&mut self, id: &(u64, NegotiationId), values: &[Option<Bytes>]) {
        let Some(expected) = self.walk.awaiting.remove(id) else { return };
        let entries = expected.entries.iter().zip(values).map(|(entry, value)| {
            let (value, base64) = value.as_deref().map(as_content).unwrap_or_default();
            RegisteredEntry { key: entry.key.clone(), value, base64 }
        });
        let entries = entries.collect();
        let line = Line::Registered(RegisteredLine { negotiation: id.1.clone(), seq: id.0, entries });
        self.push(&line);
        values.iter().flatten().for_each(|_| self.walk.note_registered());
        report_conflicts(id, &expected, values);
    }

    /// Says that it stops here, unless nothing was said since it last did.
    pub(crate) fn end(&mut self) {
        if !self.walk.is_ended {
            self.push(&Line::End(SegmentEnd { position: self.position() }));
            self.walk.is_ended = true;
        }
    }

    fn push(&mut self, line: &Line<'_>) {
        self.walk.is_ended = false;
        let framed = frame(&text(line), &mut self.walk.chain);
        let at = self.len;
        self.len += framed.len() as u64;
        match self.pending.back_mut() {
            Some(chunk) if chunk.segment == self.segment => chunk.bytes.extend_from_slice(framed.as_bytes()),
            Some(_) | None => {
                self.pending.push_back(Chunk { segment: self.segment, at, bytes: framed.into_bytes() });
            }
        }
    }

    /// Stores what is pending.
    ///
    /// # Errors
    /// The disk's: what is pending stays pending, and is stored as a whole the next time.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        while let Some(chunk) = self.pending.front() {
            self.media.store(chunk.segment, chunk.at, &chunk.bytes)?;
            self.pending.pop_front();
        }
        self.stored = self.position();
        if let Some(memo) = self.memo.take() {
            self.is_prune_due = true;
            if let Err(error) = self.media.keep(MEMO, &memo) {
                // Going on will take longer; nothing else depends on it.
                tracing::warn!(%error, "the state of a lane's archive could not be kept");
            }
        }
        Ok(())
    }

    /// Removes the oldest segments, when a new one was stored, while the lane takes more than `keep_bytes`.
    pub(crate) fn prune(&mut self, keep_bytes: u64) {
        if !std::mem::take(&mut self.is_prune_due) {
            return;
        }
        let lane = (self.walk.lane, self.walk.lanes);
        if let Err(error) = prune(&mut self.media, lane, keep_bytes, self.segment_bytes_max) {
            // Tried again with the next segment: what is kept is whole, and larger than it should be.
            tracing::warn!(lane = lane.0.0, %error, "the oldest segments of the archive could not be removed");
        }
    }
}

/// The register is the second wall: a value the log does not lead to is worth waking someone.
fn report_conflicts(id: &(u64, NegotiationId), expected: &Expected, values: &[Option<Bytes>]) {
    for (entry, value) in expected.entries.iter().zip(values) {
        if value.as_ref().is_some_and(|value| **value != *entry.canonical()) && !expected.is_conflict {
            let key = &entry.key;
            tracing::error!(key, negotiation = %id.1, record = id.0, "the register holds another value than the log leads to");
        }
    }
}
