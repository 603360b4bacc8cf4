//! What part of the work of a run each protocol has: how many of the deliveries that agents received were of its negotiations.

use std::collections::BTreeMap;

use policy_core::Protocol;
use schemas::NegotiationId;
use schemas::delivery::{Delivery, Notification, ProgressReport};
use schemas::ids::FamilyPlace;

use crate::trace::{Noted, Trace};

/// Deliveries that agents received, repeated ones too, by the names of protocols. Tasks and sub-teams are of their team.
pub(super) fn deliveries_by_protocol(trace: &Trace) -> BTreeMap<&'static str, u64> {
    let mut protocols: BTreeMap<&NegotiationId, Protocol> = BTreeMap::new();
    for delivery in received(trace) {
        if let Some(protocol) = shown(delivery) {
            protocols.insert(&delivery.envelope.negotiation, protocol);
        }
    }
    let mut shares = BTreeMap::new();
    for delivery in received(trace) {
        let negotiation = &delivery.envelope.negotiation;
        let protocol = match negotiation.place() {
            FamilyPlace::Root => protocols.get(negotiation).copied().unwrap_or(Protocol::ContractNet),
            FamilyPlace::Task(_) | FamilyPlace::SubTeam { .. } => Protocol::Team,
        };
        *shares.entry(protocol.as_str()).or_default() += 1;
    }
    shares
}

fn received(trace: &Trace) -> impl Iterator<Item = &Delivery> {
    trace.journals.values().flatten().filter_map(|entry| match &entry.kind {
        Noted::Received { delivery, .. } => Some(&**delivery),
        Noted::Connected
        | Noted::Sent { .. }
        | Noted::Answered { .. }
        | Noted::Acknowledged { .. }
        | Noted::Unreadable { .. }
        | Noted::Notice { .. } => None,
    })
}

/// The protocol that a delivery shows its negotiation to be of, where it is another than the contract net.
fn shown(delivery: &Delivery) -> Option<Protocol> {
    match &delivery.payload {
        Notification::Cfp(call) if call.bargain.is_some() => Some(Protocol::AlternatingOffers),
        Notification::Cfp(call) if call.team.is_some() => Some(Protocol::Team),
        Notification::Turn(_) => Some(Protocol::AlternatingOffers),
        Notification::Floor(_) => Some(Protocol::Team),
        Notification::Ask(_) | Notification::Inform(ProgressReport::Finding(_)) => Some(Protocol::Panel),
        Notification::Cfp(_)
        | Notification::Accept(_)
        | Notification::Inform(_)
        | Notification::Reject(_)
        | Notification::Cancel(_)
        | Notification::Failure(_)
        | Notification::NotUnderstood(_)
        | Notification::Closed(_)
        | Notification::Ack(_) => None,
    }
}
