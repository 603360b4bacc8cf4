//! Cancelling, the hard deadline, aborts, undelivered messages, and the last notices.

use policy_core::{AwardLoss, Deliver, Phase, SessionState};
use schemas::RegisterKey;
use schemas::delivery::{Notification, Outcome, RejectReason};
use schemas::payload::InformKind;
use schemas::register::AwardEnd;

use crate::fact;
use crate::negotiation::{Negotiation, Stage};
use crate::{Moment, Wins};

impl Negotiation {
    /// CANCEL of the initiator (docs/spec/contract-net.md#cn-55).
    pub(crate) fn cancel(&mut self, moment: Moment) {
        for contractor in self.contractors_in(&[SessionState::Offered, SessionState::Standby], None) {
            self.reject(&contractor, RejectReason::Cancelled);
            self.session(&contractor).state = SessionState::Rejected;
        }
        self.standby.clear();
        for lot in 0..self.lots.len() {
            self.call_off(lot);
        }
        self.decide_by = None;
        if self.has_stage(Stage::CancelPending) {
            self.phase = Phase::Cancelling;
            self.cancel_by = Some(moment.clock.plus_ms(self.policy.timers_ms.cancel).min(self.ends_by));
        } else {
            self.end(Outcome::Cancelled, moment);
        }
    }

    fn call_off(&mut self, lot: usize) {
        let Some(award) = self.lots[lot].award.clone() else { return };
        if award.stage == Stage::Done {
            return;
        }
        if award.stage == Stage::Awarded {
            self.past.push((award.no, award.contractor.clone()));
            self.facts.push(fact::end_entry(&self.end_key(lot, award.no), AwardEnd::Revoked));
        }
        self.cancel_award(&award, AwardLoss::Cancelled);
        self.session(&award.contractor).state = SessionState::CancelPending;
        self.lots[lot].award.as_mut().expect("live").stage = Stage::CancelPending;
    }

    /// The contractor answers (docs/spec/contract-net.md#cn-56); `informed` is absent after a FAILURE.
    pub(crate) fn answer_cancel(&mut self, lot: usize, informed: Option<InformKind>, moment: Moment) {
        let award = self.lots[lot].award.take().expect("called off");
        let state = match informed {
            Some(kind) => {
                self.tell_initiator(word(kind), &award.contractor, award.no);
                if kind == InformKind::Cancelled { SessionState::Cancelled } else { SessionState::Done }
            }
            None => {
                self.facts.push(fact::failed(&self.id, &self.initiator, &award.contractor, award.no));
                SessionState::Failed
            }
        };
        self.session(&award.contractor).state = state;
        if !self.has_stage(Stage::CancelPending) {
            self.end(Outcome::Cancelled, moment);
        }
    }

    /// The hard deadline (docs/spec/contract-net.md#cn-58).
    pub(crate) fn time_out(&mut self, moment: Moment) {
        if self.phase == Phase::Cancelling {
            return self.end(Outcome::Cancelled, moment);
        }
        self.take_all_back(AwardLoss::Timeout);
        self.end(Outcome::Timeout, moment);
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        self.take_all_back(AwardLoss::Aborted);
        self.end(Outcome::Aborted, moment);
    }

    fn take_all_back(&mut self, loss: AwardLoss) {
        for lot in 0..self.lots.len() {
            if self.lots[lot].award.as_ref().is_some_and(|award| award.stage != Stage::Done) {
                self.take_back(lot, loss);
            }
        }
    }

    /// A delivery was given up (docs/spec/contract-net.md#cn-18): counts for the current call to an INVITED, and for
    /// the live ACCEPT to an AWARDED contractor, from whom nothing later was folded.
    pub(crate) fn delivery_failed(&mut self, deliver: &Deliver, may_answer: bool, moment: Moment, wins: &mut Wins) {
        let contractor = &deliver.to;
        if self.sessions[contractor].was_heard {
            return;
        }
        match &*deliver.told {
            Notification::Cfp(call) => {
                let is_current = (call.round, call.reply_by.0) == (self.round, self.reply_by);
                if self.phase == Phase::Collecting && is_current && self.state(contractor) == SessionState::Invited {
                    self.answer_without_offer(
                        contractor,
                        if may_answer { SessionState::Undelivered } else { SessionState::Failed },
                        RejectReason::Withdrawn,
                        moment,
                        wins,
                    );
                }
            }
            Notification::Accept(accept) => {
                let lot = self.lots.iter().position(|lot| {
                    lot.award.as_ref().is_some_and(|award| award.no == accept.award_no && award.stage == Stage::Awarded)
                });
                if let Some(lot) = lot {
                    self.lose(lot, AwardLoss::Undelivered, moment, wins);
                }
            }
            Notification::Ack(_)
            | Notification::Cancel(_)
            | Notification::Closed(_)
            | Notification::Failure(_)
            | Notification::Inform(_)
            | Notification::NotUnderstood(_)
            | Notification::Reject(_)
            | Notification::Turn(_) => {}
        }
    }

    /// The end. A completed negotiation tells the initiator and those who were bound, any other end everybody.
    pub(crate) fn end(&mut self, outcome: Outcome, moment: Moment) {
        let reason = match outcome {
            Outcome::Completed => RejectReason::Awarded,
            Outcome::Cancelled => RejectReason::Cancelled,
            Outcome::NoOffers
            | Outcome::Incomplete
            | Outcome::NoCandidate
            | Outcome::Timeout
            | Outcome::Aborted
            | Outcome::Agreement
            | Outcome::NoAgreement
            | Outcome::Ended => RejectReason::Expired,
        };
        self.facts.push(fact::closed(&self.id, &self.initiator, outcome));
        for contractor in self.sessions.keys().cloned().collect::<Vec<_>>() {
            let was_bound = self.sessions[&contractor].was_bound;
            if outcome != Outcome::Completed || was_bound {
                self.facts.push(fact::closed(&self.id, &contractor, outcome));
            }
            if !was_bound {
                self.reject(&contractor, reason);
            }
        }
        let key = RegisterKey::Closed(self.id.clone()).to_string();
        self.facts.push(fact::closed_entry(&key, outcome));
        if self.is_public {
            self.facts.push(fact::notice_closed(&self.id, outcome));
        }
        self.facts.push(fact::ended(&self.id, outcome, [self.round, self.offers, self.awards], moment.now));
        (self.phase, self.outcome) = (Phase::Ended, Some(outcome));
    }
}

pub(crate) fn word(kind: InformKind) -> &'static str {
    match kind {
        InformKind::Done => "done",
        InformKind::Result => "result",
        InformKind::Cancelled => "cancelled",
    }
}
