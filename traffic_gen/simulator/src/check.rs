//! Judges a run by what it leaves behind: the log, the register, and what agents sent, were told and received.
//!
//! Three independent witnesses are set against each other. The log is folded anew, by a fresh lane state and by the naive
//! reference, which must agree at every record. The register, the digests that engines announced and every delivery that
//! an agent received must be what that fold says. And the agents' journals must hold by themselves, whatever any fold
//! says.
//!
//! | invariant | how it is checked |
//! |---|---|
//! | one_award | in the log (no second award of a lot while one lives), in the register (no next award before the end of the one before; no ACCEPT and no `committed` received before it is registered), in inboxes (an award number names one contractor) |
//! | no_lost_admission | what was answered 202 stands in the log at that place; every logged message has one disposition; at rest each was received or given up in the log; nothing counts as acknowledged that its agent did not acknowledge |
//! | recomputable | fold = reference after every record; register = replay, byte for byte; announced digests = fold's; every delivery received = fold's; every view = the fold's at a moment between question and answer; a lane state restored in the middle ends in the same state |
//! | idempotent | a delivery id has one content; a message is applied at most once |
//! | no_late_winner | an accepted offer is the contractor's own, in time, within the gates, unexpired, not withdrawn or replaced |
//! | final_notice | at most one per accepted offer at any time, exactly one at rest and in every ended negotiation of the log |
//! | absorbing | after the end only answers; everybody is told the same outcome |
//! | terminates | no negotiation is open after its hard deadline in log time; at rest nothing is open and its initiator was told |
//! | sealed | before the close nobody receives what another's terms change; nobody reads another contractor's name, in views neither; nothing of a mandate is told, published or registered |
//! | turn_order | every standing that is told follows from strict rotation; nobody accepts its own offer; the agreement is the offer that stood last, the same for everybody, registered before it is told, within every mandate |
//! | authentic | every logged message was sent, byte for byte, by its sender with its own token |
//! | invited | a logged call to a topic or group invites whoever had been heard by its gateway within the lease, is durable or was asked for; and nobody else |
//! | bounded | queues within their limits; records within theirs |
//!
//! Panics are no invariant's; [`report`](super::report) counts each as a violation of its own.
//!
//! A safety run ends amid faults, so only what must hold at any time is asked of it.

mod admitted;
mod awarded;
mod folded;
mod in_lane;
mod mandated;
mod sealed;
mod settled;
mod told;
mod viewed;
mod watched;

#[cfg(test)]
mod tests;

use super::trace::{Invited, Trace};
use folded::FoldedLog;
use traffic_gen::invariants::{Invariant, Verdict};

/// Judges a run.
#[must_use]
pub fn check(trace: &Trace) -> Verdict {
    let mut verdict = Verdict::default();
    let folded = FoldedLog::of(trace, &mut verdict);
    admitted::check(trace, &folded, &mut verdict);
    settled::check(trace, &folded, &mut verdict);
    told::check(trace, &folded, &mut verdict);
    awarded::check(trace, &folded, &mut verdict);
    sealed::check(trace, &folded, &mut verdict);
    mandated::check(trace, &folded, &mut verdict);
    check_invited(trace, &mut verdict);
    viewed::check(trace, &folded, &mut verdict);
    watched::check(trace, &folded, &mut verdict);
    for (what, load) in &trace.loads {
        let limit = load.limit + if load.is_asked_between_records { folded.deliveries_per_record_max() } else { 0 };
        verdict.check(Invariant::Bounded, load.seen_max <= limit, || {
            format!("{what} held {}, at most {limit} are allowed", load.seen_max)
        });
    }
    for what in &trace.unfinished {
        verdict.check(Invariant::Terminates, false, || what.clone());
    }
    verdict
}

/// Checks of every call that was logged to a topic or group whom it invited, against what had arrived at its gateway.
fn check_invited(trace: &Trace, verdict: &mut Verdict) {
    for Invited { seq, negotiation, found, must, must_not } in &trace.invited {
        let missing: Vec<_> = must.difference(found).collect();
        let surplus: Vec<_> = must_not.intersection(found).collect();
        verdict.check(Invariant::Invited, missing.is_empty() && surplus.is_empty(), || {
            format!("record {seq}: {negotiation} left out {missing:?}, and invited {surplus:?}")
        });
    }
}
