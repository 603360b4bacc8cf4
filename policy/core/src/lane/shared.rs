//! What the negotiations of a lane share: a name or a policy that a thousand of them have is stored once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemas::{AgentId, Digest, Policy};

use crate::policy::PinnedPolicy;

/// Names of agents; bounded, never shrinking.
#[derive(Debug)]
pub(super) struct Names {
    names: BTreeSet<AgentId>,
    max: usize,
}

impl Names {
    pub(super) fn new(max: usize) -> Self {
        Self { names: BTreeSet::new(), max }
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

/// The policies in use.
#[derive(Debug, Default)]
pub(super) struct Policies {
    uses_by_digest: BTreeMap<Digest, (Arc<PinnedPolicy>, usize)>,
    /// The last that fell out of use: the next call nearly always has it again, and its digest takes longer than a fold.
    last_released: Option<Arc<PinnedPolicy>>,
}

impl Policies {
    /// The shared form of a pinned policy, without counting a use. Absent when the document contradicts itself or is not
    /// the one whose digest is pinned: a gateway must not be able to put another policy under a known digest.
    pub(super) fn share(&self, policy: &Policy, digest: Digest) -> Option<Arc<PinnedPolicy>> {
        let in_use = self.uses_by_digest.get(&digest).map(|(known, _)| known);
        let released = || self.last_released.as_ref().filter(|known| known.digest == digest);
        if let Some(known) = in_use.or_else(released) {
            return (known.policy == *policy).then(|| Arc::clone(known));
        }
        if policy.digest().ok()? != digest {
            return None;
        }
        PinnedPolicy::try_new(policy.clone(), digest)
    }

    /// The policies in use, in the order of their digests.
    pub(super) fn in_use(&self) -> impl ExactSizeIterator<Item = &Arc<PinnedPolicy>> {
        self.uses_by_digest.values().map(|(policy, _)| policy)
    }

    /// Counts a negotiation that runs under the policy.
    pub(super) fn retain(&mut self, policy: &Arc<PinnedPolicy>) {
        self.uses_by_digest.entry(policy.digest).or_insert_with(|| (Arc::clone(policy), 0)).1 += 1;
    }

    /// A negotiation that ran under the policy has ended.
    pub(super) fn release(&mut self, digest: Digest) {
        if let Some((_, uses)) = self.uses_by_digest.get_mut(&digest) {
            *uses -= 1;
            if *uses == 0 {
                self.last_released = self.uses_by_digest.remove(&digest).map(|(policy, _)| policy);
            }
        }
    }
}
