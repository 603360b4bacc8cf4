//! The close, and the rounds of an iterated contract net (FIPA SC00030).

use std::sync::Arc;

use schemas::WireTime;
use schemas::delivery::{Call, CloseReason, Outcome, RejectReason};
use schemas::policy::{Decider, OnIncomplete};

use crate::acceptance::threshold::Period;
use crate::contract_net::opening::window_from_call;
use crate::contract_net::state::SessionState;
use crate::contract_net::{CloseFacts, ContractNet, OfferTally};
use crate::effect::Event;
use crate::negotiation::context::InputContext;
use crate::negotiation::party::LotState;
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// Collection closes. The tally is up to date.
    pub(super) fn close(&mut self, reason: CloseReason, context: &mut InputContext<'_>) {
        let facts = CloseFacts {
            reason,
            complete: self.responded >= self.expected,
            offers: self.tally.valid,
            responded: self.responded,
            expected: self.expected,
            position: context.position,
            decision: None,
        };
        self.close = Some(facts);
        (self.window_at, self.crossing_at) = (None, None);
        context.event(Event::Closed {
            negotiation: self.header.id.clone(),
            round: self.round,
            reason,
            complete: facts.complete,
            offers: facts.offers,
            responded: facts.responded,
            expected: facts.expected,
            at: context.now,
            elapsed_us: context.now.since_us(self.header.started_at),
        });
        self.reject_expired(context);
        let is_failed = self.policy().on_incomplete == OnIncomplete::Fail && !facts.complete;
        if !self.policy().award {
            let outcome = if facts.offers == 0 { Outcome::NoOffers } else { Outcome::Incomplete };
            self.end(outcome, Some("policy_awards_nobody"), context);
        } else if is_failed && reason == CloseReason::Deadline {
            self.conclude_round(Outcome::Incomplete, context);
        } else if facts.offers == 0 {
            self.conclude_round(Outcome::NoOffers, context);
        } else if self.policy().decider == Decider::Initiator {
            self.ask_initiator(context);
        } else {
            self.decide(None, crate::Cause::Score, context);
        }
    }

    /// Offers whose validity has run out are no longer in the running.
    pub(super) fn reject_expired(&mut self, context: &mut InputContext<'_>) {
        for index in 0..self.sessions.len() {
            let session = &self.sessions[index];
            let is_expired = session.offer.as_ref().is_some_and(|offer| !offer.is_valid(context.now));
            if session.state == SessionState::Offered && is_expired {
                self.reject(index, RejectReason::Expired, SessionState::Rejected, context);
            }
        }
    }

    /// No award can be made in this round (docs/spec/contract-net.md#cn-28). The next round calls those who answered,
    /// except for those who failed, were excluded, or did not understand: the same call again would tell them nothing
    /// new.
    pub(super) fn conclude_round(&mut self, outcome: Outcome, context: &mut InputContext<'_>) {
        let called: Vec<usize> = (0..self.sessions.len())
            .filter(|&index| {
                let session = &self.sessions[index];
                session.round == self.round
                    && matches!(
                        session.state,
                        SessionState::Offered
                            | SessionState::PolicyRejected
                            | SessionState::Refused
                            | SessionState::Withdrawn
                            | SessionState::Rejected
                    )
            })
            .collect();
        if !self.begin_round(&called, context) {
            self.end(outcome, None, context);
        }
    }

    /// Opens the next round for some contractors. False, and nothing done, when no round is left, nobody is to be called,
    /// or the time to the hard deadline does not allow another collection period.
    pub(super) fn begin_round(&mut self, called: &[usize], context: &mut InputContext<'_>) -> bool {
        let reply_by = schemas::Timestamp(context.clock.0.saturating_add(self.period.length_us));
        let has_round = self.round < self.policy().max_rounds && reply_by <= self.header.ends_by;
        let Some(call) = self.call.clone().filter(|_| has_round && !called.is_empty()) else { return false };
        for index in 0..self.sessions.len() {
            if !self.sessions[index].is_owed_closed {
                self.reject_offer(index, RejectReason::Round, context);
            }
        }
        self.standby.clear();
        self.round += 1;
        (self.reply_by, self.extensions) = (reply_by, 0);
        self.period = Period { start: context.clock, ..self.period };
        (self.is_window_past, self.window_at) = (false, window_from_call(self.policy(), context.clock));
        self.tally = OfferTally::EMPTY;
        self.decide_by = None;
        self.lots.iter_mut().for_each(|lot| lot.award = None);
        self.enter(Phase::Collecting, context);
        self.recall_sessions(called);
        let call = Arc::new(Call { round: self.round, reply_by: WireTime(reply_by), ..Call::clone(&call) });
        self.deliver_call(&call, called, context);
        true
    }

    fn recall_sessions(&mut self, called: &[usize]) {
        for session in &mut self.sessions {
            if matches!(session.state, SessionState::Invited | SessionState::Offered | SessionState::Standby) {
                session.state = SessionState::Lapsed;
            }
        }
        for &index in called {
            (self.sessions[index].state, self.sessions[index].round) = (SessionState::Invited, self.round);
        }
        self.responded = 0;
        self.expected = u32::try_from(called.len()).unwrap_or(u32::MAX);
    }

    /// The lots, made at the first award; their count of tries survives a new round.
    pub(super) fn ensure_lots(&mut self) {
        let lots = usize::try_from(self.policy().awards).unwrap_or(usize::MAX);
        self.lots.resize_with(lots, LotState::default);
    }
}
