//! What follows: turns, acceptances in a party's name, agreement, the end.

use schemas::delivery::Outcome;
use schemas::{AwardNo, Lot, RegisterKey, WireTime};

use super::judging::Then;
use super::{Bargain, Made, mandate};
use crate::{Moment, fact};

impl Bargain {
    pub(super) fn follow(&mut self, seat: usize, then: Then, moment: Moment) {
        match then {
            Then::Nothing => {}
            Then::Strike => {
                self.seats[seat].strikes += 1;
                if self.seats[seat].strikes >= self.rules.max_strikes {
                    let who = self.seats[seat].agent.to_string();
                    self.end(Outcome::Ended, Some(who), moment);
                }
            }
            Then::Join(join, rule) => {
                let joined = &mut self.seats[seat];
                (joined.has_joined, joined.mandate, joined.rule) = (true, join.mandate.map(|mandate| *mandate), rule);
                if self.seats.iter().all(|seat| seat.has_joined) {
                    self.begin(moment);
                    self.tell_turn(Some(seat), moment);
                }
            }
            Then::Offer(made) => {
                self.offer(made, moment);
                self.go_on(seat, moment);
            }
            Then::Accept => {
                self.accept(seat, moment);
                self.go_on(seat, moment);
            }
            Then::Withdraw => {
                self.standing = None;
                self.tell_turn(Some(seat), moment);
            }
            Then::Confirm => {
                self.seats[seat].has_confirmed = true;
                if self.seats.iter().all(|seat| seat.has_confirmed) {
                    self.agree(moment);
                }
            }
            Then::End(outcome, detail) => self.end(outcome, detail, moment),
        }
    }

    /// The first turn begins (docs/spec/alternating-offers.md#ao-12).
    fn begin(&mut self, moment: Moment) {
        self.begun_at = Some(moment.now);
        self.ends_by = self.end_after(moment.now);
        self.act_by = moment.clock.plus_ms(self.rules.step_ms);
    }

    fn offer(&mut self, made: Made, moment: Moment) {
        self.offers.push(made);
        (self.standing, self.expired) = (Some(self.offers.len() - 1), None);
        self.take_step(moment);
    }

    fn accept(&mut self, seat: usize, moment: Moment) {
        let standing = self.standing.expect("only what stands is accepted");
        self.offers[standing].accepted_by.push(seat);
        self.take_step(moment);
    }

    fn take_step(&mut self, moment: Moment) {
        self.step += 1;
        self.act_by = moment.clock.plus_ms(self.rules.step_ms);
    }

    /// After a step: policies accept as long as they do, then all are told, or it is over.
    fn go_on(&mut self, by: usize, moment: Moment) {
        loop {
            if self.is_agreed() {
                return self.ask_or_agree(moment);
            }
            if self.rules.rounds.is_some_and(|rounds| self.round() > rounds) {
                return self.no_agreement("rounds", moment);
            }
            if !mandate::accepts(self, self.turn(), moment.now) {
                return self.tell_turn(Some(by), moment);
            }
            self.accept(self.turn(), moment);
        }
    }

    /// Whether all but its proposer have accepted what stands.
    fn is_agreed(&self) -> bool {
        self.stands().is_some_and(|made| made.accepted_by.len() + 1 == self.seats.len())
    }

    /// Everybody has accepted (docs/spec/alternating-offers.md#ao-36).
    fn ask_or_agree(&mut self, moment: Moment) {
        let Some(confirm_ms) = self.rules.confirm_ms else { return self.agree(moment) };
        let confirm_by = moment.clock.plus_ms(confirm_ms);
        self.confirm_by = Some(confirm_by);
        let offer = self.stands().expect("it is agreed on").id;
        for seat in &self.seats {
            let accept = fact::accept(&self.id, &seat.agent, offer, Lot(0), AwardNo(1), None, WireTime(confirm_by));
            self.facts.push(accept);
        }
    }

    fn agree(&mut self, moment: Moment) {
        let agreement = self.agreement();
        let key = RegisterKey::Award(self.id.clone(), Lot(0), AwardNo(1)).to_string();
        self.facts.push(fact::agreed(&key, agreement.offer_id, agreement.terms_digest));
        self.end(Outcome::Agreement, None, moment);
    }

    pub(super) fn no_agreement(&mut self, detail: &str, moment: Moment) {
        self.end(Outcome::NoAgreement, Some(detail.to_owned()), moment);
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        self.end(Outcome::Aborted, None, moment);
    }

    /// Everybody is told the same.
    fn end(&mut self, outcome: Outcome, detail: Option<String>, moment: Moment) {
        (self.outcome, self.detail) = (Some(outcome), detail);
        let closed: Vec<String> = (0..self.seats.len()).map(|seat| self.closed(seat)).collect();
        self.facts.extend(closed);
        let key = RegisterKey::Closed(self.id.clone()).to_string();
        self.facts.push(fact::closed_entry(&key, outcome));
        if self.is_public {
            self.facts.push(fact::notice_closed(&self.id, outcome));
        }
        let rounds = match self.begun_at {
            None => 0,
            // The last acceptance began no other.
            Some(_) if self.is_agreed() => self.agreement().round,
            Some(_) => self.rules.rounds.map_or(self.round(), |rounds| rounds.min(self.round())),
        };
        let offers = crate::negotiation::count(self.offers.len());
        let awards = u32::from(outcome == Outcome::Agreement);
        self.facts.push(fact::ended(&self.id, outcome, [rounds, offers, awards], moment.now));
    }

    /// How it ended, as everybody is told; nobody is told of words.
    pub(super) fn closed(&self, seat: usize) -> String {
        let outcome = self.outcome.expect("it has ended");
        let agreement = (outcome == Outcome::Agreement).then(|| self.agreement());
        let (to, detail) = (&self.seats[seat].agent, self.detail.as_deref());
        fact::bargain_closed(&self.id, to, outcome, detail, agreement.as_ref())
    }

    /// How it stands, to everybody but the one who did it.
    pub(super) fn tell_turn(&mut self, but: Option<usize>, moment: Moment) {
        let turn = self.told_turn(moment);
        for (index, seat) in self.seats.iter().enumerate() {
            if Some(index) != but {
                self.facts.push(fact::turn(&self.id, &seat.agent, &turn));
            }
        }
    }
}
