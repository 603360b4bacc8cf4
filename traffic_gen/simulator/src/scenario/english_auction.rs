//! The English auctions of a run: few steps and short times, so that they end in every way there is.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::Address;
use schemas::english_auction::{AuctionRules, AuctionSpec, Extension, PriceDirection, Step};
use schemas::payload::Cfp;

use super::{CONTRACTORS, agent};
use crate::{CallPlan, Scenario};

/// Auctions that one initiator calls to, at most.
const AUCTIONS_MAX: u32 = 2;

/// Adds the auctions. They draw from a generator of their own: everything else stays as it is without them.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let contractors = scenario.agents.iter().filter(|plan| CONTRACTORS.contains(&plan.id.as_str())).count();
    for plan in scenario.agents.iter_mut().filter(|plan| !plan.calls.is_empty()) {
        for n in 0..rng.random_range(0..=AUCTIONS_MAX) {
            let first = rng.random_range(0..contractors);
            let count = rng.random_range(1..=contractors);
            let invited = (0..count).map(|n| agent(CONTRACTORS[(first + n) % contractors]));
            let at_ms = rng.random_range(100..scenario.troubled_ms * 3 / 4);
            let policy = if rng.random_range(0..4) == 0 { "p0" } else { "medium" };
            let cfp = Cfp {
                task: Some("a parcel, to whoever bids most".to_owned()),
                policy: Some(policy.to_owned()),
                reply_within_ms: Some(rng.random_range(200..1500)),
                auction: Some(Box::new(spec(rng))),
                ..Cfp::default()
            };
            let to = invited.map(Address::Agent).collect();
            plan.calls.push(CallPlan::new(&plan.id, &format!("a{n}"), at_ms, to, cfp));
        }
    }
}

fn spec(rng: &mut ChaCha8Rng) -> AuctionSpec {
    let direction = if rng.random() { PriceDirection::Ascending } else { PriceDirection::Descending };
    let start = rng.random_range(0..20) * 50;
    let step =
        if rng.random() { Step::Fixed(rng.random_range(1..80)) } else { Step::Permille(rng.random_range(1..200)) };
    let quiet_ms = (rng.random_range(0..2) == 0).then(|| rng.random_range(100..600));
    let extend = (rng.random_range(0..2) == 0)
        .then(|| Extension { ms: rng.random_range(50..500), latest_within_ms: rng.random_range(1500..2500) });
    let reserve = (rng.random_range(0..3) == 0).then(|| rng.random_range(0..1500));
    AuctionSpec { rules: AuctionRules { direction, start, step, quiet_ms, extend }, reserve }
}
