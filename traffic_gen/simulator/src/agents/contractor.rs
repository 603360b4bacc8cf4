//! What contractors say: offers, confirmations, results, and everything they should not.

use schemas::delivery::{Award, Call, Cancellation, Closing, Delivery, Disposition, Outcome, Receipt};
use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Confirm, Failure, FailurePhase, Inform, InformKind, Offer, Reasoned, Terms};
use schemas::{AwardNo, Payload};

use super::SimulatedAgent;
use super::bargainer::PartyState;
use super::post::Draft;
use crate::points::Point;

/// What a contractor remembers of a negotiation.
#[derive(Debug, Default)]
pub(super) struct Deal {
    is_over: bool,
    /// What it knows as the party of a bargain.
    pub(super) seat: Option<PartyState>,
}

impl SimulatedAgent {
    pub(super) fn answer_call(&mut self, delivery: &Delivery, call: &Call) {
        if call.round > 1 {
            self.reached(Point::SecondRound);
        }
        let window_ms = (call.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let soon = self.draw(0..window_ms.min(400));
        if self.happens(self.me.temper.ignore) {
            return;
        }
        if self.happens(self.me.temper.decline) {
            let payload = match self.draw(0..3) {
                0 => Payload::Refuse(Reasoned::default()),
                1 => Payload::NotUnderstood(Reasoned::default()),
                _ => Payload::Failure(failure(FailurePhase::Offer)),
            };
            return self.reply(soon, delivery, payload);
        }
        let is_late = self.happens(self.me.temper.offer_late);
        let after_ms = if is_late { window_ms + self.draw(0..300) } else { soon };
        let offer = self.offer(call);
        self.reply(after_ms, delivery, offer);
        if self.happens(self.me.temper.revise) {
            let (offer, later) = (self.offer(call), after_ms + self.draw(0..300));
            self.reply(later, delivery, offer);
        }
        if self.happens(self.me.temper.withdraw) {
            let later = after_ms + self.draw(0..400);
            self.reply(later, delivery, Payload::Withdraw(Reasoned::default()));
        }
    }

    pub(super) fn answer_accept(&mut self, delivery: &Delivery, award: &Award) {
        if award.award_no > AwardNo(1) {
            self.reached(Point::ReAwarded);
        }
        let window_ms = (award.confirm_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let soon = self.draw(0..window_ms.min(200));
        if self.happens(self.me.temper.ignore_award) {
            return;
        }
        if self.happens(self.me.temper.decline_award) {
            let payload = match self.draw(0..4) {
                0 => Payload::Refuse(Reasoned::default()),
                1 => Payload::NotUnderstood(Reasoned::default()),
                2 => Payload::Withdraw(Reasoned::default()),
                _ => Payload::Failure(failure(FailurePhase::Perform)),
            };
            return self.reply(soon, delivery, payload);
        }
        if self.happens(self.me.temper.confirm_wrong) {
            let award_no = AwardNo(award.award_no.0 + 1);
            self.reply(soon / 2, delivery, Payload::Confirm(Confirm { award_no, terms_digest: None }));
        }
        let is_late = self.happens(self.me.temper.confirm_late);
        let after_ms = if is_late { window_ms + self.draw(0..300) } else { soon };
        self.reply(after_ms, delivery, Payload::Confirm(Confirm { award_no: award.award_no, terms_digest: None }));
    }

    pub(super) fn answer_receipt(&mut self, delivery: &Delivery, receipt: &Receipt) {
        self.note_in_bargain(delivery, receipt);
        match receipt.disposition {
            Disposition::Committed => {
                self.reached(Point::Committed);
                self.perform(delivery);
            }
            Disposition::Late => self.reached(Point::OfferLate),
            Disposition::Revoked => self.reached(Point::ConfirmedRevoked),
            Disposition::Conflict => self.reached(Point::Conflicted),
            Disposition::MandateViolation => self.reached(Point::MandateViolation),
            Disposition::Ok
            | Disposition::Duplicate
            | Disposition::Expired
            | Disposition::StaleRound
            | Disposition::OutOfTurn
            | Disposition::Malformed
            | Disposition::StaleSeq
            | Disposition::Unauthorized
            | Disposition::Closed
            | Disposition::PolicyReject
            | Disposition::RateLimited => {}
        }
    }

    /// It is bound: the work is done, fails, or never ends.
    fn perform(&mut self, delivery: &Delivery) {
        if self.happens(self.me.temper.dawdle) {
            return;
        }
        let after_ms = self.draw(0..400);
        let payload = if self.happens(self.me.temper.fail) {
            let phase = if self.happens(500) { FailurePhase::Perform } else { FailurePhase::Decommit };
            Payload::Failure(failure(phase))
        } else if self.happens(500) {
            Payload::Inform(Inform { kind: InformKind::Done, result: None })
        } else {
            Payload::Inform(Inform { kind: InformKind::Result, result: Some("as agreed".to_owned()) })
        };
        self.reply(after_ms, delivery, payload);
    }

    pub(super) fn answer_cancel(&mut self, delivery: &Delivery, cancellation: &Cancellation) {
        if cancellation.reason != "cancelled" || self.happens(self.me.temper.dawdle) {
            return;
        }
        let after_ms = self.draw(0..200);
        let payload = match self.draw(0..4) {
            0 => Payload::Failure(failure(FailurePhase::CannotCancel)),
            1 => Payload::Inform(Inform { kind: InformKind::Done, result: None }),
            _ => Payload::Inform(Inform { kind: InformKind::Cancelled, result: None }),
        };
        self.reply(after_ms, delivery, payload);
    }

    pub(super) fn answer_closed(&mut self, delivery: &Delivery, closing: &Closing) {
        let deal = self.deals.entry(delivery.envelope.negotiation.clone()).or_default();
        if !std::mem::replace(&mut deal.is_over, true) {
            match closing.outcome {
                Outcome::Completed => self.reached(Point::Completed),
                Outcome::Cancelled => self.reached(Point::Cancelled),
                Outcome::Timeout => self.reached(Point::TimedOut),
                Outcome::Agreement | Outcome::NoAgreement | Outcome::Ended => self.note_bargain_over(delivery, closing),
                Outcome::NoOffers | Outcome::Incomplete | Outcome::NoCandidate | Outcome::Aborted => {}
            }
        }
        self.stray(delivery);
    }

    /// Says something nobody asked for.
    pub(super) fn stray(&mut self, delivery: &Delivery) {
        if !self.happens(self.me.temper.stray) {
            return;
        }
        let after_ms = self.draw(0..1000);
        let payload = match self.draw(0..4) {
            0 => Payload::Offer(Offer { terms: self.terms(), ..Offer::default() }),
            1 => Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: None }),
            2 => Payload::Inform(Inform { kind: InformKind::Done, result: None }),
            _ => Payload::Cancel(Reasoned::default()),
        };
        self.reply(after_ms, delivery, payload);
    }

