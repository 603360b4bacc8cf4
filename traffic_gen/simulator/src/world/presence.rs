//! What each gateway can know of who is there: what arrived at it, when. From that follows, of each call it logs, who must
//! have been invited and who must not.

use std::collections::{BTreeMap, BTreeSet};

use bus::{Bucket, LogRecord, Received};
use schemas::control::{ConsentEffect, Group, Registration};
use schemas::record::{AdmittedMessage, Entry, Record};
use schemas::{Act, Address, AgentId, Digest, presence, routed, subject};
use serde_json::Value;

use super::LinkId;
use super::broker::{Broker, matches};
use crate::points::{Point, Points};
use crate::trace::Invited;

/// For how long after its start a gateway may still be reading the registrations, in microseconds. Each counts as heard
/// when it is read.
const START_US: u64 = 1_500_000;
/// How long what has arrived may wait in a gateway before it is read, in microseconds: for as long as one question to the
/// bus takes, which nothing delays where gateways are spared.
const READ_US: u64 = 1_200_000;
const READ_US_SPARED: u64 = 50_000;

/// See the module.
#[derive(Default)]
pub(super) struct PresenceObserver {
    gateways: BTreeMap<LinkId, HeardMessages>,
    /// What follows for the calls that were logged.
    invited: Vec<Invited>,
}

/// What arrived at one gateway.
#[derive(Default)]
struct HeardMessages {
    started_us: u64,
    /// Hellos, by agent: each begins a lease.
    hellos: BTreeMap<AgentId, Vec<u64>>,
    /// Anything at all from an agent, or a report that it was heard: no lease is longer than from the last of these.
    last: BTreeMap<AgentId, u64>,
    /// Agents that have a stream open to it.
    streams: BTreeSet<AgentId>,
    /// First arrival of each message, by its content.
    asked: BTreeMap<(AgentId, Digest), u64>,
}

impl HeardMessages {
    /// Whether a hello that had been read by `read_us` began a lease that lasts beyond `until_us`.
    fn is_surely_present(&self, agent: &AgentId, lease_us: u64, read_us: u64, until_us: u64) -> bool {
        let mut hellos = self.hellos.get(agent).into_iter().flatten();
        hellos.any(|at_us| *at_us < read_us && at_us + lease_us > until_us)
    }

    /// Whether every lease had ended at a time, whatever began it: something heard, or the gateway's own start.
    fn is_surely_absent(&self, agent: &AgentId, lease_us: u64, at_us: u64) -> bool {
        let last_us = self.last.get(agent).copied().unwrap_or_default();
        !self.streams.contains(agent) && last_us.max(self.started_us + START_US) + lease_us < at_us
    }

    /// Whether a lease ended before the agent was heard again.
    fn was_away(&self, agent: &AgentId, lease_us: u64) -> bool {
        self.hellos.get(agent).is_some_and(|hellos| hellos.windows(2).any(|pair| pair[1] - pair[0] > lease_us))
    }

    /// Who must have been invited to a call, and who must not.
    fn judge(
        &self,
        seq: u64,
        message: &AdmittedMessage,
        now_us: u64,
        is_spared: bool,
        broker: &Broker,
        points: &mut Points,
    ) -> Option<Invited> {
        let envelope = message.message().ok()?.envelope;
        let found = message.pinned.as_ref()?.invited.iter().map(|invitation| invitation.agent.clone()).collect();
        let direct: BTreeSet<AgentId> = envelope.to.iter().filter_map(direct).collect();
        if direct.len() == envelope.to.len() {
            return None;
        }
        let asks_for_absent = envelope.scope.as_ref().is_some_and(|scope| scope.absent);
        let registrations = registrations(broker);
        let addressees = addressees(broker, &envelope.to, &registrations);
        let asked_us = *self.asked.get(&(message.from.clone(), message.digest))?;
        let read_us = if is_spared { READ_US_SPARED } else { READ_US };
        let (mut must, mut must_not) = (BTreeSet::new(), BTreeSet::new());
        for (agent, registration) in registrations.iter().filter(|(agent, _)| *agent != message.from) {
            let is_addressed = addressees.contains(agent);
            if !is_addressed || registration.consent.default != ConsentEffect::Allow || direct.contains(agent) {
                continue;
            }
            let lease_us = u64::from(registration.lease_ms) * 1000;
            let is_present = self.is_surely_present(agent, lease_us, asked_us.saturating_sub(read_us), now_us);
            let is_absent = is_spared && self.is_surely_absent(agent, lease_us + read_us, asked_us);
            if registration.durable || asks_for_absent || is_present {
                must.insert(agent.clone());
            } else if is_absent {
                must_not.insert(agent.clone());
            }
            if is_absent && registration.durable {
                points.reached(Point::DurableInvited);
            } else if is_absent && asks_for_absent {
                points.reached(Point::AbsentInvited);
            } else if is_absent {
                points.reached(Point::AbsentLeftOut);
            } else if is_present && self.was_away(agent, lease_us) {
                points.reached(Point::ReturnedInvited);
            }
        }
        Some(Invited { seq, negotiation: message.negotiation.clone(), found, must, must_not })
    }
}

