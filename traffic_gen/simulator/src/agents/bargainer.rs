//! What the parties of a bargain say: they join, offer, accept, take back, leave, confirm; and whatever they should not.

use std::collections::{BTreeMap, BTreeSet};

use schemas::bargain::{BargainSpec, Join, Mandate};
use schemas::delivery::{
    Award, BargainCall, Call, Closing, Delivery, Disposition, Misunderstanding, Outcome, Receipt, Standing, Turn,
};
use schemas::payload::{Accept, Confirm, Reasoned, Terms};
use schemas::{Act, AwardNo, Digest, MsgId, OfferId, Payload, WireTime};

use super::SimulatedAgent;
use super::mandate::Wants;
use crate::points::Point;

/// Most times a party speaks in one bargain: some never tire.
const SAID_MAX: usize = 60;

/// What a party remembers of a bargain.
#[derive(Debug)]
pub(super) struct PartyState {
    pub(super) wants: Wants,
    /// What it has declared, if it has.
    pub(super) mandate: Option<Mandate>,
    said: BTreeMap<MsgId, Act>,
    accepted: BTreeSet<OfferId>,
    /// Its own last offer, which it may try to accept.
    offered: Option<Terms>,
    turn: Option<(Turn, WireTime)>,
    has_confirmed: bool,
}

impl PartyState {
    /// A message is written.
    pub(super) fn note_said(&mut self, msg_id: &MsgId, payload: &Payload) {
        self.said.insert(msg_id.clone(), payload.act());
        match payload {
            Payload::Accept(accept) => {
                self.accepted.insert(accept.offer_id);
            }
            Payload::Offer(offer) => self.offered = Some(offer.terms.clone()),
            Payload::Confirm(_) => self.has_confirmed = true,
            Payload::Cfp(_)
            | Payload::Refuse(_)
            | Payload::NotUnderstood(_)
            | Payload::Withdraw(_)
            | Payload::Inform(_)
            | Payload::Failure(_)
            | Payload::Cancel(_)
            | Payload::Join(_)
            | Payload::End(_) => {}
        }
    }

    fn has_left(&self) -> bool {
        self.said.values().any(|act| matches!(act, Act::End | Act::Refuse | Act::NotUnderstood))
    }
}

impl SimulatedAgent {
    pub(super) fn take_seat(&mut self, rules: &BargainSpec) -> PartyState {
        let (wants, mandate) = self.want(rules);
        PartyState {
            wants,
            mandate,
            said: BTreeMap::new(),
            accepted: BTreeSet::new(),
            offered: None,
            turn: None,
            has_confirmed: false,
        }
    }

    pub(super) fn is_bargaining(&self, delivery: &Delivery) -> bool {
        self.seat(delivery).is_some()
    }

    pub(super) fn seat(&self, delivery: &Delivery) -> Option<&PartyState> {
        self.deals.get(&delivery.envelope.negotiation)?.seat.as_ref()
    }

