//! Pins the reputation of each of the invited under a policy that weighs it (docs/spec/panel.md#pn-39): whatever becomes of
//! the evidence, the fold sees what held here.

use policy_core::panel::reputation::{REPUTATION_AVERAGE_PPM, ReputationBasis};
use schemas::policy::ReputationRule;
use schemas::record::Invitation;
use schemas::{AgentId, Policy};

use crate::registry::Tables;

/// Pins what evidence says of the invited to a call of `own`.
pub(super) fn pin(tables: &Tables, own: &AgentId, policy: &Policy, invited: &mut [Invitation]) {
    let Some(ReputationRule { domain, from, min_runs, prior_runs }) = &policy.reputation else { return };
    let basis = ReputationBasis { from, own, min_runs: *min_runs, prior_runs: *prior_runs };
    for invitation in invited {
        let reputation = tables.evidence.reputation(domain, &invitation.agent, basis);
        invitation.reputation = Some(reputation.unwrap_or(REPUTATION_AVERAGE_PPM));
    }
}
