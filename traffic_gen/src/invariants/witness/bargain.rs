//! What agents saw of one bargain: its rules and mandates as they were sent, every standing as it was
//! told, and the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use schemas::bargain::space::OutcomeSpace;
use schemas::bargain::{BargainSpec, Mandate, mandate};
use schemas::delivery::{
    Agreement, Award, Call, Closing, Delivery, Disposition, Notification, Outcome, Standing, Turn,
};
use schemas::payload::Terms;
use schemas::{Act, AgentId, Digest, MsgId, NegotiationId, OfferId, Timestamp};
use serde::Deserialize;

use super::{ProtocolWatch, WatchedAgents, When, payload};
use crate::invariants::{Invariant, Verdict};

/// A call or a JOIN, as far as it declares something.
#[derive(Deserialize)]
struct SentDeclaration {
    bargain: Option<BargainSpec>,
    mandate: Option<Mandate>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct BargainSeen {
    /// From the initiator's own call: only a negotiation that has rules is a bargain.
    rules: Option<BargainSpec>,
    /// In the order of turns, as the invited were told.
    parties: Vec<AgentId>,
    /// What each message declared; nothing where its id was used for two bodies.
    declared: BTreeMap<(AgentId, MsgId), Option<Mandate>>,
    applied: BTreeSet<(AgentId, MsgId)>,
    offered: BTreeMap<OfferId, AgentId>,
    /// By turns taken, with the time of the notice; several where an offer was withdrawn or ran out.
    turns: BTreeMap<u32, Vec<(Turn, Timestamp)>>,
    /// To be confirmed: what, and when it was agreed.
    accepts: Vec<(Award, Timestamp)>,
    ends: Vec<ObservedEnd>,
}

/// The end as one party was told it.
#[derive(Debug, Clone)]
struct ObservedEnd {
    agent: AgentId,
    closing: Closing,
    at: Timestamp,
    in_reply_to: Option<MsgId>,
}

impl ProtocolWatch for BargainSeen {
    fn is_one(&self) -> bool {
        self.rules.is_some()
    }

