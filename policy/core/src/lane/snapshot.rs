//! The state of a lane as bytes, and back: what a checkpoint holds so that a restart need not read the whole log.
//!
//! Equal states give equal bytes: everything is written in an order of its own (negotiations by key, wins by position),
//! never in the order of a table in memory, and timers, sums and counts are computed again, not stored.
//!
//! ```text
//! magic 8 | format 4 | length 8 | rules 4 | lane 1 | digest of the limits 32 | state ... | SHA-256 of all before, 32
//! ```
//!
//! The state is in parts, each written by postcard as its types derive it: [`LaneProgress`], the last wins, the policies
//! that negotiations run under (each document once), every [`ReadEntry`] in the order of the keys, the expired ids, and the evidence if
//! there is any. A list is its length and its items. What a format that does not describe itself cannot hold, documents with enums that are tagged
//! or untagged, stands as JSON inside of it ([`schemas::text::json`]).
//!
//! Fields and variants stand in the order of their declaration: to move one changes the format. Nothing that is read is
//! trusted: no length reserves more than there are bytes, and `check` of each negotiation says what must hold between its
//! fields.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use schemas::ids::Position;
use schemas::{AgentId, AwardNo, Digest, Lane};
use serde::{Deserialize, Serialize};

use super::shared::Names;
use super::table::{Key, NegotiationTable};
use super::{Causes, LaneContext, LaneProgress, LaneState};
use crate::acceptance::tie_break::Winners;
use crate::limits::Limits;
use crate::negotiation::protocols::{ReadEntry, TableEntry};
use crate::panel::evidence::{EvidenceLedger, HeldEvidence};
use crate::policy::PinnedPolicy;

/// The format this build writes, and the only one it reads.
///
/// Raised, once a format is released, with every change of what is stored. A build must then go on reading the format before
/// its own, because the log below a checkpoint may have been trimmed: `golden/` holds a snapshot of the format.
pub const SNAPSHOT_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"llmxlane";
/// Bytes before the state.
const HEADER_LEN: usize = 8 + 4 + 8 + 4 + 1 + 32;
/// Bytes after it: the checksum.
const CHECKSUM_LEN: usize = 32;
/// An open negotiation or a tombstone takes at least this many bytes: its id and the head of its chain. Bounds what is
/// reserved for a count that is read.
const ENTRY_LEN_MIN: usize = 35;

/// Why a snapshot is refused. Where the log still has every record, the state can be rebuilt from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Does not begin as a snapshot does.
    #[error("these bytes are no snapshot of a lane")]
    NotASnapshot,
    /// Written by a build with another format.
    #[error(
        "the snapshot has format {found}, this build reads {known}: run the build that wrote it, or rebuild from the log"
    )]
    Format {
        /// Format found.
        found: u32,
        /// The format known.
        known: u32,
    },
    /// Shorter or longer than it says.
    #[error("the snapshot has {found} bytes and should have {expected}: it was cut short, or something was appended")]
    Length {
        /// Bytes it should have.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// Its checksum is not that of its contents.
    #[error("the snapshot was altered: its checksum is not that of its contents")]
    Altered,
    /// Of another lane.
    #[error("the snapshot is of lane {found}, not of lane {wanted}")]
    OtherLane {
        /// Lane found.
        found: Lane,
        /// Lane wanted.
        wanted: Lane,
    },
    /// Made under other limits: what was refused for a limit then would not be now, or the reverse.
    #[error("the snapshot was made under other limits than these: all engines of a lane must run the same")]
    OtherLimits,
    /// The checksum holds, the contents make no state: a fault of the build that wrote it.
    #[error("the snapshot makes no state: at byte {offset}, {fault}")]
    Malformed {
        /// Where the part begins that is at fault.
        offset: usize,
        /// What is wrong.
        fault: String,
    },
}

