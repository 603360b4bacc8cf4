//! The theme of some runs: one agent calls for more than the exchange can do, another calls little, and nothing goes wrong but that
//! one part of the exchange takes its time for each thing it does.

use policy_core::Limits;
use policy_engine::{BatchConfig, CheckpointConfig, OutboxConfig, Trim};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::Address;
use schemas::control::ConsentEffect;

use super::{INITIATORS, Upgrades, agent, net, plan};
use crate::faults::{AgentFault, AgentFaults};
use crate::{AgentPlan, CallPlan, Scenario};

/// Runs with this theme: one in so many.
const FLOODED_ONE_IN: u32 = 200;
/// When calls begin, in milliseconds since the run began: the engine owns its lane by then.
const BEGIN_MS: u64 = 1_500;
/// For how long calls are made, in milliseconds.
const CALLING_MS: u64 = 3_000;
/// Between two calls of who calls too much, and of who calls little, in milliseconds.
const GAPS_MS: [u64; 2] = [1, 150];
/// How long a part takes for one record, one entry of the register, or one message, in microseconds, by
/// [`PacedPart`](crate::world::PacedPart): a tenth of what is called for, about, can be done.
const PACES_US: [u64; 3] = [3_000, 4_000, 2_000];
/// The collection deadline of calls, in milliseconds.
const REPLY_WITHIN_MS: u64 = 5_000;
/// Calls that are sent again though they were answered, in per mille.
const REPEATED: u32 = 100;

/// Gives some runs the theme. Draws from a generator of its own: other runs stay as they are.
pub(super) fn apply(scenario: &mut Scenario, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    if rng.random_range(0..FLOODED_ONE_IN) > 0 {
        return;
    }
    let slow = rng.random_range(0..PACES_US.len());
    let mut paces = [0; PACES_US.len()];
    paces[slow] = PACES_US[slow];
    let settings = &mut scenario.settings;
    settings.limits = Limits::default();
    settings.outbox = OutboxConfig::default();
    settings.batch = BatchConfig { records_max: 1, ..BatchConfig::default() };
    settings.checkpoint = CheckpointConfig { every_records: 0, every_ms: 0 };
    (settings.trim, settings.register_keep_ms, scenario.append_ms) = (Trim::Never, 0, 3_000);
    (scenario.lanes, scenario.engines, scenario.gateways) = (1, 1, 1);
    scenario.is_usurped = false;
    scenario.upgrades = Upgrades::default();
    scenario.troubled_ms = BEGIN_MS + CALLING_MS;
    let contractors: Vec<Address> = scenario.group.members.iter().cloned().map(Address::Agent).collect();
    scenario.agents.retain(|plan| scenario.group.members.contains(&plan.id));
    for contractor in &mut scenario.agents {
        contractor.absences.clear();
    }
    for (name, gap_ms) in INITIATORS.into_iter().zip(GAPS_MS) {
        let id = agent(name);
        let calls = (0..CALLING_MS / gap_ms).map(|number| {
            let to = contractors[usize::try_from(number).unwrap_or(0) % contractors.len()].clone();
            let (at_ms, cfp) = (BEGIN_MS + number * gap_ms, net("high".to_owned(), Some(REPLY_WITHIN_MS)));
            CallPlan { invites_absent: true, ..CallPlan::new(&id, &format!("n{number}"), at_ms, vec![to], cfp) }
        });
        let calls = calls.collect();
        scenario.agents.push(plan(rng, &id, calls));
    }
    for AgentPlan { faults, registration, .. } in &mut scenario.agents {
        *faults = AgentFaults::only(AgentFault::Repeat, REPEATED);
        registration.consent.default = ConsentEffect::Allow;
    }
    scenario.paces = Some(paces);
}
