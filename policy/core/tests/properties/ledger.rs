//! Invariants of one negotiation, told from its effects and the log alone: every offer is followed from its receipt to
//! its final notice, every award from its ACCEPT to its end.

#[path = "ledger/awards.rs"]
mod awards;
#[path = "ledger/offers.rs"]
mod offers;

use std::collections::{BTreeMap, BTreeSet};

use policy_core::{Deliver, Effect, Event};
use schemas::delivery::{Call, Disposition, Notification, ProgressReport, Receipt};
use schemas::document::CallDocuments;
use schemas::payload::Offer;
use schemas::record::{Entry, Record};
use schemas::register::AwardEnd;
use schemas::{AgentId, AwardNo, Lot, NegotiationId, OfferId, Payload, Policy, RegisterKey, RegisterValue, Timestamp};

use crate::checks::{Check, Checked, Counts};
use crate::world::{Run, Step};

/// Follows every negotiation of a run.
pub(crate) fn check(run: &Run, counts: &Counts) -> Checked {
    let mut ledgers: BTreeMap<NegotiationId, Ledger> = BTreeMap::new();
    for step in &run.steps {
        for effect in &step.effects {
            let Some(negotiation) = negotiation_of(effect) else { continue };
            ledgers.entry(negotiation.clone()).or_default().follow(effect, step, counts)?;
        }
        for ledger in ledgers.values() {
            let is_over = !ledger.is_open() || step.now <= ledger.ends_by;
            counts
                .hold(Check::EndsInTime, is_over, || format!("open at {:?}, after {:?}", step.now, ledger.ends_by))?;
        }
    }
    for (negotiation, ledger) in &ledgers {
        counts.hold(Check::EndsInTime, !ledger.is_open(), || format!("{negotiation} never ended"))?;
    }
    Ok(())
}

fn negotiation_of(effect: &Effect) -> Option<&NegotiationId> {
    match effect {
        Effect::Deliver(deliver) => Some(&deliver.negotiation),
        Effect::Register(write) => Some(write.key.negotiation()),
        Effect::Notice(_) => None,
        Effect::Event(event) => match event {
            Event::Started { negotiation, .. }
            | Event::Disposed { negotiation, .. }
            | Event::Transition { negotiation, .. }
            | Event::Closed { negotiation, .. }
            | Event::Excluded { negotiation, .. }
            | Event::Committed { negotiation, .. }
            | Event::AwardLost { negotiation, .. }
            | Event::Ended { negotiation, .. }
            | Event::Asked { negotiation, .. }
            | Event::TurnTaken { negotiation, .. }
            | Event::TaskEnded { negotiation, .. }
            | Event::InvariantViolated { negotiation, .. } => Some(negotiation),
            Event::Decided(decision) => Some(&decision.negotiation),
            Event::Found(decision) => Some(&decision.negotiation),
            Event::Claimed { .. } => None,
        },
    }
}

/// What the effects of one negotiation have told so far.
#[derive(Default)]
struct Ledger {
    policy: Option<Policy>,
    currency: Option<String>,
    documents: Option<CallDocuments>,
    round: u32,
    ends_by: Timestamp,
    offers: BTreeMap<OfferId, Followed>,
    /// Offers that were late, or failed a gate.
    refused: BTreeSet<OfferId>,
    /// When the last decision was evaluated.
    decided_at: Timestamp,
    live_by_lot: BTreeMap<Lot, Live>,
    accepted: BTreeMap<AwardNo, OfferId>,
    committed: BTreeSet<AwardNo>,
    /// Contractors that were told CLOSED.
    told_closed: BTreeSet<AgentId>,
    has_ended: bool,
}

/// One `ok` offer.
struct Followed {
    contractor: AgentId,
    round: u32,
    at: Timestamp,
    body: Offer,
    fate: Option<Fate>,
    finals: u32,
}

/// What first became of an offer (I12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Accepted,
    Rejected,
    Withdrawn,
    Lapsed,
}

/// A live award.
struct Live {
    award_no: AwardNo,
    contractor: AgentId,
}

impl Ledger {
    fn is_open(&self) -> bool {
        self.policy.is_some() && !self.has_ended
    }

    fn policy(&self) -> &Policy {
        self.policy.as_ref().expect("calls come first")
    }

