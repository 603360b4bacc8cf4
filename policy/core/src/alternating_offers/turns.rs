//! BARGAINING. Whoever takes a turn passes it on; the standing offer goes with it.

use std::sync::Arc;

use schemas::delivery::{Notification, Outcome};
use schemas::{AgentId, Timestamp};

use super::ending::{DEADLINE, ROUNDS, STEP_TIMEOUT};
use super::state::{Bargain, StandingOffer};
use crate::effect::{Deliver, Event, Invariant};
use crate::negotiation::context::InputContext;
use crate::negotiation::phase::Phase;

impl Bargain {
    pub(super) fn enter(&mut self, phase: Phase, context: &mut InputContext<'_>) {
        self.header.note_transition(self.phase, phase, context);
        self.phase = phase;
    }

    /// The offer stands, in place of any other (docs/spec/alternating-offers.md#ao-16).
    pub(super) fn offer(&mut self, standing: StandingOffer, context: &mut InputContext<'_>) {
        let proposer = standing.by;
        self.offers = self.offers.saturating_add(1);
        if self.rules.forbid_repeat {
            self.parties[proposer].offered.insert(standing.digest.short());
        }
        self.note_offer(&standing, context.now);
        (self.standing, self.lapsed) = (Some(Box::new(standing)), None);
        self.pass_on(proposer, context);
    }

    /// The party accepts the standing offer (docs/spec/alternating-offers.md#ao-25).
    pub(super) fn accept(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.count_acceptance(index, context);
        self.pass_on(index, context);
    }

    fn count_acceptance(&mut self, index: usize, context: &mut InputContext<'_>) {
        let is_turn = self.turn() == index;
        let Some(standing) = self.standing.as_mut() else { return };
        // Invariant turn_order, checked where it could break.
        if !is_turn || standing.by == index || standing.accepted.contains(&index) || standing.valid_until < context.now
        {
            let (negotiation, offer) = (self.header.id.clone(), Some(standing.id));
            context.event(Event::InvariantViolated { negotiation, invariant: Invariant::TurnOrder, offer });
        }
        standing.accepted.push(index);
        self.parties[standing.by].offered.remove(&standing.digest.short());
    }

    /// The turn that `speaker`'s message was has been taken; so are those of the parties whose policies accept for them.
    fn pass_on(&mut self, speaker: usize, context: &mut InputContext<'_>) {
        loop {
            self.steps = self.steps.saturating_add(1);
            if self.is_agreed() {
                return self.agree(context);
            }
            if self.rules.rounds.is_some_and(|rounds| self.round() > rounds) {
                return self.end(Outcome::NoAgreement, Some(ROUNDS), context);
            }
            self.begin_turn(context);
            let next = self.turn();
            if !self.is_delegate_willing(next, context.now) {
                break;
            }
            self.count_acceptance(next, context);
        }
        self.tell_turn(Some(speaker), context);
    }

    /// Gives the next turn its time.
    pub(super) fn begin_turn(&mut self, context: &InputContext<'_>) {
        self.turn_by = context.clock.plus_ms(self.rules.step_ms);
    }

    /// Tells everybody how it stands, except for the party whose message made it so. Once the turn is over the notice says
    /// nothing any more.
    pub(super) fn tell_turn(&self, speaker: Option<usize>, context: &mut InputContext<'_>) {
        let told = Arc::new(Notification::Turn(self.turn_told(context.now)));
        for (index, one) in self.parties.iter().enumerate() {
            if Some(index) != speaker {
                let agent: &AgentId = &one.party.agent;
                let delivery = self.header.delivery(context, agent, Arc::clone(&told));
                context.deliver(Deliver { expires: self.act_by(), ..delivery });
            }
        }
    }

    /// The proposer takes its offer back; the turn stays where it is (docs/spec/alternating-offers.md#ao-23).
    pub(super) fn withdraw(&mut self, speaker: usize, context: &mut InputContext<'_>) {
        self.standing = None;
        self.tell_turn(Some(speaker), context);
    }

    /// The standing offer's validity is over; the turn stays where it is (docs/spec/alternating-offers.md#ao-24).
    pub(super) fn handle_standing_expired(&mut self, context: &mut InputContext<'_>) {
        self.lapsed = self.standing.take().map(|standing| standing.id);
        self.tell_turn(None, context);
    }

    /// Strikes out, the party has ended the bargain (docs/spec/alternating-offers.md#ao-32).
    pub(super) fn strike(&mut self, index: usize, context: &mut InputContext<'_>) {
        let party = &mut self.parties[index];
        party.strikes = party.strikes.saturating_add(1);
        if party.strikes >= self.rules.max_strikes {
            self.end_by(index, context);
        }
    }

    /// The turn was not taken in time.
    pub(super) fn handle_turn_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::NoAgreement, Some(STEP_TIMEOUT), context);
    }

    /// The time of the bargain is over.
    pub(super) fn handle_deadline(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::NoAgreement, Some(DEADLINE), context);
    }

    /// Whether it is a party's last turn: in the last round, or with less than a turn and a millisecond left.
    pub(super) fn is_last_turn(&self, now: Timestamp) -> bool {
        let is_last_round = self.rules.rounds.is_some_and(|rounds| self.round() >= rounds);
        let enough_us = self.rules.step_ms.saturating_add(1).saturating_mul(1000);
        is_last_round || self.deadline().is_some_and(|deadline| deadline.since_us(now) < enough_us)
    }
}
