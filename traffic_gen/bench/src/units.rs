//! Units of work that protocols can be compared by: a message that an agent sends, and a delivery that it acknowledges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agents::observer::{Observed, Observer};
use schemas::AgentId;
use tokio::time::Instant;

/// Counts the units of every agent that it watches, for a time from the first one on.
pub struct UnitCounter {
    duration: Duration,
    began: OnceLock<Instant>,
    units: AtomicU64,
}

impl UnitCounter {
    /// Counts for this long.
    pub fn new(duration: Duration) -> Arc<Self> {
        Arc::new(Self { duration, began: OnceLock::new(), units: AtomicU64::new(0) })
    }

    /// For how long it counts.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// Units per second of that time.
    pub fn units_per_s(&self) -> f64 {
        self.units.load(Ordering::Relaxed) as f64 / self.duration.as_secs_f64().max(f64::EPSILON)
    }
}

impl Observer for UnitCounter {
    fn handle(&self, _agent: &AgentId, at: Instant, event: Observed<'_>) {
        let is_unit =
            matches!(event, Observed::Transmitted { attempt: 1, .. } | Observed::Delivered { is_repeat: false, .. });
        if is_unit && at.saturating_duration_since(*self.began.get_or_init(|| at)) < self.duration {
            self.units.fetch_add(1, Ordering::Relaxed);
        }
    }
}
