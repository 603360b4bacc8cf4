//! What a message is pinned to before it is logged: a call to its policy and to who is invited, the mandate of a party of
//! a bargain to the policy that accepts for it. Whatever changes later, the fold sees what held here.

use std::sync::Arc;

use policy_core::panel::reputation::{REPUTATION_AVERAGE_PPM, ReputationBasis};
use schemas::envelope::RECIPIENTS_MAX;
use schemas::ids::Capability;
use schemas::payload::Cfp;
use schemas::policy::{Gate, ReputationRule};
use schemas::protocols::Protocol;
use schemas::record::{Invitation, Pinned};
use schemas::validate::Checked;
use schemas::{AgentId, Code, Envelope, NegotiationId, Payload, Policy, Refusal};

use super::invite::{self, Resolved};
use super::panel_pin;
use super::team_pin;
use super::{bargain_pin, english_auction};
use crate::metrics::GatewayMetrics;
use crate::registry::{PinnedPolicy, PolicyTable, Registry, RequestNotes, Tables};

/// Agents invited to one call: what a record of the log holds beside the message.
const INVITED_MAX: usize = RECIPIENTS_MAX;
/// What a message is pinned to; most acts to nothing.
pub(super) fn pin(
    registry: &Registry,
    notes: &RequestNotes,
    metrics: &GatewayMetrics,
    (agent, negotiation): (&AgentId, &NegotiationId),
    checked: &Checked,
) -> Result<Option<Arc<Pinned>>, Refusal> {
    if let Payload::Cfp(cfp) = &checked.message.payload {
        let task_policy = team_pin::task_policy(&registry.read().policies, cfp)?;
        let (PinnedPolicy { policy, digest }, resolved) = resolve(registry, agent, &checked.message.envelope, cfp)?;
        let (mut invited, left_out) = resolved.settle(agent, notes, metrics)?;
        let tables = registry.read();
        let panel = if let Some(rules) = cfp.panel.as_deref() {
            panel_pin::pin_reputations(&tables, agent, &checked.message.envelope, rules, &mut invited);
            panel_pin::check_seats(rules, negotiation, &invited)?;
            Some(Box::new(panel_pin::pin(&tables, agent, rules, &invited)?))
        } else {
            pin_reputations(&tables, agent, &policy, &mut invited);
            None
        };
        Ok(Some(Arc::new(Pinned { policy, policy_digest: digest, invited, left_out, task_policy, panel })))
    } else if let Payload::Join(join) = &checked.message.payload {
        bargain_pin::pin_mandate(&registry.read().policies, join.mandate.as_deref())
    } else if let Payload::Answer(answer) = &checked.message.payload {
        panel_pin::check_answer(answer).map(|()| None)
    } else if let Payload::Assign(assign) = &checked.message.payload {
        team_pin::pin_assigned(&registry.read().policies, assign.policy.as_deref())
    } else {
        Ok(None)
    }
}

/// The policy a call runs under, and whom it reaches.
fn resolve(
    registry: &Registry,
    agent: &AgentId,
    envelope: &Envelope,
    cfp: &Cfp,
) -> Result<(PinnedPolicy, Resolved), Refusal> {
    bargain_pin::check(cfp)?;
    cfp.panel.as_deref().map_or(Ok(()), panel_pin::check)?;
    let tables = registry.read();
    let policy = with_gates(policy_of_call(&tables.policies, cfp)?, &cfp.gates)?;
    english_auction::check(cfp, envelope.scope.as_ref(), &policy.policy)?;
    let protocol = Protocol::of_call(cfp);
    let invited_max = match protocol {
        Protocol::ContractNet => INVITED_MAX,
        Protocol::AlternatingOffers => bargain_pin::INVITED_MAX,
        Protocol::Panel => cfp.panel.as_deref().map_or(0, panel_pin::invited_max),
        Protocol::Team => schemas::team::INVITED_MAX,
        Protocol::EnglishAuction => english_auction::INVITED_MAX,
    };
    let opened = (protocol, invited_max);
    let reached = invite::resolve(&tables, registry.now_ms(), (agent, envelope), &cfp.requires, opened);
    Ok((policy, reached))
}

/// The policy a call runs under; of a bargain, the one that accepts for the initiator, and otherwise the default, which
/// gives it the time to join.
fn policy_of_call<'t>(policies: &'t PolicyTable, cfp: &Cfp) -> Result<&'t PinnedPolicy, Refusal> {
    if let Some(name) = cfp.mandate.as_deref().and_then(|mandate| mandate.policy.as_deref()) {
        return bargain_pin::policy_of_mandate(policies, name);
    }
    let name = cfp.policy.as_deref().unwrap_or(policies.default_policy());
    let named = if cfp.bargain.is_some() { policies.known(name) } else { policies.for_offers(name) };
    named.map_err(|refusal| refusal.at("/payload/policy"))
}

/// Pins what evidence says of each of the invited to a call of `from`, under a policy that weighs it
/// (docs/spec/panel.md#pn-39): whatever becomes of the evidence, the fold sees what held here.
fn pin_reputations(tables: &Tables, from: &AgentId, policy: &Policy, invited: &mut [Invitation]) {
    let Some(rule) = &policy.reputation else { return };
    let ReputationRule { domain, from: source, min_runs, prior_runs } = rule;
    let basis = ReputationBasis { from: source, own: from, min_runs: *min_runs, prior_runs: *prior_runs };
    for invitation in invited {
        let reputation = tables.evidence.reputation(domain, &invitation.agent, basis);
        invitation.reputation = Some(reputation.unwrap_or(REPUTATION_AVERAGE_PPM));
    }
}

/// A policy with the gates a call adds. It keeps the id it is stored under; its digest is that of the document pinned, so
/// that nobody takes it for the stored one.
fn with_gates(named: &PinnedPolicy, gates: &[Gate]) -> Result<PinnedPolicy, Refusal> {
    if gates.is_empty() {
        return Ok(named.clone());
    }
    let mut policy = Policy::clone(&named.policy);
    policy.gates.extend_from_slice(gates);
    let refuse = |detail: String| {
        let detail = format!("the policy does not take these gates: {detail}");
        Refusal::new(Code::InvalidPolicy, detail)
            .at("/payload/gates")
            .expecting("gates that contradict neither each other nor the policy")
    };
    policy_core::check(&policy).map_err(|fault| refuse(fault.detail))?;
    let digest = policy.digest().map_err(|error| refuse(error.to_string()))?;
    Ok(PinnedPolicy { policy: Arc::new(policy), digest })
}

/// What the fold is to know of the sender of a call to a team or of a JOIN: its capabilities, as it has registered them.
pub(super) fn capabilities_of(registry: &Registry, agent: &AgentId, checked: &Checked) -> Vec<Capability> {
    let payload = &checked.message.payload;
    let is_told = matches!(payload, Payload::Cfp(cfp) if cfp.team.is_some())
        || matches!(payload, Payload::Join(join) if join.mandate.is_none());
    let tables = registry.read();
    let registration = is_told.then(|| tables.agents.registration(agent)).flatten();
    registration.map(|registration| registration.capabilities.clone()).unwrap_or_default()
}
