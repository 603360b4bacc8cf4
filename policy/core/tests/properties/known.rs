//! One negotiation of a case, as its agents know it: what each was asked for last, and what it says next.

use std::collections::BTreeMap;

use policy_core::Deliver;
use schemas::delivery::{Disposition, Notification, ProgressReport};
use schemas::document::{RoutineKind, RoutineReport};
use schemas::payload::InformKind;
use schemas::{Act, AgentId, AwardNo, DocumentHash, NegotiationId, OfferId, Timestamp};
use serde_json::{Value, json};

use crate::case::{ActPlan, AwardPlan, DOCUMENTS, OfferPlan, Plan, RoundPlan, RoutinePlan, SeqPlan, Who};
use crate::documents::agent;
use crate::memory::Situation;
use crate::offering::{self, CURRENCY, named};

/// What an agent was asked for last.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Offer,
    Choose,
    Confirm,
    Perform,
    Stop,
}

/// See the module.
pub(crate) struct Known<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) id: NegotiationId,
    pub(crate) initiator: AgentId,
    pub(crate) contractors: Vec<AgentId>,
    round: u32,
    pub(crate) recognised_until: Option<Timestamp>,
    asked_by_agent: BTreeMap<AgentId, Asked>,
    awards: Vec<(AgentId, AwardNo)>,
    /// The document that each contractor's last award pins.
    pinned_by_agent: BTreeMap<AgentId, Option<DocumentHash>>,
    offers: Vec<OfferId>,
    /// How many messages each has sent, and the highest sequence it gave one.
    said_by_agent: BTreeMap<AgentId, (u32, u64)>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(number: usize, plan: &'a Plan) -> Self {
        let initiator = agent(&format!("i{number}"));
        let mut contractors: Vec<AgentId> = plan.contractors.iter().map(|index| agent(&format!("c{index}"))).collect();
        if plan.invites_first_initiator {
            contractors.push(agent("i0"));
        }
        Self {
            plan,
            id: NegotiationId::form(&initiator, "job").expect("an id"),
            initiator,
            contractors,
            round: 1,
            recognised_until: None,
            asked_by_agent: BTreeMap::new(),
            awards: Vec::new(),
            pinned_by_agent: BTreeMap::new(),
            offers: Vec::new(),
            said_by_agent: BTreeMap::new(),
        }
    }

    pub(crate) fn agent(&self, who: Who) -> Option<AgentId> {
        match who {
            Who::Contractor(index) => Some(self.contractors[index % self.contractors.len()].clone()),
            Who::Winner(back) => {
                let (winner, _) = self.awards.iter().rev().nth(back)?;
                Some(winner.clone())
            }
            Who::Initiator => Some(self.initiator.clone()),
            Who::Outsider(index) => Some(agent(&format!("c{index}"))),
        }
    }

    /// What a well-meaning agent does next; nothing, when nothing is asked of it.
    pub(crate) fn sensible(&self, from: &AgentId, offer: &OfferPlan) -> Option<ActPlan> {
        Some(match self.asked_by_agent.get(from)? {
            Asked::Offer => ActPlan::Offer(offer.clone()),
            Asked::Choose => ActPlan::Accept(0),
            Asked::Confirm => ActPlan::Confirm(AwardPlan::Latest),
            Asked::Perform => ActPlan::Inform(InformKind::Done, RoutinePlan::Pinned),
            Asked::Stop => ActPlan::Inform(InformKind::Cancelled, RoutinePlan::Unnamed),
        })
    }

    pub(crate) fn remember(&mut self, deliver: &Deliver, grace_ms: u64) {
        let asked = match &*deliver.told {
            Notification::Cfp(call) => {
                self.round = call.round;
                self.recognised_until = Some(call.ends_by.0.plus_ms(grace_ms));
                Asked::Offer
            }
            Notification::Accept(award) => {
                self.awards.push((deliver.to.clone(), award.award_no));
                self.pinned_by_agent.insert(deliver.to.clone(), award.document);
                if self.plan.policy.require_confirm { Asked::Confirm } else { Asked::Perform }
            }
            Notification::Ack(receipt) if receipt.disposition == Disposition::Committed => Asked::Perform,
            Notification::Ack(receipt) => {
                self.offers.extend(receipt.offer_id);
                return;
            }
            Notification::Cancel(_) => Asked::Stop,
            Notification::Inform(ProgressReport::Offers(news)) => {
                self.offers = news.offers.iter().map(|offer| offer.offer_id).collect();
                Asked::Choose
            }
            Notification::Closed(_) => {
                self.asked_by_agent.remove(&deliver.to);
                return;
            }
            Notification::Inform(_)
            | Notification::Reject(_)
            | Notification::Failure(_)
            | Notification::NotUnderstood(_)
            | Notification::Turn(_)
            | Notification::Ask(_)
            | Notification::Floor(_) => return,
        };
        self.asked_by_agent.insert(deliver.to.clone(), asked);
    }

    /// Whether its call was followed.
    pub(crate) fn is_open(&self) -> bool {
        self.recognised_until.is_some()
    }

    /// Whether a call under the same id would open another negotiation.
    pub(crate) fn is_forgotten(&self, now: Timestamp) -> bool {
        self.recognised_until.is_some_and(|until| now > until)
    }

    fn round(&self, plan: RoundPlan) -> Option<u32> {
        match plan {
            RoundPlan::Unnamed => None,
            RoundPlan::Current => Some(self.round),
            RoundPlan::Earlier => Some(self.round.saturating_sub(1).max(1)),
            RoundPlan::Later => Some(self.round + 1),
        }
    }

    pub(crate) fn payload(&self, act: &ActPlan, from: &AgentId, situation: Situation) -> (Act, Value) {
        let reasoned = |plan: RoundPlan| match self.round(plan) {
            Some(round) => json!({"round": round}),
            None => json!({}),
        };
        match act {
            ActPlan::Cfp => (Act::Cfp, self.call_payload()),
            ActPlan::Offer(plan) => {
                let round = self.round(plan.round);
                (Act::Offer, offering::payload(&self.plan.policy, plan, round, situation))
            }
            ActPlan::Refuse(round) => (Act::Refuse, reasoned(*round)),
            ActPlan::NotUnderstood(round) => (Act::NotUnderstood, reasoned(*round)),
            ActPlan::Withdraw(round) => (Act::Withdraw, reasoned(*round)),
            ActPlan::Accept(which) => {
                let offer = self.offers.get(*which).map_or("o1-0".to_owned(), OfferId::to_string);
                (Act::Accept, json!({"offer_id": offer}))
            }
            ActPlan::Confirm(plan) => (Act::Confirm, json!({"award_no": self.award_no(*plan, from)})),
            ActPlan::Inform(kind, routine) => {
                let mut payload = json!({"kind": kind});
                if let Some(routine) = self.routine(*routine, from) {
                    payload["routine"] = json!(routine);
                }
                (Act::Inform, payload)
            }
            ActPlan::Failure(phase) => (Act::Failure, json!({"phase": phase, "code": "broken"})),
            ActPlan::Cancel(round) => (Act::Cancel, reasoned(*round)),
        }
    }

    fn routine(&self, plan: RoutinePlan, of: &AgentId) -> Option<RoutineReport> {
        let under = |hash| RoutineReport { hash: Some(hash), kind: RoutineKind::Native };
        match plan {
            RoutinePlan::Unnamed => None,
            RoutinePlan::Language => Some(RoutineReport { hash: None, kind: RoutineKind::Language }),
            RoutinePlan::Pinned => self.pinned_by_agent.get(of).copied().flatten().map(under),
            RoutinePlan::Foreign => Some(under(named(DOCUMENTS))),
        }
    }

    fn award_no(&self, plan: AwardPlan, of: &AgentId) -> u32 {
        let mut own = self.awards.iter().filter(|(agent, _)| agent == of).map(|(_, award_no)| award_no.0);
        match plan {
            AwardPlan::Latest => own.next_back().unwrap_or(1),
            AwardPlan::First => own.next().unwrap_or(1),
            AwardPlan::Beside(by) => own.next_back().unwrap_or(1).saturating_add_signed(by),
        }
    }

    fn call_payload(&self) -> Value {
        let mut payload = json!({"task": "a job"});
        if let Some(ms) = self.plan.reply_within_ms {
            payload["reply_within_ms"] = json!(ms);
        }
        if self.plan.has_currency {
            payload["currency"] = json!(CURRENCY);
        }
        if let Some((numbers, require)) = &self.plan.documents {
            let hashes: Vec<_> = numbers.iter().copied().map(named).collect();
            payload["documents"] = json!({"hashes": hashes, "require": require});
        }
        payload
    }

    pub(crate) fn call_envelope(&self) -> Value {
        let mut envelope = json!({});
        if let Some(ttl) = self.plan.ttl_s {
            envelope["scope"] = json!({"consent": "opt-in", "ttl": ttl});
        }
        if self.plan.is_public {
            envelope["to"] = json!(["topic://jobs"]);
        }
        envelope
    }

    /// An id of the sender's own count, so that different senders use the same ids; and its sequence, if it numbers.
    pub(crate) fn number_message(&mut self, from: &AgentId, plan: SeqPlan) -> (String, Option<u64>) {
        let numbers = from.as_str().bytes().last().is_some_and(|digit| digit % 2 == 1);
        let (messages, last) = self.said_by_agent.entry(from.clone()).or_default();
        *messages += 1;
        let seq = match plan {
            SeqPlan::Habit if numbers => Some(*last + 1),
            SeqPlan::Low => Some(last.saturating_sub(1)),
            SeqPlan::Habit | SeqPlan::Absent => None,
        };
        *last = seq.map_or(*last, |seq| seq.max(*last));
        (format!("m{messages}"), seq)
    }
}
