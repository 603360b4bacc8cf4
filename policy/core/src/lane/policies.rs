//! Policies shared between the negotiations that run under them, by digest.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemas::Digest;
use schemas::record::Pinned;

use crate::policy::PinnedPolicy;
use crate::policy::check;

/// The policies in use.
#[derive(Debug, Default)]
pub(super) struct Policies {
    uses_by_digest: BTreeMap<Digest, (Arc<PinnedPolicy>, usize)>,
}

impl Policies {
    /// The shared form of a pinned policy, without counting a use. Absent when the document contradicts itself or is not
    /// the one whose digest is pinned: a gateway must not be able to put another policy under a known digest.
    pub(super) fn share(&self, pinned: &Pinned) -> Option<Arc<PinnedPolicy>> {
        if let Some((known, _)) = self.uses_by_digest.get(&pinned.policy_digest) {
            return (known.policy == *pinned.policy).then(|| Arc::clone(known));
        }
        let digest = pinned.policy.digest().ok()?;
        if digest != pinned.policy_digest || check(&pinned.policy).is_err() {
            return None;
        }
        let id = Arc::from(pinned.policy.id.as_str());
        Some(Arc::new(PinnedPolicy { policy: (*pinned.policy).clone(), digest, id }))
    }

    /// Policies in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.uses_by_digest.len()
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
                self.uses_by_digest.remove(&digest);
            }
        }
    }
}
