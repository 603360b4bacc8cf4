//! What agents received against what the log says they are to be told.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use schemas::delivery::{Closing, Delivery, Disposition, Notification, Receipt};
use schemas::ids::FamilyPlace;
use schemas::record::Qos;
use schemas::register::AwardEnd;
use schemas::{
    Act, AgentId, AwardNo, DeliveryId, Digest, Lot, MsgId, NegotiationId, RegisterKey, RegisterValue, Timestamp,
};

use super::{Caused, FoldedLog};
use crate::trace::{Noted, Trace};
use traffic_gen::invariants::{Invariant, Verdict};

/// Checks every delivery that was received, and at rest that none is missing.
pub(super) fn check(trace: &Trace, folded: &FoldedLog, verdict: &mut Verdict) {
    let registered = RegisteredAward::of(trace);
    let mut seen = Seen::default();
    for (agent, entry) in trace.noted() {
        if let Noted::Received { id, digest, delivery, .. } = &entry.kind
            && seen.note(agent, *id, *digest, verdict)
        {
            let caused = folded.deliveries.get(id);
            check_content(agent, caused, delivery, verdict);
            seen.check_answered_once(agent, caused, folded, verdict);
            if let Notification::Closed(closing) = &delivery.payload {
                registered.check_agreement(agent, delivery, closing, entry.at, verdict);
            }
            // The ACCEPT of a bargain only asks for a confirmation.
            let is_bargain = folded.is_bargain(&delivery.envelope.negotiation);
            if !(is_bargain && matches!(delivery.payload, Notification::Accept(_))) {
                registered.check(agent, caused, delivery, entry.at, verdict);
            }
            if caused.is_none_or(|caused| folded.remembers(agent, caused, &trace.limits)) {
                seen.note_receipts(agent, delivery, verdict);
            }
        }
        if let Noted::Acknowledged { ids } = &entry.kind {
            seen.acknowledged.extend(ids.iter().map(|id| (agent.clone(), *id)));
        }
        if let Noted::Unreadable { bytes } = &entry.kind {
            let text = || format!("{agent} received {}", String::from_utf8_lossy(bytes));
            verdict.check(Invariant::Recomputable, false, text);
        }
    }
    seen.check_acknowledged(folded, verdict);
    if trace.is_liveness {
        seen.check_complete(folded, verdict);
    }
}

#[derive(Default)]
struct Seen {
    contents: BTreeMap<DeliveryId, Digest>,
    received: BTreeSet<(AgentId, DeliveryId)>,
    acknowledged: BTreeSet<(AgentId, DeliveryId)>,
    /// Messages of which an agent was told that they were applied.
    applied: BTreeMap<(AgentId, NegotiationId, MsgId), DeliveryId>,
    /// The message by which an agent was first answered so after the end.
    answered: BTreeMap<(AgentId, NegotiationId, Act), Option<MsgId>>,
}

impl Seen {
    /// Notes an arrival; whether it is the first of its id.
    fn note(&mut self, agent: &AgentId, id: DeliveryId, digest: Digest, verdict: &mut Verdict) -> bool {
        self.received.insert((agent.clone(), id));
        let first = self.contents.insert(id, digest);
        verdict.check(Invariant::Idempotent, first.is_none_or(|first| first == digest), || {
            format!("{agent} received {id} with another content than before")
        });
        first.is_none()
    }

    /// A message is applied once: every later answer to it says `duplicate` or `conflict`.
    fn note_receipts(&mut self, agent: &AgentId, delivery: &Delivery, verdict: &mut Verdict) {
        let (id, negotiation) = (delivery.envelope.msg_id, &delivery.envelope.negotiation);
        let is_first = |told: &&Receipt| told.first.is_none() && is_remembered(told.disposition, negotiation);
        let firsts = delivery.receipts_told().filter(is_first);
        for receipt in firsts {
            let before = self.applied.insert((agent.clone(), negotiation.clone(), receipt.ack_of.clone()), id);
            verdict.check(Invariant::Idempotent, before.is_none(), || {
                format!("{agent}'s {} in {negotiation} was judged twice: {before:?} and {id}", receipt.ack_of)
            });
        }
    }

