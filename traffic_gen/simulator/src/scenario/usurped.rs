//! The theme of some runs: engines stand still just long enough to lose their lanes, while calls to an unreachable agent are about
//! to be given up. Without it an old owner hardly ever gives up a call before the new one does.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemas::policy::Close;

use crate::Scenario;
use crate::faults::{AgentFaults, ProcessFault, SingleFault};

/// Runs with this theme: one in so many.
pub(super) const USURPED_ONE_IN: u32 = 8;
/// Times engines stand still in such a run, at most.
const STALLS_MAX: u32 = 12;

/// Gives the run the theme.
pub(super) fn apply(scenario: &mut Scenario, rng: &mut ChaCha8Rng) {
    scenario.engines = scenario.engines.max(2);
    (scenario.settings.membership.heartbeat_ms, scenario.settings.membership.dead_after_ms) = (40, 200);
    scenario.settings.outbox.attempts_max = 2;
    scenario.settings.outbox.retry_base_ms = rng.random_range(80..200);
    for policy in &mut scenario.policies {
        policy.close = Close { k_valid: None, window_ms: None, score_at_least: None, ..policy.close.clone() };
        policy.timers_ms.collect = rng.random_range(1200..1800);
        policy.timers_ms.hard = policy.timers_ms.collect + rng.random_range(1000..4000);
    }
    if let Some(first) = scenario.agents.first_mut() {
        first.faults = AgentFaults::unreachable();
    }
}

/// What the theme adds to the faults, by milliseconds since the run began.
pub(crate) fn stalls(scenario: &Scenario, rng: &mut ChaCha8Rng) -> Vec<(u64, SingleFault)> {
    let count = if scenario.is_usurped { rng.random_range(1..=STALLS_MAX) } else { 0 };
    let stall = |_| {
        let engine = scenario.gateways + rng.random_range(0..scenario.engines);
        let for_ms = scenario.settings.membership.dead_after_ms + rng.random_range(20..250);
        (rng.random_range(200..scenario.troubled_ms), SingleFault::Process(engine, ProcessFault::Stall { for_ms }))
    };
    (0..count).map(stall).collect()
}
