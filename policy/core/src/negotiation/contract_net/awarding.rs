//! AWARDING, PERFORMING, CANCELLING: what follows from a decision, from what the contractors that were awarded say, and from
//! the initiator's CANCEL. An award that is lost goes to the next runner-up.

use schemas::delivery::{
    Award, AwardReport, Cancellation, ContractorFailure, ContractorReport, Notification, Outcome, ProgressReport,
    RejectReason,
};
use schemas::payload::{Failure, FailurePhase, Inform, InformKind};
use schemas::policy::HoldUntil;
use schemas::{AwardNo, DeliveryId, Digest, RegisterKey, Timestamp, WireTime};

use super::SessionState;
use crate::acceptance::decision::AwardLoss;
use crate::acceptance::decision::Cause;
use crate::effect::{Deliver, Event, Invariant};
use crate::negotiation::InputContext;
use crate::negotiation::contract_net::awards::{AwardStage, LiveAward, end_key, lot_number};
use crate::negotiation::contract_net::{ContractNet, decision};
use crate::negotiation::disposition::ProtocolRules;
use schemas::protocols::Phase;

/// How a contractor answers a CANCEL.
#[derive(Debug)]
pub(crate) enum CancelAnswer {
    Informed(Inform),
    Failed(Failure),
}

impl ContractNet {
    /// Registers one award and accepts its offer. Without `require_confirm` it is committed at once.
    pub(super) fn award(&mut self, lot: usize, session: usize, decision: Digest, context: &mut InputContext<'_>) {
        self.check_award(lot, session, context);
        let Some(offer) = self.sessions[session].offer.as_ref() else { return };
        let (offer_id, document) = (offer.id, offer.document());
        let (award_no, key) = self.awards.register(lot, offer_id, decision, &self.header, context);
        let deadline = context.clock.plus_ms(self.policy().timers_ms.confirm).min(self.header.ends_by);
        let binds_at_once = !self.policy().require_confirm;
        let accept = self.accept(lot, session, award_no, deadline, context);
        let made_by = (accept.id, context.input);
        let live = LiveAward { award_no, session, stage: AwardStage::Awarded, deadline, accept: made_by, document };
        self.awards.begin(lot, live);
        self.set_state(session, SessionState::Awarded);
        let (agent, max) = (&self.sessions[session].party.agent, context.limits.winners_max);
        context.winners.note(agent, context.position, award_no, max);
        let after = if binds_at_once {
            self.awards.register_commitment(lot, &self.header, context).map(|(_, end)| end)
        } else {
            None
        };
        context.deliver(Deliver { after: after.or_else(|| Some(key.clone())), ..accept });
        self.report_award(lot, session, award_no, decision, key, context);
        if binds_at_once {
            self.bind(lot, context);
        }
    }

    /// Checks the invariants one-award and no-late-winner where they could break.
    fn check_award(&self, lot: usize, session: usize, context: &mut InputContext<'_>) {
        let offer = self.sessions[session].offer.as_ref();
        let is_doubled = self.awards.live(lot).is_some() || self.awards.of_session(session).is_some();
        let is_late = !offer.is_some_and(|offer| offer.is_valid(context.now));
        for (is_broken, invariant) in [(is_doubled, Invariant::OneAward), (is_late, Invariant::NoLateWinner)] {
            if is_broken {
                let (negotiation, offer) = (self.header.id.clone(), offer.map(|offer| offer.id));
                context.event(Event::InvariantViolated { negotiation, invariant, offer });
            }
        }
    }

    fn accept(
        &self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        confirm_by: Timestamp,
        context: &mut InputContext<'_>,
    ) -> Deliver {
        let session = &self.sessions[session];
        let offer = session.offer.as_ref().expect("only sessions with an offer are awarded");
        let told = Notification::Accept(Award {
            offer_id: offer.id,
            lot: lot_number(lot),
            award_no,
            terms: offer.terms(),
            terms_digest: Digest::of_bytes(offer.terms.as_bytes()),
            payment: offer.payment(),
            document: offer.document(),
            confirm_by: WireTime(confirm_by),
            brief: self.task.as_ref().map(|task| task.brief()),
        });
        let delivery = self.header.delivery(context, &session.party.agent, told);
        let expires = if self.policy().require_confirm { confirm_by } else { delivery.expires };
        Deliver { in_reply_to: session.message_of(offer), expires, ..delivery }
    }

