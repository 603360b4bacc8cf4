//! Who a call reaches: addresses resolved to agents, then presence, capability, consent. No consent, no delivery.

mod absent;

use std::collections::BTreeMap;

use schemas::control::{ConsentEffect, Group, Registration};
use schemas::ids::Capability;
use schemas::record::{Invitation, Qos};
use schemas::{Address, AgentId, Code, Envelope, Refusal, TopicName};

pub(super) use self::absent::AbsentCount;

use self::absent::Absent;
use super::no_recipient;
use crate::registry::{AgentTable, Backlogs, GroupTable, Member};

/// Agents considered for one call. A topic or group may have more subscribers than can be invited; this bounds the
/// work before consent is asked.
const CONSIDERED_MAX: usize = 16_384;

/// A call, as far as it decides who is reached.
pub(super) struct Call<'a> {
    pub(super) from: &'a AgentId,
    pub(super) envelope: &'a Envelope,
    pub(super) requires: &'a [Capability],
    /// The gateway's clock, for presence.
    pub(super) now_ms: u64,
    /// Who acknowledges too little to be invited.
    pub(super) backlogs: &'a Backlogs,
    /// Most agents that may be invited.
    pub(super) invited_max: usize,
}

/// What became of the addresses.
pub(super) struct Resolved {
    /// The invited, in the order of the agent id.
    pub(super) invited: Result<Vec<Invitation>, Refusal>,
    /// Addressed agents that are not invited: absent, without a common capability, without consent, or with too much they
    /// have not acknowledged. An upper bound where the number of the absent is one.
    pub(super) left_out: u32,
    /// Whose owners are to be asked.
    pub(super) asks: Vec<Ask>,
    /// How many agents were addressed, by what was decided.
    pub(super) counted: Counted,
}

/// How many agents a call reaches or does not, besides those whose owners are to be asked.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    /// Consent, and can do what is asked for.
    pub(super) invited: usize,
    /// Do not consent.
    pub(super) denied: usize,
    /// Cannot do what is asked for.
    pub(super) incapable: usize,
    /// Absent, and addressed by a topic or group that the call did not ask to reach them through.
    pub(super) absent: AbsentCount,
    /// Would be invited, but have not acknowledged too much.
    pub(super) unresponsive: usize,
}

/// An agent whose rules say that its owner is to be asked about this call.
pub(super) struct Ask {
    pub(super) agent: AgentId,
    pub(super) topic: Option<TopicName>,
}

/// One addressed agent: allowed by any of the ways it is addressed, with the best quality of service among those.
struct InviteCandidate<'a> {
    registration: &'a Registration,
    allowed: Option<Qos>,
    ask: Option<Option<&'a TopicName>>,
}

/// Resolves the addresses of a call.
pub(super) fn resolve<'a>(agents: &'a AgentTable, groups: &'a GroupTable, call: &Call<'a>) -> Resolved {
    let mut gathering = Gathering { agents, call, candidates: BTreeMap::new(), absent: Absent::default() };
    for address in &call.envelope.to {
        match address {
            Address::Agent(agent) => gathering.add_agent(agent),
            Address::Topic(topic) => gathering.add_topic(topic),
            Address::Group(group) => groups.get(group).into_iter().for_each(|group| gathering.add_group(group)),
        }
        if gathering.candidates.len() + gathering.absent.agents.len() > CONSIDERED_MAX {
            let invited = Err(too_many(CONSIDERED_MAX));
            return Resolved { invited, left_out: 0, asks: Vec::new(), counted: Counted::default() };
        }
    }
    let absent = gathering.absent.count(&gathering.candidates, call.from);
    select(agents, gathering.candidates, absent, call)
}

/// The addressed agents, while the addresses are gone through.
struct Gathering<'a, 'c> {
    agents: &'a AgentTable,
    call: &'c Call<'a>,
    candidates: BTreeMap<&'a AgentId, InviteCandidate<'a>>,
    absent: Absent<'a>,
}

