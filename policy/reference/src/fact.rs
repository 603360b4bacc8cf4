//! What an effect says, as one short text without hashes and delivery ids: the language in which the lane's state and the naive
//! reference are compared. Facts of one record are compared sorted; the order of effects is the ledger's concern.

use std::fmt::Debug;

use policy_core::{AwardLoss, Decision, Deliver, Effect, Event};
use schemas::bargain::BargainSpec;
use schemas::delivery::{
    Agreement, Award, CloseReason, Closing, ContractorReport, Disposition, Finding, Misunderstanding, Notice,
    Notification, Outcome, ProgressReport, Receipt, RejectReason, Rejection,
};
use schemas::team::{Conclusion, TeamTask};
use schemas::{
    AgentId, AwardNo, Digest, DocumentHash, Lot, MsgId, NegotiationId, OfferId, Position, RegisterKey, RegisterValue,
    Timestamp, WireTime,
};

/// The facts of some effects, sorted. Dispositions, notices, register entries, closes, decisions, awards, ends.
pub fn facts<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Vec<String> {
    let mut facts: Vec<String> = effects.into_iter().flat_map(|effect| along(effect).chain(of(effect))).collect();
    facts.sort();
    facts
}

/// The receipts that came along with a delivery, each as if it were one, and marked.
fn along(effect: &Effect) -> impl Iterator<Item = String> {
    let deliver = if let Effect::Deliver(deliver) = effect { Some(deliver) } else { None };
    deliver.into_iter().flat_map(|Deliver { negotiation, to, receipts, .. }| {
        receipts.iter().map(move |receipt| format!("{} along", ack(negotiation, to, receipt)))
    })
}

fn of(effect: &Effect) -> Option<String> {
    match effect {
        Effect::Deliver(deliver) if deliver.told_before => Some(told_before(&told(deliver))),
        Effect::Deliver(deliver) => Some(told(deliver)),
        Effect::Register(write) => Some(match &write.value {
            RegisterValue::Award { offer_id, .. } => award_entry(&write.key.to_string(), *offer_id),
            RegisterValue::Agreement { offer_id, terms_digest, .. } => {
                agreed(&write.key.to_string(), *offer_id, *terms_digest)
            }
            RegisterValue::Formed { .. } => formed_entry(&write.key.to_string()),
            RegisterValue::Finding { .. } => found_entry(&write.key.to_string()),
            RegisterValue::AwardEnd { end, .. } => entry(&write.key.to_string(), end),
            RegisterValue::Closed { outcome, .. } => entry(&write.key.to_string(), outcome),
        }),
        Effect::Notice(notice) => Some(match &notice.notice {
            Notice::Called { negotiation, .. } => notice_called(negotiation),
            Notice::Closed { negotiation, outcome } => notice_closed(negotiation, *outcome),
        }),
        Effect::Event(event) => happened(event),
    }
}

fn told(deliver: &Deliver) -> String {
    let (negotiation, to) = (&deliver.negotiation, &deliver.to);
    let report = |what, news: &ContractorReport| {
        naming(inform(negotiation, to, what, &news.contractor, news.award_no), news.routine)
    };
    match &*deliver.told {
        Notification::Ack(receipt) => ack(negotiation, to, receipt),
        Notification::Cfp(call) => {
            let called = cfp(negotiation, to, call.round, call.reply_by.0, call.ends_by.0);
            let called = naming(called, call.documents.as_ref());
            let called = call.brief.iter().fold(called, |called, brief| with(&called, brief));
            let called = call.team.iter().fold(called, |called, team| with(&called, team));
            call.bargain.iter().fold(called, |called, bargain| to_bargain(&called, &bargain.parties, &bargain.rules))
        }
        Notification::Accept(award) => {
            let Award { offer_id, lot, award_no, payment, confirm_by, document, brief, .. } = award;
            let told = pinning(accept(negotiation, to, *offer_id, *lot, *award_no, *payment, *confirm_by), *document);
            brief.iter().fold(told, |told, brief| with(&told, brief))
        }
        Notification::Reject(rejection) => reject(negotiation, to, rejection),
        Notification::Cancel(cancellation) => cancel(negotiation, to, cancellation.award_no, &cancellation.reason),
        Notification::Inform(ProgressReport::Offers(news)) => offers(
            negotiation,
            to,
            &news.offers.iter().map(|offer| (offer.offer_id, offer.score, offer.document)).collect::<Vec<_>>(),
            news.decide_by,
        ),
        Notification::Inform(ProgressReport::Awarded(news)) => {
            let told = inform_awarded(negotiation, to, &news.contractor, news.award_no, news.score, news.payment);
            pinning(told, news.document)
        }
        Notification::Inform(ProgressReport::Committed(news)) => report("committed", news),
        Notification::Inform(ProgressReport::Done(news)) => report("done", news),
        Notification::Inform(ProgressReport::Result(news)) => report("result", news),
        Notification::Inform(ProgressReport::Cancelled(news)) => report("cancelled", news),
        Notification::Failure(failure) => failed(negotiation, to, &failure.contractor, failure.award_no),
        Notification::NotUnderstood(misunderstanding) => {
            let Misunderstanding { reason, pointer, .. } = misunderstanding;
            not_understood(negotiation, to, reason, pointer.as_deref())
        }
        Notification::Closed(closing) => {
            let Closing { outcome, detail, agreement, conclusion, tasks, .. } = closing;
            if is_of_a_team(*outcome) || conclusion.is_some() || !tasks.is_empty() {
                return team_closed(negotiation, to, *outcome, detail.as_deref(), conclusion.as_deref(), tasks);
            }
            bargain_closed(negotiation, to, *outcome, detail.as_deref(), agreement.as_deref())
        }
        Notification::Turn(turn) => whole(negotiation, to, turn),
        Notification::Ask(ask) => whole(negotiation, to, ask),
        Notification::Inform(ProgressReport::Finding(finding)) => found(negotiation, to, finding),
        Notification::Inform(ProgressReport::Bid(standing)) => whole(negotiation, to, standing),
        Notification::Floor(floor) => whole(negotiation, to, floor),
    }
}

