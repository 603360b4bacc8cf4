//! Every accepted offer: its contractor's own, in time, within the gates, unexpired when it was chosen, and standing.

use std::collections::BTreeMap;

use policy_core::{Cause, Decision};
use policy_reference::scoring;
use schemas::delivery::{Award, Disposition, Notification};
use schemas::ids::FamilyPlace;
use schemas::payload::Offer;
use schemas::team::AssignedTask;
use schemas::{Act, AgentId, AwardNo, Digest, MsgId, NegotiationId, OfferId, Payload, Position, Timestamp};

use super::{Collection, FoldedLog, Logged, NegotiationHistory};
use crate::trace::Trace;
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks every decision of the log, and every ACCEPT that was received.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let applied = applied(folded);
    for decision in &folded.decisions {
        for award in &decision.awards {
            let fault = if decision.cause == Cause::Direct {
                direct_fault(folded, &applied, decision)
            } else {
                fault(folded, &applied, decision, award.offer_id)
            };
            verdict.check(Invariant::NoLateWinner, fault.is_none(), || {
                format!("{} in {} {}", award.offer_id, decision.negotiation, fault.unwrap_or_default())
            });
        }
    }
    let mut named: BTreeMap<(&NegotiationId, AwardNo), (&AgentId, OfferId)> = BTreeMap::new();
    for (agent, delivery) in trace.received() {
        let negotiation = &delivery.envelope.negotiation;
        let Notification::Accept(award) = &delivery.payload else { continue };
        if folded.is_bargain(negotiation) {
            continue;
        }
        let first = named.insert((negotiation, award.award_no), (agent, award.offer_id));
        let is_one = first.is_none_or(|first| first == (agent, award.offer_id));
        verdict.check(Invariant::OneAward, is_one, || {
            format!("award {} of {negotiation} went to {agent} and {first:?}", award.award_no)
        });
        let is_own = match assignment_at(folded, award.offer_id.0, negotiation) {
            Some((_, task)) => task.owner.is_none_or(|owner| owner == *agent) && award.terms.is_empty(),
            None => offer_at(folded, award.offer_id)
                .is_some_and(|(logged, offer)| logged.message.from == *agent && is_accepted_as_sent(award, &offer)),
        };
        verdict.check(Invariant::NoLateWinner, is_own, || format!("{agent} never offered {award:?}"));
    }
}

/// Messages that were applied, by their dispositions: where each contractor's offers and withdrawals stand.
type Applied<'a> = BTreeMap<(&'a NegotiationId, &'a AgentId), Vec<(Position, Act)>>;

fn applied(folded: &FoldedLog) -> Applied<'_> {
    let mut positions: BTreeMap<(&NegotiationId, &AgentId, &MsgId), (Position, Act)> = BTreeMap::new();
    for (position, logged) in &folded.messages {
        if let Some(msg_id) = &logged.msg_id {
            let key = (&logged.message.negotiation, &logged.message.from, msg_id);
            positions.entry(key).or_insert((*position, logged.message.act));
        }
    }
    let mut applied: Applied<'_> = BTreeMap::new();
    for caused in folded.deliveries.values() {
        let deliver = &caused.deliver;
        for receipt in deliver.receipts_told().filter(|receipt| receipt.disposition == Disposition::Ok) {
            if let Some(found) = positions.get(&(&deliver.negotiation, &deliver.to, &receipt.ack_of)) {
                applied.entry((&deliver.negotiation, &deliver.to)).or_default().push(*found);
            }
        }
    }
    applied
}

/// What is wrong with an award, if anything.
fn fault(folded: &FoldedLog, applied: &Applied<'_>, decision: &Decision, offer_id: OfferId) -> Option<String> {
    let Some((logged, offer)) = offer_at(folded, offer_id) else { return Some("is no offer".to_owned()) };
    let message = &logged.message;
    if message.negotiation != decision.negotiation {
        return Some(format!("was made in {}", message.negotiation));
    }
    let Some(history) = folded.history(&decision.negotiation) else { return Some("was never called for".to_owned()) };
    let said = applied.get(&(&message.negotiation, &message.from)).map_or(&[][..], Vec::as_slice);
    if !said.contains(&(offer_id.0, Act::Offer)) {
        return Some("was not applied".to_owned());
    }
    let later = said.iter().find(|(position, act)| {
        let is_between = offer_id.0 < *position && order(*position) < order(decision.position);
        is_between && matches!(act, Act::Offer | Act::Withdraw)
    });
    if let Some((position, act)) = later {
        return Some(format!("was followed by {act:?} at {position}"));
    }
    time_fault(history, offer_id.0, logged, &offer, decision).or_else(|| gate_fault(history, logged, &offer))
}

