//! The verdict of a run, from what its agents saw, what was sent to them, and what stands in log and register.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::Outcome;
use schemas::record::{EngineEvent, Entry};
use schemas::register::{AwardEnd, RegisterValue};
use schemas::{AwardNo, Lot, NegotiationId, OfferId, RegisterKey};
use serde::Serialize;

use super::departures::Departures;
use super::gaps::Claim;
use super::journal::{Notes, Round};
use archive::audit::Ledger;
use traffic_gen::invariants::{Invariant, Verdict};

/// How long behind its hard end a negotiation may end, in milliseconds: what it takes to give a lane another owner.
const OVERTIME_MS: u64 = 2_000;

/// What must hold besides the invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Check {
    /// What agents were told of awards and ends is what the register holds.
    ToldAsRegistered,
    /// No award lapsed before its ACCEPT was first sent.
    NoUnheardLapse,
    /// No team or panel ended more than two seconds, of the log's time, behind the hard end its agents were told.
    EndedInTime,
    /// After every fault decisions went on.
    DecisionsWentOn,
    /// No process ended by itself.
    NoneEndedByItself,
    /// Every process ended when it was asked to.
    EndedWhenAsked,
    /// Engines at the same position of a lane have the same state.
    SameDigests,
}

/// How often each check was made, and how often it failed.
pub type Checks = Verdict<Check>;

/// The register, decoded.
pub type RegisteredValue = BTreeMap<RegisterKey, RegisterValue>;

/// Decodes the register of a ledger. An entry that is none is left out here; replaying the ledger finds it.
pub fn registered(ledger: &Ledger) -> RegisteredValue {
    let entries = ledger.register.iter();
    entries.filter_map(|(key, value)| Some((key.clone(), serde_json::from_slice(value).ok()?))).collect()
}

/// The claims of a ledger, in the order of the log.
pub fn claims(ledger: &Ledger) -> Vec<Claim> {
    let mut claims = Vec::new();
    for logged in &ledger.records {
        for entry in &logged.record.entries {
            if let Entry::Engine { epoch, event: EngineEvent::Claim { engine, .. } } = entry {
                let engine = engine.clone();
                claims.push(Claim { lane: logged.lane, at: logged.time, engine, epoch: *epoch });
            }
        }
    }
    claims
}

/// Invariant "one-award", in the register: no lot has two commitments. The policy of these runs never awards a lot
/// again once it was committed, so the register alone can tell.
pub fn judge_register(register: &RegisteredValue, verdict: &mut Verdict) {
    let mut committed = BTreeMap::<(&NegotiationId, Lot), BTreeSet<AwardNo>>::new();
    for (key, value) in register {
        match (key, value) {
            (RegisterKey::Award(negotiation, lot, _), _) => {
                committed.entry((negotiation, *lot)).or_default();
            }
            (RegisterKey::AwardEnd(negotiation, lot, no), RegisterValue::AwardEnd { end: AwardEnd::Committed, .. }) => {
                committed.entry((negotiation, *lot)).or_default().insert(*no);
            }
            (_, _) => {}
        }
    }
    for ((negotiation, lot), awards) in committed {
        verdict.check(Invariant::OneAward, awards.len() <= 1, || {
            format!("the register has awards {awards:?} of lot {lot} of {negotiation} committed")
        });
    }
}

/// Whether agents were told what the register holds.
pub fn judge_told(notes: &Notes, register: &RegisteredValue, checks: &mut Checks) {
    let mut awards = BTreeMap::<(&NegotiationId, AwardNo), OfferId>::new();
    let mut agreements = BTreeMap::<&NegotiationId, OfferId>::new();
    let mut commitments = BTreeSet::<(&NegotiationId, AwardNo)>::new();
    for (key, value) in register {
        match (key, value) {
            (RegisterKey::Award(negotiation, _, no), RegisterValue::Award { offer_id, .. }) => {
                awards.insert((negotiation, *no), *offer_id);
            }
            (RegisterKey::Award(negotiation, _, _), RegisterValue::Agreement { offer_id, .. }) => {
                agreements.insert(negotiation, *offer_id);
            }
            (RegisterKey::AwardEnd(negotiation, _, no), RegisterValue::AwardEnd { end: AwardEnd::Committed, .. }) => {
                commitments.insert((negotiation, *no));
            }
            (_, _) => {}
        }
    }
    for (negotiation, round) in &notes.rounds {
        let binding = round.awards.iter().filter(|_| !round.is_bargain);
        for (no, heard) in binding {
            let found = awards.get(&(negotiation, *no));
            checks.check(Check::ToldAsRegistered, found == Some(&heard.offer), || {
                format!("award {no} of {negotiation} was told for {}, registered is {found:?}", heard.offer)
            });
        }
        for no in &round.committed {
            checks.check(Check::ToldAsRegistered, commitments.contains(&(negotiation, *no)), || {
                format!("award {no} of {negotiation} was told to be binding; the register does not say so")
            });
        }
        if let Some(agreed) = round.agreed {
            let found = agreements.get(negotiation);
            checks.check(Check::ToldAsRegistered, found == Some(&agreed), || {
                format!("{negotiation} was told to agree on {agreed}, registered is {found:?}")
            });
        }
        judge_end(negotiation, round, register, checks);
    }
}

