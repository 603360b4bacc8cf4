//! Publishing policies: from the configuration at the start, and over HTTP.

use std::time::Duration;

use bus::Bucket;
use schemas::{Code, Policy, Refusal};
use tokio::time::Instant;

use crate::error::GatewayError;
use crate::registry::{Registry, version_key};

/// How long the store may be away while a gateway starts: a cluster that has just started, or lost a server, elects in
/// that time.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach it.
const STORE_PAUSE: Duration = Duration::from_millis(200);

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
/// restart.
///
/// # Errors
/// [`GatewayError::Config`] for a policy that contradicts itself or is not stored.
pub(crate) async fn seed(registry: &Registry, policies: &[Policy]) -> Result<(), GatewayError> {
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
    let are_seen = |tables: &crate::registry::Tables| {
        policies.iter().all(|policy| tables.policies.policy(Some(&policy.id)).is_some())
    };
    registry.until_own_write(are_seen).await.map_err(|refusal| GatewayError::Config(refusal.to_string()))
}

/// Stores a policy under a key that has none, again while the store is away.
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
        let stored: Option<Policy> = stored.and_then(|bytes| serde_json::from_slice(&bytes).ok());
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