    fn report_award(
        &self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        decision: Digest,
        key: RegisterKey,
        context: &mut InputContext<'_>,
    ) {
        let session = &self.sessions[session];
        let (Some(offer), Some(close)) = (&session.offer, self.deciding.close()) else { return };
        let report = ProgressReport::Awarded(AwardReport {
            offer_id: offer.id,
            contractor: session.party.agent.clone(),
            lot: lot_number(lot),
            award_no,
            terms: offer.terms(),
            payment: offer.payment(),
            score: offer.score,
            reason: close.reason,
            complete: close.complete,
            offers: close.offers,
            decision,
            document: offer.document(),
        });
        self.report(context, Notification::Inform(report), Some(key));
    }

    /// The contractor is bound (docs/spec/contract-net.md#cn-41). Its end entry is registered already.
    pub(super) fn commit(&mut self, lot: usize, context: &mut InputContext<'_>) {
        self.bind(lot, context);
        self.settle(context);
    }

    fn bind(&mut self, lot: usize, context: &mut InputContext<'_>) {
        let own_ms = self.task.as_ref().and_then(|task| task.perform_ms());
        let perform_ms = own_ms.unwrap_or(self.policy().timers_ms.perform);
        let perform_by = context.clock.plus_ms(perform_ms).min(self.header.ends_by);
        let Some((award_no, session)) = self.awards.bind(lot, perform_by) else { return };
        self.set_state(session, SessionState::Committed);
        self.sessions[session].is_owed_closed = true;
        let contractor = self.sessions[session].party.agent.clone();
        let report = ContractorReport {
            contractor: contractor.clone(),
            award_no,
            lot: lot_number(lot),
            result: None,
            routine: None,
        };
        let after = Some(end_key(&self.header, lot, award_no));
        self.report(context, Notification::Inform(ProgressReport::Committed(report)), after);
        context.event(Event::Committed {
            negotiation: self.header.id.clone(),
            lot: lot_number(lot),
            award_no,
            contractor,
            elapsed_us: context.now.since_us(self.header.started_at),
        });
    }

    /// The award is taken back, the initiator told, the next runner-up tried.
    pub(super) fn lose_award(&mut self, lot: usize, loss: AwardLoss, failure: Failure, context: &mut InputContext<'_>) {
        let Some((award_no, session)) = self.take_back(lot, loss, context) else { return };
        if let Some(task) = &mut self.task {
            task.note_loss(loss, &failure);
        }
        let state = if loss == AwardLoss::ConfirmTimeout { SessionState::Lapsed } else { SessionState::Failed };
        self.set_state(session, state);
        let contractor = self.sessions[session].party.agent.clone();
        let told = Notification::Failure(ContractorFailure { contractor, award_no, failure });
        let after = Some(end_key(&self.header, lot, award_no));
        self.report(context, told, after);
        self.award_next(lot, loss, context);
        self.settle(context);
    }

    /// Ends a live award: the register learns that it never bound, the contractor gets its CANCEL. After the contractor's
    /// own FAILURE while bound there is no CANCEL: the CLOSED at the end is then its final notice.
    fn take_back(&mut self, lot: usize, loss: AwardLoss, context: &mut InputContext<'_>) -> Option<(AwardNo, usize)> {
        let LiveAward { award_no, session, stage, .. } = self.awards.revoke(lot, loss, &self.header, context)?;
        let contractor = self.sessions[session].party.agent.clone();
        if loss != AwardLoss::PerformFailed && stage != AwardStage::CancelPending {
            self.cancel_award(lot, session, award_no, loss, context);
        }
        context.event(Event::AwardLost {
            negotiation: self.header.id.clone(),
            lot: lot_number(lot),
            award_no,
            contractor,
            loss,
        });
        Some((award_no, session))
    }

    /// Ends every live award that is not done.
    pub(super) fn take_all_back(&mut self, loss: AwardLoss, context: &mut InputContext<'_>) {
        for lot in 0..self.awards.lots() {
            if self.awards.live(lot).is_some_and(|award| award.stage != AwardStage::Done) {
                self.take_back(lot, loss, context);
            }
        }
    }

