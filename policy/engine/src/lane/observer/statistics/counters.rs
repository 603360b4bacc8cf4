//! What a lane's owner counts for people who look.

use std::collections::VecDeque;
use std::sync::Arc;

use policy_core::{Event, Protocol};
use schemas::delivery::{Disposition, Outcome};
use schemas::statistics::{EndedNegotiation, NAMED_MAX};
use schemas::{Act, NegotiationId, Timestamp};

use super::Totals;
use super::agents::Agents;
use super::minute::Minute;
use super::policies::Policies;
use crate::lane::outbox::{DeliveryEvent, DeliveryStep};

/// See the module. Survives the loss of the lane.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    started: u64,
    /// In the order of [`Outcome::ALL`].
    ended: [u64; Outcome::ALL.len()],
    awards: u64,
    binding: u64,
    offers: u64,
    lower_bound: bool,
    /// This process has owned the lane before.
    has_owned: bool,
    minute: Minute,
    policies: Policies,
    agents: Agents,
    /// The newest [`NAMED_MAX`] that ended, oldest first.
    latest: VecDeque<Ended>,
}

#[derive(Debug)]
struct Ended {
    negotiation: NegotiationId,
    protocol: Protocol,
    policy: Arc<str>,
    outcome: Outcome,
    awards: u32,
    offers: u32,
    at: Timestamp,
    elapsed_us: u64,
}

impl LaneCounters {
    pub(crate) fn count(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { negotiation, .. } => {
                self.started += 1;
                self.agents.count_opened(negotiation.initiator());
            }
            Event::Disposed { from, act: Act::Offer, disposition: Disposition::Ok, .. } => {
                self.offers += 1;
                self.agents.count_offer(from);
            }
            Event::Decided(decision) => {
                self.awards += decision.awards.len() as u64;
                self.agents.count_decision(decision);
            }
            Event::Committed { .. } => self.binding += 1,
            Event::Ended { negotiation, protocol, policy, outcome, offers, awards, elapsed_us, .. } => {
                self.ended[*outcome as usize] += 1;
                let agreements = u64::from(*outcome == Outcome::Agreement);
                self.awards += agreements;
                self.binding += agreements;
                self.minute.add(at, *elapsed_us);
                self.policies.count_ended(policy, *awards, *offers, at, *elapsed_us);
                if self.latest.len() == NAMED_MAX {
                    self.latest.pop_front();
                }
                let (negotiation, policy) = (negotiation.clone(), Arc::clone(policy));
                let (protocol, outcome) = (*protocol, *outcome);
                let (awards, offers, elapsed_us) = (*awards, *offers, *elapsed_us);
                self.latest.push_back(Ended { negotiation, protocol, policy, outcome, awards, offers, at, elapsed_us });
            }
            Event::Disposed { .. }
            | Event::Transition { .. }
            | Event::Closed { .. }
            | Event::Excluded { .. }
            | Event::AwardLost { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => {}
        }
    }

    /// The lane is owned from now on. `outlives`: whoever owned it before is gone, and with it what it counted; unless that
    /// was this process itself.
    pub(crate) fn handle_takeover(&mut self, outlives: bool) {
        self.lower_bound |= outlives && !self.has_owned;
        self.has_owned = true;
    }

    /// Counts what became of a delivery.
    pub(crate) fn count_delivery(&mut self, event: &DeliveryEvent) {
        match event.step {
            DeliveryStep::Sent | DeliveryStep::SentOnce if event.act == Act::Cfp => self.agents.count_call(&event.to),
            DeliveryStep::Acknowledged => {
                if let Some(waited) = event.waited {
                    let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                    self.agents.count_acknowledged(&event.to, us);
                }
            }
            DeliveryStep::Sent | DeliveryStep::SentOnce | DeliveryStep::GivenUp(_) => {}
        }
    }

    /// Everything counted, and what the minute before `now`, in log time, came to.
    pub(crate) fn counted(&mut self, now: Timestamp) -> Totals {
        Totals {
            started: self.started,
            ended: Outcome::ALL
                .iter()
                .map(|outcome| outcome.as_str())
                .zip(self.ended)
                .filter(|(_, times)| *times > 0)
                .collect(),
            awards: self.awards,
            binding: self.binding,
            offers: self.offers,
            lower_bound: self.lower_bound,
            recent: self.minute.recent(now),
            policies: self.policies.activities(now),
            agents: self.agents.busiest(),
            round: self.minute.counts(now),
            latest: self.latest.iter().rev().map(Ended::told).collect(),
        }
    }
}

impl Ended {
    fn told(&self) -> EndedNegotiation {
        EndedNegotiation {
            negotiation: self.negotiation.clone(),
            protocol: self.protocol.as_str().to_owned(),
            policy: self.policy.to_string(),
            outcome: self.outcome.as_str().to_owned(),
            awards: self.awards,
            offers: self.offers,
            at: self.at,
            elapsed_us: self.elapsed_us,
        }
    }
}