/// Whether what has a hard end had ended by then. Agents were told both; while nobody owns a lane nothing ends in it, which is shorter.
pub fn judge_ends(notes: &Notes, checks: &mut Checks) {
    for (negotiation, round) in &notes.rounds {
        let (Some(ends_by), Some(ended)) = (round.ends_by, round.ended) else { continue };
        checks.check(Check::EndedInTime, ended <= ends_by.plus_ms(OVERTIME_MS), || {
            format!("{negotiation} was to end by {ends_by:?} and ended at {ended:?}")
        });
    }
}

fn judge_end(negotiation: &NegotiationId, round: &Round, register: &RegisteredValue, checks: &mut Checks) {
    let Some(told) = round.outcome else { return };
    let outcome_of = |value: &RegisterValue| {
        let RegisterValue::Closed { outcome, .. } = value else { return None };
        Some(*outcome)
    };
    let found = register.get(&RegisterKey::Closed(negotiation.clone())).and_then(outcome_of);
    checks.check(Check::ToldAsRegistered, found == Some(told), || {
        format!("{negotiation} was told to end as {told:?}, registered is {found:?}")
    });
}

/// Awards that ran out unconfirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Lapses {
    /// All of them.
    pub lapsed: u64,
    /// Those whose ACCEPT had not been sent by then.
    pub before_accept: u64,
}

/// Counts awards that lapsed, and checks that none did before its ACCEPT was first sent: neither heard by its contractor
/// nor on the bus before the log says it lapsed.
pub fn judge_lapses(notes: &Notes, departures: &Departures, checks: &mut Checks) -> Lapses {
    let mut lapses = Lapses::default();
    for (negotiation, round) in &notes.rounds {
        for (no, award) in &round.awards {
            let lapsed_at = round.lapsed.get(no);
            let departed = departures.get(&(negotiation.clone(), *no)).copied().unwrap_or(award.heard).min(award.heard);
            let is_late = lapsed_at.is_some_and(|&lapsed_at| departed >= lapsed_at);
            lapses.count(lapsed_at.is_some(), is_late);
            checks.check(Check::NoUnheardLapse, !is_late, || {
                format!("award {no} of {negotiation} lapsed at {lapsed_at:?}, its ACCEPT left at {departed:?}")
            });
        }
        for (no, lapsed_at) in round.lapsed.iter().filter(|(no, _)| !round.awards.contains_key(no)) {
            let departed = departures.get(&(negotiation.clone(), *no));
            let is_late = departed.is_none_or(|departed| departed >= lapsed_at);
            lapses.count(true, is_late);
            checks.check(Check::NoUnheardLapse, !is_late, || {
                format!("award {no} of {negotiation} lapsed at {lapsed_at:?}, its ACCEPT left at {departed:?}")
            });
        }
    }
    lapses
}

impl Lapses {
    fn count(&mut self, has_lapsed: bool, is_late: bool) {
        self.lapsed += u64::from(has_lapsed);
        self.before_accept += u64::from(is_late);
    }
}

/// How many rounds came to what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rounds {
    /// Opened.
    pub opened: u64,
    /// Of which some contractor made an offer it stood by.
    pub willing: u64,
    /// Of those: awarded, confirmed, performed.
    pub completed: u64,
    /// Completed / willing.
    pub completion: f64,
}

/// Counts the rounds.
pub fn rounds(notes: &Notes) -> Rounds {
    let mut rounds = Rounds::default();
    for round in notes.rounds.values().filter(|round| round.is_open) {
        rounds.opened += 1;
        if round.has_willing() {
            rounds.willing += 1;
            rounds.completed += u64::from(round.outcome == Some(Outcome::Completed));
        }
    }
    rounds.completion = if rounds.willing == 0 { 0.0 } else { rounds.completed as f64 / rounds.willing as f64 };
    rounds
}

#[cfg(test)]
mod tests;
