//! The end: terminal states, the hard deadline, aborts, and the last notices.

use std::sync::Arc;

use schemas::delivery::{Outcome, RejectReason};

use crate::contract_net::ContractNet;
use crate::effect::{AwardLoss, Event, Invariant, Protocol};
use crate::negotiation::context::InputContext;
use crate::negotiation::header::NegotiationEnd;
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// The hard deadline (docs/spec/contract-net.md#cn-58).
    pub(crate) fn handle_hard_deadline(&mut self, context: &mut InputContext<'_>) {
        if self.phase == Phase::Cancelling {
            return self.handle_cancel_timeout(context);
        }
        self.take_all_back(AwardLoss::Timeout, context);
        self.end(Outcome::Timeout, None, context);
    }

    /// An engine met a register conflict, or a panic: nothing more may be awarded.
    pub(crate) fn handle_abort(&mut self, code: &str, context: &mut InputContext<'_>) {
        self.header.link(format!("abort:{code}").as_bytes(), context);
        self.take_all_back(AwardLoss::Aborted, context);
        self.end(Outcome::Aborted, Some(code), context);
    }

    fn take_all_back(&mut self, loss: AwardLoss, context: &mut InputContext<'_>) {
        for lot in 0..self.lots.len() {
            let is_done = self.lots[lot]
                .award
                .as_ref()
                .is_some_and(|award| award.stage == crate::negotiation::party::AwardStage::Done);
            if !is_done {
                self.take_back(lot, loss, context);
            }
        }
    }

    /// Enters the terminal state: REJECT to every offerer without a final notice, the outcome registered, then CLOSED. A
    /// completed negotiation tells the initiator and those who were bound; any other end tells everybody.
    pub(super) fn end(&mut self, outcome: Outcome, detail: Option<&str>, context: &mut InputContext<'_>) {
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
                self.reject_offer(index, reason, context);
            }
        }
        self.standby.clear();
        self.header.outcome = Some(outcome);
        let end = NegotiationEnd { outcome, detail, agreement: None, before: self.last_key.take() };
        let sessions = &self.sessions;
        let told = told.into_iter().map(|index| &sessions[index].party.agent);
        self.header.tell_closed(end, &self.initiator.agent, told, context);
        self.check_finals(context);
        self.enter(Phase::Ended, context);
        context.event(Event::Ended {
            negotiation: self.header.id.clone(),
            protocol: Protocol::ContractNet,
            policy: Arc::clone(&self.pinned.id),
            invited: u32::try_from(self.sessions.len()).unwrap_or(u32::MAX),
            outcome,
            rounds: self.round,
            offers: self.offers,
            awards: self.awards,
            at: context.now,
            elapsed_us: context.now.since_us(self.header.started_at),
        });
    }

    /// Invariant final-notice, checked where it could break.
    fn check_finals(&self, context: &mut InputContext<'_>) {
        if self.finals != self.offers {
            let negotiation = self.header.id.clone();
            context.event(Event::InvariantViolated { negotiation, invariant: Invariant::FinalNotice, offer: None });
        }
    }
}
