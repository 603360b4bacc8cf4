//! The decision (docs/spec/contract-net.md#cn-34). Ranks the valid offers, sets what each is paid, and writes the
//! decision record.

use std::sync::Arc;

use schemas::delivery::RejectReason;
use schemas::policy::{Payment, TieBreak};
use schemas::{AwardNo, Digest, Timestamp};

use crate::acceptance::decision::{Cause, Decision, Placement, RankedOffer};
use crate::acceptance::payment;
use crate::acceptance::tie_break::{self, OfferCandidate};
use crate::contract_net::deciding::terms_of;
use crate::contract_net::state::SessionState;
use crate::contract_net::{CloseFacts, ContractNet, lot_number};
use crate::effect::Event;
use crate::negotiation::context::InputContext;
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// Ranks the valid offers, awards the lots, holds the runners-up, rejects the rest. `first` is the initiator's
    /// choice.
    pub(super) fn decide(&mut self, first: Option<usize>, cause: Cause, context: &mut InputContext<'_>) {
        let ranked = self.ranking(first, context);
        self.ensure_lots();
        let winners = self.lots.len().min(ranked.len());
        self.set_payments(&ranked, winners);
        let placements = (0..winners).map(|lot| (lot, ranked[lot].session)).collect::<Vec<_>>();
        let decision = self.decision(&ranked, &placements, cause, context);
        let held = usize::try_from(self.policy().standby).unwrap_or(usize::MAX).min(ranked.len() - winners);
        self.standby = ranked[winners..winners + held].iter().map(|candidate| candidate.session).collect();
        self.decide_by = None;
        self.enter(Phase::Awarding, context);
        for (lot, session) in placements {
            self.award(lot, session, decision, context);
        }
        for index in self.standby.clone() {
            self.set_state(index, SessionState::Standby);
        }
        for candidate in &ranked[winners + held..] {
            self.reject(candidate.session, RejectReason::Outscored, SessionState::Rejected, context);
        }
        self.settle(context);
    }

    fn ranking(&self, first: Option<usize>, context: &InputContext<'_>) -> Vec<OfferCandidate> {
        let closing = self.close.map_or(context.position, |close| close.position);
        let remembers = self.policy().tie_break == TieBreak::LeastRecentWinner;
        let mut ranked: Vec<OfferCandidate> = (0..self.sessions.len())
            .filter(|&index| self.sessions[index].state == SessionState::Offered)
            .filter_map(|index| self.candidate(index, remembers, context))
            .collect();
        tie_break::rank(self.policy(), &self.header.id, closing, &mut ranked);
        ranked.sort_by_key(|candidate| Some(candidate.session) != first);
        ranked
    }

    pub(super) fn candidate(
        &self,
        index: usize,
        remembers: bool,
        context: &InputContext<'_>,
    ) -> Option<OfferCandidate> {
        let session = &self.sessions[index];
        let offer = session.offer.as_ref()?;
        Some(OfferCandidate {
            session: index,
            contractor: session.party.agent.clone(),
            offer_id: offer.id,
            score: offer.score,
            last_win: if remembers { context.winners.last_win(&session.party.agent) } else { None },
        })
    }

    /// What each offer is paid at its rank: winners against the best offer that wins nothing, runners-up against the next
    /// in rank.
    fn set_payments(&mut self, ranked: &[OfferCandidate], winners: usize) {
        let pinned = Arc::clone(&self.pinned);
        for (rank, candidate) in ranked.iter().enumerate() {
            let rival = if rank < winners { winners } else { rank + 1 };
            let losing = ranked[rival.min(ranked.len())..].iter().map(|rival| rival.score).max();
            let Some(offer) = self.sessions[candidate.session].offer.as_mut() else { continue };
            offer.payment = match pinned.policy.payment {
                Payment::FirstPrice => offer.price,
                Payment::SecondPrice => {
                    let terms = terms_of(offer);
                    offer.price.map(|own| payment::payment(&pinned.policy, &terms, own, losing))
                }
            };
        }
    }

    /// Makes the decision record and remembers its digest.
    pub(super) fn decision(
        &mut self,
        ranked: &[OfferCandidate],
        placements: &[(usize, usize)],
        cause: Cause,
        context: &mut InputContext<'_>,
    ) -> Digest {
        let Some(close) = self.close else { return self.header.chain };
        let awards = (1..)
            .zip(placements)
            .filter_map(|(nth, &(lot, session))| {
                let offer_id = self.sessions[session].offer.as_ref()?.id;
                Some(Placement { lot: lot_number(lot), award_no: AwardNo(self.awards + nth), offer_id })
            })
            .collect();
        let decision = Decision {
            negotiation: self.header.id.clone(),
            policy: self.pinned.digest,
            round: self.round,
            position: context.position,
            at: context.now,
            cause,
            closed: close.reason,
            complete: close.complete,
            responded: close.responded,
            expected: close.expected,
            offers: ranked.iter().filter_map(|candidate| self.ranked_offer(candidate)).collect(),
            awards,
            chain: self.header.chain,
            previous: close.decision,
        };
        let digest = decision.digest();
        self.close = Some(CloseFacts { decision: Some(digest), ..close });
        context.event(Event::Decided(Arc::new(decision)));
        digest
    }

    fn ranked_offer(&self, candidate: &OfferCandidate) -> Option<RankedOffer> {
        let offer = self.sessions[candidate.session].offer.as_ref()?;
        Some(RankedOffer {
            offer_id: offer.id,
            contractor: candidate.contractor.clone(),
            terms: Digest::of_bytes(offer.terms.as_bytes()),
            score: offer.score,
            price: offer.price,
            payment: offer.payment,
            valid_until: (offer.valid_until != Timestamp::MAX).then_some(offer.valid_until),
            last_win: candidate.last_win,
        })
    }
}
