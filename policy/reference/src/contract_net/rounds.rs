//! Rounds: offers are collected until the close, ranked and awarded; a lost award is awarded again (docs/spec/contract-net.md).

use policy_core::{AwardLoss, Cause, Phase, SessionState};
use schemas::delivery::{CloseReason, Outcome, RejectReason};
use schemas::payload::Inform;
use schemas::policy::{Close, Decider, HoldUntil, OnIncomplete, WindowAnchor};
use schemas::register::AwardEnd;
use schemas::{AgentId, AwardNo, RegisterKey, Timestamp, WireTime};

use crate::contract_net::{Award, ContractNet, HeldOffer, Lot, Stage, Window, count, english_auction, word};
use crate::{Moment, Wins, fact, scoring};

impl ContractNet {
    /// CFP to some contractors, for the current round and deadline.
    pub(crate) fn call(&mut self, contractors: &[AgentId]) {
        for contractor in contractors {
            self.session(contractor).was_heard = false;
            let called = fact::cfp(&self.id, contractor, self.round, self.reply_by, self.ends_by);
            let called = fact::naming(called, self.documents.as_ref());
            self.facts.push(self.with_brief(called));
        }
    }

    /// A window with this anchor begins now.
    pub(crate) fn begin_window(&mut self, anchor: WindowAnchor, now: Timestamp) {
        let close = &self.policy.close;
        if let (Some(ms), true, Window::NotBegun) = (close.window_ms, close.window_anchor == anchor, self.window) {
            self.window = Window::EndsAt(now.plus_ms(ms));
        }
    }

