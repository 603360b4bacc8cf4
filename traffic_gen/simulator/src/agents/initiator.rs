//! What initiators say: calls, choices, cancellations.

use schemas::bargain::BargainSpec;
use schemas::delivery::{Delivery, ProgressReport};
use schemas::payload::{Accept, Cfp, Reasoned};
use schemas::{Address, NegotiationId, OfferId, Payload};

use super::SimulatedAgent;
use super::post::Draft;
use crate::points::Point;

/// A call an initiator will make.
#[derive(Debug, Clone)]
pub(crate) struct CallPlan {
    /// When, in milliseconds since the run began.
    pub(crate) at_ms: u64,
    /// Its negotiation.
    pub(crate) negotiation: NegotiationId,
    /// Under which policy.
    pub(crate) policy: String,
    /// The collection deadline, where it names one.
    pub(crate) reply_within_ms: Option<u64>,
    /// Whom it goes to.
    pub(crate) to: Vec<Address>,
    /// Whether it asks for those who are absent, too.
    pub(crate) invites_absent: bool,
}

/// A call to a bargain an initiator will make.
#[derive(Debug, Clone)]
pub(crate) struct BargainPlan {
    /// When, in milliseconds since the run began.
    pub(crate) at_ms: u64,
    /// Its negotiation.
    pub(crate) negotiation: NegotiationId,
    /// Its rules.
    pub(crate) rules: BargainSpec,
    /// How long the others have to join, in milliseconds.
    pub(crate) join_within_ms: u64,
    /// Whom it goes to.
    pub(crate) to: Vec<Address>,
}

impl SimulatedAgent {
    pub(super) fn plan_calls(&mut self) {
        for call in std::mem::take(&mut self.me.calls) {
            let cfp = Cfp {
                task: Some("carry a parcel".to_owned()),
                policy: Some(call.policy),
                reply_within_ms: call.reply_within_ms,
                ..Cfp::default()
            };
            let (to, invites_absent) = (call.to, call.invites_absent);
            let draft = Draft { to, invites_absent, ..Draft::new(&call.negotiation, Payload::Cfp(cfp)) };
            if self.happens(self.me.temper.stray) {
                // The same negotiation, called a second time in another message.
                let again_ms = call.at_ms + self.draw(0..500);
                self.say(again_ms, draft.clone());
            }
            self.say(call.at_ms, draft);
            if self.happens(self.me.temper.cancel) {
                let after_ms = call.at_ms + self.draw(0..2500);
                self.say(after_ms, Draft::new(&call.negotiation, Payload::Cancel(Reasoned::default())));
            }
        }
    }

    pub(super) fn plan_bargains(&mut self) {
        for plan in std::mem::take(&mut self.me.bargains) {
            let seat = self.take_seat(&plan.rules);
            let cfp = Cfp {
                task: Some("a price for a parcel".to_owned()),
                reply_within_ms: Some(plan.join_within_ms),
                mandate: seat.mandate.clone().map(Box::new),
                bargain: Some(Box::new(plan.rules)),
                ..Cfp::default()
            };
            self.deals.entry(plan.negotiation.clone()).or_default().seat = Some(seat);
            self.say(plan.at_ms, Draft { to: plan.to, ..Draft::new(&plan.negotiation, Payload::Cfp(cfp)) });
            if self.happens(self.me.temper.cancel) {
                let after_ms = plan.at_ms + self.draw(0..2500);
                self.say(after_ms, Draft::new(&plan.negotiation, Payload::Cancel(Reasoned::default())));
            }
        }
    }

    pub(super) fn answer_news(&mut self, delivery: &Delivery, news: &ProgressReport) {
        match news {
            ProgressReport::Offers(offers) if !offers.offers.is_empty() => {
                let window_ms = (offers.decide_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
                let after_ms = self.draw(0..window_ms.min(300));
                let index = usize::try_from(self.draw(0..offers.offers.len() as u64)).unwrap_or(0);
                let mut offer_id = offers.offers[index].offer_id;
                if self.happens(self.me.temper.choose_badly) {
                    if self.happens(500) {
                        return;
                    }
                    offer_id = OfferId(schemas::Position { seq: offer_id.0.seq + 1, ..offer_id.0 });
                }
                self.reached(Point::InitiatorChose);
                let accept = Payload::Accept(Accept { offer_id, terms_digest: None });
                self.say(after_ms, Draft::new(&delivery.envelope.negotiation, accept));
            }
            ProgressReport::Offers(_)
            | ProgressReport::Awarded(_)
            | ProgressReport::Committed(_)
            | ProgressReport::Done(_)
            | ProgressReport::Result(_)
            | ProgressReport::Cancelled(_) => {}
        }
    }
}
