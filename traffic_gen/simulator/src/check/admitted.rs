//! What stands in the log against what agents sent and were answered.

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Notification, Outcome};
use schemas::{Act, AgentId, Code, Digest, MsgId, NegotiationId, Position};

use super::{FoldedLog, Logged};
use crate::trace::{Answer, JournalEntry, Noted, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks authenticity and 202s; and, in a flooded run, refusals and ends.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    check_flooded(trace, folded, verdict);
    let sent = sent(trace);
    for (position, logged) in &folded.messages {
        let message = &logged.message;
        let is_own = sent.contains(&(&message.from, &message.negotiation, message.digest));
        let names_itself = message.message().is_ok_and(|decoded| decoded.envelope.sender() == Some(&message.from));
        verdict.check(Invariant::Authentic, is_own && names_itself, || {
            format!("{position} is attributed to {}, who never sent it with its own token", message.from)
        });
    }
    // Who uses an id again for another body may count both as one attempt.
    let mut sent: BTreeSet<(&AgentId, &NegotiationId, &MsgId, u32, Digest)> = BTreeSet::new();
    for (agent, entry) in trace.noted() {
        if let Noted::Sent { negotiation, msg_id, attempt, digest, .. } = &entry.kind {
            sent.insert((agent, negotiation, msg_id, *attempt, *digest));
        }
        let Noted::Answered { negotiation, msg_id, attempt, answer: Answer::Accepted { seq, index } } = &entry.kind
        else {
            continue;
        };
        let position = Position { seq: *seq, index: *index };
        let holds = folded.messages.get(&position).is_some_and(|logged| {
            is_of(logged, agent, negotiation, msg_id)
                && sent.contains(&(agent, negotiation, msg_id, *attempt, logged.message.digest))
        });
        verdict.check(Invariant::NoLostAdmission, holds, || {
            format!("{agent}'s {msg_id} in {negotiation} was answered 202 at {position}: it is not there")
        });
    }
}

/// Checks a run in which one agent calls for more than can be done: how what was taken in ends, and what is refused.
fn check_flooded(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let Some(flooder) = &trace.flooded_by else { return };
    for caused in folded.deliveries.values() {
        if let Notification::Closed(closing) = &*caused.deliver.told {
            verdict.check(Invariant::EndsByPolicy, closing.outcome == Outcome::Completed, || {
                format!("{} was taken in and ended {:?}", caused.deliver.negotiation, closing.outcome)
            });
        }
    }
    let (mut acts, mut taken_in) = (BTreeMap::new(), BTreeSet::new());
    for (agent, entry) in trace.noted() {
        if let Noted::Sent { msg_id, act, .. } = &entry.kind {
            acts.insert((agent, msg_id), *act);
        }
        let Noted::Answered { negotiation, msg_id, answer, .. } = &entry.kind else { continue };
        if matches!(answer, Answer::Accepted { .. }) {
            taken_in.insert((agent, msg_id));
        } else if *answer == Answer::Refused(Code::Overloaded) {
            let act = acts.get(&(agent, msg_id));
            let may_be = act == Some(&Act::Cfp) && agent == flooder && !taken_in.contains(&(agent, msg_id));
            verdict.check(Invariant::ShedsOpenings, may_be, || {
                format!("{agent}'s {msg_id}, {act:?} in {negotiation}, was refused: overloaded")
            });
        }
    }
}

fn is_of(logged: &Logged, agent: &AgentId, negotiation: &NegotiationId, msg_id: &MsgId) -> bool {
    logged.message.from == *agent
        && logged.message.negotiation == *negotiation
        && logged.msg_id.as_ref() == Some(msg_id)
}

/// Everything agents sent under their own name with their own token.
fn sent<'a>(trace: &'a Trace) -> BTreeSet<(&'a AgentId, &'a NegotiationId, Digest)> {
    let own = |(agent, entry): (&'a AgentId, &'a JournalEntry)| {
        let Noted::Sent { negotiation, digest, token_of, .. } = &entry.kind else { return None };
        (token_of == agent).then_some((agent, negotiation, *digest))
    };
    trace.noted().filter_map(own).collect()
}
