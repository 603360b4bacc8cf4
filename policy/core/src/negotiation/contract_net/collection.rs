//! COLLECTING: offers and answers come in until the close rule or the deadline ends it; the next round begins it again (FIPA
//! SC00030). Whether an offer comes too late is judged with all else a message is judged by, in `rules.rs`.

use std::sync::Arc;

use schemas::delivery::{Call, CloseReason, Notification, Outcome, RejectReason};
use schemas::ids::Position;
use schemas::policy::{OnIncomplete, Policy, WindowAnchor};
use schemas::{Timestamp, WireTime};
use serde::{Deserialize, Serialize};

use super::SessionState;
use super::{COLLECT, CROSSING, WINDOW};
use crate::acceptance::threshold::{self, Period};
use crate::acceptance::{CollectionStatus, close_reason};
use crate::effect::Deliver;
use crate::negotiation::contract_net::ContractNet;
use crate::negotiation::contract_net::decision::CloseFacts;
use crate::negotiation::contract_net::session::{CollectedOffer, ContractorSession};
use crate::negotiation::disposition::ProtocolRules;
use crate::negotiation::protocols::Timer;
use crate::negotiation::{CALL_ORDINAL, InputContext};
use schemas::protocols::Phase;

/// The collection of one round: its period, who has answered, and which offers are in the running.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Collection {
    /// The period as first announced.
    period: Period,
    reply_by: Timestamp,
    /// Where the round's CFPs were made: their delivery ids follow from it. The session's index is the ordinal.
    called_at: Position,
    /// Number of the input that made them, in the lane's count.
    called_input: u64,
    extensions: u32,
    /// Contractors called.
    expected: u32,
    /// Contractors called that have answered.
    responded: u32,
    tally: OfferTally,
    window_at: Option<Timestamp>,
    is_window_past: bool,
    crossing_at: Option<Timestamp>,
}

/// The valid offers, counted. Exact while `is_stale` is false and the next expiry lies ahead.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct OfferTally {
    valid: u32,
    best: Option<u32>,
    next_expiry: Timestamp,
    is_stale: bool,
}

impl OfferTally {
    const EMPTY: Self = Self { valid: 0, best: None, next_expiry: Timestamp::MAX, is_stale: false };

    fn add(&mut self, score: u32, valid_until: Timestamp) {
        self.valid += 1;
        self.best = self.best.max(Some(score));
        self.next_expiry = self.next_expiry.min(valid_until);
    }
}

impl Collection {
    /// The collection of the first round, which `expected` contractors are called for.
    pub(super) fn new(policy: &Policy, expected: usize, reply_by: Timestamp, context: &InputContext<'_>) -> Self {
        Self {
            period: Period { start: context.now, length_us: reply_by.since_us(context.now) },
            reply_by,
            called_at: context.position,
            called_input: context.input,
            extensions: 0,
            expected: count(expected),
            responded: 0,
            tally: OfferTally::EMPTY,
            window_at: window_from_call(policy, context.now),
            is_window_past: false,
            crossing_at: None,
        }
    }

    pub(super) fn reply_by(&self) -> Timestamp {
        self.reply_by
    }

    /// Moves the deadline to a later one.
    pub(super) fn put_off(&mut self, reply_by: Timestamp) {
        self.reply_by = self.reply_by.max(reply_by);
    }

    pub(super) fn expected(&self) -> u32 {
        self.expected
    }

    pub(super) fn responded(&self) -> u32 {
        self.responded
    }

    /// The timers while offers are collected.
    pub(super) fn timers(&self) -> [Option<Timer>; 3] {
        [
            Some((self.reply_by, COLLECT)),
            self.window_at.map(|at| (at, WINDOW)),
            self.crossing_at.map(|at| (at, CROSSING)),
        ]
    }

    /// A contractor called in this round changes its state.
    pub(super) fn count_answer(&mut self, from: SessionState, to: SessionState) {
        debug_assert!(self.responded >= u32::from(from.is_response()), "an answer was counted that never came");
        self.responded -= u32::from(from.is_response());
        self.responded += u32::from(to.is_response());
        debug_assert!(self.responded <= self.expected, "more answers than contractors called");
    }

    /// An offer has left the running.
    pub(super) fn forget_tally(&mut self) {
        self.tally.is_stale = true;
    }

    /// Brings the tally up to `now`. Counts all offers only when one left the running or has expired since.
    fn refresh_tally(&mut self, sessions: &[ContractorSession], now: Timestamp) {
        if self.tally.is_stale || self.tally.next_expiry < now {
            self.tally = OfferTally::EMPTY;
            for session in sessions {
                if let (SessionState::Offered, Some(offer)) = (session.state, &session.offer)
                    && offer.is_valid(now)
                {
                    self.tally.add(offer.score, offer.valid_until);
                }
            }
        }
    }

    /// Counts a new offer. The first valid one of a round starts a window anchored at it, even if it is withdrawn later.
    fn add_offer(&mut self, policy: &Policy, offer: &CollectedOffer, now: Timestamp) {
        self.tally.add(offer.score, offer.valid_until);
        let close = &policy.close;
        if close.window_anchor == WindowAnchor::FirstValid && self.window_at.is_none() && !self.is_window_past {
            self.window_at = close.window_ms.map(|ms| now.plus_ms(ms));
        }
    }

