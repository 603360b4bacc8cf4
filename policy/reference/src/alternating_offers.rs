//! A naive bargain (docs/spec/alternating-offers.md): every offer ever made is kept, and everything is asked of that
//! list anew.

mod follow;
mod hearing;
mod judging;
mod mandate;
pub(crate) mod opening;
mod space;
#[cfg(test)]
mod tests;

use schemas::bargain::{BargainRule, BargainSpec as Rules, Mandate, Predicate};
use schemas::delivery::{Agreement, Outcome, Standing, Turn};
use schemas::payload::Terms;
use schemas::{AgentId, Digest, NegotiationId, OfferId, Timestamp, WireTime};

use crate::Moment;
use crate::negotiation::Party;

use BargainTimer as Timer;

/// Timers that are due together fire in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BargainTimer {
    Hard,
    Join,
    Deadline,
    Turn,
    Expiry,
    Confirm,
}

#[derive(Debug)]
pub(crate) struct Bargain {
    pub(crate) id: NegotiationId,
    pub(crate) rules: Rules,
    /// In the order of turns.
    pub(crate) seats: Vec<Seat>,
    pub(crate) currency: Option<String>,
    pub(crate) is_public: bool,
    pub(crate) join_by: Timestamp,
    pub(crate) ends_by: Timestamp,
    pub(crate) outcome: Option<Outcome>,
    /// What else is said of the end.
    pub(crate) detail: Option<String>,
    /// When the first turn began.
    pub(crate) begun_at: Option<Timestamp>,
    /// Turns taken.
    pub(crate) step: u32,
    pub(crate) act_by: Timestamp,
    /// Every offer that was taken.
    pub(crate) offers: Vec<Made>,
    /// Which of them stands.
    pub(crate) standing: Option<usize>,
    /// Which of them stood last, and ran out.
    pub(crate) expired: Option<usize>,
    /// Once all have accepted, and somebody has to confirm.
    pub(crate) confirm_by: Option<Timestamp>,
    pub(crate) facts: Vec<String>,
}

/// One party.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) agent: AgentId,
    pub(crate) party: Party,
    pub(crate) has_joined: bool,
    pub(crate) has_confirmed: bool,
    pub(crate) strikes: u32,
    pub(crate) mandate: Option<Mandate>,
    /// How a policy accepts for it.
    pub(crate) rule: Option<BargainRule>,
}

/// An offer that was taken.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) id: OfferId,
    pub(crate) by: usize,
    pub(crate) terms: Terms,
    pub(crate) conditions: Vec<Predicate>,
    pub(crate) from: Option<Timestamp>,
    pub(crate) until: Option<Timestamp>,
    /// Relative time at which it was made.
    pub(crate) t_ppm: u32,
    pub(crate) accepted_by: Vec<usize>,
}

