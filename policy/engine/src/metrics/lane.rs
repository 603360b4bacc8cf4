//! What lanes do, and the gauges each lane keeps.

use std::sync::Arc;

use policy_core::{Event, Phase};
use prometheus::{Error, Histogram, IntCounter, IntGauge, IntGaugeVec};
use schemas::Lane;

use super::labels::OPEN_PHASES;
use super::maker::Maker;
use super::{EngineMetrics, FAST_S};

pub(super) struct LaneMetrics {
    pub(super) ticks: IntCounter,
    pub(super) records: IntCounter,
    pub(super) records_skipped: IntCounter,
    pub(super) fold_duration: Histogram,
    pub(super) fold_lag: Histogram,
    outbox: IntGaugeVec,
    position: IntGaugeVec,
}

impl LaneMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let metrics = Self {
            ticks: make.counter("exchange_ticks_total", "Ticks appended.")?,
            records: make.counter("exchange_records_folded_total", "Records folded, catch-up included.")?,
            records_skipped: make.counter("exchange_records_skipped_total", "Records that could not be read.")?,
            fold_duration: make.histogram("exchange_fold_duration_seconds", "Time to fold one record.", &FAST_S)?,
            fold_lag: make.histogram(
                "exchange_fold_lag_seconds",
                "Log time between a record's stamp and its fold, as the engine estimates it.",
                &FAST_S,
            )?,
            outbox: make.lane_gauges("exchange_outbox_deliveries", "Deliveries not yet acknowledged.")?,
            position: make.lane_gauges("exchange_lane_position", "Sequence of the last folded record.")?,
        };
        Ok(metrics)
    }
}

/// What one lane adds to the gauges; taken back when the lane stops.
pub(crate) struct LaneGauges {
    outbox: IntGauge,
    position: IntGauge,
    open: [i64; OPEN_PHASES.len()],
    metrics: Arc<EngineMetrics>,
}

impl LaneGauges {
    pub(super) fn new(metrics: &Arc<EngineMetrics>, lane: Lane) -> Self {
        let label = lane.to_string();
        Self {
            outbox: metrics.lanes.outbox.with_label_values(&[&label]),
            position: metrics.lanes.position.with_label_values(&[&label]),
            open: OPEN_PHASES.map(|_| 0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Follows the state of negotiations, during catch-up as well.
    pub(crate) fn follow(&mut self, event: &Event) {
        match event {
            Event::Started { .. } => self.add(Phase::Collecting, 1),
            Event::Transition { from, to, .. } => {
                self.add(*from, -1);
                self.add(*to, 1);
            }
            Event::Disposed { .. }
            | Event::Closed { .. }
            | Event::Decided(_)
            | Event::Excluded { .. }
            | Event::Committed { .. }
            | Event::AwardLost { .. }
            | Event::Ended { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => {}
        }
    }

    pub(crate) fn set(&self, outbox: usize, position: u64) {
        self.outbox.set(i64::try_from(outbox).unwrap_or(i64::MAX));
        self.position.set(i64::try_from(position).unwrap_or(i64::MAX));
    }

    fn add(&mut self, phase: Phase, by: i64) {
        if let Some(index) = OPEN_PHASES.iter().position(|open| *open == phase) {
            self.open[index] += by;
            self.metrics.negotiations.open[index].add(by);
        }
    }
}

impl Drop for LaneGauges {
    fn drop(&mut self) {
        self.outbox.set(0);
        for (gauge, open) in self.metrics.negotiations.open.iter().zip(self.open) {
            gauge.sub(open);
        }
    }
}