    pub(super) fn reply(&mut self, after_ms: u64, delivery: &Delivery, payload: Payload) {
        if matches!(payload, Payload::Withdraw(_)) {
            self.reached(Point::Withdrawn);
        }
        self.say(after_ms, Draft::new(&delivery.envelope.negotiation, payload));
    }

    fn offer(&mut self, call: &Call) -> Payload {
        let mut terms = self.terms();
        if self.happens(self.me.temper.offer_unfit) {
            terms.insert(name("price"), AttrValue::Int(5000));
        }
        let is_brief = self.happens(self.me.temper.offer_brief);
        let round = match self.draw(0..20) {
            0..8 => Some(call.round),
            8 => Some(call.round.saturating_sub(1).max(1)),
            _ => None,
        };
        let valid_for_ms = is_brief.then(|| self.draw(100..1500));
        let currency = call.currency.clone();
        Payload::Offer(Offer { terms, currency, valid_for_ms, round, ..Offer::default() })
    }

    /// Terms from few values, so that scores are often equal.
    fn terms(&mut self) -> Terms {
        let (price, delivery_ms) = (self.draw(1..10) * 100, self.draw(1..5) * 200);
        let int = |value: u64| AttrValue::Int(i64::try_from(value).unwrap_or(0));
        Terms::from([(name("price"), int(price)), (name("delivery_ms"), int(delivery_ms))])
    }
}

fn failure(phase: FailurePhase) -> Failure {
    Failure { phase, code: "broken".to_owned(), retryable: false, penalty: None }
}

pub(super) fn name(attr: &str) -> AttrName {
    AttrName::try_new(attr).expect("an attribute's name")
}