    /// Joins, most of the time.
    pub(super) fn answer_bargain(&mut self, delivery: &Delivery, call: &Call, bargain: &BargainCall) {
        let window_ms = (call.reply_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let soon = self.draw(0..window_ms.min(200));
        let seat = self.take_seat(&bargain.rules);
        let mandate = seat.mandate.clone().map(Box::new);
        self.deals.entry(delivery.envelope.negotiation.clone()).or_default().seat = Some(seat);
        if self.happens(self.me.temper.ignore) {
            return;
        }
        let is_late = self.happens(self.me.temper.offer_late);
        let after_ms = if is_late { window_ms + self.draw(0..300) } else { soon };
        let payload = if self.happens(self.me.temper.decline) {
            let declines: [fn(Reasoned) -> Payload; 3] = [Payload::Refuse, Payload::NotUnderstood, Payload::End];
            declines[self.me_index(declines.len())](Reasoned::default())
        } else {
            Payload::Join(Join { mandate })
        };
        self.reply(after_ms, delivery, payload);
    }

    /// Acts when it is its turn, and sometimes when it is not.
    pub(super) fn answer_turn(&mut self, delivery: &Delivery, turn: &Turn) {
        let at = delivery.envelope.ts;
        let Some(seat) = self.deals.get_mut(&delivery.envelope.negotiation).and_then(|deal| deal.seat.as_mut()) else {
            return;
        };
        let before = seat.turn.replace((turn.clone(), at));
        if let Some((before, _)) = before
            && before.step == turn.step
            && turn.standing.is_none()
            && before.standing.is_some_and(|standing| standing.valid_until.is_some_and(|until| until < at))
        {
            self.reached(Point::StandingExpired);
        }
        if self.happens(self.me.temper.leave) {
            let after_ms = self.draw(0..200);
            self.reply(after_ms, delivery, Payload::End(Reasoned::default()));
        }
        if turn.party == self.me.id {
            self.take_turn(delivery, turn);
        } else if self.happens(self.me.temper.speak_out) {
            self.speak_out(delivery, turn);
        }
    }

    fn take_turn(&mut self, delivery: &Delivery, turn: &Turn) {
        let is_worn = self.seat(delivery).is_none_or(|seat| seat.said.len() > SAID_MAX);
        if is_worn || self.happens(self.me.temper.dawdle) {
            return;
        }
        let window_ms = (turn.act_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let is_late = self.happens(self.me.temper.confirm_late);
        let after_ms = if is_late { window_ms + self.draw(0..100) } else { self.draw(0..window_ms.min(60)) };
        let overreaches = self.happens(self.me.temper.overreach);
        if let Some(standing) = &turn.standing
            && (overreaches || self.is_content(delivery, standing, turn))
        {
            let mut offer_id = standing.offer_id;
            if self.happens(self.me.temper.confirm_wrong) {
                offer_id.0.seq += 1;
            }
            let accept = Accept { offer_id, terms_digest: Some(standing.terms_digest) };
            return self.reply(after_ms, delivery, Payload::Accept(accept));
        }
        let Some(offer) = self.bargain_offer(delivery, turn, overreaches) else { return };
        self.reply(after_ms, delivery, Payload::Offer(offer));
        if self.happens(self.me.temper.withdraw) {
            let later = after_ms + self.draw(0..60);
            self.reply(later, delivery, Payload::Withdraw(Reasoned::default()));
        }
    }

    /// It asks for less as time passes.
    fn is_content(&mut self, delivery: &Delivery, standing: &Standing, turn: &Turn) -> bool {
        let patience = 1_000_000 - turn.t_ppm.min(1_000_000);
        let is_in_haste = self.happens(100);
        let Some(seat) = self.seat(delivery) else { return false };
        let wants = &seat.wants;
        wants.is_acceptable(&standing.terms) && (is_in_haste || wants.worth(&standing.terms) >= patience)
    }

    /// Whatever comes to mind, its own offer above all.
    fn speak_out(&mut self, delivery: &Delivery, turn: &Turn) {
        let after_ms = self.draw(0..100);
        let own = turn.standing.as_ref().filter(|standing| standing.by == self.me.id);
        let offer = self.bargain_offer(delivery, turn, false).unwrap_or_default();
        let payload = match (self.draw(0..5), own, &turn.standing) {
            (0, ..) => Payload::Offer(offer),
            (1, ..) => Payload::Join(Join::default()),
            (2, ..) => Payload::Withdraw(Reasoned::default()),
            (_, Some(standing), _) | (_, None, Some(standing)) => {
                let terms_digest = Some(standing.terms_digest);
                Payload::Accept(Accept { offer_id: standing.offer_id, terms_digest })
            }
            (_, None, None) => Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: None }),
        };
        self.reply(after_ms, delivery, payload);
    }

