//! Notes which calls an agent's owner should be asked about. Off the hot path, bounded, lossy when overloaded: a lost
//! note is made again by the next call.

use std::sync::Arc;

use bus::Bucket;
use schemas::{AgentId, Refusal, TopicName};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::auth::now_s;
use crate::registry::{ConsentRequest, REQUESTS_PER_AGENT_MAX, Registry, requests_key};

/// Notes waiting to be stored.
const QUEUE_MAX: usize = 1024;

/// Where notes are handed in.
#[derive(Clone)]
pub(crate) struct RequestNotes {
    registry: Arc<Registry>,
    sender: mpsc::Sender<Note>,
}

/// One note on its way to the store.
pub(crate) struct Note {
    agent: AgentId,
    counterpart: AgentId,
    topic: Option<TopicName>,
}

impl RequestNotes {
    /// A place to hand notes in, and where [`drive`] takes them out.
    pub(crate) fn new(registry: Arc<Registry>) -> (Self, mpsc::Receiver<Note>) {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        (Self { registry, sender }, receiver)
    }

    /// Notes that `counterpart` called `agent`, unless that is noted already.
    pub(crate) fn note(&self, agent: AgentId, counterpart: AgentId, topic: Option<TopicName>) {
        let is_noted = self
            .registry
            .read()
            .agents
            .requests(&agent)
            .is_some_and(|requests| requests.iter().any(|request| request.is_about(&counterpart, topic.as_ref())));
        if !is_noted && self.sender.try_send(Note { agent, counterpart, topic }).is_err() {
            tracing::debug!("a consent request was not noted: too many wait to be stored");
        }
    }
}

/// Stores notes until the gateway stops.
pub(crate) async fn drive(registry: Arc<Registry>, mut notes: mpsc::Receiver<Note>, stop: CancellationToken) {
    loop {
        let note = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            note = notes.recv() => note,
        };
        let Some(note) = note else { return };
        if let Err(refusal) = store(&registry, note).await {
            tracing::warn!(code = refusal.code.as_str(), "a consent request could not be stored");
        }
    }
}

async fn store(registry: &Registry, note: Note) -> Result<(), Refusal> {
    let Note { agent, counterpart, topic } = note;
    let present = registry.read().agents.requests(&agent).cloned().unwrap_or_default();
    if present.iter().any(|request| request.is_about(&counterpart, topic.as_ref())) {
        return Ok(());
    }
    let surplus = (present.len() + 1).saturating_sub(REQUESTS_PER_AGENT_MAX);
    let mut requests: Vec<ConsentRequest> = present.iter().skip(surplus).cloned().collect();
    requests.push(ConsentRequest { counterpart, topic, since_s: now_s() });
    let wanted = requests.clone();
    registry
        .put(Bucket::Agents, requests_key(&agent), &requests, |tables| {
            tables.agents.requests(&agent).is_some_and(|seen| **seen == wanted)
        })
        .await
}
