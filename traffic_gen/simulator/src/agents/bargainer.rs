//! What the parties of a bargain say: they join, offer, accept, take back, leave, confirm; and whatever they should not.

use std::collections::{BTreeMap, BTreeSet};

use schemas::bargain::{BargainSpec, Join, Mandate};
use schemas::delivery::{
    Award, Call, Closing, Delivery, Disposition, Misunderstanding, Outcome, Receipt, Standing, Turn,
};
use schemas::payload::{Accept, Confirm, Reasoned, Terms};
use schemas::{Act, AwardNo, Digest, MsgId, OfferId, Payload, WireTime};

use super::AgentContext;
use super::contractor;
use super::mandate::Preferences;
use crate::faults::AgentFault;
use crate::points::Point;

/// Most times a party speaks in one bargain: some never tire.
const SAID_MAX: usize = 60;

/// A party of a bargain, and what it remembers.
#[derive(Debug)]
pub(super) struct SimulatedParty {
    preferences: Preferences,
    /// What it has declared, if it has.
    mandate: Option<Mandate>,
    said: BTreeMap<MsgId, Act>,
    accepted: BTreeSet<OfferId>,
    /// Its own last offer, which it may try to accept.
    offered: Option<Terms>,
    turn: Option<(Turn, WireTime)>,
    has_confirmed: bool,
}

impl SimulatedParty {
    /// A party that has not said anything yet.
    pub(super) fn new(context: &mut AgentContext, rules: &BargainSpec) -> Self {
        let (preferences, mandate) = Preferences::draw(context, rules);
        Self {
            preferences,
            mandate,
            said: BTreeMap::new(),
            accepted: BTreeSet::new(),
            offered: None,
            turn: None,
            has_confirmed: false,
        }
    }

    /// What it declares when it calls or joins.
    pub(super) fn mandate(&self) -> Option<Box<Mandate>> {
        self.mandate.clone().map(Box::new)
    }

    /// A message is written.
    pub(super) fn note_said(&mut self, msg_id: &MsgId, payload: &Payload) {
        self.said.insert(msg_id.clone(), payload.act());
        if let Payload::Accept(accept) = payload {
            self.accepted.insert(accept.offer_id);
        }
        if let Payload::Offer(offer) = payload {
            self.offered = Some(offer.terms.clone());
        }
        self.has_confirmed |= matches!(payload, Payload::Confirm(_));
    }

    fn has_left(&self) -> bool {
        self.said.values().any(|act| matches!(act, Act::End | Act::Refuse | Act::NotUnderstood))
    }

    /// Joins, most of the time.
    pub(super) fn join(context: &mut AgentContext, delivery: &Delivery, call: &Call, rules: &BargainSpec) -> Self {
        let joining = context.joining(delivery, call);
        let party = Self::new(context, rules);
        context.join(delivery, joining, |_| Join { mandate: party.mandate(), ..Join::default() });
        party
    }

    /// Acts when it is its turn, and sometimes when it is not.
    pub(super) fn answer_turn(&mut self, context: &mut AgentContext, delivery: &Delivery, turn: &Turn) {
        let at = delivery.envelope.ts;
        let before = self.turn.replace((turn.clone(), at));
        if let Some((before, _)) = before
            && before.step == turn.step
            && turn.standing.is_none()
            && before.standing.is_some_and(|standing| standing.valid_until.is_some_and(|until| until < at))
        {
            context.reached(Point::StandingExpired);
        }
        if context.errs(AgentFault::Leave) {
            let after_ms = context.draw(0..200);
            context.reply(after_ms, delivery, Payload::End(Reasoned::default()));
        }
        if turn.party == context.id {
            self.take_turn(context, delivery, turn);
        } else if context.errs(AgentFault::SpeakOut) {
            self.speak_out(context, delivery, turn);
        }
    }