impl LaneState {
    /// The whole state as bytes: equal states give equal bytes, whatever way they were reached.
    ///
    /// Drain the effects first: they are not part of the state. Takes time and memory in proportion to what is held.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        debug_assert!(self.context.effects.is_empty(), "effects are drained before a snapshot is taken");
        let mut out = Writer(header(self));
        self.write_state(&mut out);
        let mut bytes = out.0;
        let length = u64::try_from(bytes.len() + CHECKSUM_LEN).unwrap_or(u64::MAX);
        bytes[12..20].copy_from_slice(&length.to_be_bytes());
        let checksum = Digest::of_bytes(&bytes);
        bytes.extend_from_slice(&checksum.0);
        bytes
    }

    /// The state a snapshot was taken of: same digest, and the same effects from the same further records.
    ///
    /// It keeps no links, even if that one did ([`LaneState::keep_links`]).
    ///
    /// A snapshot under a rules version this build does not know is restored as well: ask [`LaneState::rules`], as after every
    /// record.
    ///
    /// # Errors
    /// [`SnapshotError`]; nothing is restored then, and the state has to be rebuilt from the log.
    pub fn restore(bytes: &[u8], lane: Lane, limits: Limits) -> Result<Self, SnapshotError> {
        let (header, state) = open(bytes)?;
        if header.lane != lane {
            return Err(SnapshotError::OtherLane { found: header.lane, wanted: lane });
        }
        if header.limits != digest_of(&limits) {
            return Err(SnapshotError::OtherLimits);
        }
        read_state(&mut Reader { rest: state, end: HEADER_LEN + state.len() }, &header, limits)
    }

    /// Digest of the whole state: the hash of its snapshot. Tells apart what [`LaneState::digest`] does not until it shows in
    /// a decision, at the price of a snapshot.
    #[must_use]
    pub fn state_digest_full(&self) -> Digest {
        Digest::of_bytes(&self.snapshot())
    }

    fn write_state(&self, out: &mut Writer) {
        let Self { table, context } = self;
        let LaneContext {
            lane: _,
            limits: _,
            rules: _,
            progress,
            names: _,
            winners,
            ledger,
            effects: _,
            causes: _,
            links: _,
        } = context;
        out.put(progress);
        out.list(winners.len(), winners.wins());
        let policies = table.policies.in_use();
        out.list(policies.len(), policies.map(|policy| policy.document()));
        let entries = table.entries_in_order();
        out.list(entries.len(), entries.into_iter().map(TableEntry::stored));
        let expired = table.expired.keys();
        out.list(expired.len(), expired.map(Key::to_bytes));
        if !ledger.is_empty() {
            let entries = ledger.stored();
            out.list(entries.len(), entries);
            out.put(&ledger.additions());
        }
    }
}

/// The entry, once it is known to hold what the fold relies on.
fn restored(entry: ReadEntry, policies: &PoliciesByDigest, names: &mut Names) -> Result<TableEntry, &'static str> {
    let mut entry = entry.under(|digest| policies.get(&digest).cloned())?;
    match &mut entry {
        TableEntry::Open(open) => {
            open.check()?;
            open.share_names(|agent| names.share(agent));
        }
        TableEntry::Ended(tombstone) => {
            tombstone.check()?;
            tombstone.parties.iter_mut().for_each(|party| party.agent = names.share(&party.agent));
        }
    }
    Ok(entry)
}

type PoliciesByDigest = BTreeMap<Digest, Arc<PinnedPolicy>>;

struct SnapshotHeader {
    rules: u32,
    lane: Lane,
    limits: Digest,
}

fn header(lane_state: &LaneState) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&SNAPSHOT_FORMAT.to_be_bytes());
    // The length, once it is known.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&lane_state.context.rules.to_be_bytes());
    bytes.push(lane_state.context.lane.0);
    bytes.extend_from_slice(&digest_of(&lane_state.context.limits).0);
    bytes
}