/// What is wrong with the award of a task to the one member that was named for it, or that alone can do it, if anything.
fn direct_fault(folded: &FoldedLog, applied: &Applied<'_>, decision: &Decision) -> Option<String> {
    let Some((logged, task)) = assignment_at(folded, decision.position, &decision.negotiation) else {
        return Some("was never assigned".to_owned());
    };
    let message = &logged.message;
    let said = applied.get(&(&message.negotiation, &message.from)).map_or(&[][..], Vec::as_slice);
    if !said.contains(&(decision.position, Act::Assign)) {
        return Some("is of an assignment that was not applied".to_owned());
    }
    let to: Vec<&AgentId> = decision.offers.iter().map(|offer| &offer.contractor).collect();
    let is_named = match (&task.owner, to.as_slice()) {
        (Some(owner), [one]) => owner == *one,
        (None, [one]) => **one != message.from,
        (_, _) => false,
    };
    (!is_named).then(|| format!("went to {to:?}, assigned to {:?}", task.owner))
}

/// The assignment that stands at a place in the log, and its task under this id.
fn assignment_at<'a>(
    folded: &'a FoldedLog,
    position: Position,
    negotiation: &NegotiationId,
) -> Option<(&'a Logged, AssignedTask)> {
    let FamilyPlace::Task(number) = negotiation.place() else { return None };
    let logged = folded.messages.get(&position).filter(|logged| logged.message.act == Act::Assign)?;
    let is_of_team = negotiation.parent().as_ref() == Some(&logged.message.negotiation);
    let Payload::Assign(assign) = logged.message.message().ok().filter(|_| is_of_team)?.payload else { return None };
    let receipts = folded.deliveries.values().flat_map(|caused| {
        let is_to_sender = caused.deliver.to == logged.message.from;
        caused.deliver.receipts_told().filter(move |_| is_to_sender)
    });
    let mut opened = receipts.filter(|receipt| Some(&receipt.ack_of) == logged.msg_id.as_ref());
    let numbers = opened.find(|receipt| receipt.tasks.contains(&number))?.tasks.clone();
    let index = numbers.iter().position(|opened| *opened == number)?;
    assign.tasks.into_iter().nth(index).map(|task| (logged, task))
}

/// Timers fire before the entries of their record, though their positions count down from the greatest index.
fn order(position: Position) -> (u64, u32) {
    let is_timer = position.index > u32::MAX / 2;
    (position.seq, if is_timer { 0 } else { position.index + 1 })
}

fn time_fault(
    history: &NegotiationHistory,
    position: Position,
    logged: &Logged,
    offer: &Offer,
    decision: &Decision,
) -> Option<String> {
    // A record may close one round and open the next: its offers count for either.
    let is_within = |collection: &Collection| (collection.from_seq..=collection.to_seq).contains(&position.seq);
    let rounds = (1..).zip(&history.collections).filter(|(_, collection)| is_within(collection));
    let Some(reply_by) = rounds.filter_map(|(round, _)| history.reply_by.get(&round).copied()).max() else {
        return Some("came while nothing was collected".to_owned());
    };
    if logged.time > reply_by {
        return Some(format!("came at {:?}, after {reply_by:?}", logged.time));
    }
    let valid_until = valid_until(logged, offer);
    (valid_until < decision.at).then(|| format!("was valid until {valid_until:?}, decided at {:?}", decision.at))
}

fn gate_fault(history: &NegotiationHistory, logged: &Logged, offer: &Offer) -> Option<String> {
    let Some(policy) = &history.policy else { return Some("has no policy".to_owned()) };
    let valid_until = valid_until(logged, offer);
    let (currency, documents) = (history.currency.as_deref(), history.documents.as_ref());
    let failed = scoring::gate_failed(policy, currency, offer, documents, valid_until, logged.time);
    failed.map(|gate| format!("fails {gate}"))
}

fn valid_until(logged: &Logged, offer: &Offer) -> Timestamp {
    match (offer.valid_for_ms, offer.valid_until) {
        (Some(ms), _) => logged.time.plus_ms(ms),
        (None, Some(until)) => until.0,
        (None, None) => Timestamp::MAX,
    }
}

fn offer_at(folded: &FoldedLog, offer_id: OfferId) -> Option<(&Logged, Offer)> {
    let logged = folded.messages.get(&offer_id.0)?;
    let Payload::Offer(offer) = logged.message.message().ok()?.payload else { return None };
    Some((logged, offer))
}

fn is_accepted_as_sent(award: &Award, offer: &Offer) -> bool {
    award.terms == offer.terms && Digest::of(&offer.terms).ok() == Some(award.terms_digest)
}
