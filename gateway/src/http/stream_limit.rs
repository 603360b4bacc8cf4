//! The streams an agent has open: bounded in number, so that one agent cannot use up the connections of all, and ended together
//! when an administrator says so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemas::{AgentId, Code, Refusal};
use tokio_util::sync::CancellationToken;

use super::Site;
use crate::metrics::Shed;
use crate::registry::PresenceSignal;

/// Open streams, by agent.
#[derive(Clone)]
pub(crate) struct StreamLimit {
    open_by_agent: Arc<Mutex<HashMap<AgentId, OpenStreams>>>,
    per_agent_max: usize,
}

/// The open streams of one agent.
#[derive(Default)]
struct OpenStreams {
    count: usize,
    /// Cancelled when those that are open now are to end; later ones have another.
    ended: CancellationToken,
}

/// One open stream; dropping it frees the place.
pub(crate) struct StreamPermit {
    stream_limit: StreamLimit,
    agent: AgentId,
    ended: CancellationToken,
}

impl StreamPermit {
    /// Cancelled when an administrator ends the agent's streams.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }
}

impl Site {
    /// Takes a place for one stream of an agent, and counts when there is none.
    ///
    /// # Errors
    /// As [`StreamLimit::take`].
    pub(super) fn open_stream(&self, agent: &AgentId) -> Result<StreamPermit, Refusal> {
        self.registry.note_presence(agent, PresenceSignal::Here);
        self.stream_limit.take(agent).inspect_err(|_| self.metrics.messages.shed(Shed::Streams))
    }
}

impl StreamLimit {
    pub(crate) fn new(per_agent_max: usize) -> Self {
        Self { open_by_agent: Arc::default(), per_agent_max }
    }

    /// The agents that have a stream open.
    pub(crate) fn open(&self) -> Vec<AgentId> {
        self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// How many agents have a stream open.
    pub(crate) fn agents(&self) -> usize {
        self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes a place for one stream.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when the agent has as many as it may.
    fn take(&self, agent: &AgentId) -> Result<StreamPermit, Refusal> {
        let mut open_by_agent = self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open_by_agent.entry(agent.clone()).or_default();
        if open.count >= self.per_agent_max {
            return Err(Refusal::new(Code::Overloaded, "this agent has too many streams open")
                .expecting(format!("at most {}; close one first", self.per_agent_max))
                .retry_after_ms(1000));
        }
        open.count += 1;
        Ok(StreamPermit { stream_limit: self.clone(), agent: agent.clone(), ended: open.ended.clone() })
    }

    /// Ends the streams an agent has open; the agent may open others.
    pub(crate) fn end(&self, agent: &AgentId) {
        let mut open_by_agent = self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open_by_agent.get_mut(agent) {
            std::mem::take(&mut open.ended).cancel();
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open_by_agent = self.stream_limit.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open_by_agent.get_mut(&self.agent) {
            open.count -= 1;
            if open.count == 0 {
                open_by_agent.remove(&self.agent);
            }
        }
    }
}
