//! What follows from a message: parties join, turns are taken and passed on with the standing offer, an agreement is
//! confirmed (docs/spec/alternating-offers.md).

use std::sync::Arc;

use schemas::bargain::Concession;
use schemas::bargain::mandate::utility_ppm;
use schemas::delivery::{Award, Notification, Outcome};
use schemas::policy::BargainRule;
use schemas::{AgentId, Lot, Timestamp, WireTime};

use super::concession::aspiration_ppm;
use super::opening::ends_by;
use super::sealed_mandate::{PartyMandate, Sealed};
use super::view::turn_notice;
use super::{AWARD, Bargain, DEADLINE, NOT_JOINED, ROUNDS, STEP_TIMEOUT, StandingOffer, UNCONFIRMED};
use crate::effect::{Deliver, Event, Invariant};
use crate::negotiation::InputContext;
use crate::negotiation::disposition::ProtocolRules;
use schemas::protocols::Phase;

impl Bargain {
    /// An invited party takes part. Once all do, the first turn begins.
    pub(super) fn join(&mut self, index: usize, sealed: Option<Sealed<PartyMandate>>, context: &mut InputContext<'_>) {
        let party = &mut self.parties[index];
        (party.has_joined, party.sealed) = (true, sealed);
        if self.parties.iter().all(|party| party.has_joined) {
            self.began_at = context.clock;
            self.header.ends_by = self.header.ends_by.min(ends_by(&self.rules, self.parties.len(), context.clock));
            self.enter(Phase::Bargaining, context);
            self.begin_turn(context);
            self.tell_turn(Some(index), context);
        }
    }

    /// `join_by`: somebody is missing.
    pub(super) fn handle_join_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::NoAgreement, Some(NOT_JOINED), context);
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
    fn begin_turn(&mut self, context: &InputContext<'_>) {
        self.turn_by = context.clock.plus_ms(self.rules.step_ms);
    }

    /// Tells everybody how it stands, except for the party whose message made it so. Once the turn is over the notice says
    /// nothing any more.
    fn tell_turn(&self, speaker: Option<usize>, context: &mut InputContext<'_>) {
        let told = Arc::new(Notification::Turn(turn_notice(self, context.now)));
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
    fn is_last_turn(&self, now: Timestamp) -> bool {
        let is_last_round = self.rules.rounds.is_some_and(|rounds| self.round() >= rounds);
        let enough_us = self.rules.step_ms.saturating_add(1).saturating_mul(1000);
        is_last_round || self.deadline().is_some_and(|deadline| deadline.since_us(now) < enough_us)
    }

    /// Keeps an offer for the policies of the other parties that look back.
    fn note_offer(&mut self, offer: &StandingOffer, now: Timestamp) {
        let t_ppm = self.t_ppm(now);
        let space = schemas::bargain::space::OutcomeSpace::of_checked(&self.rules.issues);
        for (index, party) in self.parties.iter_mut().enumerate() {
            let Some(Sealed(own)) = party.sealed.as_mut().filter(|_| index != offer.by) else { continue };
            if let (Some(BargainRule::Combi { window_ppm, .. }), Some(utility)) =
                (&own.rule, utility_ppm(&own.mandate, space, &offer.terms))
            {
                let oldest = t_ppm.saturating_sub(*window_ppm);
                own.note(t_ppm, utility, oldest);
            }
        }
    }

    /// Whether a party's policy accepts the standing offer for it, in its turn.
    fn is_delegate_willing(&self, index: usize, now: Timestamp) -> bool {
        let (Some(Sealed(own)), Some(standing)) = (&self.parties[index].sealed, self.standing.as_deref()) else {
            return false;
        };
        let Some(rule) = &own.rule else { return false };
        let is_acceptable = standing.by != index
            && standing.valid_from.is_none_or(|from| from <= now)
            && standing.valid_until >= now
            && self.are_met(standing, now)
            && self.parties[index].allows(self.space(), &standing.terms).is_ok();
        is_acceptable && self.is_good_enough(own, rule, standing, now)
    }

    fn is_good_enough(&self, own: &PartyMandate, rule: &BargainRule, standing: &StandingOffer, now: Timestamp) -> bool {
        let Some(utility) = utility_ppm(&own.mandate, self.space(), &standing.terms) else { return false };
        let t_ppm = self.t_ppm(now);
        match *rule {
            BargainRule::Any => true,
            BargainRule::Next { any_from_round } => {
                let concession = own.mandate.concession.unwrap_or(Concession::Linear);
                let aspiration = aspiration_ppm(t_ppm, concession, own.best, own.mandate.reservation);
                self.round() >= any_from_round || utility >= aspiration
            }
            BargainRule::Combi { .. } if self.is_last_turn(now) => true,
            BargainRule::Combi { late_ppm, .. } if t_ppm < late_ppm => utility >= own.best,
            BargainRule::Combi { window_ppm, .. } => {
                own.best_between(t_ppm.saturating_sub(window_ppm), t_ppm).is_none_or(|best| utility >= best)
            }
        }
    }

    /// Everybody has accepted: the agreement, unless it has to be confirmed.
    fn agree(&mut self, context: &mut InputContext<'_>) {
        let Some(confirm_ms) = self.rules.confirm_ms else { return self.end(Outcome::Agreement, None, context) };
        self.confirm_by = context.clock.plus_ms(confirm_ms).min(self.header.ends_by);
        self.enter(Phase::Confirming, context);
        let Some(agreed) = self.standing.as_deref() else { return };
        let told = Arc::new(Notification::Accept(Award {
            offer_id: agreed.id,
            lot: Lot(0),
            award_no: AWARD,
            terms: agreed.terms.clone(),
            terms_digest: agreed.digest,
            payment: None,
            document: None,
            confirm_by: WireTime(self.confirm_by),
            brief: None,
        }));
        for one in &self.parties {
            let delivery = self.header.delivery(context, &one.party.agent, Arc::clone(&told));
            context.deliver(Deliver { expires: self.confirm_by, ..delivery });
        }
    }

    /// A party confirms (docs/spec/alternating-offers.md#ao-37).
    pub(super) fn confirm(&mut self, index: usize, context: &mut InputContext<'_>) {
        self.parties[index].has_confirmed = true;
        if self.parties.iter().all(|party| party.has_confirmed) {
            self.end(Outcome::Agreement, None, context);
        }
    }

    /// `confirm_by`: somebody has not confirmed in time.
    pub(super) fn handle_confirm_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::NoAgreement, Some(UNCONFIRMED), context);
    }
}
