//! What initiators say: calls, choices, cancellations.

use std::collections::BTreeMap;

use schemas::delivery::{Delivery, ProgressReport};
use schemas::payload::{Accept, Cfp, Reasoned};
use schemas::{NegotiationId, OfferId, Payload};

use super::bargainer::SimulatedParty;
use super::english_auction::answer_standing;
use super::member::SimulatedMember;
use super::{AgentContext, Draft, panelist};
use crate::faults::AgentFault;
use crate::points::Point;
use crate::{BargainPlan, CallPlan, PanelPlan, TeamPlan};

/// Teams with levels for sub-teams of sub-teams that are called off whatever else happens, in per mille.
const NESTED_CANCELLED: u32 = 150;

pub(super) fn plan_calls(context: &mut AgentContext, calls: &[CallPlan]) {
    for call in calls {
        let cfp = Cfp {
            task: Some("carry a parcel".to_owned()),
            policy: Some(call.policy.clone()),
            reply_within_ms: call.reply_within_ms,
            documents: call.documents.clone(),
            ..Cfp::default()
        };
        let (to, invites_absent) = (call.to.clone(), call.invites_absent);
        let draft = Draft { to, invites_absent, ..Draft::new(&call.negotiation, Payload::Cfp(cfp)) };
        if context.errs(AgentFault::SpeakUnasked) {
            // The same negotiation, called a second time in another message.
            let again_ms = call.at_ms + context.draw(0..500);
            context.say(again_ms, draft.clone());
        }
        context.say(call.at_ms, draft);
        if context.errs(AgentFault::Cancel) {
            cancel(context, &call.negotiation, call.at_ms, 2500);
        }
    }
}

/// Plans calls to bargains, in which the initiator is a party from the beginning.
pub(super) fn plan_bargains(
    context: &mut AgentContext,
    plans: &[BargainPlan],
) -> BTreeMap<NegotiationId, SimulatedParty> {
    let mut parties = BTreeMap::new();
    for plan in plans {
        let party = SimulatedParty::new(context, &plan.rules);
        let cfp = Cfp {
            task: Some("a price for a parcel".to_owned()),
            reply_within_ms: Some(plan.join_within_ms),
            mandate: party.mandate(),
            bargain: Some(Box::new(plan.rules.clone())),
            ..Cfp::default()
        };
        parties.insert(plan.negotiation.clone(), party);
        context.say(plan.at_ms, Draft { to: plan.to.clone(), ..Draft::new(&plan.negotiation, Payload::Cfp(cfp)) });
        if context.errs(AgentFault::Cancel) {
            cancel(context, &plan.negotiation, plan.at_ms, 2500);
        }
    }
    parties
}

/// Plans calls to teams, which the initiator leads.
pub(super) fn plan_teams(context: &mut AgentContext, plans: &[TeamPlan]) -> BTreeMap<NegotiationId, SimulatedMember> {
    let mut members = BTreeMap::new();
    for plan in plans {
        let cfp = Cfp {
            task: Some("carry all parcels of a town".to_owned()),
            policy: plan.policy.clone(),
            reply_within_ms: Some(plan.join_within_ms),
            team: Some(Box::new(plan.spec.clone())),
            ..Cfp::default()
        };
        members.insert(plan.negotiation.clone(), SimulatedMember::leading(plan.spec.rules.depth));
        context.say(plan.at_ms, Draft { to: plan.to.clone(), ..Draft::new(&plan.negotiation, Payload::Cfp(cfp)) });
        let is_nested = plan.spec.rules.depth > 1;
        if context.errs(AgentFault::Cancel) || (is_nested && context.happens(NESTED_CANCELLED)) {
            cancel(context, &plan.negotiation, plan.at_ms, 5000);
        }
    }
    members
}

/// Plans calls to panels, in which the initiator has no seat.
pub(super) fn plan_panels(context: &mut AgentContext, plans: &[PanelPlan]) {
    for plan in plans {
        let cfp = Cfp {
            task: Some("how many parcels?".to_owned()),
            reply_within_ms: plan.within_ms,
            panel: Some(Box::new(plan.rules.clone())),
            ..Cfp::default()
        };
        context.say(plan.at_ms, Draft { to: plan.to.clone(), ..Draft::new(&plan.negotiation, Payload::Cfp(cfp)) });
        if context.errs(AgentFault::Cancel) {
            cancel(context, &plan.negotiation, plan.at_ms, 2500);
        }
    }
}

/// Plans to call off what is called at a time, so long behind it at most.
pub(super) fn cancel(context: &mut AgentContext, negotiation: &NegotiationId, at_ms: u64, within_ms: u64) {
    let after_ms = at_ms + context.draw(0..within_ms);
    context.say(after_ms, Draft::new(negotiation, Payload::Cancel(Reasoned::default())));
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
