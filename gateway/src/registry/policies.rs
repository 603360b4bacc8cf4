//! Policies: the current version of each name, every version, and which one calls that name none get; and how they are
//! published, from the configuration at the start and over HTTP.
//!
//! | key of the bucket | value |
//! |---|---|
//! | `<name>` | the policy that is current under this name |
//! | `<name>~<version>` | that version; never changed once stored |
//! | `~default` | `{"policy": "<name>" or "<name>@<version>"}` |

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use bus::Bucket;
use bytes::Bytes;
use schemas::record::Pinned;
use schemas::{Code, Digest, Policy, Refusal};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Registry, Tables};
use crate::config::GatewayConfig;
use crate::error::{ConfigFault, GatewayError};
use crate::problem::{AROUND_MAX, nearest};

/// Key of the switch. No policy name contains `~`.
pub(crate) const DEFAULT_KEY: &str = "~default";

/// A policy with the digest of its document.
#[derive(Debug, Clone)]
pub(crate) struct PinnedPolicy {
    pub(crate) policy: Arc<Policy>,
    pub(crate) digest: Digest,
}

impl From<&PinnedPolicy> for Pinned {
    /// What a message is pinned to that invites nobody.
    fn from(PinnedPolicy { policy, digest }: &PinnedPolicy) -> Self {
        let (policy, invited) = (Arc::clone(policy), Vec::new());
        Self { policy, policy_digest: *digest, invited, left_out: 0, task_policy: None, panel: None }
    }
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

    /// The policy called so.
    ///
    /// # Errors
    /// [`Code::UnknownPolicy`].
    pub(crate) fn known(&self, wanted: &str) -> Result<&PinnedPolicy, Refusal> {
        self.policy(Some(wanted)).ok_or_else(|| unknown(self, wanted))
    }

