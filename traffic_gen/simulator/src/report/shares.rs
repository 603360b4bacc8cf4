//! What part of the work of a run each protocol has: how many of the deliveries that agents received were of its negotiations.

use std::collections::BTreeMap;

use policy_core::Protocol;
use schemas::NegotiationId;
use schemas::delivery::{Delivery, Notification, ProgressReport};
use schemas::ids::FamilyPlace;

use crate::trace::Trace;

/// Deliveries that agents received, repeated ones too, by the names of protocols. Tasks and sub-teams are of their team.
pub(super) fn deliveries_by_protocol(trace: &Trace) -> BTreeMap<&'static str, u64> {
    let mut protocols: BTreeMap<&NegotiationId, Protocol> = BTreeMap::new();
    for (_, delivery) in trace.received() {
        if let Some(protocol) = shown(delivery) {
            protocols.insert(&delivery.envelope.negotiation, protocol);
        }
    }
    let mut shares = BTreeMap::new();
    for (_, delivery) in trace.received() {
        let negotiation = &delivery.envelope.negotiation;
        let protocol = match negotiation.place() {
            FamilyPlace::Root => protocols.get(negotiation).copied().unwrap_or(Protocol::ContractNet),
            FamilyPlace::Task(_) | FamilyPlace::SubTeam { .. } => Protocol::Team,
        };
        *shares.entry(protocol.as_str()).or_default() += 1;
    }
    shares
}

/// The protocol that a delivery shows its negotiation to be of, where it is another than the contract net.
fn shown(delivery: &Delivery) -> Option<Protocol> {
    let told = &delivery.payload;
    if matches!(told, Notification::Turn(_)) || matches!(told, Notification::Cfp(call) if call.bargain.is_some()) {
        Some(Protocol::AlternatingOffers)
    } else if matches!(told, Notification::Floor(_)) || matches!(told, Notification::Cfp(call) if call.team.is_some()) {
        Some(Protocol::Team)
    } else if matches!(told, Notification::Cfp(call) if call.auction.is_some()) {
        Some(Protocol::EnglishAuction)
    } else {
        let is_of_panel = matches!(told, Notification::Ask(_) | Notification::Inform(ProgressReport::Finding(_)));
        is_of_panel.then_some(Protocol::Panel)
    }
}
