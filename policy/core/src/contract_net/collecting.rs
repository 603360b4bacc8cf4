//! COLLECTING: answers, strikes, extensions, and the evaluation of the close rule.

use std::sync::Arc;

use schemas::WireTime;
use schemas::delivery::{Call, CloseReason, RejectReason};
use schemas::policy::{OnIncomplete, WindowAnchor};

use crate::acceptance::close::{self, CollectionStatus};
use crate::acceptance::threshold;
use crate::contract_net::ContractNet;
use crate::contract_net::state::SessionState;
use crate::effect::Event;
use crate::negotiation::context::InputContext;
use crate::negotiation::party::CollectedOffer;
use crate::negotiation::phase::Phase;

impl ContractNet {
    /// The offer replaces the contractor's earlier one (docs/spec/contract-net.md#cn-9).
    pub(super) fn record_offer(&mut self, index: usize, offer: Box<CollectedOffer>, context: &mut InputContext<'_>) {
        self.reject_offer(index, RejectReason::Replaced, context);
        self.offers += 1;
        self.tally.add(offer.score, offer.valid_until);
        self.sessions[index].offer = Some(offer);
        self.set_state(index, SessionState::Offered);
        self.start_window(context);
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

    /// Strikes out (docs/spec/contract-net.md#cn-17): the session is excluded and its offer leaves the running. Who is
    /// bound, or has been, stays: a commitment does not end by a mistake.
    pub(super) fn strike(&mut self, index: usize, context: &mut InputContext<'_>) {
        let session = &mut self.sessions[index];
        session.strikes += 1;
        if session.strikes < self.pinned.policy.max_strikes || !is_excludable(session.state) {
            return;
        }
        self.standby.retain(|&held| held != index);
        self.reject(index, RejectReason::Withdrawn, SessionState::Excluded, context);
        let contractor = self.sessions[index].party.agent.clone();
        context.event(Event::Excluded { negotiation: self.header.id.clone(), contractor });
        if self.phase == Phase::Collecting {
            self.evaluate(context);
        }
    }

    /// The first valid offer of a round starts a window anchored at it, even if it is withdrawn later.
    fn start_window(&mut self, context: &InputContext<'_>) {
        let close = &self.pinned.policy.close;
        if close.window_anchor == WindowAnchor::FirstValid && self.window_at.is_none() && !self.is_window_past {
            self.window_at = close.window_ms.map(|ms| context.now.plus_ms(ms));
        }
    }

    /// The close rule, after every collecting event and timer.
    pub(super) fn evaluate(&mut self, context: &mut InputContext<'_>) {
        self.refresh_tally(context.now);
        let threshold = self.policy().close.score_at_least;
        let standing = CollectionStatus {
            valid: self.tally.valid,
            is_score_reached: threshold
                .zip(self.tally.best)
                .is_some_and(|(threshold, best)| threshold::is_reached(threshold, self.period, best, context.now)),
            responded: self.responded,
            expected: self.expected,
            is_window_past: self.is_window_past,
        };
        match close::reason(&self.policy().close, standing) {
            Some(reason) => self.close(reason, context),
            None => {
                self.crossing_at = threshold.zip(self.tally.best).and_then(|(threshold, best)| {
                    threshold::crossing(threshold, self.period, best, context.now).filter(|at| *at > context.now)
                });
            }
        }
    }

    /// The window has passed (docs/spec/contract-net.md#cn-24). With too few valid offers it stays past, and the next
    /// valid offer closes.
    pub(crate) fn handle_window(&mut self, context: &mut InputContext<'_>) {
        self.window_at = None;
        self.is_window_past = true;
        self.evaluate(context);
    }

    /// The falling threshold reaches the best score.
    pub(crate) fn handle_crossing(&mut self, context: &mut InputContext<'_>) {
        self.crossing_at = None;
        self.evaluate(context);
    }

    /// The collection deadline always closes (docs/spec/contract-net.md#cn-22), unless missing answers buy an
    /// extension.
    pub(crate) fn handle_collect(&mut self, context: &mut InputContext<'_>) {
        if let OnIncomplete::Extend { ms, max } = self.policy().on_incomplete {
            let reply_by = context.clock.plus_ms(ms);
            if self.responded < self.expected && self.extensions < max && reply_by <= self.header.ends_by {
                return self.extend(reply_by, context);
            }
        }
        self.refresh_tally(context.now);
        self.close(CloseReason::Deadline, context);
    }

    /// Those who have not answered are called again, with the later deadline.
    fn extend(&mut self, reply_by: schemas::Timestamp, context: &mut InputContext<'_>) {
        self.extensions += 1;
        self.reply_by = reply_by;
        let Some(call) = self.call.clone() else { return };
        let call = Arc::new(Call { round: self.round, reply_by: WireTime(reply_by), ..Call::clone(&call) });
        let silent: Vec<usize> = (0..self.sessions.len())
            .filter(|&index| {
                self.sessions[index].state == SessionState::Invited && self.sessions[index].round == self.round
            })
            .collect();
        self.deliver_call(&call, &silent, context);
    }
}

const fn is_excludable(state: SessionState) -> bool {
    match state {
        SessionState::Invited
        | SessionState::Offered
        | SessionState::PolicyRejected
        | SessionState::Refused
        | SessionState::NotUnderstood
        | SessionState::Withdrawn
        | SessionState::Undelivered
        | SessionState::Standby
        | SessionState::Rejected => true,
        SessionState::Excluded
        | SessionState::Awarded
        | SessionState::Committed
        | SessionState::Done
        | SessionState::Failed
        | SessionState::Lapsed
        | SessionState::CancelPending
        | SessionState::Cancelled => false,
    }
}
