//! The end: terminal states, the hard deadline (row 19), aborts, and the last notices.

use std::sync::Arc;

use schemas::delivery::{Outcome, RejectReason};

use crate::effect::{AwardLoss, Event, Invariant, Protocol};
use crate::matter::End;
use crate::negotiation::Negotiation;
use crate::state::Phase;
use crate::step::Step;

impl Negotiation {
    /// Row 19: `T_hard`.
    pub(crate) fn handle_hard_deadline(&mut self, step: &mut Step<'_>) {
        if self.phase == Phase::Cancelling {
            return self.handle_cancel_timeout(step);
        }
        self.take_all_back(AwardLoss::Timeout, step);
        self.end(Outcome::Timeout, None, step);
    }

    /// An engine met a register conflict, or a panic: nothing more may be awarded.
    pub(crate) fn handle_abort(&mut self, code: &str, step: &mut Step<'_>) {
        self.matter.link(format!("abort:{code}").as_bytes(), step);
        self.take_all_back(AwardLoss::Aborted, step);
        self.end(Outcome::Aborted, Some(code), step);
    }

    fn take_all_back(&mut self, loss: AwardLoss, step: &mut Step<'_>) {
        for lot in 0..self.lots.len() {
            let is_done =
                self.lots[lot].award.as_ref().is_some_and(|award| award.stage == crate::session::AwardStage::Done);
            if !is_done {
                self.take_back(lot, loss, step);
            }
        }
    }

    /// Enters the terminal state: REJECT to every offerer without a final notice, the outcome registered, then CLOSED. A
    /// completed negotiation tells the initiator and those who were bound; any other end tells everybody.
    pub(super) fn end(&mut self, outcome: Outcome, detail: Option<&str>, step: &mut Step<'_>) {
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
        let told: Vec<usize> = (0..self.sessions.len())
            .filter(|&index| outcome != Outcome::Completed || self.sessions[index].is_owed_closed)
            .collect();
        for index in 0..self.sessions.len() {
            if std::mem::take(&mut self.sessions[index].is_owed_closed) {
                // CLOSED after `committed` is this offer's final notice.
                self.finals += u32::from(self.sessions[index].offer.take().is_some());
            } else {
                self.reject_offer(index, reason, step);
            }
        }
        self.standby.clear();
        self.matter.outcome = Some(outcome);
        let end = End { outcome, detail, agreement: None, before: self.last_key.take() };
        let sessions = &self.sessions;
        let told = told.into_iter().map(|index| &sessions[index].party.agent);
        self.matter.tell_closed(end, &self.initiator.agent, told, step);
        self.check_finals(step);
        self.enter(Phase::Ended, step);
        step.event(Event::Ended {
            negotiation: self.matter.id.clone(),
            protocol: Protocol::ContractNet,
            policy: Arc::clone(&self.pinned.id),
            invited: u32::try_from(self.sessions.len()).unwrap_or(u32::MAX),
            outcome,
            rounds: self.round,
            offers: self.offers,
            awards: self.awards,
            at: step.now,
            elapsed_us: step.now.since_us(self.matter.started_at),
        });
    }

    /// Invariant final-notice, checked where it could break.
    fn check_finals(&self, step: &mut Step<'_>) {
        if self.finals != self.offers {
            let negotiation = self.matter.id.clone();
            step.event(Event::InvariantViolated { negotiation, invariant: Invariant::FinalNotice, offer: None });
        }
    }
}