fn happened(event: &Event) -> Option<String> {
    match event {
        Event::Closed { negotiation, round, reason, complete, offers, responded, expected, at, .. } => {
            Some(close(negotiation, *round, *reason, *complete, [*offers, *responded, *expected], *at))
        }
        Event::Decided(decision) => Some(decided(decision)),
        Event::Excluded { negotiation, contractor } => Some(excluded(negotiation, contractor)),
        Event::AwardLost { negotiation, award_no, contractor, loss, .. } => {
            Some(lost(negotiation, contractor, *award_no, *loss))
        }
        Event::Ended { negotiation, outcome, rounds, offers, awards, at, .. } => {
            Some(ended(negotiation, *outcome, [*rounds, *offers, *awards], *at))
        }
        // Its finding says the same.
        Event::Found(_)
        | Event::Asked { .. }
        | Event::TurnTaken { .. }
        | Event::TaskEnded { .. }
        | Event::Started { .. }
        | Event::Disposed { .. }
        | Event::Transition { .. }
        | Event::Committed { .. }
        | Event::Claimed { .. } => None,
        Event::InvariantViolated { invariant, .. } => Some(format!("violated {invariant:?}")),
    }
}

/// What is told, whole.
pub(crate) fn whole(negotiation: &NegotiationId, to: &AgentId, told: &impl Debug) -> String {
    format!("{negotiation} {to} {told:?}")
}

/// What is not sent, because its recipient was answered so before.
pub(crate) fn told_before(told: &str) -> String {
    format!("{told} told before")
}

/// A receipt. What a repeat is told beside its disposition depends on how much is remembered, and is left out.
pub(crate) fn ack(negotiation: &NegotiationId, to: &AgentId, receipt: &Receipt) -> String {
    let Receipt { ack_of, disposition, first, offer_id, seats, award_no, step, turn, tasks, .. } = receipt;
    match first {
        Some(first) => ack_again(negotiation, to, ack_of, *disposition, *first),
        None => {
            let told = format!("{negotiation} {to} ack {ack_of} {disposition:?} {offer_id:?} {award_no:?}");
            let told = seats.iter().fold(told, |told, seats| format!("{told} seats {seats:?}"));
            step.iter().fold(told, |told, step| format!("{told} step {step} turn {turn:?} {tasks:?}"))
        }
    }
}

pub(crate) fn ack_again(
    negotiation: &NegotiationId,
    to: &AgentId,
    ack_of: &MsgId,
    disposition: Disposition,
    first: Disposition,
) -> String {
    format!("{negotiation} {to} ack {ack_of} {disposition:?} first {first:?}")
}

pub(crate) fn cfp(
    negotiation: &NegotiationId,
    to: &AgentId,
    round: u32,
    reply_by: Timestamp,
    ends_by: Timestamp,
) -> String {
    format!("{negotiation} {to} cfp {round} {} {}", reply_by.0, ends_by.0)
}

