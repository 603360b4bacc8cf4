//! Notes which calls an agent's owner should be asked about. Off the hot path, bounded, lossy when overloaded: a lost
//! note is made again by the next call.

use std::cmp::Reverse;
use std::sync::Arc;

use bus::Bucket;
use schemas::control::{Consent, ConsentEffect};
use schemas::protocols::Protocol;
use schemas::{AgentId, Refusal, TopicName};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Registry;
use crate::auth::now_s;
use crate::until;

/// Notes waiting to be stored.
const QUEUE_MAX: usize = 1024;

/// Where notes are handed in.
#[derive(Clone)]
pub(crate) struct RequestNotes {
    registry: Arc<Registry>,
    sender: mpsc::Sender<Note>,
}

/// One note on its way to the store: the agent, and who called it how.
struct Note {
    agent: AgentId,
    call: NotedCall,
}

/// A call that an agent's owner is to be asked about. Calls that are equal in this are noted once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotedCall {
    /// Who called.
    pub(crate) counterpart: AgentId,
    /// Through which topic, if through one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<TopicName>,
    /// What it would have opened.
    #[serde(default)]
    pub(crate) protocol: Protocol,
}

impl RequestNotes {
    /// A place to hand notes in, and what takes them out.
    pub(crate) fn new(registry: Arc<Registry>) -> (Self, NotedRequests) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Self { registry: registry.clone(), sender }, NotedRequests { registry, receiver })
    }

    /// Notes that `agent` was called, unless that is noted already.
    pub(crate) fn note(&self, agent: AgentId, call: NotedCall) {
        let is_noted = self
            .registry
            .read()
            .agents
            .requests(&agent)
            .is_some_and(|requests| requests.iter().any(|request| request.call == call));
        if !is_noted && self.sender.try_send(Note { agent, call }).is_err() {
            tracing::debug!("a consent request was not noted: too many wait to be stored");
        }
    }
}

/// Notes that were handed in.
pub(crate) struct NotedRequests {
    registry: Arc<Registry>,
    receiver: mpsc::Receiver<Note>,
}

impl NotedRequests {
    /// Stores notes until the gateway stops.
    pub(crate) async fn drive(mut self, stop: CancellationToken) {
        while let Some(Some(note)) = until(&stop, self.receiver.recv()).await {
            if let Err(refusal) = store(&self.registry, note).await {
                tracing::warn!(code = refusal.code.as_str(), "a consent request could not be stored");
            }
        }
    }
}

async fn store(registry: &Registry, note: Note) -> Result<(), Refusal> {
    let Note { agent, call } = note;
    let present = registry.read().agents.requests(&agent).cloned().unwrap_or_default();
    if present.iter().any(|request| request.call == call) {
        return Ok(());
    }
    let mut requests = present.to_vec();
    while requests.len() >= REQUESTS_PER_AGENT_MAX {
        requests.remove(giving_way(&requests, &call.counterpart));
    }
    requests.push(ConsentRequest { call, since_s: now_s() });
    let wanted = requests.clone();
    registry
        .put(Bucket::Agents, requests_key(&agent), &requests, |tables| {
            tables.agents.requests(&agent).is_some_and(|seen| **seen == wanted)
        })
        .await
}

/// The place of the request that gives way to one of this counterpart: the oldest of its own or, where it has none, of whoever
/// has the most. So nobody's calls push out those of many others.
fn giving_way(requests: &[ConsentRequest], counterpart: &AgentId) -> usize {
    let is_of = |request: &ConsentRequest, agent: &AgentId| request.call.counterpart == *agent;
    let own = requests.iter().position(|request| is_of(request, counterpart));
    let count = |of: &ConsentRequest| requests.iter().filter(|request| is_of(request, &of.call.counterpart)).count();
    let most = || (0..requests.len()).max_by_key(|place| (count(&requests[*place]), Reverse(*place)));
    own.or_else(most).unwrap_or_default()
}

/// Requests kept per agent. Repeats of one call count once.
const REQUESTS_PER_AGENT_MAX: usize = 64;
/// Ends the key under which an agent's requests are stored. No agent id contains `~`.
const SUFFIX: &str = "~ask";

/// Somebody called, and the agent's rules say that its owner is to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConsentRequest {
    #[serde(flatten)]
    call: NotedCall,
    /// When it was first noted, in seconds since the epoch, by the clock of the gateway that noted it.
    since_s: u64,
}

impl ConsentRequest {
    /// Whether rules would still ask about this.
    pub(crate) fn is_open(&self, consent: &Consent) -> bool {
        let NotedCall { counterpart, topic, protocol } = &self.call;
        consent.effect(topic.as_ref(), counterpart, *protocol) == ConsentEffect::Ask
    }
}

/// The bucket's key for an agent's requests.
fn requests_key(agent: &AgentId) -> String {
    format!("{agent}{SUFFIX}")
}

/// Whose requests a key holds, if it holds requests.
pub(super) fn owner_of_requests(key: &str) -> Option<AgentId> {
    AgentId::try_new(key.strip_suffix(SUFFIX)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counterparts_own_requests_give_way_first_and_then_those_of_whoever_has_most() {
        let agent = |name: &str| AgentId::try_new(name).unwrap();
        let request = |name: &str| {
            let call = NotedCall { counterpart: agent(name), topic: None, protocol: Protocol::ContractNet };
            ConsentRequest { call, since_s: 0 }
        };
        let requests = ["quiet", "loud", "other", "loud", "loud"].map(request);
        for (counterpart, place) in [("loud", 1), ("other", 2), ("quiet", 0), ("new", 1)] {
            assert_eq!(giving_way(&requests, &agent(counterpart)), place, "{counterpart}");
        }
    }
}
