//! Awards: one per lot (I1), of a recorded offer (I2), at a fair price (I11), bound only while live.

use policy_reference::scoring;
use schemas::delivery::{Award, ContractorReport, Receipt};
use schemas::policy::{Direction, Policy};
use schemas::{AgentId, Digest, DocumentHash, OfferId};

use super::{Fate, Ledger, Live};
use crate::checks::{Check, Checked, Counts};

impl Ledger {
    pub(super) fn check_accept(&mut self, to: &AgentId, award: &Award, counts: &Counts) -> Checked {
        let is_only = !self.live_by_lot.contains_key(&award.lot)
            && self.live_by_lot.values().all(|live| live.contractor != *to)
            && self.accepted.last_key_value().is_none_or(|(last, _)| award.award_no > *last)
            && award.lot.0 < self.policy().awards;
        counts.hold(Check::OneAward, is_only, || format!("to {to}: {award:?}"))?;
        self.check_reference(to, award, counts)?;
        self.check_payment(award, counts)?;
        self.check_pinned(award.offer_id, award.document, counts)?;
        self.live_by_lot.insert(award.lot, Live { award_no: award.award_no, contractor: to.clone() });
        self.accepted.insert(award.award_no, award.offer_id);
        if let Some(offer) = self.offers.get_mut(&award.offer_id) {
            offer.fate.get_or_insert(Fate::Accepted);
        }
        Ok(())
    }

    /// I2.
    fn check_reference(&self, to: &AgentId, award: &Award, counts: &Counts) -> Checked {
        let offer = self.offers.get(&award.offer_id);
        let holds = offer.is_some_and(|offer| {
            offer.contractor == *to
                && offer.finals == 0
                && offer.round == self.round
                && offer.valid_until() >= self.decided_at
                && offer.body.terms == award.terms
                && Digest::of(&offer.body.terms).ok() == Some(award.terms_digest)
        });
        counts.hold(Check::AcceptRefersToOffer, holds, || format!("to {to}: {award:?}"))
    }

    /// The document an award of an offer pins.
    pub(super) fn check_pinned(&self, offer_id: OfferId, pinned: Option<DocumentHash>, counts: &Counts) -> Checked {
        let named = self.offers.get(&offer_id).map_or(&[] as &[DocumentHash], |offer| &offer.body.documents);
        let wanted = self.documents.iter().flat_map(|documents| &documents.hashes);
        let first = wanted.into_iter().find(|wanted| named.contains(wanted));
        counts.hold(Check::PinsFirst, first == pinned.as_ref(), || format!("{offer_id} pins {pinned:?}, not {first:?}"))
    }

    /// A report that was passed on names the document its award pins, or none.
    pub(super) fn check_routine(&self, report: &ContractorReport, counts: &Counts) -> Checked {
        let Some(hash) = report.routine.and_then(|routine| routine.hash) else { return Ok(()) };
        let Some(offer_id) = self.accepted.get(&report.award_no) else {
            return counts.hold(Check::PinsFirst, false, || format!("of no award: {report:?}"));
        };
        self.check_pinned(*offer_id, Some(hash), counts)
    }

    /// I11.
    fn check_payment(&self, award: &Award, counts: &Counts) -> Checked {
        let (policy, own) = (self.policy(), scoring::price(&award.terms));
        let holds = match (award.payment, own) {
            (None, None) => true,
            (Some(paid), Some(own)) => is_within_gates(policy, paid) && gain(policy, own, paid) >= 0,
            (Some(_), None) | (None, Some(_)) => false,
        };
        counts.hold(Check::FairPayment, holds, || format!("{award:?}"))
    }

    pub(super) fn check_commitment(&self, to: &AgentId, receipt: &Receipt, counts: &Counts) -> Checked {
        let live = self.live_by_lot.values().find(|live| Some(live.award_no) == receipt.award_no);
        let is_registered = receipt.award_no.is_some_and(|award_no| self.committed.contains(&award_no));
        let holds = is_registered && live.is_some_and(|live| live.contractor == *to);
        counts.hold(Check::OneAward, holds, || format!("committed to {to}: {receipt:?}"))
    }
}

fn is_within_gates(policy: &Policy, paid: i64) -> bool {
    let gates = policy.gates.iter().filter(|gate| gate.attr.as_str() == "price");
    let mut gates = gates.map(|gate| (gate.min.unwrap_or(i64::MIN), gate.max.unwrap_or(i64::MAX)));
    gates.all(|(min, max)| (min..=max).contains(&paid))
}

/// How much better than its own price a payment is for the winner: more where low prices score best, less where high
/// do.
fn gain(policy: &Policy, own: i64, paid: i64) -> i64 {
    let weight = policy.weights.iter().find(|weight| weight.attr.as_str() == "price");
    match weight.map(|weight| weight.dir) {
        Some(Direction::Lower) => paid - own,
        Some(Direction::Higher) => own - paid,
        None => -(own - paid).abs(),
    }
}
