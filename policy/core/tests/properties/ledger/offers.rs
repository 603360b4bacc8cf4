//! Offers: their validity when ranked (I8), their final notices (I3), and the balance of a round (I12).

use policy_core::{Cause, Decision, RankedOffer};
use policy_reference::scoring;
use schemas::delivery::{RejectReason, Rejection};
use schemas::{AgentId, AwardNo, Digest, OfferId, Timestamp};

use super::{Fate, Followed, Ledger};
use crate::checks::{Check, Checked, Counts};

impl Followed {
    /// [`Timestamp::MAX`] when it stands for the whole negotiation.
    pub(super) fn valid_until(&self) -> Timestamp {
        match (self.body.valid_for_ms, self.body.valid_until) {
            (Some(ms), _) => self.at.plus_ms(ms),
            (None, Some(until)) => until.0,
            (None, None) => Timestamp::MAX,
        }
    }
}

impl Ledger {
    /// I8 for everything a decision ranks, and that it ranks every valid offer of the round.
    pub(super) fn check_decision(&mut self, decision: &Decision, counts: &Counts) -> Checked {
        self.decided_at = decision.at;
        for ranked in &decision.offers {
            self.check_ranked(ranked, counts)?;
        }
        for award in &decision.awards {
            let is_valid = self.offers.get(&award.offer_id).is_some_and(|offer| offer.valid_until() >= decision.at);
            counts.hold(Check::OnlyValidOffersWin, is_valid, || format!("expired: {award:?} of {decision:?}"))?;
            self.check_pinned(award.offer_id, award.document, counts)?;
        }
        if matches!(decision.cause, Cause::ReAward(_)) {
            return Ok(());
        }
        let mut ranked: Vec<OfferId> = decision.offers.iter().map(|offer| offer.offer_id).collect();
        ranked.sort();
        let in_the_running = |offer: &Followed| offer.finals == 0 && offer.fate.is_none() && offer.round == self.round;
        let valid = self.offers.iter().filter(|(_, offer)| in_the_running(offer) && offer.valid_until() >= decision.at);
        let valid: Vec<OfferId> = valid.map(|(id, _)| *id).collect();
        counts.hold(Check::OnlyValidOffersWin, ranked == valid, || format!("{ranked:?} ranked, {valid:?} valid"))?;
        self.check_best_first(decision, counts)
    }

    fn check_ranked(&self, ranked: &RankedOffer, counts: &Counts) -> Checked {
        let Some(offer) = self.offers.get(&ranked.offer_id) else {
            return counts.hold(Check::OnlyValidOffersWin, false, || format!("no such `ok` offer: {ranked:?}"));
        };
        let (currency, documents) = (self.currency.as_deref(), self.documents.as_ref());
        let Some(weighed) = scoring::with_reputation(self.policy(), ranked.reputation, &offer.body) else {
            return counts.hold(Check::OnlyValidOffersWin, false, || format!("claims a reputation: {ranked:?}"));
        };
        let gates = scoring::gate_failed(self.policy(), currency, &weighed, documents, offer.valid_until(), offer.at);
        let is_refused = self.refused.contains(&ranked.offer_id) || gates.is_some() || offer.finals > 0;
        let score = scoring::score(self.policy(), &weighed.terms);
        let is_same = ranked.score == score
            && ranked.contractor == offer.contractor
            && Some(ranked.terms) == Digest::of(&offer.body.terms).ok();
        counts
            .hold(Check::OnlyValidOffersWin, !is_refused && is_same, || format!("{ranked:?}, score {score}, {gates:?}"))
    }

