//! BARGAINING: rows 2, 3, 6, 7, 8 and 9. Whoever takes a turn passes it on; the standing offer goes with it.

use std::sync::Arc;

use schemas::delivery::{Notification, Outcome};
use schemas::{AgentId, Timestamp};

use super::ending::{DEADLINE, ROUNDS, STEP_TIMEOUT};
use super::state::{Bargaining, Standing};
use crate::effect::{Deliver, Event, Invariant};
use crate::state::Phase;
use crate::step::Step;

impl Bargaining {
    pub(super) fn enter(&mut self, phase: Phase, step: &mut Step<'_>) {
        self.matter.note_transition(self.phase, phase, step);
        self.phase = phase;
    }

    /// Row 2: the offer stands, in place of any other.
    pub(super) fn offer(&mut self, standing: Standing, step: &mut Step<'_>) {
        let proposer = standing.by;
        self.offers = self.offers.saturating_add(1);
        if self.rules.forbid_repeat {
            self.parties[proposer].offered.insert(standing.digest.short());
        }
        self.note_offer(&standing, step.now);
        (self.standing, self.lapsed) = (Some(Box::new(standing)), None);
        self.pass_on(proposer, step);
    }

    /// Row 3: the party accepts the standing offer.
    pub(super) fn accept(&mut self, index: usize, step: &mut Step<'_>) {
        self.count_acceptance(index, step);
        self.pass_on(index, step);
    }

    fn count_acceptance(&mut self, index: usize, step: &mut Step<'_>) {
        let is_turn = self.turn() == index;
        let Some(standing) = self.standing.as_mut() else { return };
        // Invariant turn_order, checked where it could break.
        if !is_turn || standing.by == index || standing.accepted.contains(&index) || standing.valid_until < step.now {
            let (negotiation, offer) = (self.matter.id.clone(), Some(standing.id));
            step.event(Event::InvariantViolated { negotiation, invariant: Invariant::TurnOrder, offer });
        }
        standing.accepted.push(index);
        self.parties[standing.by].offered.remove(&standing.digest.short());
    }

    /// The turn that `speaker`'s message was has been taken; so are those of the parties whose policies accept for them.
    fn pass_on(&mut self, speaker: usize, step: &mut Step<'_>) {
        loop {
            self.steps = self.steps.saturating_add(1);
            if self.is_agreed() {
                return self.agree(step);
            }
            if self.rules.rounds.is_some_and(|rounds| self.round() > rounds) {
                return self.end(Outcome::NoAgreement, Some(ROUNDS), step);
            }
            self.begin_turn(step);
            let next = self.turn();
            if !self.is_delegate_willing(next, step.now) {
                break;
            }
            self.count_acceptance(next, step);
        }
        self.tell_turn(Some(speaker), step);
    }

    /// Gives the next turn its time.
    pub(super) fn begin_turn(&mut self, step: &Step<'_>) {
        self.turn_by = step.clock.plus_ms(self.rules.step_ms);
    }

    /// Tells everybody how it stands, except for the party whose message made it so. Once the turn is over the notice says
    /// nothing any more.
    pub(super) fn tell_turn(&self, speaker: Option<usize>, step: &mut Step<'_>) {
        let told = Arc::new(Notification::Turn(self.turn_told(step.now)));
        for (index, one) in self.parties.iter().enumerate() {
            if Some(index) != speaker {
                let agent: &AgentId = &one.party.agent;
                let letter = self.matter.letter(step, agent, Arc::clone(&told));
                step.post(Deliver { expires: self.act_by(), ..letter });
            }
        }
    }

    /// Row 6: the proposer takes its offer back; the turn stays where it is.
    pub(super) fn withdraw(&mut self, speaker: usize, step: &mut Step<'_>) {
        self.standing = None;
        self.tell_turn(Some(speaker), step);
    }

    /// Row 9: the standing offer's validity is over; the turn stays where it is.
    pub(super) fn handle_standing_expired(&mut self, step: &mut Step<'_>) {
        self.lapsed = self.standing.take().map(|standing| standing.id);
        self.tell_turn(None, step);
    }

    /// Row 7: strikes out, the party has ended the bargain.
    pub(super) fn strike(&mut self, index: usize, step: &mut Step<'_>) {
        let party = &mut self.parties[index];
        party.strikes = party.strikes.saturating_add(1);
        if party.strikes >= self.rules.max_strikes {
            self.end_by(index, step);
        }
    }

    /// Row 8.
    pub(super) fn handle_turn_timeout(&mut self, step: &mut Step<'_>) {
        self.end(Outcome::NoAgreement, Some(STEP_TIMEOUT), step);
    }

    /// Row 8.
    pub(super) fn handle_deadline(&mut self, step: &mut Step<'_>) {
        self.end(Outcome::NoAgreement, Some(DEADLINE), step);
    }

    /// Whether it is a party's last turn: in the last round, or with less than a turn and a millisecond left.
    pub(super) fn is_last_turn(&self, now: Timestamp) -> bool {
        let is_last_round = self.rules.rounds.is_some_and(|rounds| self.round() >= rounds);
        let enough_us = self.rules.step_ms.saturating_add(1).saturating_mul(1000);
        is_last_round || self.deadline().is_some_and(|deadline| deadline.since_us(now) < enough_us)
    }
}
