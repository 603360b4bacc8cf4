//! What leaves the loop: actions carried out, messages and acknowledgements on their way.

use futures_util::FutureExt;
use schemas::delivery::Delivery;
use schemas::{DeliveryId, Timestamp};
use tokio::time::Instant;

use super::{Done, Drive};
use crate::agent::delayed::DelayedMessage;
use crate::observer::Observed;
use crate::session::Origin;
use crate::strategy::{Action, Outgoing, Strategy};
use crate::transport::Uplink;

/// Most messages under way to the gateways at a time; more wait in the session.
const SENDS_IN_FLIGHT_MAX: usize = 1024;
/// Most acknowledgements under way; beyond them none is sent, and the delivery comes again.
const ACKS_IN_FLIGHT_MAX: usize = 1024;

impl<S: Strategy + 'static> Drive<S> {
    /// Does what the strategy asks for; `cause` is the delivery that made it ask, if one did.
    pub(super) fn perform(&mut self, actions: Vec<Action>, cause: Option<&Delivery>) {
        self.observe_decision(cause, &actions);
        for action in actions {
            match action {
                Action::Send(outgoing) => {
                    let origin = self.spans.origin(&outgoing, cause);
                    if outgoing.delay.is_zero() {
                        self.write(self.clock.now(), *outgoing, origin);
                    } else {
                        self.delay(DelayedMessage { outgoing, origin });
                    }
                }
                Action::Unschedule(negotiation) => self.schedule.drop_negotiation(&negotiation),
                Action::Release(negotiation) => {
                    self.schedule.drop_negotiation(&negotiation);
                    self.session.release(&negotiation);
                }
                Action::Stop => self.is_stopping = true,
            }
        }
    }

    /// Tells the observer what was decided, unless nothing was and nothing was asked.
    fn observe_decision(&self, cause: Option<&Delivery>, actions: &[Action]) {
        if cause.is_some() || !actions.is_empty() {
            self.observe(Observed::Decided { cause, actions });
        }
    }

    fn delay(&mut self, planned: DelayedMessage) {
        let now = self.clock.now();
        let delay_us = u64::try_from(planned.outgoing.delay.as_micros()).unwrap_or(u64::MAX);
        let due = Timestamp(now.0.saturating_add(delay_us));
        if let Err(DelayedMessage { outgoing, origin }) = self.schedule.insert(due, planned) {
            let sent = self.session.refuse(now, &outgoing, origin);
            self.no_room.push(sent);
        }
    }

    pub(super) fn write(&mut self, now: Timestamp, outgoing: Outgoing, origin: Option<Origin>) {
        if let Err(sent) = self.session.write(now, outgoing, origin) {
            self.no_room.push(*sent);
        }
    }

    pub(super) fn transmit(&mut self, link: &dyn Uplink) {
        while self.sends_in_flight < SENDS_IN_FLIGHT_MAX {
            let Some(transmit) = self.session.poll_transmit() else { return };
            self.observe(Observed::Transmitted {
                negotiation: &transmit.negotiation,
                msg_id: &transmit.msg_id,
                act: transmit.act,
                attempt: transmit.attempt,
                document: &transmit.document,
            });
            self.summary.transmitted += 1;
            self.sends_in_flight += 1;
            let number = transmit.number;
            self.work.push(link.send(transmit.document).map(move |answer| Done::Answered(number, answer)).boxed());
        }
    }

    pub(super) fn acknowledge(&mut self, link: &dyn Uplink, ids: Vec<DeliveryId>) {
        if self.acks_in_flight >= ACKS_IN_FLIGHT_MAX {
            self.summary.acks_lost += 1;
            return;
        }
        self.acks_in_flight += 1;
        self.work.push(link.ack(ids).map(Done::Acked).boxed());
    }

    pub(super) fn observe(&self, event: Observed<'_>) {
        if let Some(observer) = &self.options.observer {
            observer.handle(&self.identity.agent, Instant::now(), event);
        }
    }
}