    /// No offer that wins nothing scores better than one that wins, but for the band; the initiator may prefer another.
    fn check_best_first(&self, decision: &Decision, counts: &Counts) -> Checked {
        let best = decision.offers.iter().map(|offer| offer.score).max().unwrap_or(0);
        let level = |offer: &RankedOffer| if best - offer.score < self.policy().eps_band { best } else { offer.score };
        let free = usize::from(decision.cause == Cause::Initiator);
        let levels: Vec<u32> = decision.offers.iter().skip(free).map(level).collect();
        let wins: Vec<OfferId> = decision.awards.iter().map(|award| award.offer_id).collect();
        let first: Vec<OfferId> = decision.offers.iter().take(wins.len()).map(|offer| offer.offer_id).collect();
        let is_sorted = levels.is_sorted_by(|left, right| left >= right);
        counts.hold(Check::OnlyValidOffersWin, is_sorted && wins == first, || format!("{decision:?}"))
    }

    pub(super) fn note_rejection(&mut self, to: &AgentId, rejection: &Rejection, counts: &Counts) -> Checked {
        let offer = rejection.offer_id.and_then(|offer_id| self.offers.get_mut(&offer_id));
        let is_for_refusal = matches!(rejection.reason, RejectReason::Late | RejectReason::Policy);
        let why = || format!("{to}: {rejection:?}");
        let Some(offer) = offer else { return counts.hold(Check::OneFinalNotice, is_for_refusal, why) };
        offer.finals += 1;
        offer.fate.get_or_insert(match rejection.reason {
            RejectReason::Withdrawn | RejectReason::Replaced => Fate::Withdrawn,
            RejectReason::Expired => Fate::Lapsed,
            RejectReason::Outscored
            | RejectReason::Late
            | RejectReason::Policy
            | RejectReason::Cancelled
            | RejectReason::Awarded
            | RejectReason::Round => Fate::Rejected,
        });
        let holds = offer.finals == 1 && offer.contractor == *to && !is_for_refusal;
        counts.hold(Check::OneFinalNotice, holds, why)
    }

    /// CANCEL is the final notice of the offer its award accepted.
    pub(super) fn note_cancel(&mut self, to: &AgentId, award_no: AwardNo, counts: &Counts) -> Checked {
        self.live_by_lot.retain(|_, live| live.award_no != award_no);
        let offer = self.accepted.get(&award_no).and_then(|offer_id| self.offers.get_mut(offer_id));
        let holds = offer.is_some_and(|offer| {
            offer.finals += 1;
            offer.finals == 1 && offer.contractor == *to
        });
        counts.hold(Check::OneFinalNotice, holds, || format!("CANCEL of {award_no} to {to}"))
    }

    /// I12: before round `until` every offer of an earlier round has met its fate.
    pub(super) fn check_balance(&self, until: u32, counts: &Counts) -> Checked {
        for round in 1..until {
            let offers = || self.offers.values().filter(|offer| offer.round == round);
            let met = |fate| offers().filter(|offer| offer.fate == Some(fate)).count();
            let fates = [Fate::Accepted, Fate::Rejected, Fate::Withdrawn, Fate::Lapsed].map(met);
            let total: usize = fates.iter().sum();
            counts.hold(Check::OffersBalance, total == offers().count(), || {
                format!("round {round}: {} offers, accepted, rejected, withdrawn, lapsed {fates:?}", offers().count())
            })?;
        }
        Ok(())
    }

    /// I3 and I12 once everything is told; `offers` is how many the lane's state counted.
    pub(super) fn check_offers_at_the_end(&self, offers: u32, counts: &Counts) -> Checked {
        self.check_balance(self.round + 1, counts)?;
        let is_counted = usize::try_from(offers).ok() == Some(self.offers.len());
        counts.hold(Check::OffersBalance, is_counted, || format!("{offers} counted, {} seen", self.offers.len()))?;
        for (offer_id, offer) in &self.offers {
            let of_this = self.accepted.iter().filter(|(_, accepted)| *accepted == offer_id);
            let was_bound = of_this.into_iter().any(|(award_no, _)| self.committed.contains(award_no));
            let is_told_closed = was_bound && offer.finals == 0 && self.told_closed.contains(&offer.contractor);
            let finals = offer.finals + u32::from(is_told_closed);
            counts.hold(Check::OneFinalNotice, finals == 1, || format!("{offer_id} has {finals} final notices"))?;
        }
        Ok(())
    }
}
