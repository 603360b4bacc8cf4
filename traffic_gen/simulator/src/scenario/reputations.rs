//! Policies of a run that weigh what panels have shown: of contract nets, and of the seats of teams.

use std::collections::BTreeSet;

use policy_core::preset;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::evidence::EvidenceSource;
use schemas::policy::{Direction, Policy, ReputationRule, Weight};

use super::{INITIATORS, agent, attr_name, general_domain};
use crate::Scenario;

/// Policies of contract nets that weigh reputation: one in so many.
const OF_NETS_ONE_IN: u32 = 2;
/// Teams under a policy whose policy weighs reputation: one in so many.
const OF_TEAMS_ONE_IN: u32 = 2;
/// The policy of these teams, without its version.
const OF_TEAMS: &str = "reputed-seats";
/// Twice the average, in parts per million: more weighs no more.
const WEIGHED_PPM_MAX: i64 = 2_000_000;

/// Lets policies weigh reputation, and calls under them wait until there may be some. They draw from a generator of their own:
/// other runs stay as they are.
pub(super) fn add(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    // Tasks are called by the exchange, under none of these: a call to a team that names one is refused.
    let calls = scenario.agents.iter().flat_map(|plan| &plan.calls).filter(|call| call.is_of_net());
    let of_nets: BTreeSet<String> = calls.filter_map(|call| call.cfp.policy.clone()).collect();
    for policy in scenario.policies.iter_mut().filter(|policy| of_nets.contains(policy.name())) {
        if rng.random_range(0..OF_NETS_ONE_IN) == 0 {
            weigh(rng, policy);
        }
    }
    let mut of_teams = preset("team-seats").expect("a preset");
    of_teams.id = format!("{OF_TEAMS}@1");
    weigh(rng, &mut of_teams);
    scenario.policies.push(of_teams);
    let weighing: Vec<String> =
        scenario.policies.iter().filter(|policy| policy.reputation.is_some()).map(name).collect();
    let late = scenario.troubled_ms / 2..scenario.troubled_ms * 3 / 4;
    for plan in &mut scenario.agents {
        for call in &mut plan.calls {
            let Some(policy) = &mut call.cfp.policy else { continue };
            if call.cfp.team.is_none() {
                if weighing.contains(policy) {
                    call.at_ms = rng.random_range(late.clone());
                }
            } else if rng.random_range(0..OF_TEAMS_ONE_IN) == 0 {
                OF_TEAMS.clone_into(policy);
                call.at_ms = rng.random_range(late.clone());
            }
        }
    }
}

fn name(policy: &Policy) -> String {
    policy.name().to_owned()
}

/// Half of the greatest weight goes to the reputation.
fn weigh(rng: &mut ChaCha8Rng, policy: &mut Policy) {
    let Some(greatest) = policy.weights.iter_mut().max_by_key(|weight| weight.w) else { return };
    let half = greatest.w / 2;
    greatest.w -= half;
    let attr = attr_name("reputation");
    policy.weights.push(Weight { attr, dir: Direction::Higher, lo: 0, hi: WEIGHED_PPM_MAX, w: half });
    let from = match rng.random_range(0..4) {
        0 => EvidenceSource::All,
        1 => EvidenceSource::Agents(INITIATORS.map(agent).to_vec()),
        _ => EvidenceSource::Own,
    };
    let (min_runs, prior_runs) = (rng.random_range(1..3), rng.random_range(0..3));
    policy.reputation = Some(ReputationRule { domain: general_domain(), from, min_runs, prior_runs });
    debug_assert!(policy_core::check(policy).is_ok(), "only a weight moves");
}