    /// CANCEL after an ACCEPT: the final notice of the award's offer.
    fn cancel_award(
        &mut self,
        lot: usize,
        session: usize,
        award_no: AwardNo,
        loss: AwardLoss,
        context: &mut InputContext<'_>,
    ) {
        let reason = match loss {
            AwardLoss::ConfirmTimeout => "confirm_timeout",
            AwardLoss::PerformTimeout => "perform_timeout",
            AwardLoss::Cancelled => "cancelled",
            AwardLoss::Timeout => "timeout",
            AwardLoss::Aborted => "aborted",
            AwardLoss::Refused | AwardLoss::Failed | AwardLoss::PerformFailed | AwardLoss::Undelivered => "revoked",
        };
        let told = Notification::Cancel(Cancellation { award_no, reason: reason.to_owned() });
        let delivery = self.header.delivery(context, &self.sessions[session].party.agent, told);
        let after = (loss != AwardLoss::Aborted).then(|| end_key(&self.header, lot, award_no));
        context.deliver(Deliver { after, ..delivery });
        let session = &mut self.sessions[session];
        self.finals += u32::from(session.offer.take().is_some());
        session.is_owed_closed = false;
    }

    /// The next runner-up whose offer stands long enough to be confirmed (docs/spec/contract-net.md#cn-51).
    fn award_next(&mut self, lot: usize, loss: AwardLoss, context: &mut InputContext<'_>) {
        let needed_until = context.clock.plus_ms(self.policy().timers_ms.confirm);
        while self.awards.tries(lot) < self.policy().max_awards
            && let Some(session) = self.deciding.next_runner_up()
        {
            let stands = self.sessions[session].offer.as_ref().is_some_and(|offer| offer.is_valid(needed_until));
            if !stands {
                self.reject(session, RejectReason::Expired, SessionState::Rejected, context);
                continue;
            }
            let held = decision::held(self, session, context);
            let decision = self.record_decision(&held, &[(lot, session)], Cause::ReAward(loss), context);
            return self.award(lot, session, decision, context);
        }
    }

    /// After every change of a lot: where the negotiation stands now (docs/spec/contract-net.md#cn-53).
    pub(super) fn settle(&mut self, context: &mut InputContext<'_>) {
        if matches!(self.phase, Phase::Ended | Phase::Cancelling | Phase::Collecting) {
            return;
        }
        if self.awards.has_stage(AwardStage::Awarded) {
            return self.enter(Phase::Awarding, context);
        }
        if self.awards.has_stage(AwardStage::Committed) {
            if self.policy().hold_until == HoldUntil::Confirm {
                self.release_standby(context);
            }
            return self.enter(Phase::Performing, context);
        }
        if self.awards.has_stage(AwardStage::Done) {
            return self.end(Outcome::Completed, None, context);
        }
        // Everyone but those who failed or lapsed is called again.
        let is_called = |state| {
            !matches!(
                state,
                SessionState::Failed | SessionState::Undelivered | SessionState::Lapsed | SessionState::Excluded
            )
        };
        let called: Vec<usize> =
            (0..self.sessions.len()).filter(|&index| is_called(self.sessions[index].state)).collect();
        if !self.begin_round(&called, context) {
            self.end(Outcome::NoCandidate, None, context);
        }
    }

    /// The runners-up are let go (docs/spec/contract-net.md#cn-52).
    fn release_standby(&mut self, context: &mut InputContext<'_>) {
        for index in self.deciding.release() {
            self.reject(index, RejectReason::Awarded, SessionState::Rejected, context);
        }
    }

    /// The work is done (docs/spec/contract-net.md#cn-54).
    pub(super) fn perform(&mut self, lot: usize, inform: Inform, context: &mut InputContext<'_>) {
        let Some(session) = self.awards.finish(lot) else { return };
        self.set_state(session, SessionState::Done);
        if let Some(task) = &mut self.task {
            task.note_result(inform.result.as_deref());
        }
        self.report_inform(lot, inform, context);
        self.settle(context);
    }

