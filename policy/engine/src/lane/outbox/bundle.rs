//! Puts the deliveries that go out together into as few inbox messages as possible: one JSON array per agent.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use schemas::{AgentId, DeliveryId};

use crate::config::OutboxConfig;

/// One inbox message.
#[derive(Debug, Clone)]
pub(crate) struct Bundle {
    /// Its recipient.
    pub(crate) agent: AgentId,
    /// A JSON array of deliveries.
    pub(crate) payload: Bytes,
    /// Where each delivery's document stands in the payload.
    pub(crate) documents: Vec<(DeliveryId, Range<usize>)>,
}

/// Collects documents by agent, in the order of the first delivery to each.
pub(crate) struct Bundler {
    deliveries_max: usize,
    bytes_max: usize,
    filling: Vec<Filling>,
    filling_by_agent: HashMap<AgentId, usize>,
}

struct Filling {
    agent: AgentId,
    bytes: Vec<u8>,
    documents: Vec<(DeliveryId, Range<usize>)>,
}

impl Bundler {
    pub(crate) fn new(config: &OutboxConfig) -> Self {
        Self {
            deliveries_max: config.bundle_deliveries_max,
            bytes_max: config.bundle_bytes_max,
            filling: Vec::new(),
            filling_by_agent: HashMap::new(),
        }
    }

    /// Adds the document of a delivery.
    pub(crate) fn add(&mut self, id: DeliveryId, to: &AgentId, document: &[u8]) {
        let filling = self.open(to, document.len());
        let start = filling.bytes.len() + 1;
        filling.bytes.push(if filling.documents.is_empty() { b'[' } else { b',' });
        filling.bytes.extend_from_slice(document);
        filling.documents.push((id, start..filling.bytes.len()));
    }

    /// The messages.
    pub(crate) fn finish(self) -> impl Iterator<Item = Bundle> {
        self.filling.into_iter().map(|mut filling| {
            filling.bytes.push(b']');
            Bundle { agent: filling.agent, payload: Bytes::from(filling.bytes), documents: filling.documents }
        })
    }

    /// The agent's present message, or a new one when a document of `more` bytes does not fit.
    fn open(&mut self, agent: &AgentId, more: usize) -> &mut Filling {
        let present = self.filling_by_agent.get(agent).copied().filter(|&index| {
            let filling = &self.filling[index];
            // Beside the document: the comma before it and the bracket at the end.
            filling.documents.len() < self.deliveries_max && filling.bytes.len() + more + 2 <= self.bytes_max
        });
        let index = present.unwrap_or_else(|| {
            self.filling.push(Filling { agent: agent.clone(), bytes: Vec::new(), documents: Vec::new() });
            self.filling_by_agent.insert(agent.clone(), self.filling.len() - 1);
            self.filling.len() - 1
        });
        &mut self.filling[index]
    }
}