fn direct(address: &Address) -> Option<AgentId> {
    match address {
        Address::Agent(agent) => Some(agent.clone()),
        Address::Topic(_) | Address::Group(_) => None,
    }
}

impl PresenceObserver {
    /// A gateway has started.
    pub(super) fn begin(&mut self, gateway: LinkId, started_us: u64) {
        self.gateways.insert(gateway, HeardMessages { started_us, ..HeardMessages::default() });
    }

    /// What follows for the calls that were logged.
    pub(super) fn invited(&self) -> Vec<Invited> {
        self.invited.clone()
    }

    /// An agent has opened a stream at a gateway, or closed it.
    pub(super) fn note_stream(&mut self, at: LinkId, agent: &AgentId, is_open: bool, now_us: u64) {
        let Some(heard) = self.gateways.get_mut(&at) else { return };
        heard.last.insert(agent.clone(), now_us);
        if is_open {
            heard.streams.insert(agent.clone());
        } else {
            heard.streams.remove(agent);
        }
    }

    /// Whether deliveries that arrive at a gateway are for an agent that has no stream there.
    pub(super) fn is_routed_wrong(&self, at: LinkId, message: &Received) -> bool {
        let Some(heard) = self.gateways.get(&at) else { return false };
        subject::is_gateway_deliveries(&message.subject)
            && routed::lines(&message.payload).flatten().any(|(agent, _)| !heard.streams.contains(agent))
    }

    /// A message arrives at a gateway.
    pub(super) fn handle_arrival(&mut self, at: LinkId, message: &Received, now_us: u64) {
        let Received { subject, payload, .. } = message;
        let Some(heard) = self.gateways.get_mut(&at) else { return };
        if subject::gateway_of(subject).is_some() {
            for agent in presence::decode_report(payload).unwrap_or_default() {
                heard.last.insert(agent, now_us);
            }
            return;
        }
        let Some(agent) = subject::agent_of(subject) else { return };
        heard.last.insert(agent.clone(), now_us);
        if matches(subject::ALL_HELLOS, subject) {
            heard.hellos.entry(agent).or_default().push(now_us);
        } else if matches(subject::ALL_GATEWAY_IN, subject) {
            let document: Value = serde_json::from_slice(payload).unwrap_or_default();
            if let Ok(digest) = Digest::of(&document) {
                heard.asked.entry((agent, digest)).or_insert(now_us);
            }
        }
    }

    /// A gateway's record is stored: notes of each call in it who must have been invited, and who must not.
    pub(super) fn handle_record(
        &mut self,
        gateway: LinkId,
        record: &LogRecord,
        now_us: u64,
        is_spared: bool,
        broker: &Broker,
        points: &mut Points,
    ) {
        let Ok(decoded) = Record::decode(&record.bytes) else { return };
        let Some(heard) = self.gateways.get(&gateway) else { return };
        for entry in &decoded.entries {
            if let Entry::Message(message) = entry
                && message.act == Act::Cfp
            {
                self.invited.extend(heard.judge(record.seq, message, now_us, is_spared, broker, points));
            }
        }
    }
}

/// Subscribers of the topics and members of the groups among these addresses.
fn addressees(broker: &Broker, to: &[Address], registrations: &[(AgentId, Registration)]) -> BTreeSet<AgentId> {
    let mut addressees = BTreeSet::new();
    for address in to {
        match address {
            Address::Agent(_) => {}
            Address::Topic(topic) => {
                let subscribers = registrations.iter().filter(|(_, known)| known.topics.contains(topic));
                addressees.extend(subscribers.map(|(agent, _)| agent.clone()));
            }
            Address::Group(group) => {
                let stored = broker.bucket(Bucket::Groups).get(group.as_str());
                let group = stored.and_then(|value| serde_json::from_slice::<Group>(value).ok());
                addressees.extend(group.map(|group| group.members).unwrap_or_default());
            }
        }
    }
    addressees
}

fn registrations(broker: &Broker) -> Vec<(AgentId, Registration)> {
    let entries = broker.bucket(Bucket::Agents).iter();
    entries.filter_map(|(id, value)| Some((AgentId::try_new(id).ok()?, serde_json::from_slice(value).ok()?))).collect()
}