    /// Passes a contractor's INFORM on to the initiator.
    fn report_inform(&self, lot: usize, inform: Inform, context: &mut InputContext<'_>) {
        let Some(award) = self.awards.live(lot) else { return };
        let contractor = self.sessions[award.session].party.agent.clone();
        let report = ContractorReport {
            contractor: contractor.clone(),
            award_no: award.award_no,
            lot: lot_number(lot),
            result: inform.result,
            routine: inform.routine,
        };
        let report = match inform.kind {
            InformKind::Done => ProgressReport::Done(report),
            InformKind::Result => ProgressReport::Result(report),
            InformKind::Cancelled => ProgressReport::Cancelled(report),
        };
        let told = Notification::Inform(report);
        let heir = self.task.as_ref().and_then(|task| task.heir());
        if let Some(heir) = heir.filter(|_| award.stage == AwardStage::Done) {
            let delivery = self.header.delivery(context, heir, told.clone());
            context.deliver(Deliver { from: Some(contractor.clone()), ..delivery });
        }
        self.report_from(contractor, told, context);
    }

    /// CANCEL of the initiator (docs/spec/contract-net.md#cn-55).
    pub(super) fn cancel(&mut self, context: &mut InputContext<'_>) {
        self.deciding.reset_round();
        for index in 0..self.sessions.len() {
            if matches!(self.sessions[index].state, SessionState::Offered | SessionState::Standby) {
                self.reject(index, RejectReason::Cancelled, SessionState::Rejected, context);
            }
        }
        for lot in 0..self.awards.lots() {
            if let Some((award_no, session)) = self.awards.call_off(lot, &self.header, context) {
                self.cancel_award(lot, session, award_no, AwardLoss::Cancelled, context);
                self.set_state(session, SessionState::CancelPending);
            }
        }
        if self.awards.has_stage(AwardStage::CancelPending) {
            let cancel_by = context.clock.plus_ms(self.policy().timers_ms.cancel).min(self.header.ends_by);
            self.awards.wait_until(cancel_by);
            self.enter(Phase::Cancelling, context);
        } else {
            self.end(Outcome::Cancelled, None, context);
        }
    }

    /// The contractors have not answered in time (docs/spec/contract-net.md#cn-57).
    pub(super) fn handle_cancel_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::Cancelled, Some("cancel_timeout"), context);
    }

    /// The contractor answers (docs/spec/contract-net.md#cn-56).
    pub(super) fn answer_cancel(&mut self, lot: usize, answer: CancelAnswer, context: &mut InputContext<'_>) {
        let Some(award) = self.awards.live(lot) else { return };
        let (award_no, session) = (award.award_no, award.session);
        let (state, detail) = match answer {
            CancelAnswer::Informed(inform) => {
                let kind = inform.kind;
                self.report_inform(lot, inform, context);
                match kind {
                    InformKind::Cancelled => (SessionState::Cancelled, None),
                    InformKind::Done | InformKind::Result => (SessionState::Done, Some("done_before_cancel")),
                }
            }
            CancelAnswer::Failed(failure) => {
                let contractor = self.sessions[session].party.agent.clone();
                let told = ContractorFailure { contractor: contractor.clone(), award_no, failure };
                self.report_from(contractor, Notification::Failure(told), context);
                (SessionState::Failed, Some("cannot_cancel"))
            }
        };
        self.awards.drop_called_off(lot);
        self.set_state(session, state);
        if !self.awards.has_stage(AwardStage::CancelPending) {
            self.end(Outcome::Cancelled, detail, context);
        }
    }

    /// The session whose ACCEPT this delivery is, while nothing has been heard of its contractor since.
    pub(super) fn unanswered_accept(&self, session: usize, delivery: DeliveryId) -> Option<usize> {
        let (lot, award) = self.awards.of_session(session)?;
        let is_waiting = award.stage == AwardStage::Awarded
            && award.accept.0 == delivery
            && self.sessions[session].heard <= award.accept.1;
        is_waiting.then_some(lot)
    }
}

/// A failure in the exchange's own words, for what a contractor did not call a failure itself.
pub(super) fn said(code: &str) -> Failure {
    Failure { phase: FailurePhase::Perform, code: code.to_owned(), retryable: false, penalty: None }
}