impl<'a> Gathering<'a, '_> {
    /// An agent addressed by its id is reached, present or not.
    fn add_agent(&mut self, agent: &'a AgentId) {
        if let Some(member) = self.agents.member(agent) {
            self.consider(agent, member, None, Qos::AtLeastOnce);
        }
    }

    fn add_topic(&mut self, topic: &'a TopicName) {
        let Some(audience) = self.agents.audience(topic) else { return };
        if self.absent.audiences.contains_key(topic) {
            return;
        }
        for (agent, member) in &audience.reached {
            self.consider_if_reached(agent, member, Some(topic), Qos::AtLeastOnce);
        }
        if self.asks_for_absent() {
            for (agent, member) in &audience.absent {
                self.consider(agent, member, Some(topic), Qos::AtLeastOnce);
            }
        } else {
            self.absent.audiences.insert(topic, audience);
        }
    }

    fn add_group(&mut self, group: &'a Group) {
        for agent in &group.members {
            if let Some(member) = self.agents.member(agent) {
                self.consider_if_reached(agent, member, None, group.qos);
            }
        }
    }

    fn asks_for_absent(&self) -> bool {
        self.call.envelope.scope.as_ref().is_some_and(|scope| scope.absent)
    }

    fn consider_if_reached(&mut self, agent: &'a AgentId, member: &'a Member, topic: Option<&'a TopicName>, qos: Qos) {
        if self.asks_for_absent() || self.agents.is_reached(member, self.call.now_ms) {
            self.consider(agent, member, topic, qos);
        } else {
            self.absent.agents.insert(agent);
        }
    }

    /// Adds an agent, and how it consents to being reached this way.
    fn consider(&mut self, agent: &'a AgentId, member: &'a Member, topic: Option<&'a TopicName>, qos: Qos) {
        if agent == self.call.from {
            return;
        }
        let registration = &*member.registration;
        let absent = &mut self.absent;
        let candidate = self.candidates.entry(agent).or_insert_with(|| {
            absent.reached.extend(member.is_found_absent().then_some(agent));
            InviteCandidate { registration, allowed: None, ask: None }
        });
        match registration.consent.effect(topic, self.call.from) {
            ConsentEffect::Allow => {
                let is_better = !matches!(candidate.allowed, Some(Qos::AtLeastOnce));
                candidate.allowed = if is_better { Some(qos) } else { candidate.allowed };
            }
            ConsentEffect::Ask => candidate.ask = candidate.ask.or(Some(topic)),
            ConsentEffect::Deny => {}
        }
    }
}

fn select(
    agents: &AgentTable,
    candidates: BTreeMap<&AgentId, InviteCandidate<'_>>,
    absent: AbsentCount,
    call: &Call<'_>,
) -> Resolved {
    let considered = candidates.len();
    let (mut capable, mut unresponsive) = (0_usize, 0_usize);
    let mut asks = Vec::new();
    let mut invited = Vec::new();
    for (agent, candidate) in candidates {
        if !is_capable(candidate.registration, call) {
            continue;
        }
        capable += 1;
        match (candidate.allowed, candidate.ask) {
            (Some(_), _) if call.backlogs.holds(agent, call.now_ms) => unresponsive += 1,
            (Some(qos), _) => {
                invited.push(Invitation { agent: agent.clone(), qos, durable: candidate.registration.durable })
            }
            (None, Some(topic)) => asks.push(Ask { agent: agent.clone(), topic: topic.cloned() }),
            (None, None) => {}
        }
    }
    let left_out = u32::try_from(considered - invited.len() + absent.agents).unwrap_or(u32::MAX);
    let counted = Counted {
        invited: invited.len(),
        denied: capable - invited.len() - asks.len() - unresponsive,
        incapable: considered - capable,
        absent,
        unresponsive,
    };
    let refuse = |refusal| Err(no_recipient::or_absent(refusal, absent));
    let invited = if considered == 0 && absent.agents > 0 {
        Err(no_recipient::absent(absent))
    } else if considered == 0 {
        Err(no_recipient::unknown(agents, call))
    } else if capable == 0 {
        refuse(no_recipient::incapable(agents, call))
    } else if invited.is_empty() && unresponsive > 0 {
        refuse(no_recipient::unresponsive(unresponsive))
    } else if invited.is_empty() {
        let detail = "no agent addressed consents to this topic and counterpart";
        refuse(Refusal::new(Code::NoConsent, detail).at("/envelope/to"))
    } else if invited.len() > call.invited_max {
        Err(too_many(call.invited_max))
    } else {
        Ok(invited)
    };
    Resolved { invited, left_out, asks, counted }
}

/// At least one of the envelope's capabilities (when it names any), and all that the call requires.
fn is_capable(registration: &Registration, call: &Call<'_>) -> bool {
    let has = |capability: &Capability| registration.capabilities.contains(capability);
    let shared = &call.envelope.capabilities;
    (shared.is_empty() || shared.iter().any(has)) && call.requires.iter().all(has)
}

fn too_many(limit: usize) -> Refusal {
    Refusal::new(Code::OutOfRange, "the call reaches more agents than one negotiation holds")
        .at("/envelope/to")
        .expecting(format!("at most {limit} agents"))
}