    /// Why collection closes now, if it does; otherwise sets the timer for the falling threshold to reach the best score.
    fn evaluate(&mut self, policy: &Policy, sessions: &[ContractorSession], now: Timestamp) -> Option<CloseReason> {
        self.refresh_tally(sessions, now);
        let falling = policy.close.score_at_least.zip(self.tally.best);
        let status = CollectionStatus {
            valid: self.tally.valid,
            is_score_reached: falling
                .is_some_and(|(threshold, best)| threshold::is_reached(threshold, self.period, best, now)),
            responded: self.responded,
            expected: self.expected,
            is_window_past: self.is_window_past,
        };
        let reason = close_reason(&policy.close, status);
        if reason.is_none() {
            self.crossing_at = falling.and_then(|(threshold, best)| {
                threshold::crossing(threshold, self.period, best, now).filter(|at| *at > now)
            });
        }
        reason
    }

    /// Collection is over.
    pub(super) fn close(
        &mut self,
        reason: CloseReason,
        sessions: &[ContractorSession],
        (position, now): (Position, Timestamp),
    ) -> CloseFacts {
        self.refresh_tally(sessions, now);
        (self.window_at, self.crossing_at) = (None, None);
        CloseFacts {
            reason,
            complete: self.responded >= self.expected,
            offers: self.tally.valid,
            responded: self.responded,
            expected: self.expected,
            position,
            decision: None,
        }
    }

    /// Begins again, for the next round.
    fn reset_round(&mut self, policy: &Policy, called: usize, reply_by: Timestamp, context: &InputContext<'_>) {
        debug_assert!(reply_by >= context.clock, "a round ends before it begins");
        (self.reply_by, self.extensions) = (reply_by, 0);
        self.period = Period { start: context.clock, ..self.period };
        (self.is_window_past, self.window_at) = (false, window_from_call(policy, context.clock));
        self.tally = OfferTally::EMPTY;
        (self.responded, self.expected) = (0, count(called));
    }
}

impl ContractNet {
    /// The offer replaces the contractor's earlier one (docs/spec/contract-net.md#cn-9).
    pub(super) fn record_offer(&mut self, index: usize, offer: Box<CollectedOffer>, context: &mut InputContext<'_>) {
        self.collection.add_offer(&self.pinned.policy, &offer, context.now);
        self.replace_offer(index, offer, context);
        self.evaluate(context);
    }

    /// A gate-failing revision also removes the earlier offer (docs/spec/contract-net.md#cn-13).
    pub(super) fn drop_offer(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.reject(index, RejectReason::Replaced, SessionState::PolicyRejected, context);
        self.evaluate(context);
    }

    /// An answer without an offer (docs/spec/contract-net.md#cn-14).
    pub(super) fn decline(&mut self, index: usize, state: SessionState, context: &mut InputContext<'_>) {
        self.set_state(index, state);
        self.evaluate(context);
    }

    /// The offer is taken back (docs/spec/contract-net.md#cn-15).
    pub(super) fn withdraw(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.reject(index, RejectReason::Withdrawn, SessionState::Withdrawn, context);
        self.evaluate(context);
    }

    /// Strikes out (docs/spec/contract-net.md#cn-17).
    pub(super) fn strike(&mut self, index: usize, context: &mut InputContext<'_>) {
        if self.count_strike(index) {
            self.exclude(index, context);
        }
    }

    /// The session is excluded and its offer leaves the running. Who is bound, or has been, stays: a commitment does not end
    /// by a mistake.
    pub(super) fn exclude(&mut self, index: usize, context: &mut InputContext<'_>) {
        if self.drop_session(index, context) && self.phase == Phase::Collecting {
            self.evaluate(context);
        }
    }

    /// The close rule, after every collecting event and timer.
    fn evaluate(&mut self, context: &mut InputContext<'_>) {
        if let Some(reason) = self.collection.evaluate(&self.pinned.policy, &self.sessions, context.now) {
            self.close(reason, context);
        }
    }

    /// The window has passed (docs/spec/contract-net.md#cn-24). With too few valid offers it stays past, and the next
    /// valid offer closes.
    pub(super) fn handle_window(&mut self, context: &mut InputContext<'_>) {
        self.collection.window_at = None;
        self.collection.is_window_past = true;
        self.evaluate(context);
    }

    /// The falling threshold reaches the best score.
    pub(super) fn handle_crossing(&mut self, context: &mut InputContext<'_>) {
        self.collection.crossing_at = None;
        self.evaluate(context);
    }

    /// The collection deadline always closes (docs/spec/contract-net.md#cn-22), unless missing answers buy an
    /// extension.
    pub(super) fn handle_collect(&mut self, context: &mut InputContext<'_>) {
        let collection = &mut self.collection;
        if let OnIncomplete::Extend { ms, max } = self.pinned.policy.on_incomplete {
            let reply_by = context.clock.plus_ms(ms);
            let is_incomplete = collection.responded < collection.expected;
            if is_incomplete && collection.extensions < max && reply_by <= self.header.ends_by {
                return self.extend(reply_by, context);
            }
        }
        self.close(CloseReason::Deadline, context);
    }

