//! The state of a lane as bytes, and back: what a checkpoint holds so that a restart need not read the whole log.
//!
//! Equal states give equal bytes: everything is written in an order of its own (negotiations by key, wins by position),
//! never in the order of a table in memory, and timers, sums and counts are computed again, not stored.
//!
//! ```text
//! magic 8 | format 4 | length 8 | rules 4 | lane 1 | digest of the limits 32 | state ... | SHA-256 of all before, 32
//! ```
//!
//! Why not serde: the reader carries a context (names, message ids and policies are stored once and shared again), and
//! members of a policy that may be absent have no compact form. `codec.rs` and `primitive.rs` hold the few shapes there
//! are, `shared.rs` what is stored once, `bargains.rs` what is stored as a document; `parts.rs` and `variants.rs` list every field of the state, `check.rs` says what
//! must hold between them.

mod bargains;
pub(crate) mod codec;
mod parts;
mod primitive;
mod shared;
#[cfg(test)]
mod tests;
mod variants;

use std::collections::VecDeque;
use std::sync::Arc;

use schemas::{Digest, Lane, Timestamp};

use self::codec::{Fault, Reader, Stored, Writer};
pub(crate) use self::parts::fields;
use super::shared::Names;
use super::table::{Key, NegotiationTable, TableEntry};
use super::{Causes, LaneContext, LaneState};
use crate::limits::Limits;
use crate::negotiation::Negotiation;
use crate::negotiation::context::Winners;
use crate::negotiation::tombstone::Tombstone;

/// The format this build writes, and the only one it reads.
///
/// Raised, once a format is released, with every change of what is stored. A build must then go on reading the format before
/// its own, because the log below a checkpoint may have been trimmed: `golden/` holds a snapshot of the format.
pub const SNAPSHOT_FORMAT: u32 = 1;

const MAGIC: [u8; 8] = *b"llmxbook";
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
        /// Offset of the fault.
        offset: usize,
        /// What is wrong.
        fault: &'static str,
    },
}

impl LaneState {
    /// The whole state as bytes: equal states give equal bytes, whatever way they were reached.
    ///
    /// Drain the effects first: they are not part of the state. Takes time and memory in proportion to what is held.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        debug_assert!(self.context.effects.is_empty(), "effects are drained before a snapshot is taken");
        let mut out = Writer::new(header(self));
        self.write_state(&mut out);
        let mut bytes = out.into_bytes();
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
        read_state(&mut Reader::new(state), &header, limits)
            .map_err(|fault| SnapshotError::Malformed { offset: HEADER_LEN + fault.offset, fault: fault.what })
    }

    /// Digest of the whole state: the hash of its snapshot. Tells apart what [`LaneState::digest`] does not until it shows in
    /// a decision, at the price of a snapshot.
    #[must_use]
    pub fn state_digest_full(&self) -> Digest {
        Digest::of_bytes(&self.snapshot())
    }

    fn write_state(&self, out: &mut Writer) {
        let Self { position, epoch, owner, table, context } = self;
        let LaneContext {
            lane: _,
            limits: _,
            rules: _,
            now,
            inputs,
            names: _,
            winners,
            effects: _,
            causes: _,
            state_hash,
            links: _,
        } = context;
        position.write(out);
        epoch.write(out);
        owner.write(out);
        now.write(out);
        inputs.write(out);
        state_hash.write(out);
        out.length(winners.len());
        for (agent, position, award_no) in winners.wins() {
            agent.write(out);
            (position, award_no).write(out);
        }
        let entries = table.entries_in_order();
        out.length(entries.len());
        for entry in entries {
            entry.write(out);
        }
        let expired = table.expired.keys();
        out.length(expired.len());
        for key in expired {
            key.to_bytes().write(out);
        }
    }
}

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

fn read_state(input: &mut Reader<'_>, header: &SnapshotHeader, limits: Limits) -> Result<LaneState, Fault> {
    let (position, epoch) = (u64::read(input)?, u64::read(input)?);
    let owner: Option<Arc<str>> = Stored::read(input)?;
    let now = Timestamp::read(input)?;
    let (inputs, state_hash) = (u64::read(input)?, u64::read(input)?);
    let winners = read_winners(input, limits.winners_max)?;
    let table = read_table(input, &limits)?;
    input.finish()?;
    let names = Names::of(input.take_agents(), limits.names_shared_max);
    let context = LaneContext {
        lane: header.lane,
        limits,
        rules: header.rules,
        now,
        inputs,
        names,
        winners,
        effects: VecDeque::new(),
        causes: Causes::default(),
        state_hash,
        links: None,
    };
    Ok(LaneState { position, epoch, owner, table, context })
}

fn read_winners(input: &mut Reader<'_>, max: usize) -> Result<Winners, Fault> {
    let mut winners = Winners::default();
    for _ in 0..input.count()? {
        let (agent, (position, award_no)) = Stored::read(input)?;
        winners.note(&agent, position, award_no, max);
    }
    Ok(winners)
}

fn read_table(input: &mut Reader<'_>, limits: &Limits) -> Result<NegotiationTable, Fault> {
    let count = input.count()?;
    let mut table = NegotiationTable::with_capacity(limits.clone(), count.min(input.remaining() / ENTRY_LEN_MIN));
    let mut last = None;
    for _ in 0..count {
        let entry = TableEntry::read(input)?;
        let key = entry.key();
        if last.replace(key) >= Some(key) {
            return Err(input.fault("negotiations are not in their order"));
        }
        check_entry(&entry).map_err(|what| input.fault(what))?;
        table.put(key, entry);
    }
    for _ in 0..input.count()? {
        table.expired.add(Key::from_bytes(Stored::read(input)?));
    }
    Ok(table)
}

/// What the fold relies on between the fields of a negotiation, and a snapshot might not keep.
fn check_entry(entry: &TableEntry) -> Result<(), &'static str> {
    match entry {
        TableEntry::Open(Negotiation::ContractNet(negotiation), _) => negotiation.check(),
        TableEntry::Open(Negotiation::Bargain(bargain), _) => bargain.check(),
        TableEntry::Ended(tombstone) => check_ended(tombstone),
    }
}

fn check_ended(tombstone: &Tombstone) -> Result<(), &'static str> {
    let contractors = tombstone.parties.get(1..).unwrap_or_default();
    ensure(!tombstone.parties.is_empty(), "an ended negotiation had no initiator")?;
    ensure(contractors.is_sorted_by(|one, next| one.agent < next.agent), "contractors are not in their order")
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
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