    /// The policy called so, under which offers are called for.
    ///
    /// # Errors
    /// [`Code::UnknownPolicy`], [`Code::NotAllowed`] where it scores no offers.
    pub(crate) fn for_offers(&self, wanted: &str) -> Result<&PinnedPolicy, Refusal> {
        let named = self.known(wanted)?;
        if scores_offers(&named.policy) {
            return Ok(named);
        }
        Err(Refusal::new(Code::NotAllowed, "the policy scores no offers: it only accepts for parties of bargains")
            .expecting("a policy with `weights`"))
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
    fn names_around<'a>(&'a self, wanted: &str, limit: usize) -> impl Iterator<Item = &'a str> {
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
                let policy = Policy::decode(value)?;
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
fn version_key(id: &str) -> String {
    id.replacen('@', "~", 1)
}

/// How long the store may be away while a gateway starts: a cluster that has just started, or lost a server, elects in
/// that time.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach it.
const STORE_PAUSE: Duration = Duration::from_millis(200);
/// Names that a start refused for its default policy lists.
const LISTED_MAX: usize = 16;

/// Refuses a policy that contradicts itself.
///
/// # Errors
/// [`Code::InvalidPolicy`].
pub(crate) fn check_consistency(policy: &Policy) -> Result<(), Refusal> {
    policy_core::check(policy).map_err(|fault| Refusal::new(Code::InvalidPolicy, fault.detail).at(fault.pointer))
}

/// Whether a policy can run a contract net. One without weights has nothing but a `bargain` section.
pub(crate) fn scores_offers(policy: &Policy) -> bool {
    !policy.weights.is_empty()
}

/// Stores the policies of the configuration, unless the exchange has them: what was put later is not undone by a
/// restart. The default must then be one that calls can run under.
///
/// # Errors
/// [`GatewayError::Config`] for a policy that contradicts itself or is not stored; [`GatewayError::Setting`] for the default.
pub(crate) async fn seed(registry: &Registry, config: &GatewayConfig) -> Result<(), GatewayError> {
    let policies = &config.policies;
    let unusable =
        |policy: &Policy, refusal: Refusal| GatewayError::Config(format!("policy `{}`: {refusal}", policy.id));
    let deadline = Instant::now() + STORE_PATIENCE;
    for policy in policies {
        check_consistency(policy).map_err(|refusal| unusable(policy, refusal))?;
        for key in [version_key(&policy.id), policy.name().to_owned()] {
            let created = create_until(registry, &key, policy, deadline).await;
            created.map_err(|refusal| unusable(policy, refusal))?;
        }
    }
    let are_seen = |tables: &Tables| {
        let is_seen = |name: &str| tables.policies.policy(Some(name)).is_some();
        policies.iter().all(|policy| is_seen(&policy.id) && is_seen(policy.name()))
    };
    registry.until_own_write(are_seen).await.map_err(|refusal| GatewayError::Config(refusal.to_string()))?;
    check_default(registry, &config.default_policy)
}

/// Refuses a default policy that no call could run under, stored policies included. A policy that is put later does not
/// help: until then every call that names none would be refused, for a member it has not set.
///
/// # Errors
/// [`GatewayError::Setting`] with the names there are.
fn check_default(registry: &Registry, configured: &str) -> Result<(), GatewayError> {
    let refused = |expected| Err(GatewayError::Setting(ConfigFault { member: "default_policy", expected }));
    let tables = registry.read();
    match tables.policies.policy(Some(configured)) {
        Some(known) if scores_offers(&known.policy) => Ok(()),
        Some(_) => refused(format!("`{configured}` scores no offers: it only accepts for parties of bargains")),
        None => {
            let unknown = unknown(&tables.policies, configured);
            let names: Vec<&str> = tables.policies.current().map(|known| known.policy.name()).collect();
            let beyond = names.len().saturating_sub(LISTED_MAX);
            let beyond = if beyond > 0 { format!(" and {beyond} more") } else { String::new() };
            let listed = names.into_iter().take(LISTED_MAX).collect::<Vec<_>>().join(", ");
            let expected = unknown.expected.unwrap_or_default();
            refused(format!(
                "the exchange has no policy `{configured}`; expected: {expected}; there are {listed}{beyond}"
            ))
        }
    }
}

/// The exchange has no policy that is called so. What was wanted may be any text, and is not repeated.
fn unknown(policies: &PolicyTable, wanted: &str) -> Refusal {
    let names = nearest(wanted, policies.names_around(wanted, AROUND_MAX));
    let near = if names.is_empty() { String::new() } else { format!("; nearest to that: {}", names.join(", ")) };
    Refusal::new(Code::UnknownPolicy, "the exchange has no policy of this name")
        .expecting(format!("a name or name@version of GET /v1/policies{near}"))
}

/// Creates a policy under an unused key, and retries until `deadline` while the store is unavailable.
async fn create_until(registry: &Registry, key: &str, policy: &Policy, deadline: Instant) -> Result<bool, Refusal> {
    loop {
        match registry.create(Bucket::Policies, key.to_owned(), policy).await {
            Err(refusal) if refusal.code == Code::Unavailable && Instant::now() < deadline => {
                tokio::time::sleep(STORE_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Stores a version, once and for all, and makes it the current one of its name.
///
/// # Errors
/// [`Code::Conflict`] when this version stands with another document.
pub(crate) async fn publish(registry: &Registry, policy: &Policy) -> Result<(), Refusal> {
    let key = version_key(&policy.id);
    if !registry.create(Bucket::Policies, key.clone(), policy).await? {
        let stored = registry.stored(Bucket::Policies, key).await?;
        let stored = stored.and_then(|bytes| Policy::decode(&bytes).ok());
        if stored.as_ref() != Some(policy) {
            return Err(Refusal::new(Code::Conflict, "this version stands already with another document")
                .at("/id")
                .expecting("a new version"));
        }
    }
    registry
        .put(Bucket::Policies, policy.name().to_owned(), policy, |tables| {
            let is = |id: &str| tables.policies.policy(Some(id)).is_some_and(|seen| *seen.policy == *policy);
            is(policy.name()) && is(&policy.id)
        })
        .await
}
