//! Notes which calls an agent's owner should be asked about. Off the hot path, bounded, lossy when overloaded: a lost
//! note is made again by the next call.

use std::sync::Arc;

use bus::Bucket;
use schemas::control::{CallProtocol, Consent, ConsentEffect};
use schemas::{AgentId, Refusal, TopicName};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Registry;
use crate::auth::now_s;

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<TopicName>,
    /// What it would have opened.
    #[serde(default)]
    pub(crate) protocol: CallProtocol,
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
        loop {
            let note = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                note = self.receiver.recv() => note,
            };
            let Some(note) = note else { return };
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
    let surplus = (present.len() + 1).saturating_sub(REQUESTS_PER_AGENT_MAX);
    let mut requests: Vec<ConsentRequest> = present.iter().skip(surplus).cloned().collect();
    requests.push(ConsentRequest { call, since_s: now_s() });
    let wanted = requests.clone();
    registry
        .put(Bucket::Agents, requests_key(&agent), &requests, |tables| {
            tables.agents.requests(&agent).is_some_and(|seen| **seen == wanted)
        })
        .await
}

/// Requests kept per agent; the oldest make room. Repeats of one call count once.
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
