//! The theme of some runs: engines stand still just long enough to lose their lanes, while calls to a deaf agent are about
//! to be given up. Without it an old owner hardly ever gives up a call before the new one does.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use schemas::policy::Close;

use super::Scenario;
use crate::agents::AgentFaults;
use crate::faults::{Harm, SingleFault};

/// Runs with this theme: one in so many.
pub(super) const USURPED_ONE_IN: u32 = 8;
/// Times engines stand still in such a run, at most.
const STALLS_MAX: u32 = 12;

impl Scenario {
    /// Gives the run the theme.
    pub(super) fn usurp(&mut self, rng: &mut ChaCha8Rng) {
        self.engines = self.engines.max(2);
        (self.settings.membership.heartbeat_ms, self.settings.membership.dead_after_ms) = (40, 200);
        self.settings.outbox.attempts_max = 2;
        self.settings.outbox.retry_base_ms = rng.random_range(80..200);
        for policy in &mut self.policies {
            policy.close = Close { k_valid: None, window_ms: None, score_at_least: None, ..policy.close.clone() };
            policy.timers_ms.collect = rng.random_range(1200..1800);
            policy.timers_ms.hard = policy.timers_ms.collect + rng.random_range(1000..4000);
        }
        if let Some(first) = self.agents.first_mut() {
            first.temper = AgentFaults::deaf();
        }
    }

    /// What the theme adds to the faults, by milliseconds since the run began.
    pub(crate) fn stalls(&self, rng: &mut ChaCha8Rng) -> Vec<(u64, SingleFault)> {
        let count = if self.is_usurped { rng.random_range(1..=STALLS_MAX) } else { 0 };
        let stall = |_| {
            let engine = self.gateways + rng.random_range(0..self.engines);
            let for_ms = self.settings.membership.dead_after_ms + rng.random_range(20..250);
            (rng.random_range(200..self.troubled_ms), SingleFault::Process(engine, Harm::Stall { for_ms }))
        };
        (0..count).map(stall).collect()
    }
}
