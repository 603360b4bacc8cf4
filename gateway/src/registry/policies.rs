//! Policies: the current version of each name, every version, and which one calls that name none get.
//!
//! | key of the bucket | value |
//! |---|---|
//! | `<name>` | the policy that is current under this name |
//! | `<name>~<version>` | that version; never changed once stored |
//! | `~default` | `{"policy": "<name>" or "<name>@<version>"}` |

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use bytes::Bytes;
use schemas::{Digest, Policy};
use serde::Deserialize;

/// Key of the switch. No policy name contains `~`.
pub(crate) const DEFAULT_KEY: &str = "~default";

/// A policy with the digest of its document.
#[derive(Debug, Clone)]
pub(crate) struct PinnedPolicy {
    pub(crate) policy: Arc<Policy>,
    pub(crate) digest: Digest,
}

/// The policies.
#[derive(Default)]
pub(crate) struct PolicyTable {
    by_key: BTreeMap<String, PinnedPolicy>,
    chosen: Option<String>,
    configured: String,
}

#[derive(Deserialize)]
struct DefaultPolicyDocument {
    policy: String,
}

impl PolicyTable {
    pub(crate) fn new(configured: &str) -> Self {
        Self { configured: configured.to_owned(), ..Self::default() }
    }

    /// The policy a call means: `name` for the current version, `name@version` for that one, none for the default.
    pub(crate) fn policy(&self, wanted: Option<&str>) -> Option<&PinnedPolicy> {
        self.by_key.get(&version_key(wanted.unwrap_or(self.default_policy())))
    }

    /// What calls that name no policy get.
    pub(crate) fn default_policy(&self) -> &str {
        self.chosen.as_deref().unwrap_or(&self.configured)
    }

    /// The current version under each name, in the order of the names.
    pub(crate) fn current(&self) -> impl Iterator<Item = &PinnedPolicy> {
        self.by_key.iter().filter(|(key, _)| !key.contains('~')).map(|(_, policy)| policy)
    }

    /// Names around a wanted one in the order of names, at most `limit` on either side.
    pub(crate) fn names_around<'a>(&'a self, wanted: &str, limit: usize) -> impl Iterator<Item = &'a str> {
        let is_name = |key: &&'a String| !key.contains('~');
        let below = self
            .by_key
            .range::<str, _>((Unbounded, Excluded(wanted)))
            .rev()
            .map(|(key, _)| key)
            .filter(is_name)
            .take(limit);
        let above =
            self.by_key.range::<str, _>((Included(wanted), Unbounded)).map(|(key, _)| key).filter(is_name).take(limit);
        below.chain(above).map(String::as_str)
    }

    /// How many names and versions are stored.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// A digest of everything stored and of the default: equal where the same policies are in force.
    pub(crate) fn revision(&self) -> Digest {
        let stored = self.by_key.iter().flat_map(|(key, policy)| [key.as_bytes(), &policy.digest.0]);
        let parts: Vec<&[u8]> = stored.chain([self.default_policy().as_bytes()]).collect();
        Digest::of_parts(&parts)
    }

    pub(super) fn clear(&mut self) {
        self.by_key.clear();
        self.chosen = None;
    }

    pub(super) fn apply(&mut self, key: &str, value: Option<&Bytes>) -> Result<(), serde_json::Error> {
        if key == DEFAULT_KEY {
            self.chosen = value
                .map(|value| serde_json::from_slice::<DefaultPolicyDocument>(value))
                .transpose()?
                .map(|s| s.policy);
            return Ok(());
        }
        match value {
            Some(value) => {
                let policy: Policy = serde_json::from_slice(value)?;
                let digest = policy.digest().map_err(|error| serde::de::Error::custom(error.to_string()))?;
                self.by_key.insert(key.to_owned(), PinnedPolicy { policy: Arc::new(policy), digest });
            }
            None => {
                self.by_key.remove(key);
            }
        }
        Ok(())
    }
}

/// The bucket's key for `name` or `name@version`.
pub(crate) fn version_key(id: &str) -> String {
    id.replacen('@', "~", 1)
}
