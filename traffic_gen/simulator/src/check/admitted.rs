//! What stands in the log against what agents sent and were answered.

use std::collections::BTreeSet;

use schemas::{AgentId, Digest, MsgId, NegotiationId, Position};

use super::{FoldedLog, Logged};
use crate::trace::{Answer, Noted, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks authenticity and 202s.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let sent = sent(trace);
    for (position, logged) in &folded.messages {
        let message = &logged.message;
        let is_own = sent.contains(&(&message.from, &message.negotiation, message.digest));
        let names_itself = message.message().is_ok_and(|decoded| decoded.envelope.sender() == Some(&message.from));
        verdict.check(Invariant::Authentic, is_own && names_itself, || {
            format!("{position} is attributed to {}, who never sent it with its own token", message.from)
        });
    }
    for (agent, journal) in &trace.journals {
        // Who uses an id again for another body may count both as one attempt.
        let mut sent: BTreeSet<(&NegotiationId, &MsgId, u32, Digest)> = BTreeSet::new();
        for entry in journal {
            match &entry.kind {
                Noted::Sent { negotiation, msg_id, attempt, digest, .. } => {
                    sent.insert((negotiation, msg_id, *attempt, *digest));
                }
                Noted::Answered { negotiation, msg_id, attempt, answer: Answer::Accepted { seq, index } } => {
                    let position = Position { seq: *seq, index: *index };
                    let holds = folded.messages.get(&position).is_some_and(|logged| {
                        is_of(logged, agent, negotiation, msg_id)
                            && sent.contains(&(negotiation, msg_id, *attempt, logged.message.digest))
                    });
                    verdict.check(Invariant::NoLostAdmission, holds, || {
                        format!("{agent}'s {msg_id} in {negotiation} was answered 202 at {position}: it is not there")
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

fn is_of(logged: &Logged, agent: &AgentId, negotiation: &NegotiationId, msg_id: &MsgId) -> bool {
    logged.message.from == *agent
        && logged.message.negotiation == *negotiation
        && logged.msg_id.as_ref() == Some(msg_id)
}

/// Everything agents sent under their own name with their own token.
fn sent(trace: &Trace) -> BTreeSet<(&AgentId, &NegotiationId, Digest)> {
    let mut sent = BTreeSet::new();
    for (agent, journal) in &trace.journals {
        for entry in journal {
            if let Noted::Sent { negotiation, digest, token_of, .. } = &entry.kind
                && token_of == agent
            {
                sent.insert((agent, negotiation, *digest));
            }
        }
    }
    sent
}
