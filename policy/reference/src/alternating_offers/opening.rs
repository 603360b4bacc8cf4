//! The call to a bargain, and who joins.

use schemas::bargain::{BargainSpec as Rules, Mandate};
use schemas::payload::Cfp;
use schemas::policy::{BargainRule, Policy, Timers};
use schemas::record::{AdmittedMessage, Pinned};
use schemas::{AgentId, Timestamp};

use super::{Seat, mandate};
use crate::contract_net::Party;
use crate::contract_net::opening::NotUnderstood;

/// The longest that anything lasts.
pub(crate) const DAY_MS: u64 = 86_400_000;

impl Seat {
    pub(super) fn empty(agent: &AgentId) -> Self {
        Self {
            agent: agent.clone(),
            party: Party::default(),
            has_joined: false,
            has_confirmed: false,
            strikes: 0,
            mandate: None,
            rule: None,
        }
    }
}

/// How a policy accepts under a mandate; an error when the mandate does not fit the bargain, or the pinned policy not it.
pub(crate) fn delegated(
    mandate: Option<&Mandate>,
    rules: &Rules,
    pinned: Option<&Pinned>,
) -> Result<Option<BargainRule>, NotUnderstood> {
    let Some(mandate) = mandate else { return Ok(None) };
    if let Some(pointer) = mandate::fault(mandate, rules) {
        return Err(NotUnderstood { reason: "invalid_mandate", pointer: Some(format!("/payload/mandate{pointer}")) });
    }
    let Some(named) = &mandate.policy else { return Ok(None) };
    let policy = pinned.map(|pinned| &*pinned.policy).filter(|policy| is_named(policy, named));
    match policy.and_then(|policy| policy.bargain.clone()) {
        Some(rule) => Ok(Some(rule)),
        None => Err(NotUnderstood { reason: "invalid_policy", pointer: Some("/payload/mandate/policy".to_owned()) }),
    }
}

fn is_named(policy: &Policy, named: &str) -> bool {
    policy.id == *named || policy.id.split('@').next() == Some(named)
}

/// Not by the pinned policy, which may be sealed in a mandate.
pub(crate) fn join_by(cfp: &Cfp, ttl_ms: Option<u64>, now: Timestamp) -> Option<Timestamp> {
    let join_by = match (cfp.reply_within_ms, cfp.reply_by) {
        (Some(ms), _) => now.plus_ms(ms),
        (None, Some(reply_by)) => reply_by.0,
        (None, None) => now.plus_ms(ttl_ms.unwrap_or(Timers::default().collect)),
    };
    (join_by > now && join_by <= now.plus_ms(DAY_MS)).then_some(join_by)
}

/// Everybody but the caller, once.
pub(crate) fn invited(message: &AdmittedMessage, pinned: &Pinned) -> Vec<AgentId> {
    let mut invited: Vec<AgentId> = pinned.invited.iter().map(|one| one.agent.clone()).collect();
    invited.retain(|agent| *agent != message.from);
    invited.sort();
    invited.dedup();
    invited
}
