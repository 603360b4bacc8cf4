//! Runs in which one agent calls for more than can be done: what is taken in, and what is refused.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Notification, Outcome};
use schemas::{Act, Code};
use traffic_gen::invariants::{Invariant, Verdict};

use super::FoldedLog;
use crate::trace::{Answer, Noted, Trace};

pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let Some(flooder) = &trace.flooded_by else { return };
    for caused in folded.deliveries.values() {
        if let Notification::Closed(closing) = &*caused.deliver.told {
            verdict.check(Invariant::EndsByPolicy, closing.outcome == Outcome::Completed, || {
                format!("{} was taken in and ended {:?}", caused.deliver.negotiation, closing.outcome)
            });
        }
    }
    for (agent, journal) in &trace.journals {
        let (mut acts, mut taken_in) = (BTreeMap::new(), BTreeSet::new());
        for entry in journal {
            match &entry.kind {
                Noted::Sent { msg_id, act, .. } => drop(acts.insert(msg_id, *act)),
                Noted::Answered { msg_id, answer: Answer::Accepted { .. }, .. } => drop(taken_in.insert(msg_id)),
                Noted::Answered { negotiation, msg_id, answer: Answer::Refused(Code::Overloaded), .. } => {
                    let is_opening = acts.get(msg_id) == Some(&Act::Cfp);
                    let may_be = is_opening && agent == flooder && !taken_in.contains(msg_id);
                    verdict.check(Invariant::ShedsOpenings, may_be, || {
                        let act = acts.get(msg_id);
                        format!("{agent}'s {msg_id}, {act:?} in {negotiation}, was refused: overloaded")
                    });
                }
                Noted::Answered { .. }
                | Noted::Connected
                | Noted::Received { .. }
                | Noted::Acknowledged { .. }
                | Noted::Unreadable { .. }
                | Noted::Notice { .. } => {}
            }
        }
    }
}
