//! DECIDING: the valid offers are ranked and paid, by the score or after the initiator's choice, and every decision is
//! written down.

use std::borrow::Cow;

use schemas::delivery::{CloseReason, OfferNews};
use schemas::ids::Position;
use schemas::policy::{Payment, Policy, TieBreak};
use schemas::{AwardNo, Digest, Timestamp};
use serde::{Deserialize, Serialize};

use super::DECIDE;
use super::SessionState;
use crate::acceptance::decision::{Cause, Decision, Placement, RankedOffer};
use crate::acceptance::payment;
use crate::acceptance::reputation::PinnedReputations;
use crate::acceptance::tie_break::{self, OfferCandidate};
use crate::negotiation::InputContext;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::contract_net::awards::lot_number;
use crate::negotiation::contract_net::session::{ContractorSession, amount};
use crate::negotiation::lazy_box::HasEmpty;
use crate::negotiation::protocols::Timer;

/// What the last close found, and who is held for the next award.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Deciding {
    close: Option<CloseFacts>,
    /// When the initiator must have chosen.
    decide_by: Option<Timestamp>,
    /// Sessions held back, best first.
    standby: Vec<usize>,
}

/// Facts of the last close, for the decisions and reports that follow from it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct CloseFacts {
    pub(super) reason: CloseReason,
    pub(super) complete: bool,
    pub(super) offers: u32,
    pub(super) responded: u32,
    pub(super) expected: u32,
    pub(super) position: Position,
    /// Digest of the last decision.
    pub(super) decision: Option<Digest>,
}

impl CloseFacts {
    pub(super) fn is_deadline(&self) -> bool {
        self.reason == CloseReason::Deadline
    }
}

impl HasEmpty for Deciding {
    fn empty() -> &'static Self {
        static EMPTY: Deciding = Deciding { close: None, decide_by: None, standby: Vec::new() };
        &EMPTY
    }

    fn is_empty(&self) -> bool {
        let Self { close, decide_by, standby } = self;
        close.is_none() && decide_by.is_none() && standby.is_empty()
    }
}

impl Deciding {
    pub(super) fn close(&self) -> Option<CloseFacts> {
        self.close
    }

    pub(super) fn note_close(&mut self, facts: CloseFacts) {
        self.close = Some(facts);
    }

    pub(super) fn timer(&self) -> Option<Timer> {
        self.decide_by.map(|at| (at, DECIDE))
    }

    /// The initiator has until then to choose.
    pub(super) fn wait_until(&mut self, decide_by: Timestamp) {
        self.decide_by = Some(decide_by);
    }

    /// Nobody is waited for any more.
    pub(super) fn stop_waiting(&mut self) {
        self.decide_by = None;
    }

    /// Nothing is decided, and nobody held.
    pub(super) fn reset_round(&mut self) {
        self.standby.clear();
        self.decide_by = None;
    }

    pub(super) fn hold_runners_up(&mut self, runners_up: Vec<usize>) {
        self.standby = runners_up;
    }

    /// The best runner-up is held no longer.
    pub(super) fn next_runner_up(&mut self) -> Option<usize> {
        (!self.standby.is_empty()).then(|| self.standby.remove(0))
    }

    pub(super) fn drop_runner_up(&mut self, session: usize) {
        self.standby.retain(|&held| held != session);
    }

    /// Nobody is held any longer; gives who was.
    pub(super) fn release(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.standby)
    }

    /// Remembers the last decision, which the next names.
    pub(super) fn note_decision(&mut self, digest: Digest) {
        debug_assert!(self.close.is_some(), "a decision before the close");
        if let Some(close) = &mut self.close {
            close.decision = Some(digest);
        }
    }

    /// Whether every runner-up is one of so many sessions.
    pub(super) fn is_within(&self, sessions: usize) -> bool {
        self.standby.iter().all(|index| *index < sessions)
    }

    /// Room that holds no runner-up.
    #[cfg(test)]
    pub(super) fn spare(&self) -> usize {
        self.standby.capacity() - self.standby.len()
    }
}

/// The valid offers, best first; the initiator's choice before all others.
pub(super) fn ranking(net: &ContractNet, first: Option<usize>, context: &InputContext<'_>) -> Vec<OfferCandidate> {
    let closing = net.deciding.close().map_or(context.position, |close| close.position);
    let remembers = net.policy().tie_break == TieBreak::LeastRecentWinner;
    let mut ranked: Vec<OfferCandidate> = (0..net.sessions.len())
        .filter(|&index| net.sessions[index].state == SessionState::Offered)
        .filter_map(|index| candidate(&net.sessions[index], index, remembers, context))
        .collect();
    tie_break::rank(net.policy(), &net.header.id, closing, &mut ranked);
    ranked.sort_by_key(|candidate| Some(candidate.session) != first);
    ranked
}

