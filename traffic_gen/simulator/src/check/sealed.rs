//! Before the close nothing leaves that depends on another contractor's offer.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use policy_core::{Deliver, Effect, Event};
use schemas::delivery::{Notification, RejectReason};
use schemas::record::AdmittedMessage;
use schemas::{Act, AgentId, NegotiationId, Position};
use serde_json::json;

use super::altered::{AlteredLog, altered, drawn};
use super::{Caused, FoldedLog, NegotiationHistory};
use crate::trace::{Noted, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks what was received, and folds the log once more with another price in one offer.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    for (agent, entry) in trace.noted() {
        if let Noted::Received { delivery, is_repeat: false, id, .. } = &entry.kind
            && let Some(Caused { seq, .. }) = folded.deliveries.get(id)
            && let Some(history) = folded.history(&delivery.envelope.negotiation)
            && history.is_collecting(*seq)
            && !history.is_auction
        {
            check_told(agent, &delivery.envelope.negotiation, &delivery.payload, history, verdict);
        }
    }
    check_changed(trace, folded, verdict);
}

/// While offers are collected, everybody hears of its own deeds and of the call only.
fn check_told(
    agent: &AgentId,
    negotiation: &NegotiationId,
    told: &Notification,
    history: &NegotiationHistory,
    verdict: &mut Verdict,
) {
    let is_own_business = if let Notification::Reject(rejection) = told {
        use RejectReason::{Expired, Late, Policy, Replaced, Withdrawn};
        matches!(rejection.reason, Late | Replaced | Expired | Policy | Withdrawn)
    } else {
        matches!(told, Notification::Ack(_) | Notification::NotUnderstood(_) | Notification::Cancel(_))
            || matches!(told, Notification::Cfp(_)) && history.contractors.contains(agent)
    };
    verdict.check(Invariant::Sealed, is_own_business, || {
        format!("{agent} was told {told:?} while offers were collected in {negotiation}")
    });
    let text = told.encode().unwrap_or_default();
    let others = history.contractors.iter().filter(|contractor| *contractor != agent);
    let named = others.map(|other| format!("\"{other}\"")).find(|name| text.contains(name.as_str()));
    verdict.check(Invariant::Sealed, named.is_none(), || format!("{agent} was told of {named:?}: {text}"));
}

/// With another price in one offer, everybody else in the negotiation is told the same until one of the logs closes.
fn check_changed(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let Some((position, changed)) = changed_offer(trace, folded) else { return };
    let negotiation = &changed.negotiation;
    let Some(history) = folded.history(negotiation) else { return };
    let replaced = BTreeMap::from([(position, changed.clone())]);
    AlteredLog { trace, negotiation, replaced }.fold(|altered| {
        if altered.seq < position.seq {
            return ControlFlow::Continue(());
        }
        if !history.is_collecting(altered.seq)
            || altered.effects.iter().any(|effect| closes(effect, negotiation))
            || altered.fails()
        {
            return ControlFlow::Break(());
        }
        let is_others = |deliver: &&Deliver| deliver.to != changed.from;
        let mut one: Vec<String> = altered.told(negotiation).filter(is_others).map(wording).collect();
        let mut other: Vec<String> = folded.told(altered.seq, negotiation).filter(is_others).map(wording).collect();
        one.sort();
        other.sort();
        verdict.check(Invariant::Sealed, one == other, || {
            format!(
                "record {}: another price at {position} changes what is told to others: {other:?}, {one:?}",
                altered.seq
            )
        });
        ControlFlow::Continue(())
    });
}

/// One applied offer of the log, drawn by the seed, with another price.
fn changed_offer(trace: &Trace, folded: &FoldedLog) -> Option<(Position, AdmittedMessage)> {
    let is_within = |position: &Position, message: &AdmittedMessage| {
        let history = folded.history(&message.negotiation);
        history.is_some_and(|history| history.is_collecting(position.seq) && !history.is_auction)
    };
    let offers: Vec<_> = folded
        .messages
        .iter()
        .filter(|(position, logged)| logged.message.act == Act::Offer && is_within(position, &logged.message))
        .collect();
    let (position, logged) = drawn(trace.seed, offers)?;
    let changed = altered(&logged.message, |payload| {
        let price = payload.get_mut("terms")?.get_mut("price")?;
        *price = json!(price.as_i64()? + if trace.seed.is_multiple_of(2) { 1 } else { -1 });
        Some(())
    });
    Some((*position, changed?))
}

/// What is told, but for the delivery id: it is a hash of a position.
fn wording(deliver: &Deliver) -> String {
    format!("{} {:?} {:?} {:?} {:?}", deliver.to, deliver.told, deliver.in_reply_to, deliver.at, deliver.after)
}

fn closes(effect: &Effect, of: &NegotiationId) -> bool {
    match effect {
        Effect::Event(Event::Closed { negotiation, .. } | Event::Ended { negotiation, .. }) => negotiation == of,
        Effect::Event(_) | Effect::Deliver(_) | Effect::Register(_) | Effect::Notice(_) => false,
    }
}
