//! The theme of some runs: lanes and engines begin under earlier rules, which know no bargains, and the engines are upgraded
//! one after the other while everything goes on. No build ever had these rules: they stand for those before a new version.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use schemas::record::{EngineEvent, Entry, Record};

use super::Scenario;
use crate::faults::{Harm, SingleFault};

/// The rules before the upgrade.
const RULES_EARLIER: u32 = 0;

/// Runs with this theme: one in so many.
const UPGRADED_ONE_IN: u32 = 6;

impl Scenario {
    /// Gives the run the theme, if it has it: when each engine is upgraded, in milliseconds since the run began.
    pub(super) fn add_upgrades(&mut self, seed: u64) {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        if rng.random_range(0..UPGRADED_ONE_IN) == 0 {
            self.upgrades = (0..self.engines).map(|_| rng.random_range(300..self.troubled_ms)).collect();
        }
    }

    /// What puts a lane under the earlier rules, in runs with the theme.
    pub(crate) fn earlier_rules(&self) -> Option<Record> {
        let event = EngineEvent::Rules { version: RULES_EARLIER };
        let is_upgraded = !self.upgrades.is_empty();
        is_upgraded.then(|| Record::new("engine-0", vec![Entry::Engine { epoch: 0, event }]))
    }

    /// The newest rules an engine knows that starts so late; absent: all that this build knows.
    pub(crate) fn rules_newest(&self, engine: usize, at_ms: u64) -> Option<u32> {
        let upgraded_at = self.upgrades.get(engine)?;
        (at_ms < *upgraded_at).then_some(RULES_EARLIER)
    }

    /// Each engine leaves when it is upgraded, and comes back.
    pub(crate) fn departures(&self) -> Vec<(u64, SingleFault)> {
        let leave = |(engine, at_ms): (usize, &u64)| {
            (*at_ms, SingleFault::Process(self.gateways + engine, Harm::Leave { back_after_ms: 100 }))
        };
        self.upgrades.iter().enumerate().map(leave).collect()
    }
}