    fn take_turn(&self, context: &mut AgentContext, delivery: &Delivery, turn: &Turn) {
        if self.said.len() > SAID_MAX || context.errs(AgentFault::Dawdle) {
            return;
        }
        let window_ms = (turn.act_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
        let is_late = context.errs(AgentFault::ConfirmLate);
        let after_ms = if is_late { window_ms + context.draw(0..100) } else { context.draw(0..window_ms.min(60)) };
        let overreaches = context.errs(AgentFault::Overreach);
        if let Some(standing) = &turn.standing
            && (overreaches || self.is_content(context, standing, turn))
        {
            let mut offer_id = standing.offer_id;
            if context.errs(AgentFault::ConfirmWrong) {
                offer_id.0.seq += 1;
            }
            let accept = Accept { offer_id, terms_digest: Some(standing.terms_digest) };
            return context.reply(after_ms, delivery, Payload::Accept(accept));
        }
        let Some(offer) = self.preferences.offer(context, delivery, turn, overreaches) else { return };
        context.reply(after_ms, delivery, Payload::Offer(offer));
        if context.errs(AgentFault::Withdraw) {
            let later = after_ms + context.draw(0..60);
            context.reply(later, delivery, Payload::Withdraw(Reasoned::default()));
        }
    }

    /// It asks for less as time passes.
    fn is_content(&self, context: &mut AgentContext, standing: &Standing, turn: &Turn) -> bool {
        let patience = 1_000_000 - turn.t_ppm.min(1_000_000);
        let is_in_haste = context.happens(100);
        let preferences = &self.preferences;
        preferences.is_acceptable(&standing.terms) && (is_in_haste || preferences.worth(&standing.terms) >= patience)
    }

    /// Whatever comes to mind, its own offer above all.
    fn speak_out(&self, context: &mut AgentContext, delivery: &Delivery, turn: &Turn) {
        let after_ms = context.draw(0..100);
        let own = turn.standing.as_ref().filter(|standing| standing.by == context.id);
        let offer = self.preferences.offer(context, delivery, turn, false).unwrap_or_default();
        let payload = match (context.draw(0..5), own, &turn.standing) {
            (0, ..) => Payload::Offer(offer),
            (1, ..) => Payload::Join(Join::default()),
            (2, ..) => Payload::Withdraw(Reasoned::default()),
            (_, Some(standing), _) | (_, None, Some(standing)) => {
                let terms_digest = Some(standing.terms_digest);
                Payload::Accept(Accept { offer_id: standing.offer_id, terms_digest })
            }
            (_, None, None) => Payload::Confirm(Confirm { award_no: AwardNo(1), terms_digest: None }),
        };
        context.reply(after_ms, delivery, payload);
    }

    /// Counts what its own messages came to; an offer that stands it may try to accept itself.
    pub(super) fn note_receipt(&self, context: &mut AgentContext, delivery: &Delivery, receipt: &Receipt) {
        let point = match (self.said.get(&receipt.ack_of), receipt.disposition) {
            (Some(Act::Accept | Act::End), Disposition::Closed) => Point::EndsCrossed,
            (Some(Act::Withdraw), Disposition::Ok) => Point::StandingWithdrawn,
            (Some(Act::Offer), Disposition::Ok) => return self.tempt(context, delivery, receipt),
            (_, _) => return,
        };
        context.reached(point);
    }

    fn tempt(&self, context: &mut AgentContext, delivery: &Delivery, receipt: &Receipt) {
        let offered = self.offered.as_ref().and_then(|terms| Digest::of(terms).ok());
        let (Some(offer_id), Some(terms_digest)) = (receipt.offer_id, offered) else { return };
        if context.errs(AgentFault::SpeakOut) {
            let after_ms = context.draw(0..50);
            let accept = Accept { offer_id, terms_digest: Some(terms_digest) };
            context.reply(after_ms, delivery, Payload::Accept(accept));
        }
    }

    /// Counts how the bargain ended.
    pub(super) fn note_closed(&self, context: &AgentContext, closing: &Closing) {
        let mut reached = Vec::new();
        match (closing.outcome, closing.detail.as_deref()) {
            (Outcome::Agreement, _) => {
                reached.push(Point::Agreed);
                if self.has_confirmed {
                    reached.push(Point::AgreementConfirmed);
                }
                let is_accepted = closing
                    .agreement
                    .as_deref()
                    .is_none_or(|agreement| agreement.by == context.id || self.accepted.contains(&agreement.offer_id));
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
                let is_struck = who == Some(context.id.as_str()) && !self.has_left();
                reached.push(if is_struck { Point::StruckOut } else { Point::BargainEnded });
            }
            (_, _) => {}
        }
        reached.into_iter().for_each(|point| context.reached(point));
    }
}

/// Everybody accepted: it confirms, most of the time.
pub(super) fn answer_agreed(context: &mut AgentContext, delivery: &Delivery, award: &Award) {
    let window_ms = (award.confirm_by.0.since_us(delivery.envelope.ts.0) / 1000).max(1);
    if context.errs(AgentFault::IgnoreAward) {
        return;
    }
    let is_late = context.errs(AgentFault::ConfirmLate);
    let after_ms = if is_late { window_ms + context.draw(0..300) } else { context.draw(0..window_ms.min(200)) };
    if context.errs(AgentFault::DeclineAward) {
        let payload = context.decline(&[Payload::Refuse, Payload::End, Payload::Withdraw]);
        return context.reply(after_ms, delivery, payload);
    }
    let mut terms_digest = context.happens(500).then_some(award.terms_digest);
    if context.errs(AgentFault::ConfirmWrong) {
        terms_digest = Some(Digest([0; 32]));
    }
    context.reply(after_ms, delivery, Payload::Confirm(Confirm { award_no: award.award_no, terms_digest }));
}

/// A party whose turn it still is tries something else.
pub(super) fn answer_not_understood(
    party: Option<&SimulatedParty>,
    context: &mut AgentContext,
    delivery: &Delivery,
    misunderstanding: &Misunderstanding,
) {
    if misunderstanding.reason == "unsupported_rules" {
        context.reached(Point::BargainTooEarly);
    }
    let again = ["mandate_violation", "out_of_space", "repeated", "condition", "standing", "not_yet_valid", "validity"];
    let own_turn = party.and_then(|party| {
        let (turn, _) = party.turn.as_ref().filter(|(turn, _)| turn.party == context.id)?;
        Some((party, turn))
    });
    match own_turn {
        Some((party, turn)) if again.contains(&misunderstanding.reason.as_str()) => {
            let Some(offer) = party.preferences.offer(context, delivery, turn, false) else { return };
            let after_ms = context.draw(0..60);
            context.reply(after_ms, delivery, Payload::Offer(offer));
        }
        Some(_) | None => contractor::say_unasked(context, delivery),
    }
}
