//! The offers, the close, the rounds (docs/spec/contract-net.md#cn-8 to #cn-28).

use policy_core::{Cause, Phase, SessionState};
use schemas::delivery::{CloseReason, Outcome, RejectReason};
use schemas::policy::{Close, Decider, OnIncomplete, WindowAnchor};
use schemas::{AgentId, Timestamp, WireTime};

use crate::negotiation::{Negotiation, Offer, Window, count};
use crate::{Moment, Wins};
use crate::{fact, scoring};

impl Negotiation {
    /// The offer counts, in place of an earlier one (docs/spec/contract-net.md#cn-8).
    pub(crate) fn record(&mut self, contractor: &AgentId, offer: Offer, moment: Moment, wins: &mut Wins) {
        self.reject(contractor, RejectReason::Replaced);
        self.offers += 1;
        let session = self.session(contractor);
        (session.offer, session.state) = (Some(offer), SessionState::Offered);
        self.begin_window(WindowAnchor::FirstValid, moment.now);
        self.evaluate(moment, wins);
    }

    /// An answer that is no valid offer.
    pub(crate) fn answer_without_offer(
        &mut self,
        contractor: &AgentId,
        state: SessionState,
        reason: RejectReason,
        moment: Moment,
        wins: &mut Wins,
    ) {
        self.reject(contractor, reason);
        self.session(contractor).state = state;
        self.evaluate(moment, wins);
    }

    /// Strikes out (docs/spec/contract-net.md#cn-17). Who is bound, or was, stays.
    pub(crate) fn strike(&mut self, contractor: &AgentId, moment: Moment, wins: &mut Wins) {
        use SessionState as S;
        let max = self.policy.max_strikes;
        let session = self.session(contractor);
        session.strikes += 1;
        let has_award_behind = matches!(
            session.state,
            S::Awarded | S::Committed | S::Done | S::Failed | S::Lapsed | S::CancelPending | S::Cancelled | S::Excluded
        );
        if session.strikes < max || has_award_behind {
            return;
        }
        self.standby.retain(|held| held != contractor);
        self.reject(contractor, RejectReason::Withdrawn);
        self.session(contractor).state = S::Excluded;
        self.facts.push(fact::excluded(&self.id, contractor));
        if self.phase == Phase::Collecting {
            self.evaluate(moment, wins);
        }
    }

    /// The close rule (docs/spec/contract-net.md#cn-20), after every collecting event and timer.
    pub(crate) fn evaluate(&mut self, moment: Moment, wins: &mut Wins) {
        match self.reason_to_close(moment.now) {
            Some(reason) => self.close(reason, moment, wins),
            None => self.crossing = self.next_crossing(moment.now),
        }
    }

    fn reason_to_close(&self, now: Timestamp) -> Option<CloseReason> {
        let Close { min_valid, k_valid, all_responded, .. } = self.policy.close;
        let valid = count(self.valid(now).len());
        let (called, responded) = self.called_and_responded();
        let has_all = all_responded && responded == called;
        if valid < min_valid {
            return has_all.then_some(CloseReason::AllResponded);
        }
        let reasons = [
            (self.best(now).is_some_and(|best| self.is_enough(best, now)), CloseReason::ScoreAtLeast),
            (k_valid.is_some_and(|k| valid >= k), CloseReason::KValid),
            (has_all, CloseReason::AllResponded),
            (self.window == Window::Past, CloseReason::Window),
        ];
        reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
    }

    fn best(&self, now: Timestamp) -> Option<u32> {
        self.valid(now).iter().map(|(_, offer)| offer.score).max()
    }

    fn is_enough(&self, score: u32, now: Timestamp) -> bool {
        let threshold = self.policy.close.score_at_least;
        threshold
            .is_some_and(|threshold| scoring::suffices(threshold, self.period_us, now.since_us(self.called_at), score))
    }

    /// The first later microsecond of the period at which the best score suffices.
    fn next_crossing(&self, now: Timestamp) -> Option<Timestamp> {
        let best = self.best(now)?;
        let end = self.called_at.0 + self.period_us;
        let (mut not_yet, mut enough) = (now.0, end);
        if self.is_enough(best, now) || end <= now.0 || !self.is_enough(best, Timestamp(end)) {
            return None;
        }
        while enough - not_yet > 1 {
            let middle = not_yet.midpoint(enough);
            if self.is_enough(best, Timestamp(middle)) { enough = middle } else { not_yet = middle }
        }
        Some(Timestamp(enough))
    }

    /// The collection deadline (docs/spec/contract-net.md#cn-22).
    pub(crate) fn collection_ends(&mut self, moment: Moment, wins: &mut Wins) {
        let (called, responded) = self.called_and_responded();
        if let OnIncomplete::Extend { ms, max } = self.policy.on_incomplete {
            let later = moment.clock.plus_ms(ms);
            if responded < called && self.extensions < max && later <= self.ends_by {
                (self.extensions, self.reply_by) = (self.extensions + 1, later);
                let silent = self.contractors_in(&[SessionState::Invited], Some(self.round));
                return self.call(&silent);
            }
        }
        self.close(CloseReason::Deadline, moment, wins);
    }