    /// Everybody accepted: it confirms, most of the time.
    pub(super) fn answer_agreed(&mut self, delivery: &Delivery, award: &Award) {
        let window_ms = (award.confirm_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        if self.happens(self.me.temper.ignore_award) {
            return;
        }
        let is_late = self.happens(self.me.temper.confirm_late);
        let after_ms = if is_late { window_ms + self.draw(0..300) } else { self.draw(0..window_ms.min(200)) };
        if self.happens(self.me.temper.decline_award) {
            let declines: [fn(Reasoned) -> Payload; 3] = [Payload::Refuse, Payload::End, Payload::Withdraw];
            let payload = declines[self.me_index(declines.len())](Reasoned::default());
            return self.reply(after_ms, delivery, payload);
        }
        let mut terms_digest = self.happens(500).then_some(award.terms_digest);
        if self.happens(self.me.temper.confirm_wrong) {
            terms_digest = Some(Digest([0; 32]));
        }
        self.reply(after_ms, delivery, Payload::Confirm(Confirm { award_no: award.award_no, terms_digest }));
    }

    /// It was its turn and still is: it tries something else.
    pub(super) fn answer_misread(&mut self, delivery: &Delivery, misunderstanding: &Misunderstanding) {
        if misunderstanding.reason == "unsupported_rules" {
            self.reached(Point::BargainTooEarly);
        }
        let again =
            ["mandate_violation", "out_of_space", "repeated", "condition", "standing", "not_yet_valid", "validity"];
        let turn = self.seat(delivery).and_then(|seat| seat.turn.clone());
        match turn.filter(|(turn, _)| turn.party == self.me.id) {
            Some((turn, _)) if again.contains(&misunderstanding.reason.as_str()) => {
                let Some(offer) = self.bargain_offer(delivery, &turn, false) else { return };
                let after_ms = self.draw(0..60);
                self.reply(after_ms, delivery, Payload::Offer(offer));
            }
            Some(_) | None => self.stray(delivery),
        }
    }

    /// What its own messages came to, as far as points are counted by it.
    pub(super) fn note_in_bargain(&mut self, delivery: &Delivery, receipt: &Receipt) {
        let Some(seat) = self.seat(delivery) else { return };
        let point = match (seat.said.get(&receipt.ack_of), receipt.disposition) {
            (Some(Act::Accept | Act::End), Disposition::Closed) => Point::EndsCrossed,
            (Some(Act::Withdraw), Disposition::Ok) => Point::StandingWithdrawn,
            (Some(Act::Offer), Disposition::Ok) => return self.tempt(delivery, receipt),
            (_, _) => return,
        };
        self.reached(point);
    }

    /// Its offer stands: it may try to accept that itself.
    fn tempt(&mut self, delivery: &Delivery, receipt: &Receipt) {
        let offered = self.seat(delivery).and_then(|seat| Digest::of(seat.offered.as_ref()?).ok());
        let (Some(offer_id), Some(terms_digest)) = (receipt.offer_id, offered) else { return };
        if self.happens(self.me.temper.speak_out) {
            let after_ms = self.draw(0..50);
            let accept = Accept { offer_id, terms_digest: Some(terms_digest) };
            self.reply(after_ms, delivery, Payload::Accept(accept));
        }
    }

    /// How it ended.
    pub(super) fn note_bargain_over(&mut self, delivery: &Delivery, closing: &Closing) {
        let Some(seat) = self.seat(delivery) else { return };
        let mut reached = Vec::new();
        match (closing.outcome, closing.detail.as_deref()) {
            (Outcome::Agreement, _) => {
                reached.push(Point::Agreed);
                if seat.has_confirmed {
                    reached.push(Point::AgreementConfirmed);
                }
                let is_accepted = closing
                    .agreement
                    .as_deref()
                    .is_none_or(|agreement| agreement.by == self.me.id || seat.accepted.contains(&agreement.offer_id));
                if !is_accepted {
                    reached.push(Point::AcceptedByPolicy);
                }
            }
            (_, Some("not_joined")) => reached.push(Point::NotJoined),
            (_, Some("rounds")) => reached.push(Point::RoundsOver),
            (_, Some("deadline")) => reached.push(Point::DeadlineOver),
            (_, Some("step_timeout")) => reached.push(Point::StepTimedOut),
            (_, Some("unconfirmed")) => reached.push(Point::Unconfirmed),
            (Outcome::Ended, who) => {
                let is_struck = who == Some(self.me.id.as_str()) && !seat.has_left();
                reached.push(if is_struck { Point::StruckOut } else { Point::BargainEnded });
            }
            (_, _) => {}
        }
        reached.into_iter().for_each(|point| self.reached(point));
    }
}
