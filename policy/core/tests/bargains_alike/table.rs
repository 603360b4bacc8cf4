//! What parties of a bargain say, and what they know of what they were told.

use std::sync::Arc;

use policy_core::{Deliver, Limits, preset};
use proptest::test_runner::TestCaseError;
use schemas::delivery::{Notification, Standing, Turn};
use schemas::policy::BargainRule;
use schemas::record::{AdmittedMessage, Entry, Pinned};
use schemas::{Act, AgentId, Digest, Policy, Timestamp, WireTime};
use serde_json::{Value, json};

use super::plan::{AcceptPlan, Action, Case, Mandated, Move, OfferPlan, Who};
use crate::alike::{Game, Played, Table, abort, id, invitation, party, undelivered};

/// To the end, and beyond.
pub(crate) fn play(case: &Case) -> Result<Played, TestCaseError> {
    let game = Haggling { case, turn: None, offers: Vec::new(), calls: Vec::new() };
    Table::play(game, Limits::default(), case.is_new, &case.moves)
}

struct Haggling<'a> {
    case: &'a Case,
    turn: Option<Turn>,
    offers: Vec<Standing>,
    calls: Vec<Deliver>,
}

impl Game for Haggling<'_> {
    type Who = Who;
    type Action = Action;

    const DRAIN_MAX: usize = 64;

    fn call(table: &Table<Self>) -> AdmittedMessage {
        let case = table.game.case;
        let mut payload = json!({"bargain": case.rules, "currency": "EUR"});
        case.join_ms.into_iter().for_each(|ms| payload["reply_within_ms"] = json!(ms));
        let mandated = case.mandates[0].as_ref();
        mandated.into_iter().for_each(|mandated| payload["mandate"] = mandated.mandate.clone());
        let invited = (1..=usize::from(case.invited)).rev().map(|index| invitation(party(index))).collect();
        let rule = mandated.and_then(|mandated| mandated.rule.clone());
        let pinned = Some(Arc::new(Pinned { invited, ..pinned(rule) }));
        AdmittedMessage { pinned, ..table.message(&party(0), Act::Cfp, payload, false) }
    }

    fn entry(table: &mut Table<Self>, one: &Move) -> Option<Entry> {
        let game = &table.game;
        let from = match one.who {
            Who::Turn => game.turn.as_ref().map_or(party(0), |turn| turn.party.clone()),
            Who::Party(index) => party(index % (usize::from(game.case.invited) + 1)),
            Who::Stranger => party(9),
        };
        let (act, payload) = match &one.action {
            Action::Tick => return Some(Entry::Tick),
            Action::Abort => return abort(id()),
            Action::Undelivered => return undelivered(game.calls.first()?, true),
            Action::Repeat(which) => return Some(table.repeat(*which)),
            Action::Conflict(which) => return Some(table.conflict(*which)),
            Action::Join => return Some(join(table, &from, one.is_stale)),
            Action::Offer(plan) => (Act::Offer, offer(plan, table.now)),
            Action::Accept(plan) => (Act::Accept, game.accept(*plan)),
            Action::Withdraw(round) => (Act::Withdraw, round.map_or(json!({}), |round| json!({"round": round}))),
            Action::End => (Act::End, json!({})),
            Action::Refuse => (Act::Refuse, json!({})),
            Action::NotUnderstood => (Act::NotUnderstood, json!({})),
            Action::Cancel => (Act::Cancel, json!({})),
            Action::Inform => (Act::Inform, json!({"kind": "done"})),
            Action::Failure => (Act::Failure, json!({"phase": "perform", "code": "broken"})),
            Action::Confirm(no, is_right) => {
                let digest = game.offers.last().map_or(Digest([1; 32]), |offer| offer.terms_digest);
                let digest = if *is_right { digest } else { Digest([0; 32]) };
                (Act::Confirm, json!({"award_no": no, "terms_digest": digest}))
            }
        };
        let message = table.message(&from, act, payload, one.is_stale);
        Some(table.say(message))
    }

    fn remember(&mut self, deliver: &Deliver) {
        match &*deliver.told {
            Notification::Turn(turn) => {
                self.offers.extend(turn.standing.clone().filter(|standing| !self.offers.contains(standing)));
                self.turn = Some(turn.clone());
            }
            Notification::Cfp(_) => self.calls.push(deliver.clone()),
            _ => {}
        }
    }

    /// Every other party does.
    fn numbers(agent: &AgentId) -> bool {
        *agent != party(1)
    }
}

impl Haggling<'_> {
    fn accept(&self, plan: AcceptPlan) -> Value {
        let standing = self.turn.as_ref().and_then(|turn| turn.standing.as_ref()).or(self.offers.last());
        let earlier = |which: usize| self.offers.get(which % self.offers.len().max(1));
        let Some(meant) = (if let AcceptPlan::Earlier(which) = plan { earlier(which) } else { standing }) else {
            return json!({"offer_id": "o1-0", "terms_digest": Digest([0; 32])});
        };
        match plan {
            AcceptPlan::WithoutDigest => json!({"offer_id": meant.offer_id}),
            AcceptPlan::OtherDigest => json!({"offer_id": meant.offer_id, "terms_digest": Digest([0; 32])}),
            AcceptPlan::Standing | AcceptPlan::Earlier(_) => {
                json!({"offer_id": meant.offer_id, "terms_digest": meant.terms_digest})
            }
        }
    }
}

fn offer(plan: &OfferPlan, now: Timestamp) -> Value {
    let mut payload = json!({"terms": plan.terms});
    plan.valid_for_ms.into_iter().for_each(|ms| payload["valid_for_ms"] = json!(ms));
    if let Some(ms) = plan.valid_from_ms {
        payload["valid_from"] = json!(WireTime(Timestamp(now.0.saturating_add_signed(ms * 1000))));
    }
    plan.conditions.iter().for_each(|conditions| payload["conditions"] = conditions.clone());
    plan.currency.into_iter().for_each(|currency| payload["currency"] = json!(currency));
    plan.round.into_iter().for_each(|round| payload["round"] = json!(round));
    payload
}

fn join(table: &mut Table<Haggling<'_>>, from: &AgentId, is_stale: bool) -> Entry {
    let index = (0..4).find(|&index| party(index) == *from).unwrap_or_default();
    let mandated: Option<Mandated> = table.game.case.mandates[index].clone();
    let payload = mandated.as_ref().map_or(json!({}), |mandated| json!({"mandate": mandated.mandate}));
    let pinned = mandated.and_then(|mandated| mandated.rule).map(|rule| Arc::new(pinned(Some(rule))));
    let message = AdmittedMessage { pinned, ..table.message(from, Act::Join, payload, is_stale) };
    table.say(message)
}

fn pinned(rule: Option<Value>) -> Pinned {
    let rule: Option<BargainRule> = rule.map(|rule| serde_json::from_value(rule).expect("a rule"));
    let policy = Policy { id: "delegate@1".to_owned(), bargain: rule, ..preset("medium").expect("a preset") };
    crate::alike::pinned(policy, Vec::new())
}