impl Bargain {
    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        self.seats.iter().any(|seat| seat.agent == *agent)
    }

    /// Every timer that is armed.
    pub(crate) fn timers(&self) -> Vec<(Timestamp, Timer)> {
        if self.outcome.is_some() {
            return Vec::new();
        }
        let mut timers = vec![(self.ends_by, Timer::Hard)];
        match (self.begun_at, self.confirm_by) {
            (None, _) => timers.push((self.join_by, Timer::Join)),
            (Some(_), Some(confirm_by)) => timers.push((confirm_by, Timer::Confirm)),
            (Some(begun_at), None) => {
                timers.push((self.act_by, Timer::Turn));
                timers.extend(self.rules.deadline_ms.map(|ms| (begun_at.plus_ms(ms), Timer::Deadline)));
                timers.extend(self.stands().and_then(|made| made.until).map(|until| (until, Timer::Expiry)));
            }
        }
        timers
    }

    /// What the timers do (docs/spec/alternating-offers.md#ao-40).
    pub(crate) fn fire(&mut self, timer: Timer, moment: Moment) {
        match timer {
            Timer::Expiry => {
                self.expired = self.standing.take();
                self.tell_turn(None, moment);
            }
            Timer::Turn => self.no_agreement("step_timeout", moment),
            Timer::Deadline => self.no_agreement("deadline", moment),
            Timer::Join => self.no_agreement("not_joined", moment),
            Timer::Confirm => self.no_agreement("unconfirmed", moment),
            Timer::Hard => match (self.begun_at, self.confirm_by) {
                (None, _) => self.no_agreement("not_joined", moment),
                (Some(_), Some(_)) => self.no_agreement("unconfirmed", moment),
                (Some(_), None) => self.no_agreement("deadline", moment),
            },
        }
    }

    /// Whose turn it is: each in turn, from the first on.
    pub(crate) fn turn(&self) -> usize {
        usize::try_from(self.step).expect("a few thousand") % self.seats.len()
    }

    /// The round of the turn, counted from 1.
    pub(crate) fn round(&self) -> u32 {
        self.step / self.parties() + 1
    }

    pub(crate) fn parties(&self) -> u32 {
        u32::try_from(self.seats.len()).expect("at most 64")
    }

    pub(crate) fn stands(&self) -> Option<&Made> {
        self.standing.map(|index| &self.offers[index])
    }

    pub(crate) fn elapsed_us(&self, now: Timestamp) -> u64 {
        self.begun_at.map_or(0, |begun_at| now.since_us(begun_at))
    }

    /// max(round / (rounds + 1), elapsed / deadline), in ppm.
    pub(crate) fn t_ppm(&self, now: Timestamp) -> u32 {
        let by_rounds = self.rules.rounds.map(|rounds| u64::from(self.round()) * 1_000_000 / (u64::from(rounds) + 1));
        let by_time = self.rules.deadline_ms.map(|ms| {
            let ppm = u128::from(self.elapsed_us(now)) * 1_000_000 / (u128::from(ms) * 1000);
            u64::try_from(ppm.min(1_000_000)).expect("a million")
        });
        u32::try_from(by_rounds.max(by_time).unwrap_or(1_000_000)).expect("at most a million")
    }

    fn told_turn(&self, moment: Moment) -> Turn {
        let deadline = self.rules.deadline_ms.zip(self.begun_at).map(|(ms, begun_at)| begun_at.plus_ms(ms));
        Turn {
            party: self.seats[self.turn()].agent.clone(),
            round: self.round(),
            step: self.step,
            act_by: WireTime(deadline.map_or(self.act_by, |deadline| deadline.min(self.act_by))),
            ends_by: WireTime(self.ends_by),
            t_ppm: self.t_ppm(moment.now),
            standing: self.stands().map(|made| self.told_standing(made)),
        }
    }

    fn told_standing(&self, made: &Made) -> Standing {
        Standing {
            offer_id: made.id,
            by: self.seats[made.by].agent.clone(),
            terms: made.terms.clone(),
            terms_digest: digest(&made.terms),
            valid_from: made.from.map(WireTime),
            valid_until: made.until.map(WireTime),
            conditions: made.conditions.clone(),
            accepted_by: made.accepted_by.iter().map(|&seat| self.seats[seat].agent.clone()).collect(),
        }
    }

    /// What is agreed on once the offer that stands is accepted by all.
    fn agreement(&self) -> Agreement {
        let made = self.stands().expect("an agreement is on the standing offer");
        Agreement {
            offer_id: made.id,
            by: self.seats[made.by].agent.clone(),
            terms: made.terms.clone(),
            terms_digest: digest(&made.terms),
            // The last acceptance belongs to the round of its turn.
            round: (self.step - 1) / self.parties() + 1,
            step: self.step,
        }
    }
}

/// Whether terms lie inside a mandate that fits the rules.
#[must_use]
pub fn is_inside(mandate: &Mandate, rules: &Rules, terms: &Terms) -> bool {
    mandate::outside(mandate, rules, terms).is_none()
}

pub(crate) fn digest(terms: &Terms) -> Digest {
    Digest::of(terms).expect("integers and texts")
}
