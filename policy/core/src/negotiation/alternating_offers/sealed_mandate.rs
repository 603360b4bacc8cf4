//! What a party is bound to: its mandate, and how the policy that the mandate names accepts for it
//! (docs/spec/alternating-offers.md).

use std::collections::VecDeque;
use std::fmt;

use schemas::bargain::space::{OutcomeSpace, SpaceFault};
use schemas::bargain::{Mandate, mandate};
use schemas::policy::{BargainRule, Policy};
use serde::{Deserialize, Serialize};

use crate::negotiation::Refusal;
use crate::negotiation::misunderstanding::NotUnderstoodReason;

/// Moments a policy looks back on, at most; the oldest go first. There is one per round where rounds are counted, so at
/// most a thousand; where only time is, a window of a tenth of the deadline holds as many offers as others may make in it.
const WINDOW_KEPT_MAX: usize = 4096;

/// What a party is bound to. Shown to nobody.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PartyMandate {
    #[serde(with = "schemas::text::json")]
    pub(super) mandate: Box<Mandate>,
    /// How its policy accepts for it.
    #[serde(with = "schemas::text::json")]
    pub(super) rule: Option<BargainRule>,
    /// Its best outcome's utility. Follows from the mandate.
    pub(super) best: u32,
    /// Where `rule` looks back: the best that others offered at each moment, as (relative time, utility), oldest first.
    window: VecDeque<(u32, u32)>,
}

/// Something no `Debug` output may show.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sealed<T>(pub(crate) T);

impl<T> fmt::Debug for Sealed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}

/// A mandate with what follows from it, once it is known to fit; `policy` is what a gateway pinned.
///
/// # Errors
/// When it does not fit the space, or its policy is not the one pinned or accepts for nobody.
pub(super) fn seal(
    mandate: Box<Mandate>,
    space: OutcomeSpace<'_>,
    policy: Option<&Policy>,
) -> Result<Sealed<PartyMandate>, Refusal> {
    let unfit = |fault: SpaceFault| fault.under("/payload/mandate").pointer;
    mandate::check(&mandate, space)
        .map_err(|fault| Refusal::malformed(NotUnderstoodReason::InvalidMandate, unfit(fault)))?;
    let rule = mandate.policy.as_deref().map(|name| rule(name, policy)).transpose()?;
    let best = mandate::best_ppm(&mandate, space).unwrap_or(0);
    Ok(Sealed(PartyMandate { mandate, rule, best, window: VecDeque::new() }))
}

fn rule(name: &str, policy: Option<&Policy>) -> Result<BargainRule, Refusal> {
    let named = policy.filter(|policy| policy.id == name || policy.name() == name);
    let unfit = || Refusal::malformed(NotUnderstoodReason::InvalidPolicy, "/payload/mandate/policy");
    named.and_then(|policy| policy.bargain.clone()).ok_or_else(unfit)
}

impl PartyMandate {
    /// Notes an offer of another party, and forgets those made before `oldest`.
    pub(super) fn note(&mut self, t_ppm: u32, utility: u32, oldest: u32) {
        match self.window.back_mut() {
            Some((t, best)) if *t == t_ppm => *best = utility.max(*best),
            Some(_) | None => self.window.push_back((t_ppm, utility)),
        }
        while self.window.front().is_some_and(|(t, _)| *t < oldest) || self.window.len() > WINDOW_KEPT_MAX {
            self.window.pop_front();
        }
    }

    /// The best of what others offered in `from..to`.
    pub(super) fn best_between(&self, from: u32, to: u32) -> Option<u32> {
        let offered = self.window.iter().filter(|(t, _)| (from..to).contains(t));
        offered.map(|(_, utility)| *utility).max()
    }
}
