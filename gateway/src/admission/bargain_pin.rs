//! What a call to a bargain and the mandate of a party must satisfy, and the policy that accepts for it.

use std::sync::Arc;

use schemas::bargain::mandate;
use schemas::bargain::space::{SpaceFault, check_rules};
use schemas::bargain::{Mandate, PARTIES_MAX};
use schemas::payload::Cfp;
use schemas::record::Pinned;
use schemas::{Code, Refusal};

use crate::registry::{PinnedPolicy, PolicyTable};

/// Agents invited to one bargain: the initiator takes part as well.
pub(super) const INVITED_MAX: usize = PARTIES_MAX - 1;

/// Rules that contradict themselves, or a mandate that does not fit them, would open nothing: the fold says so as well, but
/// only after the message is logged.
pub(super) fn check(cfp: &Cfp) -> Result<(), Refusal> {
    let Some(rules) = &cfp.bargain else { return Ok(()) };
    let refuse = |detail, fault: SpaceFault, member: &str| {
        Refusal::new(Code::NotAllowed, detail).expecting(fault.reason).at(fault.under(member).pointer)
    };
    let space = check_rules(rules)
        .map_err(|fault| refuse("the rules of the bargain contradict themselves", fault, "/payload/bargain"))?;
    cfp.mandate.as_deref().map_or(Ok(()), |mandate| {
        mandate::check(mandate, space)
            .map_err(|fault| refuse("the mandate does not fit the bargain", fault, "/payload/mandate"))
    })
}

/// The policy that accepts for a party that joins, where its mandate names one.
pub(super) fn pin_mandate(policies: &PolicyTable, mandate: Option<&Mandate>) -> Result<Option<Arc<Pinned>>, Refusal> {
    let Some(name) = mandate.and_then(|mandate| mandate.policy.as_deref()) else { return Ok(None) };
    policy_of_mandate(policies, name).map(|policy| Some(Arc::new(policy.into())))
}

/// The policy that accepts for whoever names it in its mandate.
pub(super) fn policy_of_mandate<'t>(policies: &'t PolicyTable, name: &str) -> Result<&'t PinnedPolicy, Refusal> {
    let expected = "a policy of GET /v1/policies with a `bargain` section, for example bargain-medium";
    let refuse = |code, detail| Refusal::new(code, detail).at("/payload/mandate/policy").expecting(expected);
    let named = policies
        .policy(Some(name))
        .ok_or_else(|| refuse(Code::UnknownPolicy, "the exchange has no policy of this name"))?;
    if named.policy.bargain.is_none() {
        return Err(refuse(Code::NotAllowed, "the policy has no `bargain` section: it accepts for nobody"));
    }
    Ok(named)
}