    /// Those who have not answered are called again, with the later deadline.
    fn extend(&mut self, reply_by: Timestamp, context: &mut InputContext<'_>) {
        self.collection.extensions += 1;
        self.collection.reply_by = reply_by;
        let Some(call) = self.call.clone() else { return };
        let call = Arc::new(Call { round: self.round, reply_by: WireTime(reply_by), ..Call::clone(&call) });
        let is_silent =
            |session: &ContractorSession| session.state == SessionState::Invited && session.round == self.round;
        let silent: Vec<usize> = (0..self.sessions.len()).filter(|&index| is_silent(&self.sessions[index])).collect();
        self.deliver_call(&call, &silent, context);
    }

    /// Collection closes.
    fn close(&mut self, reason: CloseReason, context: &mut InputContext<'_>) {
        let facts = self.end_collection(reason, context);
        self.follow_close(facts, context);
    }

    /// No award can be made in this round (docs/spec/contract-net.md#cn-28). The next round calls those who answered,
    /// except for those who failed, were excluded, or did not understand: the same call again would tell them nothing
    /// new.
    pub(super) fn conclude_round(&mut self, outcome: Outcome, context: &mut InputContext<'_>) {
        let is_called = |session: &ContractorSession| {
            session.round == self.round
                && matches!(
                    session.state,
                    SessionState::Offered
                        | SessionState::PolicyRejected
                        | SessionState::Refused
                        | SessionState::Withdrawn
                        | SessionState::Rejected
                )
        };
        let called: Vec<usize> = (0..self.sessions.len()).filter(|&index| is_called(&self.sessions[index])).collect();
        if !self.begin_round(&called, context) {
            self.end(outcome, None, context);
        }
    }

    /// Opens the next round for some contractors. False, and nothing done, when no round is left, nobody is to be called,
    /// or the time to the hard deadline does not allow another collection period.
    pub(super) fn begin_round(&mut self, called: &[usize], context: &mut InputContext<'_>) -> bool {
        let reply_by = Timestamp(context.clock.0.saturating_add(self.collection.period.length_us));
        let has_round = self.round < self.policy().max_rounds && reply_by <= self.header.ends_by;
        let Some(call) = self.call.clone().filter(|_| has_round && !called.is_empty()) else { return false };
        for index in 0..self.sessions.len() {
            if !self.sessions[index].is_owed_closed {
                self.reject_offer(index, RejectReason::Round, context);
            }
        }
        self.round += 1;
        self.deciding.reset_round();
        self.awards.reset_round();
        self.collection.reset_round(&self.pinned.policy, called.len(), reply_by, context);
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
    }

    /// Delivers a call to some sessions, whose round it opens (or whose deadline it extends).
    pub(super) fn deliver_call(&mut self, call: &Arc<Call>, called: &[usize], context: &mut InputContext<'_>) {
        let told = Arc::new(Notification::Cfp(Call::clone(call)));
        (self.collection.called_at, self.collection.called_input) = (context.position, context.input);
        for &index in called {
            let (session, ordinal) = (&self.sessions[index], call_ordinal(index));
            let (to, expires) = (&session.party.agent, self.collection.reply_by);
            let delivery = context.delivery_at(ordinal, &self.header.id, to, Arc::clone(&told), expires);
            context.deliver(Deliver {
                from: Some(self.initiator.agent.clone()),
                qos: session.call_delivery.qos(),
                attempts_max: session.call_delivery.call_attempts_max(),
                traceparent: self.header.traceparent.clone(),
                ..delivery
            });
        }
    }

    /// The position and ordinal a session's current call has its delivery id from, while nothing has been heard of the
    /// contractor since.
    pub(super) fn unanswered_call(&self, index: usize) -> Option<(Position, u32)> {
        let session = &self.sessions[index];
        let is_waiting = self.phase == Phase::Collecting
            && session.state == SessionState::Invited
            && session.round == self.round
            && session.heard <= self.collection.called_input;
        is_waiting.then(|| (self.collection.called_at, call_ordinal(index)))
    }
}

/// The ordinal of the call to a session.
fn call_ordinal(index: usize) -> u32 {
    debug_assert!(u32::try_from(index).is_ok(), "more sessions than a call may invite");
    CALL_ORDINAL + u32::try_from(index).unwrap_or(0)
}

fn count(sessions: usize) -> u32 {
    u32::try_from(sessions).expect("a call invites as many as the control plane allows in a group")
}

/// When a window that begins with the call ends.
fn window_from_call(policy: &Policy, called_at: Timestamp) -> Option<Timestamp> {
    match policy.close.window_anchor {
        WindowAnchor::Cfp => policy.close.window_ms.map(|ms| called_at.plus_ms(ms)),
        WindowAnchor::FirstValid => None,
    }
}
