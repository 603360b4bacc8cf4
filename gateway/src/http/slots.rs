//! How many streams an agent has open: bounded, so that one agent cannot use up the connections of all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemas::{AgentId, Code, Refusal};

use super::Site;
use crate::metrics::Shed;
use crate::registry::Heard;

/// Open streams, by agent.
#[derive(Clone)]
pub(crate) struct StreamSlots {
    open_by_agent: Arc<Mutex<HashMap<AgentId, usize>>>,
    per_agent_max: usize,
}

/// One open stream; dropping it frees the place.
pub(crate) struct StreamSlot {
    slots: StreamSlots,
    agent: AgentId,
}

impl Site {
    /// Takes a place for one stream of an agent, and counts when there is none.
    ///
    /// # Errors
    /// As [`StreamSlots::take`].
    pub(super) fn take_slot(&self, agent: &AgentId) -> Result<StreamSlot, Refusal> {
        self.registry.hear(agent, Heard::Here);
        self.slots.take(agent).inspect_err(|_| self.metrics.messages.shed(Shed::Streams))
    }
}

impl StreamSlots {
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
    fn take(&self, agent: &AgentId) -> Result<StreamSlot, Refusal> {
        let mut open_by_agent = self.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open_by_agent.entry(agent.clone()).or_insert(0);
        if *open >= self.per_agent_max {
            return Err(Refusal::new(Code::Overloaded, "this agent has too many streams open")
                .expecting(format!("at most {}; close one first", self.per_agent_max))
                .retry_after_ms(1000));
        }
        *open += 1;
        Ok(StreamSlot { slots: self.clone(), agent: agent.clone() })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open_by_agent = self.slots.open_by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open_by_agent.get_mut(&self.agent) {
            *open -= 1;
            if *open == 0 {
                open_by_agent.remove(&self.agent);
            }
        }
    }
}
