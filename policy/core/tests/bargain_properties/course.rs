//! What a bargain's effects say of its course: whose turn it is, what stands, what was agreed on. Only what agents were told
//! and what they sent, with the dispositions of both, is looked at.

use std::collections::BTreeMap;

use policy_core::{Effect, Event};
use schemas::bargain::mandate::inside;
use schemas::bargain::space::check_rules;
use schemas::bargain::{BargainSpec, Mandate};
use schemas::delivery::{Agreement, BargainCall, Closing, Notification, Outcome, Turn};
use schemas::payload::Terms;
use schemas::record::Entry;
use schemas::{Act, AgentId, Digest, OfferId, Payload, RegisterKey, RegisterValue, Timestamp};

use crate::alike::Step;
use crate::{Checked, hold, is_ok};

/// See the module.
#[derive(Default)]
pub(crate) struct Course {
    call: Option<BargainCall>,
    ends_by: Timestamp,
    turn: Option<Turn>,
    /// Offers with disposition `ok`: who, and what.
    offers: BTreeMap<OfferId, (AgentId, Terms)>,
    mandates: BTreeMap<AgentId, Mandate>,
    registered: Option<(OfferId, Digest)>,
    ended: Option<Outcome>,
    /// What the first CLOSED said.
    closing: Option<Closing>,
}

impl Course {
    /// Follows one record.
    pub(crate) fn follow(&mut self, step: &Step) -> Checked {
        let was_over = self.ended.is_some();
        self.note_said(step);
        for effect in &step.effects {
            if let Some((from, act)) = is_ok(effect) {
                hold(!was_over, || format!("record {}: {act} after the end", step.seq))?;
                self.check_turn(from, act, step)?;
            }
            match effect {
                Effect::Deliver(deliver) => self.note_told(&deliver.to, &deliver.told, was_over)?,
                Effect::Register(write) => self.note_registered(&write.key, &write.value, step)?,
                Effect::Event(Event::Ended { outcome, at, .. }) => {
                    hold(self.ended.replace(*outcome).is_none(), || "ended twice".to_owned())?;
                    hold(*at <= self.ends_by, || format!("ended at {at:?}, not by {:?}", self.ends_by))?;
                }
                Effect::Event(Event::InvariantViolated { .. }) => hold(false, || format!("{effect:?}"))?,
                Effect::Event(_) | Effect::Notice(_) => {}
            }
        }
        Ok(())
    }

    /// The messages of a record that were followed: offers, and mandates.
    fn note_said(&mut self, step: &Step) {
        for (index, entry) in (0..).zip(&step.record.entries) {
            let Entry::Message(message) = entry else { continue };
            let Ok(document) = message.message() else { continue };
            let position = schemas::ids::Position { seq: step.seq, index };
            match document.payload {
                Payload::Offer(offer) => {
                    self.offers.insert(OfferId(position), (message.from.clone(), offer.terms));
                }
                Payload::Cfp(cfp) => self.pledge(&message.from, cfp.mandate),
                Payload::Join(join) => self.pledge(&message.from, join.mandate),
                _ => {}
            }
        }
    }

    /// The first mandate of a party is the one it says again, if it says any: each has one in every case.
    fn pledge(&mut self, from: &AgentId, mandate: Option<Box<Mandate>>) {
        if let Some(mandate) = mandate {
            self.mandates.entry(from.clone()).or_insert(*mandate);
        }
    }

    /// Invariant turn_order: who offers or accepts is whose turn everybody else was told it is.
    fn check_turn(&self, from: &AgentId, act: Act, step: &Step) -> Checked {
        if matches!(act, Act::Offer | Act::Accept) {
            let in_turn = self.turn.as_ref().map(|turn| &turn.party);
            hold(in_turn == Some(from), || format!("record {}: {act} of {from}, the turn is {in_turn:?}'s", step.seq))?;
        }
        Ok(())
    }

    fn note_told(&mut self, to: &AgentId, told: &Notification, was_over: bool) -> Checked {
        match told {
            Notification::Cfp(call) => {
                self.ends_by = call.ends_by.0;
                self.call = call.bargain.as_deref().cloned();
                Ok(())
            }
            Notification::Turn(turn) => {
                hold(!was_over, || "a turn after the end".to_owned())?;
                self.check_told_turn(turn)?;
                self.turn = Some(turn.clone());
                Ok(())
            }
            Notification::Closed(closing) => self.note_closing(to, closing),
            _ => Ok(()),
        }
    }

