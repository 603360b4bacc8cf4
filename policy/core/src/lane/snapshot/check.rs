//! What the fold relies on between the fields of a negotiation, and a snapshot might not keep.

use crate::lane::table::TableEntry;
use crate::negotiation::Negotiation;
use crate::negotiation::tombstone::Tombstone;

/// What is wrong with a entry.
pub(super) fn check(entry: &TableEntry) -> Result<(), &'static str> {
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
