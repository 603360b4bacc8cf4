//! Reputation as an attribute of offers (docs/spec/panel.md#pn-39): what the call's record pins, whatever becomes of the
//! evidence later.

use std::borrow::Cow;
use std::sync::LazyLock;

use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::policy::Policy;
use schemas::record::Invitation;
use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use crate::acceptance::gate::GateFault;
use crate::panel::reputation::REPUTATION_AVERAGE_PPM;
use crate::policy::REPUTATION;

/// The attribute's name, which all share.
static ATTRIBUTE: LazyLock<AttrName> =
    LazyLock::new(|| AttrName::try_new(REPUTATION).expect("the name is of letters alone"));

/// The reputations of the invited, by their number; none where the policy does not weigh any.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PinnedReputations(Option<ThinVec<u64>>);

impl PinnedReputations {
    /// What is pinned for the invited, in their order.
    pub(crate) fn of<'i>(policy: &Policy, invited: impl Iterator<Item = &'i Invitation>) -> Self {
        let pinned = |invitation: &Invitation| invitation.reputation.unwrap_or(REPUTATION_AVERAGE_PPM);
        Self(policy.reputation.as_ref().map(|_| invited.map(pinned).collect()))
    }

    /// The reputation of one of the invited, where the policy weighs it.
    pub(crate) fn get(&self, number: usize) -> Option<u64> {
        self.0.as_ref()?.get(number).copied()
    }

    /// The terms of one of the invited as the policy judges them.
    ///
    /// # Errors
    /// [`GateFault::Reserved`] where they name a reputation themselves.
    pub(crate) fn weighed<'t>(
        &self,
        policy: &Policy,
        number: usize,
        terms: &'t Terms,
    ) -> Result<Cow<'t, Terms>, GateFault> {
        if policy.reputation.is_none() {
            return Ok(Cow::Borrowed(terms));
        }
        if terms.keys().any(|attr| attr.as_str() == REPUTATION) {
            return Err(GateFault::Reserved);
        }
        let ppm = self.get(number).unwrap_or(REPUTATION_AVERAGE_PPM);
        let mut weighed = terms.clone();
        weighed.insert(ATTRIBUTE.clone(), AttrValue::Int(i64::try_from(ppm).unwrap_or(i64::MAX)));
        Ok(Cow::Owned(weighed))
    }
}
