//! What contractors say: offers, confirmations, results, and everything they should not.

use std::collections::BTreeMap;

use schemas::delivery::{Award, Call, Cancellation, Closing, Delivery, Disposition, Outcome, Receipt, RejectReason};
use schemas::document::{RoutineKind, RoutineReport};
use schemas::ids::FamilyPlace;
use schemas::payload::{AttrValue, Confirm, FailurePhase, Inform, InformKind, Offer, Reasoned, Terms};
use schemas::{AwardNo, DocumentHash, NegotiationId, Payload};

use super::member::{SimulatedMember, nesting};
use super::{AgentContext, Draft, Job, NO_OFFER, failure};
use crate::faults::AgentFault;
use crate::points::Point;
use crate::scenario::{attr_name, foreign_document, known_documents};

/// Reports under a document that no award pins, ahead of the one that is right, in per mille.
const REPORTS_FOREIGN: u32 = 150;

pub(super) fn answer_call(context: &mut AgentContext, delivery: &Delivery, call: &Call) {
    if call.round > 1 {
        context.reached(Point::SecondRound);
    }
    let window_ms = (call.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
    let soon = context.draw(0..window_ms.min(400));
    if context.errs(AgentFault::Ignore) {
        return;
    }
    if context.errs(AgentFault::Decline) {
        let payload = context.decline(&NO_OFFER);
        return context.reply(soon, delivery, payload);
    }
    let is_late = context.errs(AgentFault::OfferLate);
    let after_ms = if is_late { window_ms + context.draw(0..300) } else { soon };
    let first = offer(context, call);
    context.reply(after_ms, delivery, first);
    if context.errs(AgentFault::Revise) {
        let (revised, later) = (offer(context, call), after_ms + context.draw(0..300));
        context.reply(later, delivery, revised);
    }
    if context.errs(AgentFault::Withdraw) {
        let later = after_ms + context.draw(0..400);
        context.reply(later, delivery, Payload::Withdraw(Reasoned::default()));
    }
}

pub(super) fn answer_accept(context: &mut AgentContext, delivery: &Delivery, award: &Award) {
    if award.award_no > AwardNo(1) {
        context.reached(Point::ReAwarded);
    }
    if let Some(document) = award.document {
        context.reached(Point::DocumentPinned);
        context.pinned.insert(delivery.envelope.negotiation.clone(), document);
    }
    let is_task = award.brief.is_some();
    if is_task && award.award_no > AwardNo(1) {
        context.reached(Point::TaskReAwarded);
    }
    let window_ms = (award.confirm_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
    let soon = context.draw(0..window_ms.min(200));
    if context.errs(AgentFault::IgnoreAward) {
        return;
    }
    if is_task && context.errs(AgentFault::SpeakUnasked) {
        // Before it is bound.
        let report = Inform { kind: InformKind::Result, result: Some("too early".to_owned()), routine: None };
        context.reply(soon / 2, delivery, Payload::Inform(report));
    }
    if context.errs(AgentFault::DeclineAward) {
        let payload = match context.draw(0..4) {
            0 => {
                // Whoever was named has offered no terms.
                if is_task && award.terms.is_empty() {
                    context.reached(Point::DirectTaskRefused);
                }
                Payload::Refuse(Reasoned::default())
            }
            1 => Payload::NotUnderstood(Reasoned::default()),
            2 => Payload::Withdraw(Reasoned::default()),
            _ => failure(FailurePhase::Perform),
        };
        return context.reply(soon, delivery, payload);
    }
    if context.errs(AgentFault::ConfirmWrong) {
        let award_no = AwardNo(award.award_no.0 + 1);
        context.reply(soon / 2, delivery, Payload::Confirm(Confirm { award_no, terms_digest: None }));
    }
    let is_late = context.errs(AgentFault::ConfirmLate);
    let after_ms = if is_late { window_ms + context.draw(0..300) } else { soon };
    context.reply(after_ms, delivery, Payload::Confirm(Confirm { award_no: award.award_no, terms_digest: None }));
}

pub(super) fn answer_receipt(
    context: &mut AgentContext,
    delivery: &Delivery,
    receipt: &Receipt,
    members: &mut BTreeMap<NegotiationId, SimulatedMember>,
) {
    let is = |disposition: Disposition| receipt.disposition == disposition;
    context.reached_if([
        (Point::Committed, is(Disposition::Committed)),
        (Point::OfferLate, is(Disposition::Late)),
        (Point::ConfirmedRevoked, is(Disposition::Revoked)),
        (Point::Conflicted, is(Disposition::Conflict)),
        (Point::MandateViolation, is(Disposition::MandateViolation)),
    ]);
    let negotiation = &delivery.envelope.negotiation;
    if is(Disposition::Committed) && !nesting::call_sub_team(context, negotiation, receipt.award_no, members) {
        perform(context, negotiation);
    }
}

/// It is bound: the work is done, fails, or never ends.
pub(super) fn perform(context: &mut AgentContext, negotiation: &NegotiationId) {
    let is_task = matches!(negotiation.place(), FamilyPlace::Task(_));
    if context.errs(AgentFault::Dawdle) {
        if is_task && context.happens(500) {
            context.reached(Point::OwnerKilled);
            let after_ms = context.draw(0..200);
            context.plan(after_ms, Job::Crash);
        }
        return;
    }
    let mut after_ms = context.draw(0..400);
    if is_task {
        if context.errs(AgentFault::ConfirmLate) {
            after_ms += context.draw(400..3000);
        }
        if context.errs(AgentFault::Repeat) {
            let again = Inform { kind: InformKind::Result, result: Some("once more".to_owned()), routine: None };
            let later = after_ms + context.draw(0..200);
            context.say(later, Draft::new(negotiation, Payload::Inform(again)));
        }
    }
    let routine = routine(context, negotiation);
    if routine.is_some() && context.happens(REPORTS_FOREIGN) {
        let other = RoutineReport { hash: Some(foreign_document()), kind: RoutineKind::Native };
        let report = Inform { kind: InformKind::Result, result: None, routine: Some(other) };
        context.say(after_ms / 2, Draft::new(negotiation, Payload::Inform(report)));
    }
    let payload = if context.errs(AgentFault::Fail) {
        failure(if context.happens(500) { FailurePhase::Perform } else { FailurePhase::Decommit })
    } else if context.happens(500) {
        Payload::Inform(Inform { kind: InformKind::Done, result: None, routine })
    } else {
        Payload::Inform(Inform { kind: InformKind::Result, result: Some("as agreed".to_owned()), routine })
    };
    context.say(after_ms, Draft::new(negotiation, payload));
}

/// The routine a report names: under the pinned document, or natural language. Where none is pinned, none.
fn routine(context: &mut AgentContext, negotiation: &NegotiationId) -> Option<RoutineReport> {
    let hash = *context.pinned.get(negotiation)?;
    Some(if context.happens(200) {
        RoutineReport { hash: None, kind: RoutineKind::Language }
    } else {
        RoutineReport { hash: Some(hash), kind: RoutineKind::Native }
    })
}

pub(super) fn answer_cancel(context: &mut AgentContext, delivery: &Delivery, cancellation: &Cancellation) {
    if cancellation.reason != "cancelled" || context.errs(AgentFault::Dawdle) {
        return;
    }
    let after_ms = context.draw(0..200);
    let payload = match context.draw(0..4) {
        0 => failure(FailurePhase::CannotCancel),
        1 => Payload::Inform(Inform { kind: InformKind::Done, result: None, routine: None }),
        _ => Payload::Inform(Inform { kind: InformKind::Cancelled, result: None, routine: None }),
    };
    context.reply(after_ms, delivery, payload);
}

/// Counts how a negotiation ended, auctions too.
pub(super) fn note_closed(context: &AgentContext, closing: &Closing) {
    context.reached_if([
        (Point::Completed, closing.outcome == Outcome::Completed),
        (Point::Cancelled, closing.outcome == Outcome::Cancelled),
        (Point::TimedOut, closing.outcome == Outcome::Timeout),
        (Point::ReserveNotMet, closing.outcome == Outcome::ReserveNotMet),
    ]);
}

/// Says something nobody asked for.
pub(super) fn say_unasked(context: &mut AgentContext, delivery: &Delivery) {
    if !context.errs(AgentFault::SpeakUnasked) {
        return;
    }
    let after_ms = context.draw(0..1000);
    let payload = match context.draw(0..4) {
        0 => Payload::Offer(Offer { terms: terms(context), ..Offer::default() }),
        1 => Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: None }),
        2 => Payload::Inform(Inform { kind: InformKind::Done, result: None, routine: None }),
        _ => Payload::Cancel(Reasoned::default()),
    };
    context.reply(after_ms, delivery, payload);
}

