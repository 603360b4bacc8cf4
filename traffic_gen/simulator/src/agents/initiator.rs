//! What initiators say: calls, choices, cancellations.

use std::collections::BTreeMap;

use schemas::delivery::{Delivery, ProgressReport};
use schemas::payload::{Accept, Reasoned};
use schemas::{NegotiationId, OfferId, Payload};

use super::bargainer::SimulatedParty;
use super::english_auction::answer_standing;
use super::member::SimulatedMember;
use super::{AgentContext, Draft, panelist};
use crate::CallPlan;
use crate::faults::AgentFault;
use crate::points::Point;

/// Teams with levels for sub-teams of sub-teams that are called off whatever else happens, in per mille.
const NESTED_CANCELLED: u32 = 150;

/// Plans calls. Gives the initiator's parts in bargains, where it is a party from the beginning, and in teams, which it leads; of
/// panels it has no seat.
pub(super) fn plan_calls(
    context: &mut AgentContext,
    calls: &[CallPlan],
) -> (BTreeMap<NegotiationId, SimulatedParty>, BTreeMap<NegotiationId, SimulatedMember>) {
    let (mut parties, mut members) = (BTreeMap::new(), BTreeMap::new());
    for call in calls {
        let mut cfp = call.cfp.clone();
        let (mut is_nested, mut cancelled_within_ms) = (false, 2500);
        if let Some(rules) = &cfp.bargain {
            let party = SimulatedParty::new(context, rules);
            cfp.mandate = party.mandate();
            parties.insert(call.negotiation.clone(), party);
        }
        if let Some(team) = &cfp.team {
            members.insert(call.negotiation.clone(), SimulatedMember::leading(team.rules.depth));
            (is_nested, cancelled_within_ms) = (team.rules.depth > 1, 5000);
        }
        if cfp.auction.is_some() {
            cancelled_within_ms = 1500;
        }
        let (to, invites_absent) = (call.to.clone(), call.invites_absent);
        let draft = Draft { to, invites_absent, ..Draft::new(&call.negotiation, Payload::Cfp(cfp)) };
        if call.is_of_net() && context.errs(AgentFault::SpeakUnasked) {
            // The same negotiation, called a second time in another message.
            let again_ms = call.at_ms + context.draw(0..500);
            context.say(again_ms, draft.clone());
        }
        context.say(call.at_ms, draft);
        if context.errs(AgentFault::Cancel) || (is_nested && context.happens(NESTED_CANCELLED)) {
            let after_ms = call.at_ms + context.draw(0..cancelled_within_ms);
            context.say(after_ms, Draft::new(&call.negotiation, Payload::Cancel(Reasoned::default())));
        }
    }
    (parties, members)
}

pub(super) fn answer_progress(context: &mut AgentContext, delivery: &Delivery, report: &ProgressReport) {
    if let ProgressReport::Bid(standing) = report {
        return answer_standing(context, delivery, standing);
    }
    if let ProgressReport::Finding(finding) = report {
        return panelist::note_finding(context, finding);
    }
    let ProgressReport::Offers(offers) = report else { return };
    if offers.offers.is_empty() {
        return;
    }
    let window_ms = (offers.decide_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
    let after_ms = context.draw(0..window_ms.min(300));
    let index = context.index(offers.offers.len());
    let mut offer_id = offers.offers[index].offer_id;
    if context.errs(AgentFault::ChooseBadly) {
        if context.happens(500) {
            return;
        }
        offer_id = OfferId(schemas::Position { seq: offer_id.0.seq + 1, ..offer_id.0 });
    }
    context.reached(Point::InitiatorChose);
    let accept = Payload::Accept(Accept { offer_id, terms_digest: None });
    context.say(after_ms, Draft::new(&delivery.envelope.negotiation, accept));
}
