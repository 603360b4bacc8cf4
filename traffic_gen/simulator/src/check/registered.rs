//! The register, and what engines announced of their state, against the fold.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use schemas::digest::canonical;
use schemas::{AwardNo, Lot, NegotiationId, RegisterKey};

use super::FoldedLog;
use crate::trace::{ExpiredEntry, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks the register and the digests.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    check_values(trace, folded, verdict);
    check_expired(trace, folded, verdict);
    check_order(trace, verdict);
    for announced in &trace.digests {
        let computed = folded.digests.get(&(announced.lane, announced.position)).map(ToString::to_string);
        verdict.check(Invariant::Recomputable, computed.as_ref() == Some(&announced.digest), || {
            format!(
                "{} announced {} for lane {} at {}, the log gives {}",
                announced.engine,
                announced.digest,
                announced.lane,
                announced.position,
                computed.unwrap_or_else(|| "no such record".to_owned())
            )
        });
    }
}

/// Every entry is what the log leads to; at rest, everything the log leads to is an entry.
fn check_values(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let mut unexplained: BTreeMap<&RegisterKey, &Bytes> = BTreeMap::new();
    for (key, value) in &trace.register {
        let before = unexplained.insert(key, value);
        // Once an entry was removed, an engine that had stood still may write it again. What it says must be the same, unless
        // what stood there was nobody's of the exchange.
        let is_same = before == Some(value) || trace.foreign.contains(key);
        let is_again = || is_same && trace.expired.iter().any(|expired| expired.key == *key);
        verdict.check(Invariant::OneAward, before.is_none() || is_again(), || format!("{key} was written twice"));
    }
    for (seq, write) in &folded.writes {
        let registered = unexplained.remove(&write.key);
        if folded.refused.contains(&write.key) {
            check_refused(trace, folded, &write.key, registered.is_some(), verdict);
            continue;
        }
        let computed = canonical(&write.value).unwrap_or_default();
        let holds = registered.map_or(!trace.is_liveness, |registered| *registered == computed);
        verdict.check(Invariant::Recomputable, holds, || {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let registered = registered.map_or("nothing".to_owned(), |bytes| text(bytes));
            format!("record {seq} leads to {} = {}, registered is {registered}", write.key, text(&computed))
        });
    }
    for key in unexplained.keys().filter(|key| !trace.foreign.contains(**key)) {
        verdict.check(Invariant::Recomputable, false, || format!("nothing in the log leads to {key}"));
    }
}

/// Entries go only once their negotiation has ended, and what led to them and they themselves are in the archive and behind
/// the checkpoint.
fn check_expired(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    for ExpiredEntry { key, archived, checkpoint } in &trace.expired {
        let ended_by = folded.histories.get(key.negotiation()).and_then(|history| history.ended_by);
        let is_covered = ended_by.is_some_and(|ended| ended <= *archived && ended <= *checkpoint);
        verdict.check(Invariant::Recomputable, is_covered, || {
            format!("{key} was removed; its negotiation ended by {ended_by:?}, archived is {archived}, checkpoint {checkpoint}")
        });
    }
}

/// An entry that another history has written stops the negotiation, and nothing of ours follows it in the register.
fn check_refused(trace: &Trace, folded: &FoldedLog, key: &RegisterKey, is_there: bool, verdict: &mut Verdict) {
    verdict.check(Invariant::OneAward, !is_there || trace.foreign.contains(key), || {
        format!("{key} was written behind an entry of another history")
    });
    let is_stopped = folded.conflicted.contains(key.negotiation());
    verdict.check(Invariant::OneAward, is_stopped || !trace.is_liveness, || {
        format!("the register refuses {key}, and its negotiation was not stopped")
    });
}

/// No lot is awarded again before the end of its last award is registered; no award ends before it is registered.
fn check_order(trace: &Trace, verdict: &mut Verdict) {
    let mut unended: BTreeMap<(&NegotiationId, Lot), AwardNo> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (key, _) in trace.register.iter().filter(|(key, _)| seen.insert(key)) {
        match key {
            RegisterKey::Award(negotiation, lot, award_no) => {
                let before = unended.insert((negotiation, *lot), *award_no);
                verdict.check(Invariant::OneAward, before.is_none(), || {
                    format!("{key} was registered before the end of award {before:?}")
                });
            }
            RegisterKey::AwardEnd(negotiation, lot, award_no) => {
                let ended = unended.remove(&(negotiation, *lot));
                verdict.check(Invariant::OneAward, ended == Some(*award_no), || {
                    format!("{key} was registered while award {ended:?} stood")
                });
            }
            RegisterKey::Closed(_) => {}
        }
    }
}
