//! The theme of some runs: lanes and engines begin under earlier rules, which know no bargains, and the engines are upgraded
//! one after the other while everything goes on. No build ever had these rules: they stand for those before a new version.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::record::{EngineEvent, Entry, Record};

use crate::Scenario;
use crate::faults::{ProcessFault, SingleFault};

/// The rules before the upgrade.
const RULES_EARLIER: u32 = 0;

/// Runs with this theme: one in so many.
const UPGRADED_ONE_IN: u32 = 6;

/// When each engine is upgraded, in milliseconds since the run began; empty when all engines are new.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upgrades(Vec<u64>);

impl Upgrades {
    /// Draws whether a run has the theme, and when its engines are upgraded then.
    pub(super) fn draw(seed: u64, scenario: &Scenario) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let is_upgraded = rng.random_range(0..UPGRADED_ONE_IN) == 0;
        let engines = if is_upgraded { scenario.engines } else { 0 };
        Self((0..engines).map(|_| rng.random_range(300..scenario.troubled_ms)).collect())
    }

    /// What puts a lane under the earlier rules, in runs with the theme.
    pub(crate) fn earlier_rules(&self) -> Option<Record> {
        let event = EngineEvent::Rules { version: RULES_EARLIER };
        (!self.0.is_empty()).then(|| Record::new("engine-0", vec![Entry::Engine { epoch: 0, event }]))
    }

    /// The newest rules an engine knows that starts so late; absent: all that this build knows.
    pub(crate) fn rules_newest(&self, engine: usize, at_ms: u64) -> Option<u32> {
        self.0.get(engine).is_some_and(|upgraded_at| at_ms < *upgraded_at).then_some(RULES_EARLIER)
    }

    /// Each engine leaves when it is upgraded, and comes back. Engines stand behind the gateways among the processes.
    pub(crate) fn departures(&self, gateways: usize) -> Vec<(u64, SingleFault)> {
        let leave = |(engine, at_ms): (usize, &u64)| {
            (*at_ms, SingleFault::Process(gateways + engine, ProcessFault::Leave { back_after_ms: 100 }))
        };
        self.0.iter().enumerate().map(leave).collect()
    }
}
