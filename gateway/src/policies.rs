//! Publishing policies: from the configuration at the start, and over HTTP.

use bus::Bucket;
use schemas::{Code, Policy, Refusal};

use crate::error::GatewayError;
use crate::registry::{Registry, version_key};

/// Refuses a policy that contradicts itself.
///
/// # Errors
/// [`Code::InvalidPolicy`].
pub(crate) fn check_consistency(policy: &Policy) -> Result<(), Refusal> {
    policy_core::check(policy).map_err(|fault| Refusal::new(Code::InvalidPolicy, fault.detail).at(fault.pointer))
}

/// Stores the policies of the configuration, unless the exchange has them: what was put later is not undone by a
/// restart.
///
/// # Errors
/// [`GatewayError::Config`] for a policy that contradicts itself or is not stored.
pub(crate) async fn seed(registry: &Registry, policies: &[Policy]) -> Result<(), GatewayError> {
    let unusable =
        |policy: &Policy, refusal: Refusal| GatewayError::Config(format!("policy `{}`: {refusal}", policy.id));
    for policy in policies {
        check_consistency(policy).map_err(|refusal| unusable(policy, refusal))?;
        for key in [version_key(&policy.id), policy.name().to_owned()] {
            let created = registry.create(Bucket::Policies, key, policy).await;
            created.map_err(|refusal| unusable(policy, refusal))?;
        }
    }
    let are_seen = |tables: &crate::registry::Tables| {
        policies.iter().all(|policy| tables.policies.policy(Some(&policy.id)).is_some())
    };
    registry.until_own_write(are_seen).await.map_err(|refusal| GatewayError::Config(refusal.to_string()))
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