    /// After the end REJECT, CLOSED and CANCEL answer one message of each party, however often it is said.
    fn check_answered_once(&mut self, to: &AgentId, caused: Option<&Caused>, log: &FoldedLog, verdict: &mut Verdict) {
        let Some(Caused { seq, deliver }) = caused else { return };
        let (negotiation, act) = (&deliver.negotiation, deliver.told.act());
        let ended_by = log.history(negotiation).and_then(|history| history.ended_by);
        if matches!(act, Act::Reject | Act::Closed | Act::Cancel) && ended_by.is_some_and(|end| end < *seq) {
            let key = (to.clone(), negotiation.clone(), act);
            let first = self.answered.entry(key).or_insert_with(|| deliver.in_reply_to.clone());
            verdict.check(Invariant::Absorbing, *first == deliver.in_reply_to, || {
                format!("after the end of {negotiation} {to} heard {act}, and again by record {seq}")
            });
        }
    }

    /// What the log calls acknowledged was acknowledged by its recipient.
    fn check_acknowledged(&self, folded: &FoldedLog, verdict: &mut Verdict) {
        for id in &folded.acknowledged {
            let Some(caused) = folded.deliveries.get(id) else {
                verdict.check(Invariant::Recomputable, false, || format!("{id} is logged as acknowledged and unknown"));
                continue;
            };
            let to = &caused.deliver.to;
            verdict.check(Invariant::NoLostAdmission, self.acknowledged.contains(&(to.clone(), *id)), || {
                format!("{id} is logged as acknowledged by {to}, who did not")
            });
        }
    }

    /// Everything was received, or the log says that it was given up.
    fn check_complete(&self, folded: &FoldedLog, verdict: &mut Verdict) {
        for (id, Caused { seq, deliver }) in &folded.deliveries {
            let is_refused = deliver.after.as_ref().is_some_and(|key| folded.refused.contains(key));
            if deliver.qos == Qos::BestEffort || is_refused || deliver.told_before {
                continue;
            }
            let is_settled = folded.given_up.contains(id) || self.received.contains(&(deliver.to.clone(), *id));
            verdict.check(about(&deliver.told), is_settled, || {
                format!("{}'s {:?} ({id}, record {seq}) never arrived", deliver.to, deliver.told)
            });
        }
    }
}

/// The invariant a lost delivery breaks.
fn about(told: &Notification) -> Invariant {
    if matches!(told, Notification::Ack(_) | Notification::NotUnderstood(_)) {
        Invariant::NoLostAdmission
    } else if matches!(told, Notification::Reject(_) | Notification::Cancel(_)) {
        Invariant::FinalNotice
    } else {
        Invariant::Terminates
    }
}

/// Whether a message that is answered so is known again. Not everyone who says `closed` knows what was said before: of a
/// negotiation whose tombstone is gone only the id is left. A call for a sub-team that the award of its task no longer allows
/// opens nothing that could remember it.
fn is_remembered(disposition: Disposition, negotiation: &NegotiationId) -> bool {
    let is_of_sub_team = matches!(negotiation.place(), FamilyPlace::SubTeam { .. });
    let opened_nothing = is_of_sub_team && matches!(disposition, Disposition::Revoked | Disposition::OutOfTurn);
    let is_forgotten = matches!(
        disposition,
        Disposition::Unauthorized | Disposition::Malformed | Disposition::RateLimited | Disposition::Closed
    );
    !(opened_nothing || is_forgotten)
}

