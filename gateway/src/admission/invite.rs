//! Who a call reaches: addresses resolved to agents, then capability, then consent. No consent, no delivery.

use std::collections::BTreeMap;

use schemas::control::{ConsentEffect, Registration};
use schemas::ids::Capability;
use schemas::record::{Invitation, Qos};
use schemas::{Address, AgentId, Code, Envelope, Refusal, TopicName};

use super::nobody;
use crate::registry::{AgentTable, GroupTable};

/// Agents considered for one call. A topic or group may have more subscribers than can be invited; this bounds the
/// work before consent is asked.
const CONSIDERED_MAX: usize = 16_384;

/// A call, as far as it decides who is reached.
pub(super) struct Call<'a> {
    pub(super) from: &'a AgentId,
    pub(super) envelope: &'a Envelope,
    pub(super) requires: &'a [Capability],
    /// Most agents that may be invited.
    pub(super) invited_max: usize,
}

/// What became of the addresses.
pub(super) struct Resolved {
    /// The invited, in the order of the agent id.
    pub(super) invited: Result<Vec<Invitation>, Refusal>,
    /// Addressed agents that are not invited, for want of consent or of a common capability.
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
}

/// An agent whose rules say that its owner is to be asked about this call.
pub(super) struct Ask {
    pub(super) agent: AgentId,
    pub(super) topic: Option<TopicName>,
}

/// One addressed agent: allowed by any of the ways it is addressed, with the best quality of service among those.
struct Candidate<'a> {
    registration: &'a Registration,
    allowed: Option<Qos>,
    ask: Option<Option<&'a TopicName>>,
}

/// Resolves the addresses of a call.
pub(super) fn resolve<'a>(agents: &'a AgentTable, groups: &'a GroupTable, call: &Call<'a>) -> Resolved {
    let mut candidates: BTreeMap<&AgentId, Candidate<'_>> = BTreeMap::new();
    for address in &call.envelope.to {
        let fits = match address {
            Address::Agent(agent) => {
                consider(agents, &mut candidates, std::iter::once(agent), call.from, None, Qos::AtLeastOnce)
            }
            Address::Topic(topic) => {
                let subscribers = agents.subscribers(topic);
                consider(agents, &mut candidates, subscribers, call.from, Some(topic), Qos::AtLeastOnce)
            }
            Address::Group(group) => groups.get(group).is_none_or(|group| {
                consider(agents, &mut candidates, group.members.iter(), call.from, None, group.qos)
            }),
        };
        if !fits {
            let invited = Err(too_many(CONSIDERED_MAX));
            return Resolved { invited, left_out: 0, asks: Vec::new(), counted: Counted::default() };
        }
    }
    select(agents, candidates, call)
}

/// Adds agents, and how each consents to being reached this way; false when there are too many.
fn consider<'a>(
    agents: &'a AgentTable,
    candidates: &mut BTreeMap<&'a AgentId, Candidate<'a>>,
    addressed: impl Iterator<Item = &'a AgentId>,
    from: &AgentId,
    topic: Option<&'a TopicName>,
    qos: Qos,
) -> bool {
    for agent in addressed.filter(|agent| *agent != from) {
        let Some(registration) = agents.registration(agent) else { continue };
        let candidate = candidates.entry(agent).or_insert_with(|| Candidate { registration, allowed: None, ask: None });
        match registration.consent.effect(topic, from) {
            ConsentEffect::Allow => {
                let is_better = !matches!(candidate.allowed, Some(Qos::AtLeastOnce));
                candidate.allowed = if is_better { Some(qos) } else { candidate.allowed };
            }
            ConsentEffect::Ask => candidate.ask = candidate.ask.or(Some(topic)),
            ConsentEffect::Deny => {}
        }
        if candidates.len() > CONSIDERED_MAX {
            return false;
        }
    }
    true
}

fn select(agents: &AgentTable, candidates: BTreeMap<&AgentId, Candidate<'_>>, call: &Call<'_>) -> Resolved {
    let considered = candidates.len();
    let mut capable = 0_usize;
    let mut asks = Vec::new();
    let mut invited = Vec::new();
    for (agent, candidate) in candidates {
        if !is_capable(candidate.registration, call) {
            continue;
        }
        capable += 1;
        match (candidate.allowed, candidate.ask) {
            (Some(qos), _) => {
                invited.push(Invitation { agent: agent.clone(), qos, durable: candidate.registration.durable })
            }
            (None, Some(topic)) => asks.push(Ask { agent: agent.clone(), topic: topic.cloned() }),
            (None, None) => {}
        }
    }
    let left_out = u32::try_from(considered - invited.len()).unwrap_or(u32::MAX);
    let counted = Counted {
        invited: invited.len(),
        denied: capable - invited.len() - asks.len(),
        incapable: considered - capable,
    };
    let invited = if considered == 0 {
        Err(nobody::unknown(agents, call))
    } else if capable == 0 {
        Err(nobody::incapable(agents, call))
    } else if invited.is_empty() {
        Err(Refusal::new(Code::NoConsent, "no agent addressed consents to this topic and counterpart")
            .at("/envelope/to"))
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
