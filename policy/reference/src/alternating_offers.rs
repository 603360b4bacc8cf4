//! A naive bargain (docs/spec/alternating-offers.md): every offer ever made is kept, and everything is asked of that
//! list anew.

mod hearing;
mod judging;
mod mandate;
pub(crate) mod opening;
mod space;
#[cfg(test)]
mod tests;

use schemas::bargain::{BargainSpec as Rules, Mandate, PARTIES_MAX, Predicate};
use schemas::delivery::{Agreement, Disposition, Outcome, Receipt, Standing, Turn};
use schemas::payload::{Cfp, Terms};
use schemas::policy::BargainRule;
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::{Address, AgentId, Digest, NegotiationId, OfferId, Timestamp, WireTime};

use crate::Moment;
use crate::contract_net::opening::NotUnderstood;
use crate::contract_net::{Party, count};
use crate::fact;

use BargainTimer as Timer;
use opening::{DAY_MS, delegated, invited, join_by};

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
    id: NegotiationId,
    rules: Rules,
    /// In the order of turns.
    seats: Vec<Seat>,
    currency: Option<String>,
    is_public: bool,
    join_by: Timestamp,
    pub(crate) ends_by: Timestamp,
    pub(crate) outcome: Option<Outcome>,
    /// What else is said of the end.
    detail: Option<String>,
    /// When the first turn began.
    begun_at: Option<Timestamp>,
    /// Turns taken.
    step: u32,
    act_by: Timestamp,
    /// Every offer that was taken.
    offers: Vec<Made>,
    /// Which of them stands.
    standing: Option<usize>,
    /// Which of them stood last, and ran out.
    expired: Option<usize>,
    /// Once all have accepted, and somebody has to confirm.
    confirm_by: Option<Timestamp>,
    pub(crate) facts: Vec<String>,
}

/// One party.
#[derive(Debug)]
struct Seat {
    agent: AgentId,
    party: Party,
    has_joined: bool,
    has_confirmed: bool,
    strikes: u32,
    mandate: Option<Mandate>,
    /// How a policy accepts for it.
    rule: Option<BargainRule>,
}

/// An offer that was taken.
#[derive(Debug, Clone)]
struct Made {
    id: OfferId,
    by: usize,
    terms: Terms,
    conditions: Vec<Predicate>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    /// Relative time at which it was made.
    t_ppm: u32,
    accepted_by: Vec<usize>,
}

impl Bargain {
    /// The bargain of a call, or what its initiator is told.
    pub(crate) fn open(
        message: &AdmittedMessage,
        decoded: &Message,
        cfp: &Cfp,
        pinned: &Pinned,
        moment: Moment,
    ) -> Result<Self, NotUnderstood> {
        let rules = (**cfp.bargain.as_ref().expect("a call to a bargain")).clone();
        if cfp.documents.is_some() {
            return Err(NotUnderstood { reason: "document", pointer: Some("/payload/documents".to_owned()) });
        }
        if let Some(pointer) = space::fault(&rules) {
            return Err(NotUnderstood {
                reason: "invalid_bargain",
                pointer: Some(format!("/payload/bargain{pointer}")),
            });
        }
        let rule = delegated(cfp.mandate.as_deref(), &rules, Some(pinned))?;
        let invited = invited(message, pinned);
        if invited.is_empty() {
            return Err("no_recipient".into());
        }
        if invited.len() + 1 > PARTIES_MAX {
            return Err("too_many_parties".into());
        }
        let ttl_ms = decoded.envelope.scope.as_ref().and_then(|scope| scope.ttl).map(|ttl| ttl * 1000);
        let join_by = join_by(cfp, ttl_ms, moment.now).ok_or("bad_deadline")?;
        let mut one = Self {
            id: message.negotiation.clone(),
            seats: std::iter::once(&message.from).chain(&invited).map(Seat::empty).collect(),
            rules,
            currency: cfp.currency.clone(),
            is_public: decoded.envelope.to.iter().any(|address| !matches!(address, Address::Agent(_))),
            join_by,
            ends_by: join_by,
            outcome: None,
            detail: None,
            begun_at: None,
            step: 0,
            act_by: Timestamp::MAX,
            offers: Vec::new(),
            standing: None,
            expired: None,
            confirm_by: None,
            facts: Vec::new(),
        };
        one.ends_by = one.end_after(join_by);
        if one.ends_by > moment.now.plus_ms(DAY_MS) {
            return Err("bad_deadline".into());
        }
        one.seats[0].has_joined = true;
        one.seats[0].mandate = cfp.mandate.as_deref().cloned();
        one.seats[0].rule = rule;
        one.call(message, decoded, &invited);
        Ok(one)
    }