/// A runner-up and those held behind it, in their order.
pub(super) fn held(net: &ContractNet, next: usize, context: &InputContext<'_>) -> Vec<OfferCandidate> {
    std::iter::once(&next)
        .chain(&net.deciding.standby)
        .filter_map(|&index| candidate(&net.sessions[index], index, false, context))
        .collect()
}

fn candidate(
    session: &ContractorSession,
    index: usize,
    remembers: bool,
    context: &InputContext<'_>,
) -> Option<OfferCandidate> {
    let offer = session.offer.as_ref()?;
    Some(OfferCandidate {
        session: index,
        contractor: session.party.agent.clone(),
        offer_id: offer.id,
        score: offer.score,
        last_win: if remembers { context.winners.last_win(&session.party.agent) } else { None },
    })
}

/// Sets what each offer is paid at its rank: winners against the best offer that wins nothing, runners-up against the next
/// in rank.
pub(super) fn set_payments(
    (policy, reputations): (&Policy, &PinnedReputations),
    sessions: &mut [ContractorSession],
    ranked: &[OfferCandidate],
    winners: usize,
) {
    for (rank, candidate) in ranked.iter().enumerate() {
        let rival = if rank < winners { winners } else { rank + 1 };
        let losing = ranked[rival.min(ranked.len())..].iter().map(|rival| rival.score).max();
        let Some(offer) = sessions[candidate.session].offer.as_mut() else { continue };
        offer.payment = match policy.payment {
            Payment::FirstPrice => offer.price,
            Payment::SecondPrice => {
                let terms = offer.terms();
                let weighed = reputations.weighed(policy, candidate.session, &terms);
                let terms = weighed.unwrap_or(Cow::Borrowed(&terms));
                offer.price().map(|own| amount(payment::payment(policy, &terms, own, losing)))
            }
        };
    }
}

/// The record of a decision; absent before the first close. `placements` are the awards it makes, as lot and session.
pub(super) fn record(
    net: &ContractNet,
    ranked: &[OfferCandidate],
    placements: &[(usize, usize)],
    cause: Cause,
    context: &InputContext<'_>,
) -> Option<Decision> {
    let close = net.deciding.close()?;
    let awards = (1..)
        .zip(placements)
        .filter_map(|(nth, &(lot, session))| {
            let offer = net.sessions[session].offer.as_ref()?;
            let (offer_id, document) = (offer.id, offer.document());
            Some(Placement { lot: lot_number(lot), award_no: AwardNo(net.awards.made() + nth), offer_id, document })
        })
        .collect();
    Some(Decision {
        negotiation: net.header.id.clone(),
        policy: net.pinned.digest,
        round: net.round,
        position: context.position,
        at: context.now,
        cause,
        closed: close.reason,
        complete: close.complete,
        responded: close.responded,
        expected: close.expected,
        offers: ranked.iter().filter_map(|candidate| ranked_offer(net, candidate)).collect(),
        awards,
        chain: net.header.chain,
        previous: close.decision,
        seats: None,
    })
}

fn ranked_offer(net: &ContractNet, candidate: &OfferCandidate) -> Option<RankedOffer> {
    let offer = net.sessions[candidate.session].offer.as_ref()?;
    Some(RankedOffer {
        offer_id: offer.id,
        contractor: candidate.contractor.clone(),
        terms: Digest::of_bytes(offer.terms.as_bytes()),
        score: offer.score,
        price: offer.price(),
        payment: offer.payment(),
        valid_until: (offer.valid_until != Timestamp::MAX).then_some(offer.valid_until),
        last_win: candidate.last_win,
        reputation: net.reputations.get(candidate.session),
    })
}

/// The valid offers as the initiator is shown them, in a permutation nobody could foresee: ascending SHA-256(negotiation,
/// closing position, offer id).
pub(super) fn revealed(net: &ContractNet, closing: Position) -> Vec<OfferNews> {
    let closing = closing.to_string();
    let reveal = |session: &ContractorSession| {
        let offer = session.offer.as_ref().filter(|_| session.state == SessionState::Offered)?;
        Some(OfferNews {
            offer_id: offer.id,
            contractor: session.party.agent.clone(),
            terms: offer.terms(),
            score: offer.score,
            document: offer.document(),
        })
    };
    let mut offers: Vec<OfferNews> = net.sessions.iter().filter_map(reveal).collect();
    offers.sort_by_cached_key(|offer| {
        let id = offer.offer_id.to_string();
        Digest::of_parts(&[net.header.id.as_str().as_bytes(), closing.as_bytes(), id.as_bytes()])
    });
    offers
}