    fn check_told_turn(&self, turn: &Turn) -> Checked {
        let Some(call) = &self.call else { return hold(false, || "a turn without a call".to_owned()) };
        let parties = u32::try_from(call.parties.len()).expect("few");
        let index = usize::try_from(turn.step % parties).expect("few");
        hold(call.parties[index] == turn.party, || format!("{turn:?} is not {}'s", call.parties[index]))?;
        hold(turn.round == turn.step / parties + 1, || format!("{turn:?}: round"))?;
        let before = self.turn.as_ref().map_or(0, |before| before.step);
        hold(turn.step >= before, || format!("{turn:?} after step {before}"))?;
        hold(call.rules.rounds.is_none_or(|rounds| turn.round <= rounds), || format!("{turn:?}: too late"))?;
        let Some(standing) = &turn.standing else { return Ok(()) };
        let made = self.offers.get(&standing.offer_id);
        let is_made = made == Some(&(standing.by.clone(), standing.terms.clone()));
        hold(is_made, || format!("{standing:?} was never offered"))?;
        hold(Digest::of(&standing.terms).ok() == Some(standing.terms_digest), || format!("{standing:?}: digest"))?;
        let mut accepted = standing.accepted_by.clone();
        accepted.sort();
        accepted.dedup();
        let is_each_once = accepted.len() == standing.accepted_by.len() && !accepted.contains(&standing.by);
        hold(is_each_once && !accepted.contains(&turn.party), || format!("{turn:?}: acceptances"))
    }

    /// The agreement comes first, then the end, which waits for it.
    fn note_registered(&mut self, key: &RegisterKey, value: &RegisterValue, step: &Step) -> Checked {
        match value {
            RegisterValue::Agreement { offer_id, terms_digest, .. } => {
                hold(self.registered.is_none(), || "two agreements".to_owned())?;
                self.registered = Some((*offer_id, *terms_digest));
                Ok(())
            }
            RegisterValue::Closed { outcome, .. } => {
                let is_agreed = *outcome == Outcome::Agreement;
                hold(is_agreed == self.registered.is_some(), || format!("record {}: {outcome:?}", step.seq))
            }
            RegisterValue::Award { .. }
            | RegisterValue::AwardEnd { .. }
            | RegisterValue::Formed { .. }
            | RegisterValue::Finding { .. } => hold(false, || format!("{key} in a bargain")),
        }
    }

    /// Everybody is told the same end, and the agreement that is registered.
    fn note_closing(&mut self, to: &AgentId, closing: &Closing) -> Checked {
        let first = self.closing.get_or_insert_with(|| closing.clone());
        let is_same = (&first.outcome, &first.detail, &first.agreement)
            == (&closing.outcome, &closing.detail, &closing.agreement);
        hold(is_same, || format!("{to} is told {closing:?}, others {first:?}"))?;
        let told = closing.agreement.as_ref().map(|agreed| (agreed.offer_id, agreed.terms_digest));
        hold(told == self.registered, || format!("{told:?} told, {:?} registered", self.registered))
    }

    /// Every bargain that was opened has ended; an agreement is on an offer that was made, as it was last told to stand.
    pub(crate) fn check_end(&self) -> Checked {
        hold(self.call.is_some() == self.ended.is_some(), || "a bargain without an end".to_owned())?;
        let Some(agreed) = self.agreement() else { return Ok(()) };
        let made = self.offers.get(&agreed.offer_id);
        hold(made == Some(&(agreed.by.clone(), agreed.terms.clone())), || format!("{agreed:?} was never offered"))?;
        hold(Digest::of(&agreed.terms).ok() == Some(agreed.terms_digest), || format!("{agreed:?}: digest"))?;
        // Policies may have accepted an offer before anybody was told of it; an earlier one is never agreed on.
        let standing = self.turn.as_ref().and_then(|turn| turn.standing.as_ref());
        let is_last = standing.is_none_or(|standing| standing.offer_id <= agreed.offer_id);
        hold(is_last, || format!("{agreed:?}, but {standing:?} stood"))
    }

    /// Nothing of anybody is outside its mandate: neither what it has offered nor what it is bound to.
    pub(crate) fn check_mandates(&self) -> Checked {
        let Some(rules) = self.call.as_ref().map(|call| &call.rules) else { return Ok(()) };
        if let Some(agreed) = self.agreement() {
            for party in self.mandates.keys() {
                self.check_inside(party, rules, &agreed.terms)?;
            }
        }
        let stood = self.turn.as_ref().and_then(|turn| turn.standing.as_ref());
        stood.map_or(Ok(()), |standing| self.check_inside(&standing.by, rules, &standing.terms))
    }

    fn check_inside(&self, party: &AgentId, rules: &BargainSpec, terms: &Terms) -> Checked {
        let space = check_rules(rules).expect("the bargain was opened");
        let Some(mandate) = self.mandates.get(party) else { return Ok(()) };
        // A JOIN that was refused for its mandate bound nobody.
        let binds = schemas::bargain::mandate::check(mandate, space).is_ok();
        hold(!binds || inside(mandate, space, terms).is_ok(), || format!("{terms:?} is outside {party}'s {mandate:?}"))
    }

    fn agreement(&self) -> Option<&Agreement> {
        self.closing.as_ref().and_then(|closing| closing.agreement.as_deref())
    }
}
