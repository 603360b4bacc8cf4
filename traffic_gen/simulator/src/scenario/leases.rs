//! Runs in which agents come and go: leases that end within the run, agents that are away for a while, calls to topic and
//! group all through it. Elsewhere leases last longer than a run, and everybody counts as present.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::Address;

use super::{group, net, topic};
use crate::{Absence, CallPlan, Scenario};

/// One run of so many has them.
const LEASES_ONE_IN: u32 = 4;
/// How long a lease lasts, in milliseconds: less than any agent may ask for, so that several end within a run.
const LEASE_MS: std::ops::Range<u32> = 300..1500;
/// How long an agent is away, in milliseconds.
const AWAY_MS: std::ops::Range<u64> = 300..5000;
/// Calls to topic or group that an initiator makes beside its others.
const CALLS: std::ops::RangeInclusive<u32> = 2..=5;

/// Adds leases, absences and calls. They draw from a generator of their own: other runs stay as they are.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    if rng.random_range(0..LEASES_ONE_IN) > 0 {
        return;
    }
    scenario.are_gateways_spared = rng.random_range(0..2) == 0;
    for plan in &mut scenario.agents {
        plan.registration.lease_ms = rng.random_range(LEASE_MS);
        plan.registration.durable = rng.random_range(0..5) == 0;
        for _ in 0..rng.random_range(0..=2) {
            let from_ms = rng.random_range(100..scenario.troubled_ms);
            plan.absences.push(Absence { from_ms, until_ms: from_ms + rng.random_range(AWAY_MS) });
        }
        if plan.calls.is_empty() {
            continue;
        }
        for n in 0..rng.random_range(CALLS) {
            let to = if rng.random_range(0..4) == 0 { Address::Group(group()) } else { Address::Topic(topic()) };
            let at_ms = rng.random_range(scenario.troubled_ms / 4..scenario.troubled_ms);
            let cfp = net(format!("p{}", rng.random_range(0..2)), Some(rng.random_range(150..1500)));
            let call = CallPlan::new(&plan.id, &format!("l{n}"), at_ms, vec![to], cfp);
            plan.calls.push(CallPlan { invites_absent: rng.random_range(0..5) == 0, ..call });
        }
    }
}
