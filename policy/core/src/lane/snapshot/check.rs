//! What the fold relies on between the fields of a negotiation, and a snapshot might not keep.

use schemas::bargain::PARTIES_MAX;

use crate::alternating_offers::mandate;
use crate::alternating_offers::space::check_rules;
use crate::alternating_offers::state::{Bargain, BargainParty, Sealed, StandingOffer};
use crate::lane::table::TableEntry;
use crate::negotiation::Negotiation;
use crate::negotiation::phase::Phase;
use crate::negotiation::tombstone::Tombstone;

/// What is wrong with a entry.
pub(super) fn check(entry: &TableEntry) -> Result<(), &'static str> {
    match entry {
        TableEntry::Open(Negotiation::ContractNet(negotiation), _) => negotiation.check(),
        TableEntry::Open(Negotiation::Bargain(bargain), _) => check_bargain(bargain),
        TableEntry::Ended(tombstone) => check_ended(tombstone),
    }
}

fn check_bargain(bargain: &Bargain) -> Result<(), &'static str> {
    let parties = &bargain.parties;
    let phases = [Phase::Joining, Phase::Bargaining, Phase::Confirming];
    ensure(phases.contains(&bargain.phase) && bargain.header.outcome.is_none(), "an open bargain has ended")?;
    ensure((2..=PARTIES_MAX).contains(&parties.len()), "a bargain has too few parties, or too many")?;
    let invited = parties.get(1..).unwrap_or_default();
    ensure(invited.is_sorted_by(|one, next| one.party.agent < next.party.agent), "parties are not in their order")?;
    let space = check_rules(&bargain.rules).map_err(|_| "the rules of a bargain contradict themselves")?;
    let fits = |party: &BargainParty| {
        party.pledge.as_ref().is_none_or(|Sealed(pledge)| mandate::check(&pledge.mandate, space).is_ok())
    };
    ensure(parties.iter().all(fits), "a mandate does not fit its bargain")?;
    let is_standing = |standing: &StandingOffer| {
        let is_party = |index: &usize| *index < parties.len();
        is_party(&standing.by) && standing.accepted.iter().all(is_party) && space.contains(&standing.terms).is_ok()
    };
    ensure(bargain.standing.as_deref().is_none_or(is_standing), "a standing offer is nobody's, or no outcome")?;
    ensure(bargain.phase != Phase::Confirming || bargain.standing.is_some(), "nothing was agreed on")
}

fn check_ended(tombstone: &Tombstone) -> Result<(), &'static str> {
    let contractors = tombstone.parties.get(1..).unwrap_or_default();
    ensure(!tombstone.parties.is_empty(), "an ended negotiation had no initiator")?;
    ensure(contractors.is_sorted_by(|one, next| one.agent < next.agent), "contractors are not in their order")
}

fn ensure(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
