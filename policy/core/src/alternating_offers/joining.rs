//! JOINING: the invited take part, or not (docs/spec/alternating-offers.md#ao-12).

use schemas::bargain::{BargainRule, Mandate};
use schemas::delivery::Outcome;
use schemas::policy::Policy;

use super::ending::NOT_JOINED;
use super::mandate;
use super::opening::{Unfit, ends_by};
use super::space::{OutcomeSpace, SpaceFault};
use super::state::{Bargain, Pledge, Sealed};
use crate::negotiation::context::InputContext;
use crate::negotiation::phase::{NotUnderstoodReason, Phase};

/// A mandate with what follows from it, once it is known to fit; `policy` is what a gateway pinned.
///
/// # Errors
/// [`Unfit`] when it does not fit the space, or its policy is not the one pinned or accepts for nobody.
pub(super) fn pledge(
    mandate: Box<Mandate>,
    space: OutcomeSpace<'_>,
    policy: Option<&Policy>,
) -> Result<Sealed<Pledge>, Unfit> {
    mandate::check(&mandate, space)
        .map_err(|fault| Unfit::at(NotUnderstoodReason::InvalidMandate, fault, "/payload/mandate"))?;
    let rule = mandate.policy.as_deref().map(|name| rule(name, policy)).transpose()?;
    let best = mandate::best_ppm(&mandate, space).unwrap_or(0);
    Ok(Sealed(Pledge { mandate, rule, best, window: std::collections::VecDeque::new() }))
}

fn rule(name: &str, policy: Option<&Policy>) -> Result<BargainRule, Unfit> {
    let named = policy.filter(|policy| policy.id == name || policy.name() == name);
    let unfit = || {
        Unfit::at(
            NotUnderstoodReason::InvalidPolicy,
            SpaceFault::at("", "accepts for nobody"),
            "/payload/mandate/policy",
        )
    };
    named.and_then(|policy| policy.bargain.clone()).ok_or_else(unfit)
}

impl Bargain {
    /// An invited party takes part. Once all do, the first turn begins.
    pub(super) fn join(&mut self, index: usize, pledge: Option<Sealed<Pledge>>, context: &mut InputContext<'_>) {
        let party = &mut self.parties[index];
        (party.has_joined, party.pledge) = (true, pledge);
        if self.parties.iter().all(|party| party.has_joined) {
            self.began_at = context.clock;
            self.header.ends_by = self.header.ends_by.min(ends_by(&self.rules, self.parties.len(), context.clock));
            self.enter(Phase::Bargaining, context);
            self.begin_turn(context);
            self.tell_turn(Some(index), context);
        }
    }

    /// `join_by`: somebody is missing.
    pub(super) fn handle_join_timeout(&mut self, context: &mut InputContext<'_>) {
        self.end(Outcome::NoAgreement, Some(NOT_JOINED), context);
    }
}