    /// What follows the close (docs/spec/contract-net.md#cn-27).
    fn close(&mut self, reason: CloseReason, moment: Moment, wins: &mut Wins) {
        let (called, responded) = self.called_and_responded();
        let valid = count(self.valid(moment.now).len());
        let is_complete = called == responded;
        self.closed_at = Some(moment.position);
        self.crossing = None;
        let counts = [valid, responded, called];
        self.facts.push(fact::close(&self.id, self.round, reason, is_complete, counts, moment.now));
        self.reject_expired(moment.now);
        if !self.policy.award {
            self.end(if valid == 0 { Outcome::NoOffers } else { Outcome::Incomplete }, moment);
        } else if self.policy.on_incomplete == OnIncomplete::Fail && reason == CloseReason::Deadline && !is_complete {
            self.no_award_this_round(Outcome::Incomplete, moment);
        } else if valid == 0 {
            self.no_award_this_round(Outcome::NoOffers, moment);
        } else if self.policy.decider == Decider::Initiator {
            self.ask_initiator(moment);
        } else {
            self.decide(None, Cause::Score, moment, wins);
        }
    }

    pub(crate) fn reject_expired(&mut self, now: Timestamp) {
        for contractor in self.contractors_in(&[SessionState::Offered], None) {
            if self.session(&contractor).offer.as_ref().is_some_and(|offer| offer.valid_until < now) {
                self.reject(&contractor, RejectReason::Expired);
                self.session(&contractor).state = SessionState::Rejected;
            }
        }
    }

    /// Another round (docs/spec/contract-net.md#cn-28), else the end. Called again are those who answered this round
    /// and did not fail to understand it.
    pub(crate) fn no_award_this_round(&mut self, outcome: Outcome, moment: Moment) {
        use SessionState as S;
        let states = [S::Offered, S::PolicyRejected, S::Refused, S::Withdrawn, S::Rejected];
        let called = self.contractors_in(&states, Some(self.round));
        if !self.begin_round(&called, moment) {
            self.end(outcome, moment);
        }
    }

    /// Another round, if there is one left, somebody to call, and time for it.
    pub(crate) fn begin_round(&mut self, called: &[AgentId], moment: Moment) -> bool {
        let reply_by = Timestamp(moment.clock.0 + self.period_us);
        if self.round >= self.policy.max_rounds || called.is_empty() || reply_by > self.ends_by {
            return false;
        }
        for contractor in self.sessions.keys().cloned().collect::<Vec<_>>() {
            if !self.sessions[&contractor].was_bound {
                self.reject(&contractor, RejectReason::Round);
            }
        }
        for session in self.sessions.values_mut() {
            if matches!(session.state, SessionState::Invited | SessionState::Offered | SessionState::Standby) {
                session.state = SessionState::Lapsed;
            }
        }
        self.round += 1;
        for contractor in called {
            let round = self.round;
            let session = self.session(contractor);
            (session.state, session.round) = (SessionState::Invited, round);
        }
        (self.called_at, self.reply_by, self.extensions) = (moment.clock, reply_by, 0);
        (self.window, self.phase) = (Window::NotBegun, Phase::Collecting);
        self.standby.clear();
        self.begin_window(WindowAnchor::Cfp, moment.clock);
        self.call(called);
        true
    }

    /// `decider: initiator`: all valid offers at once, in a permutation seeded by the closing position.
    fn ask_initiator(&mut self, moment: Moment) {
        let by = moment.clock.plus_ms(self.policy.decide_ms).min(self.ends_by);
        self.phase = Phase::Deciding;
        self.decide_by = Some(by);
        let mut offers: Vec<_> = self.valid(moment.now).iter().map(|(_, offer)| (offer.id, offer.score)).collect();
        offers.sort_by_key(|(id, _)| {
            let (position, id) = (moment.position.to_string(), id.to_string());
            schemas::Digest::of_parts(&[self.id.as_str().as_bytes(), position.as_bytes(), id.as_bytes()])
        });
        self.facts.push(fact::offers(&self.id, &self.initiator, &offers, WireTime(by)));
    }

    /// Silence at `decide_by` falls back to the score.
    pub(crate) fn initiator_is_silent(&mut self, moment: Moment, wins: &mut Wins) {
        self.decide_by = None;
        self.reject_expired(moment.now);
        if self.valid(moment.now).is_empty() {
            self.no_award_this_round(Outcome::NoOffers, moment);
        } else {
            self.decide(None, Cause::InitiatorSilent, moment, wins);
        }
    }

    /// Contractors in one of these states, of one round or any.
    pub(crate) fn contractors_in(&self, states: &[SessionState], round: Option<u32>) -> Vec<AgentId> {
        let sessions = self.sessions.iter();
        let wanted =
            sessions.filter(|(_, one)| states.contains(&one.state) && round.is_none_or(|round| one.round == round));
        wanted.map(|(contractor, _)| contractor.clone()).collect()
    }
}
