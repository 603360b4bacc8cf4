//! Whom calls invited, against what had arrived at their gateways.

use std::collections::{BTreeMap, BTreeSet};

use schemas::record::{Entry, Record};
use schemas::{AgentId, NegotiationId};

use crate::invariants::{Invariant, Verdict};
use crate::simulator::trace::Trace;

/// Checks every call that was logged to a topic or group.
pub(super) fn check(trace: &Trace, verdict: &mut Verdict) {
    let pinned = pinned(trace);
    for invited in &trace.invited {
        let Some(found) = pinned.get(&(invited.seq, &invited.negotiation)) else { continue };
        let missing: Vec<_> = invited.must.difference(found).collect();
        let surplus: Vec<_> = invited.must_not.intersection(found).collect();
        verdict.check(Invariant::Invited, missing.is_empty() && surplus.is_empty(), || {
            format!("record {}: {} left out {missing:?}, and invited {surplus:?}", invited.seq, invited.negotiation)
        });
    }
}

/// Whom each logged call invited.
fn pinned(trace: &Trace) -> BTreeMap<(u64, &NegotiationId), BTreeSet<AgentId>> {
    let mut pinned = BTreeMap::new();
    let wanted: BTreeMap<u64, Vec<&NegotiationId>> =
        trace.invited.iter().fold(BTreeMap::new(), |mut by_seq, invited| {
            by_seq.entry(invited.seq).or_insert_with(Vec::new).push(&invited.negotiation);
            by_seq
        });
    for record in trace.records.iter().filter(|record| wanted.contains_key(&record.seq)) {
        let Ok(decoded) = Record::decode(&record.bytes) else { continue };
        for entry in decoded.entries {
            if let Entry::Message(message) = entry
                && let Some(invitations) = &message.pinned
                && let Some(negotiation) = wanted[&record.seq].iter().find(|wanted| ***wanted == message.negotiation)
            {
                let agents = invitations.invited.iter().map(|invitation| invitation.agent.clone()).collect();
                pinned.insert((record.seq, *negotiation), agents);
            }
        }
    }
    pinned
}
