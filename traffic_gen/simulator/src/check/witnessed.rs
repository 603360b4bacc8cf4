//! What agents saw, judged by the witness that knows nothing else; and the same of every negotiation the log ends, as if
//! all it leads to had been received.

use super::{Caused, FoldedLog};
use crate::trace::{Answer, Noted, Trace};
use schemas::NegotiationId;
use traffic_gen::invariants::{Verdict, Witness};

/// Feeds both witnesses.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let witness = of_agents(trace, folded);
    verdict.absorb(if trace.is_liveness { witness.finish() } else { witness.finish_early() });
    verdict.absorb(of_the_log(folded).finish());
}

fn of_agents(trace: &Trace, folded: &FoldedLog) -> Witness {
    let mut witness = Witness::default().told_of_failures();
    for (agent, entry) in trace.noted() {
        if let Noted::Sent { negotiation, act, document, .. } = &entry.kind {
            witness.sent(agent, negotiation, *act, document);
        }
        if let Noted::Answered { negotiation, msg_id, answer: Answer::Accepted { .. }, .. } = &entry.kind {
            witness.accepted(agent, msg_id, negotiation);
        }
    }
    trace.received().for_each(|(agent, delivery)| witness.received(agent, delivery));
    ask(&mut witness, folded);
    for id in &folded.given_up {
        if let Some(Caused { deliver, .. }) = folded.deliveries.get(id) {
            witness.unreached(&deliver.to, &deliver.negotiation);
        }
    }
    witness
}

/// Only negotiations that have ended, and whatever is above them in their family: the others are in the middle of things.
fn of_the_log(folded: &FoldedLog) -> Witness {
    let mut witness = Witness::default().told_of_failures();
    let is_over = |negotiation: &NegotiationId| folded.history(negotiation).is_some_and(|it| it.ended_by.is_some());
    let has_ended = |negotiation: &NegotiationId| {
        std::iter::successors(Some(negotiation.clone()), NegotiationId::parent).all(|above| is_over(&above))
    };
    for logged in folded.messages.values().filter(|logged| has_ended(&logged.message.negotiation)) {
        let message = &logged.message;
        witness.sent(&message.from, &message.negotiation, message.act, message.body.get().as_bytes());
        if let Some(msg_id) = &logged.msg_id {
            witness.accepted(&message.from, msg_id, &message.negotiation);
        }
    }
    ask(&mut witness, folded);
    for caused in folded.deliveries.values() {
        if has_ended(&caused.deliver.negotiation) {
            witness.received(&caused.deliver.to, &caused.delivery());
        }
    }
    witness
}

/// The messages of those whose registration asks for every receipt.
fn ask(witness: &mut Witness, folded: &FoldedLog) {
    for logged in folded.messages.values().filter(|logged| logged.message.receipts_all) {
        if let Some(msg_id) = &logged.msg_id {
            witness.asked(&logged.message.from, msg_id, &logged.message.negotiation);
        }
    }
}