/// An agent receives what the log says, word for word.
fn check_content(agent: &AgentId, caused: Option<&Caused>, delivery: &Delivery, verdict: &mut Verdict) {
    let is_same = caused.is_some_and(|caused| caused.deliver.to == *agent && caused.delivery() == *delivery);
    verdict.check(Invariant::Recomputable, is_same, || match caused {
        Some(caused) => format!("{agent} received {delivery:?}, the log says {:?}", caused.deliver),
        None => format!("{agent} received what nothing in the log leads to: {delivery:?}"),
    });
}

/// The register, by key, with the true time of each write.
struct RegisteredAward<'a> {
    values: BTreeMap<&'a RegisterKey, &'a Bytes>,
    at: &'a BTreeMap<RegisterKey, Timestamp>,
}

impl<'a> RegisteredAward<'a> {
    fn of(trace: &'a Trace) -> Self {
        let own = trace.register.iter().filter(|(key, _)| !trace.foreign.contains(key));
        let values = own.map(|(key, value)| (key, value)).collect();
        Self { values, at: &trace.registered_at }
    }

    /// Whether the exchange had written an entry by then.
    fn is_written(&self, key: &RegisterKey, by: Timestamp) -> bool {
        self.values.contains_key(key) && self.at.get(key).is_some_and(|written| *written <= by)
    }

    fn value(&self, key: &RegisterKey) -> Option<RegisterValue> {
        serde_json::from_slice(self.values.get(key)?).ok()
    }

    /// The key of an award's end, whatever its lot.
    fn end_of(&self, negotiation: &NegotiationId, award_no: AwardNo) -> Option<&RegisterKey> {
        let is_it =
            |key: &RegisterKey| matches!(key, RegisterKey::AwardEnd(of, _, no) if of == negotiation && *no == award_no);
        self.values.keys().copied().find(|key| is_it(key))
    }

    /// An agreement was registered, as it is told, before anybody was told.
    fn check_agreement(
        &self,
        agent: &AgentId,
        delivery: &Delivery,
        closing: &Closing,
        at: Timestamp,
        verdict: &mut Verdict,
    ) {
        let Some(agreement) = &closing.agreement else { return };
        let key = RegisterKey::Award(delivery.envelope.negotiation.clone(), Lot(0), AwardNo(1));
        let is_it = matches!(self.value(&key), Some(RegisterValue::Agreement { offer_id, terms_digest, .. })
            if (offer_id, terms_digest) == (agreement.offer_id, agreement.terms_digest));
        let is_in_time = self.is_written(&key, at);
        verdict.check(Invariant::OneAward, is_it && is_in_time, || {
            format!("{agent} was told of an unregistered agreement: {delivery:?}")
        });
    }

    /// What binds was registered before it arrived, and says what the register says.
    fn check(
        &self,
        agent: &AgentId,
        caused: Option<&Caused>,
        delivery: &Delivery,
        at: Timestamp,
        verdict: &mut Verdict,
    ) {
        let negotiation = &delivery.envelope.negotiation;
        let (key, says_so) = if let Notification::Accept(award) = &delivery.payload {
            let key = RegisterKey::Award(negotiation.clone(), award.lot, award.award_no);
            let (value, offer) = (self.value(&key), award.offer_id);
            (Some(key), matches!(value, Some(RegisterValue::Award { offer_id, .. }) if offer_id == offer))
        } else if let Notification::Ack(receipt) = &delivery.payload
            && receipt.disposition == Disposition::Committed
        {
            let key = receipt.award_no.and_then(|award_no| self.end_of(negotiation, award_no));
            let value = key.and_then(|key| self.value(key));
            (key.cloned(), matches!(value, Some(RegisterValue::AwardEnd { end: AwardEnd::Committed, .. })))
        } else {
            let Some(key) = caused.and_then(|caused| caused.deliver.after.clone()) else { return };
            (Some(key), true)
        };
        let is_in_time = key.is_some_and(|key| self.is_written(&key, at));
        verdict.check(Invariant::OneAward, is_in_time && says_so, || {
            format!("{agent} received unregistered {delivery:?}")
        });
    }
}