    fn follow(&mut self, effect: &Effect, step: &Step, counts: &Counts) -> Checked {
        if self.has_ended {
            let why = || format!("record {}, after the end: {effect:?}", step.seq);
            return counts.hold(Check::TerminalAbsorbs, is_answer(effect), why);
        }
        match effect {
            Effect::Deliver(deliver) => self.follow_delivery(deliver, step, counts),
            Effect::Register(write) => {
                if let (
                    RegisterKey::AwardEnd(_, _, award_no),
                    RegisterValue::AwardEnd { end: AwardEnd::Committed, .. },
                ) = (&write.key, &write.value)
                {
                    self.committed.insert(*award_no);
                }
                Ok(())
            }
            Effect::Event(Event::Decided(decision)) => self.check_decision(decision, counts),
            Effect::Event(Event::Ended { at, offers, .. }) => {
                self.has_ended = true;
                counts.hold(Check::EndsInTime, *at <= self.ends_by, || format!("ended at {at:?}"))?;
                self.check_offers_at_the_end(*offers, counts)
            }
            Effect::Notice(_) | Effect::Event(_) => Ok(()),
        }
    }

    fn follow_delivery(&mut self, deliver: &Deliver, step: &Step, counts: &Counts) -> Checked {
        match &*deliver.told {
            Notification::Cfp(call) => self.note_call(call, &step.record, counts),
            Notification::Ack(receipt) => self.note_receipt(deliver, receipt, step, counts),
            Notification::Accept(award) => self.check_accept(&deliver.to, award, counts),
            Notification::Reject(rejection) => self.note_rejection(&deliver.to, rejection, counts),
            // An answer to an outdated CONFIRM repeats a CANCEL that was sent before.
            Notification::Cancel(cancellation) if deliver.in_reply_to.is_none() => {
                self.note_cancel(&deliver.to, cancellation.award_no, counts)
            }
            Notification::Failure(failure) => {
                self.live_by_lot.retain(|_, live| live.award_no != failure.award_no);
                Ok(())
            }
            Notification::Closed(_) => {
                self.told_closed.insert(deliver.to.clone());
                Ok(())
            }
            Notification::Inform(ProgressReport::Done(report) | ProgressReport::Result(report)) => {
                self.check_routine(report, counts)
            }
            Notification::Cancel(_)
            | Notification::Inform(_)
            | Notification::NotUnderstood(_)
            | Notification::Turn(_)
            | Notification::Ask(_)
            | Notification::Floor(_) => Ok(()),
        }
    }

    /// A call opens the negotiation, a round, or extends a deadline.
    fn note_call(&mut self, call: &Call, record: &Record, counts: &Counts) -> Checked {
        if self.policy.is_none() {
            let pinned = record.entries.iter().filter_map(|entry| match entry {
                Entry::Message(message) => message.pinned.as_ref(),
                Entry::Tick | Entry::Engine { .. } => None,
            });
            let policy =
                pinned.map(|pinned| &*pinned.policy).find(|policy| policy.digest().ok() == Some(call.policy_digest));
            self.policy = policy.cloned();
            self.currency.clone_from(&call.currency);
            self.documents.clone_from(&call.documents);
            (self.ends_by, self.round) = (call.ends_by.0, 1);
            return counts.hold(Check::Recomputable, self.policy.is_some(), || "another policy than pinned".to_owned());
        }
        if call.round > self.round {
            self.check_balance(call.round, counts)?;
            self.round = call.round;
        }
        Ok(())
    }

    fn note_receipt(&mut self, deliver: &Deliver, receipt: &Receipt, step: &Step, counts: &Counts) -> Checked {
        if receipt.disposition == Disposition::Committed {
            return self.check_commitment(&deliver.to, receipt, counts);
        }
        let (Some(offer_id), None) = (receipt.offer_id, receipt.first) else { return Ok(()) };
        if receipt.disposition != Disposition::Ok {
            self.refused.insert(offer_id);
            return Ok(());
        }
        let index = usize::try_from(offer_id.0.index).expect("an entry");
        let Entry::Message(message) = &step.record.entries[index] else { panic!("{offer_id} is no message") };
        let Ok(Payload::Offer(body)) = message.message().map(|message| message.payload) else {
            panic!("{offer_id} is no offer")
        };
        let followed =
            Followed { contractor: deliver.to.clone(), round: self.round, at: step.now, body, fate: None, finals: 0 };
        self.offers.insert(offer_id, followed);
        Ok(())
    }
}

/// Whether an effect only answers a message, and changes nothing.
fn is_answer(effect: &Effect) -> bool {
    match effect {
        Effect::Deliver(deliver) => {
            deliver.in_reply_to.is_some()
                && matches!(
                    *deliver.told,
                    Notification::Ack(_) | Notification::Reject(_) | Notification::Cancel(_) | Notification::Closed(_)
                )
        }
        Effect::Event(Event::Disposed { .. }) => true,
        Effect::Event(_) | Effect::Register(_) | Effect::Notice(_) => false,
    }
}