/// Takes a snapshot apart, and makes sure that it is whole.
fn open(bytes: &[u8]) -> Result<(SnapshotHeader, &[u8]), SnapshotError> {
    let mut rest = bytes;
    let magic = bytes.get(..MAGIC.len()).unwrap_or(bytes);
    if magic.is_empty() || !MAGIC.starts_with(magic) {
        return Err(SnapshotError::NotASnapshot);
    }
    let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let cut_short =
        || SnapshotError::Length { expected: u64::try_from(HEADER_LEN + CHECKSUM_LEN).unwrap_or(u64::MAX), found };
    take::<8>(&mut rest).ok_or_else(cut_short)?;
    let format = u32::from_be_bytes(take(&mut rest).ok_or_else(cut_short)?);
    if format != SNAPSHOT_FORMAT {
        return Err(SnapshotError::Format { found: format, known: SNAPSHOT_FORMAT });
    }
    let expected = u64::from_be_bytes(take(&mut rest).ok_or_else(cut_short)?);
    if expected != found {
        return Err(SnapshotError::Length { expected, found });
    }
    let rules = u32::from_be_bytes(take(&mut rest).ok_or_else(cut_short)?);
    let [lane] = take(&mut rest).ok_or_else(cut_short)?;
    let limits = Digest(take(&mut rest).ok_or_else(cut_short)?);
    let (state, checksum) = rest.split_last_chunk::<CHECKSUM_LEN>().ok_or_else(cut_short)?;
    if Digest::of_bytes(&bytes[..bytes.len() - CHECKSUM_LEN]).0 != *checksum {
        return Err(SnapshotError::Altered);
    }
    Ok((SnapshotHeader { rules, lane: Lane(lane), limits }, state))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

fn read_state(input: &mut Reader<'_>, header: &SnapshotHeader, limits: Limits) -> Result<LaneState, SnapshotError> {
    let progress: LaneProgress = input.take()?;
    let mut names = Names::new(limits.names_shared_max);
    let winners = read_winners(input, &mut names, limits.winners_max)?;
    let table = read_table(input, &mut names, &limits)?;
    let ledger = read_ledger(input)?;
    if !input.rest.is_empty() {
        return Err(input.fault("bytes are left over"));
    }
    let context = LaneContext {
        lane: header.lane,
        limits,
        rules: header.rules,
        progress,
        names,
        winners,
        ledger,
        effects: VecDeque::new(),
        causes: Causes::default(),
        links: None,
    };
    Ok(LaneState { table, context })
}

fn read_winners(input: &mut Reader<'_>, names: &mut Names, max: usize) -> Result<Winners, SnapshotError> {
    let mut winners = Winners::default();
    for _ in 0..input.count()? {
        let (agent, position, award_no): (AgentId, Position, AwardNo) = input.take()?;
        winners.note(&names.share(&agent), position, award_no, max);
    }
    Ok(winners)
}

fn read_policies(input: &mut Reader<'_>) -> Result<PoliciesByDigest, SnapshotError> {
    let mut policies = PoliciesByDigest::new();
    for _ in 0..input.count()? {
        let policy = PinnedPolicy::of_document(input.take()?);
        let policy = policy.ok_or_else(|| input.fault("a policy cannot be read, or contradicts itself"))?;
        policies.insert(policy.digest, policy);
    }
    Ok(policies)
}

fn read_table(input: &mut Reader<'_>, names: &mut Names, limits: &Limits) -> Result<NegotiationTable, SnapshotError> {
    let policies = read_policies(input)?;
    let count = input.count()?;
    let mut table = NegotiationTable::with_capacity(limits.clone(), count.min(input.rest.len() / ENTRY_LEN_MIN));
    let mut last = None;
    for _ in 0..count {
        let stored: ReadEntry = input.take()?;
        let entry = restored(stored, &policies, names).map_err(|what| input.fault(what))?;
        let key = entry.key();
        if last.replace(key) >= Some(key) {
            return Err(input.fault("negotiations are not in their order"));
        }
        table.put(key, entry);
    }
    for _ in 0..input.count()? {
        table.expired.add(Key::from_bytes(input.take()?));
    }
    Ok(table)
}

/// Evidence stands behind everything else, where there is any: an empty list is not written.
fn read_ledger(input: &mut Reader<'_>) -> Result<EvidenceLedger, SnapshotError> {
    if input.rest.first().is_none_or(|count| *count == 0) {
        return Ok(EvidenceLedger::default());
    }
    let mut stored: Vec<HeldEvidence> = Vec::new();
    for _ in 0..input.count()? {
        stored.push(input.take()?);
    }
    let additions = input.take()?;
    EvidenceLedger::restored(additions, stored).map_err(|what| input.fault(what))
}

/// The bytes written so far.
struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, part: &impl Serialize) {
        let written = postcard::to_extend(part, std::mem::take(&mut self.0));
        self.0 = written.expect("lists of the state know their length, and its documents are integers and texts");
    }

    fn list(&mut self, length: usize, items: impl Iterator<Item: Serialize>) {
        self.put(&length);
        items.for_each(|item| self.put(&item));
    }
}

/// The bytes not read yet, and where in the snapshot they end.
struct Reader<'a> {
    rest: &'a [u8],
    end: usize,
}

impl<'a> Reader<'a> {
    fn take<T: Deserialize<'a>>(&mut self) -> Result<T, SnapshotError> {
        let (part, rest) = postcard::take_from_bytes(self.rest).map_err(|error| self.fault(error))?;
        self.rest = rest;
        Ok(part)
    }

    /// The length of a list: no item takes less than a byte.
    fn count(&mut self) -> Result<usize, SnapshotError> {
        let count = self.take()?;
        if count <= self.rest.len() { Ok(count) } else { Err(self.fault("a length exceeds the state")) }
    }

    fn fault(&self, fault: impl ToString) -> SnapshotError {
        SnapshotError::Malformed { offset: self.end - self.rest.len(), fault: fault.to_string() }
    }
}

/// Identity of the limits: the fold of a lane depends on each of them.
fn digest_of(limits: &Limits) -> Digest {
    let Limits {
        open_max,
        invited_max,
        messages_per_party_max,
        tombstones_max,
        tombstone_grace_ms,
        stranger_receipt_ms,
        names_shared_max,
        winners_max,
    } = limits;
    let counts = [open_max, invited_max, messages_per_party_max, tombstones_max, names_shared_max, winners_max];
    let counts = counts.map(|count| u64::try_from(*count).unwrap_or(u64::MAX).to_be_bytes());
    let times = [tombstone_grace_ms, stranger_receipt_ms].map(|ms| ms.to_be_bytes());
    Digest::of_parts(&[counts.as_flattened(), times.as_flattened()])
}
