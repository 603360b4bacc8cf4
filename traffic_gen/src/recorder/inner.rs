//! What is known of a run: everything under the recorder's lock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agents::strategy::{SendOutcome, Sent};
use schemas::delivery::{Delivery, Disposition, Notification, ProgressReport};
use schemas::{Act, AgentId, NegotiationId};
use tokio::time::Instant;

use super::{Counts, POLICIES_MAX};
use crate::invariants::Witness;
use crate::metrics::{CallResult, TrafficMetrics};
use crate::minutes::Minutes;
use crate::trace::TraceFile;

pub(super) struct RecorderState {
    pub(super) counts: Counts,
    pub(super) witness: Option<Witness>,
    pub(super) open: BTreeMap<NegotiationId, OpenCall>,
    /// Messages that left and have neither been answered nor given up.
    pub(super) in_flight: u64,
    pub(super) minutes: Minutes,
    pub(super) trace: Option<TraceFile>,
    pub(super) metrics: Option<TrafficMetrics>,
    /// The agents of the run, where others may take part.
    pub(super) agents: Option<BTreeSet<AgentId>>,
    /// What the ids of the run's calls begin with, where its agents may be owed news of earlier runs.
    pub(super) own_ids: Option<String>,
}

/// A call that has not ended.
pub(super) struct OpenCall {
    pub(super) intended: Instant,
    /// When the call did leave.
    pub(super) left: Option<Instant>,
    pub(super) decided: bool,
}

impl RecorderState {
    pub(super) fn settled(&mut self, agent: &AgentId, at: Instant, since_start: Duration, sent: &Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match &sent.outcome {
            SendOutcome::Accepted { policy, .. } => {
                if let Some(witness) = &mut self.witness {
                    witness.accepted(agent, &sent.msg_id, &sent.negotiation);
                }
                self.minutes.admitted(since_start, sent.act);
                if sent.act == Act::Cfp {
                    self.counts.cfps += 1;
                    self.runs_under(policy.as_deref());
                } else if sent.act == Act::Offer && self.is_of_run(&sent.negotiation) {
                    self.counts.offers += 1;
                    if let Some(open) = self.open.get(&sent.negotiation) {
                        self.counts.offer.record(at.saturating_duration_since(open.intended));
                    }
                }
            }
            SendOutcome::Refused(refusal) => {
                *self.counts.rejected.entry(refusal.code.to_string()).or_default() += 1;
                if sent.act == Act::Cfp {
                    self.counts.cfps_refused += 1;
                    self.counts.cfp_refusal = Some(refusal.clone());
                    self.ended(&sent.negotiation, CallResult::Refused, at);
                }
            }
            SendOutcome::Unanswered => self.counts.unanswered += 1,
        }
    }

    pub(super) fn delivered(&mut self, agent: &AgentId, at: Instant, since_start: Duration, delivery: &Delivery) {
        let negotiation = &delivery.envelope.negotiation;
        let is_initiator = negotiation.initiator() == agent.as_str();
        // What is still owed from an earlier run under the same name is none of this run's.
        if is_initiator && !self.is_of_run(negotiation) {
            return;
        }
        match &delivery.payload {
            Notification::Ack(receipt) => {
                *self.counts.dispositions.entry(receipt.disposition.as_str().to_owned()).or_default() += 1;
                if receipt.disposition == Disposition::Committed && self.is_of_run(negotiation) {
                    self.counts.confirms += 1;
                    self.minutes.confirmed(since_start);
                    *self.counts.wins.entry(agent.clone()).or_default() += 1;
                }
            }
            Notification::Inform(ProgressReport::Awarded(news)) => {
                self.counts.awards += 1;
                let is_other = self.agents.as_ref().is_some_and(|agents| !agents.contains(&news.contractor));
                self.counts.awards_to_others += u64::from(is_other);
                let first = self.decided(negotiation, at, since_start);
                self.counts.awarded += u64::from(first);
            }
            Notification::Closed(closing) if is_initiator => {
                self.decided(negotiation, at, since_start);
                // A second end is none.
                if let Some(open) = self.ended(negotiation, CallResult::Closed(closing.outcome), at) {
                    let outcome = CallResult::Closed(closing.outcome).as_str().to_owned();
                    *self.counts.outcomes.entry(outcome).or_default() += 1;
                    self.counts.rounds += 1;
                    self.counts.round.record(at.saturating_duration_since(open.intended));
                }
            }
            Notification::Cfp(_)
            | Notification::Accept(_)
            | Notification::Reject(_)
            | Notification::Cancel(_)
            | Notification::Inform(_)
            | Notification::Failure(_)
            | Notification::NotUnderstood(_)
            | Notification::Turn(_)
            | Notification::Closed(_) => {}
        }
    }

    /// Whether the run called. Others' calls reach its contractors too, where others may take part, and an inbox may hold
    /// news of calls of an earlier run.
    fn is_of_run(&self, negotiation: &NegotiationId) -> bool {
        let is_one_of = |agents: &BTreeSet<AgentId>| {
            AgentId::try_new(negotiation.initiator()).is_ok_and(|initiator| agents.contains(&initiator))
        };
        let begins_so = |own_ids: &String| {
            negotiation.as_str().split_once('~').is_some_and(|(_, own_id)| own_id.starts_with(own_ids))
        };
        self.agents.as_ref().is_none_or(is_one_of) && self.own_ids.as_ref().is_none_or(begins_so)
    }

    /// An admitted call runs under this policy, if the gateway said so.
    fn runs_under(&mut self, policy: Option<&str>) {
        let Some(policy) = policy else { return };
        let Counts { policy: latest, policies, .. } = &mut self.counts;
        if let Some(count) = policies.get_mut(policy) {
            *count += 1;
        } else if policies.len() < POLICIES_MAX {
            policies.insert(policy.to_owned(), 1);
        }
        if latest.as_deref() != Some(policy) {
            *latest = Some(policy.to_owned());
        }
    }

    /// A call left.
    pub(super) fn left(&mut self, negotiation: &NegotiationId, at: Instant) {
        let Some(open) = self.open.get_mut(negotiation) else { return };
        open.left = Some(at);
        if let Some(metrics) = &self.metrics {
            metrics.left(at.saturating_duration_since(open.intended));
        }
    }

    /// A call ended, unless it had before.
    pub(super) fn ended(&mut self, negotiation: &NegotiationId, result: CallResult, at: Instant) -> Option<OpenCall> {
        let open = self.open.remove(negotiation)?;
        if let Some(metrics) = &self.metrics {
            metrics.ended(result, at.saturating_duration_since(open.intended));
        }
        self.count_open();
        Some(open)
    }

    pub(super) fn count_open(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.set_in_flight(self.open.len());
        }
    }

    /// Notes the first decision of a negotiation; whether it was the first.
    fn decided(&mut self, negotiation: &NegotiationId, at: Instant, since_start: Duration) -> bool {
        let Some(open) = self.open.get_mut(negotiation).filter(|open| !open.decided) else { return false };
        open.decided = true;
        let latency = at.saturating_duration_since(open.intended);
        if let Some(metrics) = &self.metrics {
            metrics.decided(latency, at.saturating_duration_since(open.left.unwrap_or(open.intended)));
        }
        self.counts.decision.record(latency);
        self.minutes.decided(since_start, latency);
        true
    }
}
