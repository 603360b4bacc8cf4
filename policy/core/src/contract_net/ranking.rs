//! Row 6: the decision. Ranks the valid offers, sets what each is paid, and writes the decision record.

use std::sync::Arc;

use schemas::delivery::RejectReason;
use schemas::policy::{Payment, TieBreak};
use schemas::{AwardNo, Digest, Timestamp};

use crate::acceptance::decision::{Cause, Decision, Placement, RankedOffer};
use crate::acceptance::payment;
use crate::acceptance::tie_break::{self, Candidate};
use crate::contract_net::deciding::terms_of;
use crate::contract_net::state::SessionState;
use crate::effect::Event;
use crate::negotiation::{CloseFacts, Negotiation, lot_number};
use crate::state::Phase;
use crate::step::Step;

impl Negotiation {
    /// Row 6: ranks the valid offers, awards the lots, holds the runners-up, rejects the rest. `first` is the initiator's
    /// choice.
    pub(super) fn decide(&mut self, first: Option<usize>, cause: Cause, step: &mut Step<'_>) {
        let ranked = self.ranking(first, step);
        self.ensure_lots();
        let winners = self.lots.len().min(ranked.len());
        self.set_payments(&ranked, winners);
        let placements = (0..winners).map(|lot| (lot, ranked[lot].session)).collect::<Vec<_>>();
        let decision = self.decision(&ranked, &placements, cause, step);
        let held = usize::try_from(self.policy().standby).unwrap_or(usize::MAX).min(ranked.len() - winners);
        self.standby = ranked[winners..winners + held].iter().map(|candidate| candidate.session).collect();
        self.decide_by = None;
        self.enter(Phase::Awarding, step);
        for (lot, session) in placements {
            self.award(lot, session, decision, step);
        }
        for index in self.standby.clone() {
            self.set_state(index, SessionState::Standby);
        }
        for candidate in &ranked[winners + held..] {
            self.reject(candidate.session, RejectReason::Outscored, SessionState::Rejected, step);
        }
        self.settle(step);
    }

    fn ranking(&self, first: Option<usize>, step: &Step<'_>) -> Vec<Candidate> {
        let closing = self.close.map_or(step.position, |close| close.position);
        let remembers = self.policy().tie_break == TieBreak::LeastRecentWinner;
        let mut ranked: Vec<Candidate> = (0..self.sessions.len())
            .filter(|&index| self.sessions[index].state == SessionState::Offered)
            .filter_map(|index| self.candidate(index, remembers, step))
            .collect();
        tie_break::rank(self.policy(), &self.matter.id, closing, &mut ranked);
        ranked.sort_by_key(|candidate| Some(candidate.session) != first);
        ranked
    }

    pub(super) fn candidate(&self, index: usize, remembers: bool, step: &Step<'_>) -> Option<Candidate> {
        let session = &self.sessions[index];
        let offer = session.offer.as_ref()?;
        Some(Candidate {
            session: index,
            contractor: session.party.agent.clone(),
            offer_id: offer.id,
            score: offer.score,
            last_win: if remembers { step.winners.last_win(&session.party.agent) } else { None },
        })
    }

    /// What each offer is paid at its rank: winners against the best offer that wins nothing, runners-up against the next
    /// in rank.
    fn set_payments(&mut self, ranked: &[Candidate], winners: usize) {
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
        ranked: &[Candidate],
        placements: &[(usize, usize)],
        cause: Cause,
        step: &mut Step<'_>,
    ) -> Digest {
        let Some(close) = self.close else { return self.matter.chain };
        let awards = (1..)
            .zip(placements)
            .filter_map(|(nth, &(lot, session))| {
                let offer_id = self.sessions[session].offer.as_ref()?.id;
                Some(Placement { lot: lot_number(lot), award_no: AwardNo(self.awards + nth), offer_id })
            })
            .collect();
        let decision = Decision {
            negotiation: self.matter.id.clone(),
            policy: self.pinned.digest,
            round: self.round,
            position: step.position,
            at: step.now,
            cause,
            closed: close.reason,
            complete: close.complete,
            responded: close.responded,
            expected: close.expected,
            offers: ranked.iter().filter_map(|candidate| self.ranked_offer(candidate)).collect(),
            awards,
            chain: self.matter.chain,
            previous: close.decision,
        };
        let digest = decision.digest();
        self.close = Some(CloseFacts { decision: Some(digest), ..close });
        step.event(Event::Decided(Arc::new(decision)));
        digest
    }

    fn ranked_offer(&self, candidate: &Candidate) -> Option<RankedOffer> {
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
