//! What lanes do, and the gauges each lane keeps.

use std::sync::Arc;

use policy_core::{Event, Phase};
use prometheus::IntGauge;
use schemas::{Lane, Timestamp};
use telemetry::metrics::LATENCY_S;

use super::EngineMetrics;
use super::labels::{OPEN_PHASES, first_phase, open_phase};
use super::turns::Turns;

/// Gap between two looks for negotiations that stand still, in microseconds: each looks at every open one.
const LOOK_GAP_US: u64 = 1_000_000;

telemetry::metrics! {
    /// What lanes do.
    pub(super) struct LaneMetrics {
        /// Ticks appended.
        pub(super) ticks: Counter = "exchange_ticks_total";
        /// Records folded, catch-up included.
        pub(super) records: Counter = "exchange_records_folded_total";
        /// Records that could not be read.
        pub(super) records_skipped: Counter = "exchange_records_skipped_total";
        /// Time to fold one record.
        pub(super) fold_duration: Histogram(LATENCY_S) = "exchange_fold_duration_seconds";
        /// Log time between a record's stamp and its fold, as the engine estimates it.
        pub(super) fold_lag: Histogram(LATENCY_S) = "exchange_fold_lag_seconds";
        /// Deliveries not yet acknowledged.
        outbox: Gauge[lane; open] = "exchange_outbox_deliveries";
        /// Sequence of the last folded record.
        position: Gauge[lane; open] = "exchange_lane_position";
        /// 1 where this engine owns the lane.
        owned: Gauge[lane; open] = "exchange_lane_owned";
        /// Sequence of the last checkpoint this engine stored or restored.
        checkpoint: Gauge[lane; open] = "exchange_lane_checkpoint_position";
    }
}

/// What one lane adds to the gauges; taken back when the lane stops. Negotiations are shown by the lane's owner only, so
/// that the sum over all engines is what there is.
pub(crate) struct LaneGauges {
    outbox: IntGauge,
    position: IntGauge,
    owned: IntGauge,
    checkpoint: IntGauge,
    open: [i64; OPEN_PHASES.len()],
    is_owned: bool,
    turns: Turns,
    stalled: i64,
    looked_at: Timestamp,
    metrics: Arc<EngineMetrics>,
}

impl LaneGauges {
    pub(super) fn new(metrics: &Arc<EngineMetrics>, lane: Lane) -> Self {
        let label = lane.to_string();
        Self {
            outbox: metrics.lanes.outbox.with_label_values(&[&label]),
            position: metrics.lanes.position.with_label_values(&[&label]),
            owned: metrics.lanes.owned.with_label_values(&[&label]),
            checkpoint: metrics.lanes.checkpoint.with_label_values(&[&label]),
            open: OPEN_PHASES.map(|_| 0),
            is_owned: false,
            turns: Turns::default(),
            stalled: 0,
            looked_at: Timestamp(0),
            metrics: Arc::clone(metrics),
        }
    }

    /// Follows the state of negotiations, during catch-up as well; what `counts` is counted.
    pub(crate) fn follow(&mut self, event: &Event, at: Timestamp, counts: bool) {
        if let Some(noticed) = self.turns.follow(event, at).filter(|_| counts) {
            self.metrics.negotiations.count_turn(noticed);
        }
        if counts {
            self.metrics.awards.handle(event, at);
        }
        match event {
            Event::Started { protocol, .. } => self.add(first_phase(*protocol), 1),
            Event::Transition { from, to, .. } => {
                self.add(*from, -1);
                self.add(*to, 1);
            }
            Event::Closed { negotiation, expected, offers, elapsed_us, .. } => {
                if counts {
                    self.metrics.rounds.count(self.turns.policy(negotiation), *expected, *offers, *elapsed_us);
                }
            }
            Event::Disposed { .. }
            | Event::Decided(_)
            | Event::Excluded { .. }
            | Event::Committed { .. }
            | Event::AwardLost { .. }
            | Event::Ended { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => {}
        }
    }

    pub(crate) fn set(&mut self, outbox: usize, position: u64, is_owned: bool) {
        self.set_owned(is_owned);
        self.outbox.set(i64::try_from(outbox).unwrap_or(i64::MAX));
        self.position.set(i64::try_from(position).unwrap_or(i64::MAX));
    }

    /// Looks for negotiations that stand still, at most once a second of log time.
    pub(crate) fn look(&mut self, now: Timestamp) {
        // What this engine awarded is forgotten in time, whoever owns the lane by then.
        self.metrics.awards.show(now);
        if self.is_owned && now.since_us(self.looked_at) >= LOOK_GAP_US {
            self.looked_at = now;
            self.set_stalled(i64::try_from(self.turns.still(now)).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn set_checkpoint(&self, position: u64) {
        self.checkpoint.set(i64::try_from(position).unwrap_or(i64::MAX));
    }

    /// Starts over from a state: the phase of each negotiation it holds open.
    pub(crate) fn restart(&mut self, phases: impl Iterator<Item = Phase>) {
        self.set_owned(false);
        self.open = OPEN_PHASES.map(|_| 0);
        self.turns.clear();
        phases.for_each(|phase| self.add(phase, 1));
    }

    fn set_owned(&mut self, is_owned: bool) {
        if self.is_owned != is_owned {
            self.is_owned = is_owned;
            self.set_stalled(0);
            self.owned.set(i64::from(is_owned));
            for (gauge, open) in self.metrics.negotiations.open.iter().zip(self.open) {
                gauge.add(if is_owned { open } else { -open });
            }
        }
    }

    fn set_stalled(&mut self, stalled: i64) {
        self.metrics.negotiations.stalled.add(stalled - self.stalled);
        self.stalled = stalled;
    }

    fn add(&mut self, phase: Phase, by: i64) {
        let Some(index) = open_phase(phase) else { return };
        self.open[index] += by;
        if self.is_owned {
            self.metrics.negotiations.open.of(OPEN_PHASES[index].0, phase).add(by);
        }
    }
}

impl Drop for LaneGauges {
    fn drop(&mut self) {
        self.outbox.set(0);
        self.set_owned(false);
    }
}
