//! Agent names shared between negotiations: a name that takes part in a thousand of them is stored once.

use std::collections::BTreeSet;

use schemas::AgentId;

/// The shared names; bounded, never shrinking.
#[derive(Debug)]
pub(super) struct Names {
    names: BTreeSet<AgentId>,
    max: usize,
}

impl Names {
    pub(super) fn new(max: usize) -> Self {
        Self { names: BTreeSet::new(), max }
    }

    /// Shares these names, as many as may be.
    pub(super) fn of(names: Vec<AgentId>, max: usize) -> Self {
        Self { names: names.into_iter().take(max).collect(), max }
    }

    /// The shared form of a name, or the name itself when no more can be shared.
    pub(super) fn share(&mut self, name: &AgentId) -> AgentId {
        if let Some(shared) = self.names.get(name) {
            return shared.clone();
        }
        if self.names.len() < self.max {
            self.names.insert(name.clone());
        }
        name.clone()
    }
}