    fn sent(&mut self, agent: &AgentId, msg_id: &MsgId, act: Act, document: &[u8]) {
        if !matches!(act, Act::Cfp | Act::Join) {
            return;
        }
        let Some(SentDeclaration { bargain, mandate }) = payload(document) else { return };
        self.rules = bargain.or_else(|| self.rules.take());
        let declared = self.declared.entry((agent.clone(), msg_id.clone())).or_insert_with(|| mandate.clone());
        if *declared != mandate {
            *declared = None;
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is not told of bargains")]
    fn told(&mut self, agent: &AgentId, delivery: &Delivery) {
        for receipt in delivery.receipts_told().filter(|receipt| receipt.disposition == Disposition::Ok) {
            self.applied.insert((agent.clone(), receipt.ack_of.clone()));
            self.offered.extend(receipt.offer_id.map(|offer| (offer, agent.clone())));
        }
        let at = delivery.envelope.ts.0;
        match &delivery.payload {
            Notification::Cfp(Call { bargain: Some(bargain), .. }) => self.parties.clone_from(&bargain.parties),
            Notification::Turn(turn) => {
                let told = self.turns.entry(turn.step).or_default();
                if told.iter().all(|(known, known_at)| (known, *known_at) != (turn, at)) {
                    told.push((turn.clone(), at));
                }
            }
            Notification::Accept(award) if self.is_one() => self.accepts.push((award.clone(), at)),
            Notification::Closed(closing) => {
                let in_reply_to = delivery.envelope.in_reply_to.clone();
                self.ends.push(ObservedEnd { agent: agent.clone(), closing: closing.clone(), at, in_reply_to });
            }
            _ => {}
        }
    }

    /// Judges what must hold at any time, and at rest that the agreement's offer was applied.
    fn judge(&self, id: &NegotiationId, agents: WatchedAgents<'_>, verdict: &mut Verdict) {
        for (turn, at) in self.turns.values().flatten() {
            let fault = self.turn_fault(turn);
            verdict.check(Invariant::TurnOrder, fault.is_none(), || {
                format!("{id}: {} in {turn:?}", fault.unwrap_or_default())
            });
            let until = turn.standing.as_ref().and_then(|standing| standing.valid_until);
            verdict.check(Invariant::NoLateWinner, until.is_none_or(|until| *at <= until.0), || {
                format!("{id}: at {at:?} an offer stands whose validity is over: {turn:?}")
            });
        }
        self.judge_ends(id, verdict);
        let mut agreements = self.ends.iter().filter_map(|end| end.closing.agreement.as_deref());
        let Some(agreement) = agreements.next() else { return };
        let fault = self.agreement_fault(agreement);
        verdict.check(Invariant::TurnOrder, fault.is_none(), || {
            format!("{id}: {} in {agreement:?}", fault.unwrap_or_default())
        });
        let by = self.offered.get(&agreement.offer_id);
        let is_known = agents.when == When::AtRest && !agents.unreached.contains(&agreement.by);
        verdict.check(Invariant::NoLateWinner, by.map_or(!is_known, |by| *by == agreement.by), || {
            format!("{id} agrees on {}, applied for {by:?}", agreement.offer_id)
        });
        if let Some(agreed_at) = self.agreed_at() {
            self.judge_validity(id, agreement, agreed_at, verdict);
        }
        self.judge_mandates(id, agreement, verdict);
    }
}

impl BargainSeen {
    fn standings(&self) -> impl Iterator<Item = &Standing> {
        self.turns.values().flatten().filter_map(|(turn, _)| turn.standing.as_ref())
    }

    /// When it was agreed, as far as anybody was told: where it had to be confirmed, before that. What is told in answer to
    /// a late message is told later.
    fn agreed_at(&self) -> Option<Timestamp> {
        let is_first = |end: &&ObservedEnd| {
            let asked = end.in_reply_to.clone().map(|asked| (end.agent.clone(), asked));
            end.closing.agreement.is_some() && asked.is_none_or(|asked| self.applied.contains(&asked))
        };
        let closed_at = self.ends.iter().filter(is_first).map(|end| end.at);
        self.accepts.iter().map(|(_, at)| *at).chain(closed_at).min()
    }

    /// The offer stood when it was agreed on.
    fn judge_validity(&self, id: &NegotiationId, agreement: &Agreement, at: Timestamp, verdict: &mut Verdict) {
        let standing = self.standings().find(|standing| standing.offer_id == agreement.offer_id);
        let is_valid = standing.is_none_or(|standing| {
            standing.valid_from.is_none_or(|from| from.0 <= at)
                && standing.valid_until.is_none_or(|until| at <= until.0)
        });
        verdict.check(Invariant::NoLateWinner, is_valid, || format!("{id} agrees at {at:?} on {standing:?}"));
    }

    /// Everybody is told the same end.
    fn judge_ends(&self, id: &NegotiationId, verdict: &mut Verdict) {
        let details: BTreeSet<&String> = self.ends.iter().filter_map(|end| end.closing.detail.as_ref()).collect();
        verdict.check(Invariant::TurnOrder, details.len() <= 1, || format!("{id} ended by {details:?}"));
        let mut agreements: Vec<&Agreement> = Vec::new();
        for ObservedEnd { agent, closing, .. } in &self.ends {
            if let Some(agreement) = closing.agreement.as_deref() {
                agreements.push(agreement);
                verdict.check(Invariant::TurnOrder, closing.outcome == Outcome::Agreement, || {
                    format!("{id}: {agent} was told {closing:?}")
                });
            }
        }
        let is_one = agreements.windows(2).all(|pair| pair[0] == pair[1]);
        verdict.check(Invariant::OneAward, is_one, || format!("{id} came to several agreements: {agreements:?}"));
        for (award, _) in &self.accepts {
            let is_it = agreements
                .iter()
                .all(|agreement| (award.offer_id, award.terms_digest) == (agreement.offer_id, agreement.terms_digest));
            verdict.check(Invariant::OneAward, is_it, || format!("{id} had {award:?} confirmed, not {agreements:?}"));
        }
    }

    /// An agreement lies within every mandate that a party has declared and the exchange has taken.
    fn judge_mandates(&self, id: &NegotiationId, agreement: &Agreement, verdict: &mut Verdict) {
        let Some(rules) = &self.rules else { return };
        let taken = self.declared.iter().filter(|(message, _)| self.applied.contains(*message));
        for ((agent, _), mandate) in taken {
            let is_kept = mandate.as_ref().is_none_or(|mandate| is_inside(mandate, rules, &agreement.terms));
            verdict.check(Invariant::TurnOrder, is_kept, || {
                format!("{id} agrees on {:?}, outside the mandate of {agent}", agreement.terms)
            });
        }
    }

    /// Whose turn follows so many steps, where the parties are known.
    fn party_at(&self, step: u32) -> Option<&AgentId> {
        self.parties.get(usize::try_from(step).ok()? % self.parties.len().max(1))
    }

    /// The round of a step, counted from 1.
    fn round_at(&self, step: u32) -> Option<u32> {
        Some(step.checked_div(u32::try_from(self.parties.len()).ok()?)? + 1)
    }

    /// Actors strictly rotate: it is the turn of the party that so many steps lead to; the offer that stands came from the
    /// party whose turn it was then, and everybody since has accepted it.
    fn turn_fault(&self, turn: &Turn) -> Option<String> {
        let expected = self.party_at(turn.step)?;
        if turn.party != *expected || Some(turn.round) != self.round_at(turn.step) {
            return Some(format!("it is the turn of {expected}"));
        }
        self.standing_fault(turn.standing.as_ref()?, turn.step)
    }

    fn standing_fault(&self, standing: &Standing, step: u32) -> Option<String> {
        if Digest::of(&standing.terms).ok() != Some(standing.terms_digest) {
            return Some("the digest is of other terms".to_owned());
        }
        let by = self.offered.get(&standing.offer_id);
        if by.is_some_and(|by| *by != standing.by) {
            return Some(format!("{by:?} made the offer"));
        }
        let accepted = u32::try_from(standing.accepted_by.len()).ok()?;
        let Some(offered_at) = step.checked_sub(accepted + 1) else {
            return Some("there were not so many turns".to_owned());
        };
        let actors = std::iter::once(&standing.by).chain(&standing.accepted_by);
        let wrong = (offered_at..).zip(actors).find(|(at, actor)| self.party_at(*at) != Some(*actor));
        wrong.map(|(at, actor)| format!("{actor} acted after {at} steps"))
    }

    /// The agreement is the offer that stood when the last party's turn came.
    fn agreement_fault(&self, agreement: &Agreement) -> Option<String> {
        if Digest::of(&agreement.terms).ok() != Some(agreement.terms_digest) {
            return Some("the digest is of other terms".to_owned());
        }
        let others = u32::try_from(self.parties.len()).ok()?.checked_sub(1)?;
        let (Some(last), Some(offered_at)) = (agreement.step.checked_sub(1), agreement.step.checked_sub(others + 1))
        else {
            return Some("there were not so many turns".to_owned());
        };
        if self.party_at(offered_at) != Some(&agreement.by) || Some(agreement.round) != self.round_at(last) {
            return Some(format!("{} accepts what is its own", agreement.by));
        }
        let since = self.turns.range(offered_at + 1..=last).flat_map(|(_, turns)| turns);
        let other = since.map(|(turn, _)| turn.standing.as_ref()).find(|standing| {
            standing.is_none_or(|standing| {
                (standing.offer_id, &standing.by, &standing.terms)
                    != (agreement.offer_id, &agreement.by, &agreement.terms)
            })
        });
        if let Some(other) = other {
            return Some(format!("what stood last was {other:?}"));
        }
        let later = self.turns.range(agreement.step..).next();
        later.map(|(_, turns)| format!("it went on: {turns:?}"))
    }
}

/// Says whether terms lie inside a mandate that fits the rules.
pub type IsInside = fn(&Mandate, &BargainSpec, &Terms) -> bool;

/// Judges agreements by this arithmetic. Only the first call in a process counts; without one it is the arithmetic that
/// engines decide with, which would not notice its own faults.
pub fn judge_mandates_by(arithmetic: IsInside) {
    let _ = ARITHMETIC.set(arithmetic);
}

static ARITHMETIC: OnceLock<IsInside> = OnceLock::new();

fn is_inside(mandate: &Mandate, rules: &BargainSpec, terms: &Terms) -> bool {
    let of_engines: IsInside = |mandate, rules, terms| {
        OutcomeSpace::new(&rules.issues).is_ok_and(|space| mandate::inside(mandate, space, terms).is_ok())
    };
    ARITHMETIC.get().unwrap_or(&of_engines)(mandate, rules, terms)
}