/// A call with the documents it names, or a report with its routine.
pub(crate) fn naming(told: String, named: Option<impl Debug>) -> String {
    named.iter().fold(told, |told, named| format!("{told} by {named:?}"))
}

/// What is told of a call or an award, with what is to be done; a call to a team with its lead and its rules.
pub(crate) fn with(told: &str, more: &impl Debug) -> String {
    format!("{told} {more:?}")
}

/// What is told of an award, with the document it pins.
pub(crate) fn pinning(told: String, document: Option<DocumentHash>) -> String {
    document.iter().fold(told, |told, document| format!("{told} pins {document}"))
}

pub(crate) fn accept(
    negotiation: &NegotiationId,
    to: &AgentId,
    offer: OfferId,
    lot: Lot,
    award_no: AwardNo,
    payment: Option<i64>,
    confirm_by: WireTime,
) -> String {
    format!("{negotiation} {to} accept {offer} lot {lot} award {award_no} pays {payment:?} by {}", confirm_by.0.0)
}

/// A REJECT; of a late offer without its id, which the tombstone of a closed negotiation no longer knows for a repeat.
pub(crate) fn reject(negotiation: &NegotiationId, to: &AgentId, rejection: &Rejection) -> String {
    let Rejection { offer_id, reason, code } = rejection;
    let offer_id = offer_id.filter(|_| *reason != RejectReason::Late);
    format!("{negotiation} {to} reject {offer_id:?} {reason:?} {code:?}")
}

pub(crate) fn cancel(negotiation: &NegotiationId, to: &AgentId, award_no: AwardNo, reason: &str) -> String {
    format!("{negotiation} {to} cancel {award_no} {reason}")
}

pub(crate) fn offers(
    negotiation: &NegotiationId,
    to: &AgentId,
    offers: &[(OfferId, u32, Option<DocumentHash>)],
    by: WireTime,
) -> String {
    format!("{negotiation} {to} offers {offers:?} by {}", by.0.0)
}

pub(crate) fn inform_awarded(
    negotiation: &NegotiationId,
    to: &AgentId,
    contractor: &AgentId,
    award_no: AwardNo,
    score: u32,
    payment: Option<i64>,
) -> String {
    format!("{negotiation} {to} inform awarded {contractor} {award_no} {score} {payment:?}")
}

pub(crate) fn inform(
    negotiation: &NegotiationId,
    to: &AgentId,
    what: &str,
    contractor: &AgentId,
    award_no: AwardNo,
) -> String {
    format!("{negotiation} {to} inform {what} {contractor} {award_no}")
}

pub(crate) fn failed(negotiation: &NegotiationId, to: &AgentId, contractor: &AgentId, award_no: AwardNo) -> String {
    format!("{negotiation} {to} failure of {contractor} {award_no}")
}

pub(crate) fn not_understood(negotiation: &NegotiationId, to: &AgentId, reason: &str, pointer: Option<&str>) -> String {
    format!("{negotiation} {to} not_understood {reason} {}", pointer.unwrap_or_default())
}

pub(crate) fn closed(negotiation: &NegotiationId, to: &AgentId, outcome: Outcome) -> String {
    format!("{negotiation} {to} closed {outcome:?}")
}

/// CLOSED, with what the end of a bargain or a panel says beside its outcome. Other details are in words, and left out.
pub(crate) fn bargain_closed(
    negotiation: &NegotiationId,
    to: &AgentId,
    outcome: Outcome,
    detail: Option<&str>,
    agreement: Option<&Agreement>,
) -> String {
    let closed = closed(negotiation, to, outcome);
    match (outcome, detail, agreement) {
        (
            Outcome::NoAgreement | Outcome::Ended | Outcome::Consensus | Outcome::Plurality | Outcome::NoAnswer,
            Some(detail),
            None,
        ) => format!("{closed} {detail}"),
        (Outcome::Agreement, None, Some(agreement)) => format!("{closed} {agreement:?}"),
        (_, _, None) => closed,
        (_, _, Some(agreement)) => format!("{closed} although {agreement:?}"),
    }
}

/// A call to a bargain: the parties in the order of their turns, and the rules.
pub(crate) fn to_bargain(called: &str, parties: &[AgentId], rules: &BargainSpec) -> String {
    format!("{called} {parties:?} {rules:?}")
}

/// Whether only teams end with this outcome.
fn is_of_a_team(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Concluded | Outcome::Unconcluded | Outcome::NotFormed)
}

