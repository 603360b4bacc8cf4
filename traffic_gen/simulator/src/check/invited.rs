//! Whom calls invited, against what had arrived at their gateways.

use crate::trace::{Invited, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks every call that was logged to a topic or group.
pub(super) fn check(trace: &Trace, verdict: &mut Verdict) {
    for Invited { seq, negotiation, found, must, must_not } in &trace.invited {
        let missing: Vec<_> = must.difference(found).collect();
        let surplus: Vec<_> = must_not.intersection(found).collect();
        verdict.check(Invariant::Invited, missing.is_empty() && surplus.is_empty(), || {
            format!("record {seq}: {negotiation} left out {missing:?}, and invited {surplus:?}")
        });
    }
}