    /// The offer counts, in place of an earlier one (docs/spec/contract-net.md#cn-8).
    pub(crate) fn record(&mut self, contractor: &AgentId, offer: HeldOffer, moment: Moment, wins: &mut Wins) {
        self.reject(contractor, RejectReason::Replaced);
        self.offers += 1;
        let session = self.session(contractor);
        (session.offer, session.state) = (Some(offer), SessionState::Offered);
        if self.auction.is_some() {
            english_auction::record_bid(self, contractor, moment.now);
        }
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

    /// Strikes out (docs/spec/contract-net.md#cn-17).
    pub(crate) fn strike(&mut self, contractor: &AgentId, moment: Moment, wins: &mut Wins) {
        let max = self.policy.max_strikes;
        let session = self.session(contractor);
        session.strikes += 1;
        if session.strikes >= max && !english_auction::stays(self, contractor) {
            self.exclude(contractor, moment, wins);
        }
    }

    /// Out of the running. Who is bound, or was, stays.
    pub(crate) fn exclude(&mut self, contractor: &AgentId, moment: Moment, wins: &mut Wins) {
        use SessionState as S;
        let has_award_behind = matches!(
            self.state(contractor),
            S::Awarded | S::Committed | S::Done | S::Failed | S::Lapsed | S::CancelPending | S::Cancelled | S::Excluded
        );
        if has_award_behind {
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
        if self.auction.is_some() {
            return english_auction::evaluate(self, moment, wins);
        }
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
        let (valid, is_complete) = self.note_close(reason, moment);
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

    /// Collection has closed: how many valid offers there are, and whether everybody has answered.
    pub(super) fn note_close(&mut self, reason: CloseReason, moment: Moment) -> (u32, bool) {
        let (called, responded) = self.called_and_responded();
        let valid = count(self.valid(moment.now).len());
        let is_complete = called == responded;
        self.closed_at = Some(moment.position);
        self.crossing = None;
        let counts = [valid, responded, called];
        self.facts.push(fact::close(&self.id, self.round, reason, is_complete, counts, moment.now));
        (valid, is_complete)
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
    fn no_award_this_round(&mut self, outcome: Outcome, moment: Moment) {
        use SessionState as S;
        let states = [S::Offered, S::PolicyRejected, S::Refused, S::Withdrawn, S::Rejected];
        let called = self.contractors_in(&states, Some(self.round));
        if !self.begin_round(&called, moment) {
            self.end(outcome, moment);
        }
    }

    /// Another round, if there is one left, somebody to call, and time for it.
    fn begin_round(&mut self, called: &[AgentId], moment: Moment) -> bool {
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
        let valid = self.valid(moment.now).into_iter();
        let mut offers: Vec<_> = valid.map(|(_, offer)| (offer.id, offer.score, self.pinned(offer))).collect();
        offers.sort_by_key(|(id, ..)| {
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

impl ContractNet {
    /// The decision (docs/spec/contract-net.md#cn-34); `first` is the initiator's choice.
    pub(crate) fn decide(&mut self, first: Option<&AgentId>, cause: Cause, moment: Moment, wins: &mut Wins) {
        let ranking = self.ranking(first, moment.now, wins);
        while self.lots.len() < usize::try_from(self.policy.awards).expect("few") {
            self.lots.push(Lot::default());
        }
        let winners = self.lots.len().min(ranking.len());
        self.set_payments(&ranking, winners);
        let placements: Vec<(usize, AgentId)> = ranking[..winners].iter().cloned().enumerate().collect();
        self.note_decision(&ranking, &placements, cause, moment);
        (self.phase, self.decide_by) = (Phase::Awarding, None);
        for (lot, contractor) in placements {
            self.award(lot, &contractor, moment, wins);
        }
        for contractor in &ranking[winners..] {
            if count(self.standby.len()) < self.policy.standby {
                self.standby.push(contractor.clone());
                self.session(contractor).state = SessionState::Standby;
            } else {
                self.reject(contractor, RejectReason::Outscored);
                self.session(contractor).state = SessionState::Rejected;
            }
        }
        self.settle(moment);
    }

    fn ranking(&self, first: Option<&AgentId>, now: Timestamp, wins: &Wins) -> Vec<AgentId> {
        let closing = self.closed_at.expect("closed before decided");
        let offers = self.valid(now).iter().filter_map(|(contractor, _)| self.ranked(contractor, wins)).collect();
        let mut ranking: Vec<AgentId> = scoring::rank(&self.policy, &self.id, closing, offers)
            .into_iter()
            .map(|ranked| ranked.contractor)
            .collect();
        if let Some(first) = first {
            ranking.retain(|contractor| contractor != first);
            ranking.insert(0, first.clone());
        }
        ranking
    }

    /// Sets each offer's payment: a winner's from the best losing score, any other's from the best score ranked below it.
    fn set_payments(&mut self, ranking: &[AgentId], winners: usize) {
        for (rank, contractor) in ranking.iter().enumerate() {
            let behind = ranking[winners.max(rank + 1)..].iter();
            let losing = behind.filter_map(|rival| Some(self.sessions[rival].offer.as_ref()?.score)).max();
            let offer = self.sessions[contractor].offer.as_ref().expect("ranked");
            let payment = scoring::payment(&self.policy, &offer.terms, losing);
            self.session(contractor).offer.as_mut().expect("ranked").payment = payment;
        }
    }

    fn note_decision(&mut self, ranking: &[AgentId], placements: &[(usize, AgentId)], cause: Cause, moment: Moment) {
        let offer = |contractor: &AgentId| self.sessions[contractor].offer.as_ref().expect("ranked");
        let ranked: Vec<_> = ranking
            .iter()
            .map(|contractor| {
                let offer = offer(contractor);
                let valid_until = (offer.valid_until != Timestamp::MAX).then_some(offer.valid_until);
                (offer.id, offer.score, scoring::price(&offer.terms), offer.payment, valid_until)
            })
            .collect();
        let awards: Vec<fact::PlacementFact> = (self.awards + 1..)
            .zip(placements)
            .map(|(no, (lot, contractor))| {
                let offer = offer(contractor);
                (schemas::Lot(count(*lot)), AwardNo(no), offer.id, self.pinned(offer))
            })
            .collect();
        self.facts.push(fact::decision_fact(&self.id, &cause, moment.position, moment.now, &ranked, &awards));
    }

    fn award(&mut self, lot: usize, contractor: &AgentId, moment: Moment, wins: &mut Wins) {
        self.awards += 1;
        let (no, offer) = (AwardNo(self.awards), self.sessions[contractor].offer.clone().expect("awarded"));
        let deadline = moment.clock.plus_ms(self.policy.timers_ms.confirm).min(self.ends_by);
        let number = schemas::Lot(count(lot));
        let key = RegisterKey::Award(self.id.clone(), number, no).to_string();
        self.facts.push(fact::award_entry(&key, offer.id));
        let document = self.pinned(&offer);
        let accept = fact::accept(&self.id, contractor, offer.id, number, no, offer.payment, WireTime(deadline));
        self.facts.push(self.with_brief(fact::pinning(accept, document)));
        let news = fact::inform_awarded(&self.id, &self.initiator, contractor, no, offer.score, offer.payment);
        self.facts.push(fact::pinning(news, document));
        wins.insert(contractor.clone(), moment.position);
        self.lots[lot].tries += 1;
        self.lots[lot].award =
            Some(Award { no, contractor: contractor.clone(), stage: Stage::Awarded, deadline, document });
        let session = self.session(contractor);
        (session.state, session.was_heard) = (SessionState::Awarded, false);
        if !self.policy.require_confirm {
            self.bind(lot, moment);
        }
    }

    /// The contractor is bound (docs/spec/contract-net.md#cn-41).
    pub(crate) fn confirm(&mut self, lot: usize, moment: Moment) {
        self.bind(lot, moment);
        self.settle(moment);
    }

    fn bind(&mut self, lot: usize, moment: Moment) {
        let deadline = moment.clock.plus_ms(self.policy.timers_ms.perform).min(self.ends_by);
        let award = self.lots[lot].award.as_mut().expect("awarded");
        (award.stage, award.deadline) = (Stage::Committed, deadline);
        let (no, contractor) = (award.no, award.contractor.clone());
        self.facts.push(fact::entry(&self.end_key(lot, no), AwardEnd::Committed));
        self.tell_initiator("committed", &contractor, no, None);
        let session = self.session(&contractor);
        (session.state, session.was_bound) = (SessionState::Committed, true);
    }

    /// The work is done (docs/spec/contract-net.md#cn-54).
    pub(crate) fn perform(&mut self, lot: usize, inform: &Inform, moment: Moment) {
        let award = self.lots[lot].award.as_mut().expect("committed");
        award.stage = Stage::Done;
        let (no, contractor) = (award.no, award.contractor.clone());
        self.session(&contractor).state = SessionState::Done;
        self.note_result(inform.result.clone());
        self.tell_initiator(word(inform.kind), &contractor, no, inform.routine);
        self.tell_heir(word(inform.kind), &contractor, no);
        self.settle(moment);
    }

    /// A lost award, and the next runner-up (docs/spec/contract-net.md#cn-51).
    pub(crate) fn lose(&mut self, lot: usize, loss: AwardLoss, moment: Moment, wins: &mut Wins) {
        let award = self.lots[lot].award.clone().expect("lost awards are live");
        self.take_back(lot, loss);
        self.note_loss(loss);
        let lapsed = loss == AwardLoss::ConfirmTimeout;
        self.session(&award.contractor).state = if lapsed { SessionState::Lapsed } else { SessionState::Failed };
        self.facts.push(fact::failed(&self.id, &self.initiator, &award.contractor, award.no));
        self.award_next(lot, loss, moment, wins);
        self.settle(moment);
    }

    /// The award is live no longer. CANCEL, unless its contractor left a commitment itself, or was asked to stop
    /// before.
    pub(crate) fn take_back(&mut self, lot: usize, loss: AwardLoss) {
        let Some(award) = self.lots[lot].award.take() else { return };
        if award.stage == Stage::Awarded && loss != AwardLoss::Aborted {
            self.facts.push(fact::entry(&self.end_key(lot, award.no), AwardEnd::Revoked));
        }
        if award.stage != Stage::CancelPending && loss != AwardLoss::PerformFailed {
            self.cancel_award(&award, loss);
        }
        self.past.push((award.no, award.contractor.clone()));
        self.facts.push(fact::lost(&self.id, &award.contractor, award.no, loss));
    }

    pub(crate) fn cancel_award(&mut self, award: &Award, loss: AwardLoss) {
        let reason = match loss {
            AwardLoss::ConfirmTimeout => "confirm_timeout",
            AwardLoss::PerformTimeout => "perform_timeout",
            AwardLoss::Cancelled => "cancelled",
            AwardLoss::Timeout => "timeout",
            AwardLoss::Aborted => "aborted",
            AwardLoss::Refused | AwardLoss::Failed | AwardLoss::PerformFailed | AwardLoss::Undelivered => "revoked",
        };
        self.facts.push(fact::cancel(&self.id, &award.contractor, award.no, reason));
        let session = self.session(&award.contractor);
        (session.offer, session.was_bound) = (None, false);
    }

    /// The next standby whose offer stands until it can be confirmed (docs/spec/contract-net.md#cn-51).
    fn award_next(&mut self, lot: usize, loss: AwardLoss, moment: Moment, wins: &mut Wins) {
        let needed = moment.clock.plus_ms(self.policy.timers_ms.confirm);
        while self.lots[lot].tries < self.policy.max_awards && !self.standby.is_empty() {
            let held = self.standby.clone();
            let next = self.standby.remove(0);
            if self.sessions[&next].offer.as_ref().is_some_and(|offer| offer.valid_until >= needed) {
                self.note_decision(&held, &[(lot, next.clone())], Cause::ReAward(loss), moment);
                return self.award(lot, &next, moment, wins);
            }
            self.reject(&next, RejectReason::Expired);
            self.session(&next).state = SessionState::Rejected;
        }
    }

    /// Where the negotiation stands, over all lots (docs/spec/contract-net.md#cn-53).
    fn settle(&mut self, moment: Moment) {
        if self.has_stage(Stage::Awarded) {
            self.phase = Phase::Awarding;
        } else if self.has_stage(Stage::Committed) {
            self.phase = Phase::Performing;
            if self.policy.hold_until == HoldUntil::Confirm {
                for contractor in std::mem::take(&mut self.standby) {
                    self.reject(&contractor, RejectReason::Awarded);
                    self.session(&contractor).state = SessionState::Rejected;
                }
            }
        } else if self.has_stage(Stage::Done) {
            self.end(Outcome::Completed, moment);
        } else {
            let gone = [SessionState::Failed, SessionState::Undelivered, SessionState::Lapsed, SessionState::Excluded];
            let called: Vec<AgentId> =
                self.sessions.keys().filter(|contractor| !gone.contains(&self.state(contractor))).cloned().collect();
            if !self.begin_round(&called, moment) {
                self.end(Outcome::NoCandidate, moment);
            }
        }
    }
}