/// Takes the REJECT of a late offer for a question, and answers it by another.
pub(super) fn answer_rejection(context: &mut AgentContext, delivery: &Delivery, reason: RejectReason) {
    if reason == RejectReason::Late && context.errs(AgentFault::OfferLate) {
        context.reached(Point::RejectionAnswered);
        let (after_ms, terms) = (context.draw(0..100), terms(context));
        context.reply(after_ms, delivery, Payload::Offer(Offer { terms, ..Offer::default() }));
    }
}

fn offer(context: &mut AgentContext, call: &Call) -> Payload {
    let mut terms = terms(context);
    if call.brief.is_some() {
        let fit = i64::try_from(context.draw(0..5) * 200_000).unwrap_or(0);
        terms.insert(attr_name("fit"), AttrValue::Int(fit));
    }
    if context.errs(AgentFault::OfferUnfit) {
        terms.insert(attr_name("price"), AttrValue::Int(5000));
    }
    let is_brief = context.errs(AgentFault::OfferBrief);
    let round = match context.draw(0..20) {
        0..8 => Some(call.round),
        8 => Some(call.round.saturating_sub(1).max(1)),
        _ => None,
    };
    let valid_for_ms = is_brief.then(|| context.draw(100..1500));
    let currency = call.currency.clone();
    let documents = if call.documents.is_some() { offered_documents(context) } else { Vec::new() };
    Payload::Offer(Offer { terms, currency, valid_for_ms, round, documents, ..Offer::default() })
}

/// Some of the documents that calls name, in any order; most know most of them.
fn offered_documents(context: &mut AgentContext) -> Vec<DocumentHash> {
    let mut documents = known_documents();
    documents.retain(|_| context.happens(700));
    let first = context.index(documents.len());
    documents.rotate_left(first);
    documents
}

/// Terms from few values, so that scores are often equal.
fn terms(context: &mut AgentContext) -> Terms {
    let (price, delivery_ms) = (context.draw(1..10) * 100, context.draw(1..5) * 200);
    let int = |value: u64| AttrValue::Int(i64::try_from(value).unwrap_or(0));
    Terms::from([(attr_name("price"), int(price)), (attr_name("delivery_ms"), int(delivery_ms))])
}