    /// The last instant of a bargain whose turns begin at `begin`.
    fn end_after(&self, begin: Timestamp) -> Timestamp {
        let by_turns = self.rules.rounds.map(|rounds| {
            let turns = u64::from(rounds) * u64::from(self.parties());
            turns.saturating_mul(self.rules.step_ms)
        });
        let span_ms = [by_turns, self.rules.deadline_ms].into_iter().flatten().min().expect("one of them is given");
        begin.plus_ms(span_ms.saturating_add(self.rules.confirm_ms.unwrap_or(0)))
    }

    fn call(&mut self, message: &AdmittedMessage, decoded: &Message, invited: &[AgentId]) {
        let receipt = Receipt {
            invited: Some(count(invited.len())),
            ..Receipt::new(decoded.envelope.msg_id.clone(), Disposition::Ok)
        };
        self.facts.push(fact::ack(&self.id, &message.from, &receipt));
        if self.is_public {
            self.facts.push(fact::notice_called(&self.id));
        }
        let parties: Vec<AgentId> = self.seats.iter().map(|seat| seat.agent.clone()).collect();
        for agent in invited {
            let call = fact::cfp(&self.id, agent, 1, self.join_by, self.ends_by);
            self.facts.push(fact::to_bargain(&call, &parties, &self.rules));
        }
        self.seats[0].party.note_call(message, decoded);
    }

    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        self.seats.iter().any(|seat| seat.agent == *agent)
    }

    /// Every timer that is armed while it goes on.
    pub(crate) fn timers(&self) -> Vec<(Timestamp, Timer)> {
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
    fn turn(&self) -> usize {
        usize::try_from(self.step).expect("a few thousand") % self.seats.len()
    }

    /// The round of the turn, counted from 1.
    fn round(&self) -> u32 {
        self.step / self.parties() + 1
    }

    fn parties(&self) -> u32 {
        u32::try_from(self.seats.len()).expect("at most 64")
    }

    fn stands(&self) -> Option<&Made> {
        self.standing.map(|index| &self.offers[index])
    }

    fn elapsed_us(&self, now: Timestamp) -> u64 {
        self.begun_at.map_or(0, |begun_at| now.since_us(begun_at))
    }

    /// max(round / (rounds + 1), elapsed / deadline), in ppm.
    fn t_ppm(&self, now: Timestamp) -> u32 {
        let by_rounds = self.rules.rounds.map(|rounds| u64::from(self.round()) * 1_000_000 / (u64::from(rounds) + 1));
        let by_time = self.rules.deadline_ms.map(|ms| {
            let ppm = u128::from(self.elapsed_us(now)) * 1_000_000 / (u128::from(ms) * 1000);
            u64::try_from(ppm.min(1_000_000)).expect("a million")
        });
        u32::try_from(by_rounds.max(by_time).unwrap_or(1_000_000)).expect("at most a million")
    }

    fn turn_notice(&self, moment: Moment) -> Turn {
        let deadline = self.rules.deadline_ms.zip(self.begun_at).map(|(ms, begun_at)| begun_at.plus_ms(ms));
        Turn {
            party: self.seats[self.turn()].agent.clone(),
            round: self.round(),
            step: self.step,
            act_by: WireTime(deadline.map_or(self.act_by, |deadline| deadline.min(self.act_by))),
            ends_by: WireTime(self.ends_by),
            t_ppm: self.t_ppm(moment.now),
            standing: self.stands().map(|made| self.standing_notice(made)),
        }
    }

    fn standing_notice(&self, made: &Made) -> Standing {
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

fn digest(terms: &Terms) -> Digest {
    Digest::of(terms).expect("integers and texts")
}
