//! The decision, awards, and what becomes of them (docs/spec/contract-net.md#cn-29 to #cn-54).

use policy_core::{AwardLoss, Cause, Phase, SessionState};
use schemas::delivery::{Outcome, RejectReason};
use schemas::policy::HoldUntil;
use schemas::register::AwardEnd;
use schemas::{AgentId, AwardNo, OfferId, RegisterKey, Timestamp, WireTime};

use crate::negotiation::{Award, Lot, Negotiation, Stage, count};
use crate::{Moment, Wins};
use crate::{fact, scoring};

impl Negotiation {
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

    /// Winners are measured against the best that wins nothing, the others against those behind them.
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
        let awards: Vec<(schemas::Lot, AwardNo, OfferId)> = (self.awards + 1..)
            .zip(placements)
            .map(|(no, (lot, contractor))| (schemas::Lot(count(*lot)), AwardNo(no), offer(contractor).id))
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
        self.facts.push(fact::accept(&self.id, contractor, offer.id, number, no, offer.payment, WireTime(deadline)));
        self.facts.push(fact::inform_awarded(&self.id, &self.initiator, contractor, no, offer.score, offer.payment));
        wins.insert(contractor.clone(), moment.position);
        self.lots[lot].tries += 1;
        self.lots[lot].award = Some(Award { no, contractor: contractor.clone(), stage: Stage::Awarded, deadline });
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
        self.facts.push(fact::end_entry(&self.end_key(lot, no), AwardEnd::Committed));
        self.tell_initiator("committed", &contractor, no);
        let session = self.session(&contractor);
        (session.state, session.was_bound) = (SessionState::Committed, true);
    }

    /// The work is done (docs/spec/contract-net.md#cn-54).
    pub(crate) fn perform(&mut self, lot: usize, what: &str, moment: Moment) {
        let award = self.lots[lot].award.as_mut().expect("committed");
        award.stage = Stage::Done;
        let (no, contractor) = (award.no, award.contractor.clone());
        self.session(&contractor).state = SessionState::Done;
        self.tell_initiator(what, &contractor, no);
        self.settle(moment);
    }

    /// A lost award, and the next runner-up (docs/spec/contract-net.md#cn-51).
    pub(crate) fn lose(&mut self, lot: usize, loss: AwardLoss, moment: Moment, wins: &mut Wins) {
        let award = self.lots[lot].award.clone().expect("lost awards are live");
        self.take_back(lot, loss);
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
            self.facts.push(fact::end_entry(&self.end_key(lot, award.no), AwardEnd::Revoked));
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
    pub(crate) fn settle(&mut self, moment: Moment) {
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