/// CLOSED of a team, with its conclusion and its tasks; nothing but the outcome of one that was called off before it had any.
pub(crate) fn team_closed(
    negotiation: &NegotiationId,
    to: &AgentId,
    outcome: Outcome,
    detail: Option<&str>,
    conclusion: Option<&Conclusion>,
    tasks: &[TeamTask],
) -> String {
    let closed = closed(negotiation, to, outcome);
    if !is_of_a_team(outcome) && tasks.is_empty() {
        return closed;
    }
    // What an abort was for is in words, and left out.
    let detail = detail.filter(|_| outcome != Outcome::Aborted);
    format!("{closed} {detail:?} {conclusion:?} {tasks:?}")
}

/// A finding, without the digest of its decision record.
pub(crate) fn found(negotiation: &NegotiationId, to: &AgentId, finding: &Finding) -> String {
    whole(negotiation, to, &Finding { decision: Digest([0; 32]), ..finding.clone() })
}

/// The result of a panel in the register.
pub(crate) fn found_entry(key: &str) -> String {
    format!("{key} found")
}

pub(crate) fn agreed(key: &str, offer: OfferId, terms_digest: Digest) -> String {
    format!("{key} agrees on {offer} {terms_digest}")
}

pub(crate) fn award_entry(key: &str, offer: OfferId) -> String {
    format!("{key} = {offer}")
}

/// An end in the register.
pub(crate) fn entry(key: &str, end: impl Debug) -> String {
    format!("{key} = {end:?}")
}

/// Who formed a team: its decision is compared by itself.
pub(crate) fn formed_entry(key: &str) -> String {
    format!("{key} formed")
}

pub(crate) fn notice_called(negotiation: &NegotiationId) -> String {
    format!("{negotiation} notice called")
}

fn notice_closed(negotiation: &NegotiationId, outcome: Outcome) -> String {
    format!("{negotiation} notice closed {outcome:?}")
}

/// The close; `counts` are the valid offers, those who responded, those who were called.
pub(crate) fn close(
    negotiation: &NegotiationId,
    round: u32,
    reason: CloseReason,
    complete: bool,
    counts: [u32; 3],
    at: Timestamp,
) -> String {
    format!("{negotiation} closes round {round} {reason:?} complete={complete} {counts:?} at {}", at.0)
}

fn decided(decision: &Decision) -> String {
    let ranking: Vec<_> = decision
        .offers
        .iter()
        .map(|offer| (offer.offer_id, offer.score, offer.price, offer.payment, offer.valid_until))
        .collect();
    let awards: Vec<_> =
        decision.awards.iter().map(|award| (award.lot, award.award_no, award.offer_id, award.document)).collect();
    decision_fact(&decision.negotiation, &decision.cause, decision.position, decision.at, &ranking, &awards)
}

/// An offer in its rank: its score, price, payment and validity.
type RankFact = (OfferId, u32, Option<i64>, Option<i64>, Option<Timestamp>);

/// An award of a decision, and the document it pins.
pub(crate) type PlacementFact = (Lot, AwardNo, OfferId, Option<DocumentHash>);

/// A decision: the offers in their rank, and the awards.
pub(crate) fn decision_fact(
    negotiation: &NegotiationId,
    cause: &impl Debug,
    position: Position,
    at: Timestamp,
    ranking: &[RankFact],
    awards: &[PlacementFact],
) -> String {
    format!("{negotiation} decides {cause:?} at {position} {} {ranking:?} {awards:?}", at.0)
}

pub(crate) fn excluded(negotiation: &NegotiationId, contractor: &AgentId) -> String {
    format!("{negotiation} excludes {contractor}")
}

pub(crate) fn lost(negotiation: &NegotiationId, contractor: &AgentId, award_no: AwardNo, loss: AwardLoss) -> String {
    format!("{negotiation} {contractor} lost {award_no} {loss:?}")
}

/// An end as it is registered, announced and measured; the counts are rounds, offers and awards.
pub(crate) fn end(
    negotiation: &NegotiationId,
    outcome: Outcome,
    is_public: bool,
    counts: [u32; 3],
    at: Timestamp,
) -> Vec<String> {
    let key = RegisterKey::Closed(negotiation.clone()).to_string();
    let mut facts = vec![entry(&key, outcome), ended(negotiation, outcome, counts, at)];
    facts.extend(is_public.then(|| notice_closed(negotiation, outcome)));
    facts
}

/// The end; `counts` are rounds, offers and awards.
fn ended(negotiation: &NegotiationId, outcome: Outcome, counts: [u32; 3], at: Timestamp) -> String {
    format!("{negotiation} ends {outcome:?} {counts:?} at {}", at.0)
}
