//! The gauges each lane keeps.

use std::sync::Arc;

use policy_core::{Event, Phase, Protocol};
use prometheus::IntGauge;
use schemas::{Lane, Timestamp};

use super::turns::Turns;
use super::{EngineMetrics, open_phases};

/// Gap between two looks for negotiations that stand still, in microseconds: each looks at every open one.
const LOOK_GAP_US: u64 = 1_000_000;

/// What one lane adds to the gauges; taken back when the lane stops. Negotiations are shown by the lane's owner only, so
/// that the sum over all engines is what there is.
pub(crate) struct LaneGauges {
    outbox: IntGauge,
    position: IntGauge,
    owned: IntGauge,
    checkpoint: IntGauge,
    /// Open negotiations by state, in the order of [`open_phases`].
    open: Vec<(Phase, i64)>,
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
            open: none_open(),
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
            Event::Started { protocol, .. } => self.add(protocol.phases()[0], 1),
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
        self.open = none_open();
        self.turns.clear();
        phases.for_each(|phase| self.add(phase, 1));
    }

    fn set_owned(&mut self, is_owned: bool) {
        if self.is_owned != is_owned {
            self.is_owned = is_owned;
            self.set_stalled(0);
            self.owned.set(i64::from(is_owned));
            for (gauge, (_, open)) in self.metrics.negotiations.open.iter().zip(&self.open) {
                gauge.add(if is_owned { *open } else { -open });
            }
        }
    }

    fn set_stalled(&mut self, stalled: i64) {
        self.metrics.negotiations.stalled.add(stalled - self.stalled);
        self.stalled = stalled;
    }

    fn add(&mut self, phase: Phase, by: i64) {
        let Some(protocol) = Protocol::of_phase(phase) else { return };
        for (_, open) in self.open.iter_mut().filter(|(of, _)| *of == phase) {
            *open += by;
            debug_assert!(*open >= 0, "a negotiation leaves the state it is in");
        }
        if self.is_owned {
            self.metrics.negotiations.open.of(protocol, phase).add(by);
        }
    }
}

fn none_open() -> Vec<(Phase, i64)> {
    open_phases().into_iter().map(|(_, phase)| (phase, 0)).collect()
}

impl Drop for LaneGauges {
    fn drop(&mut self) {
        self.outbox.set(0);
        self.set_owned(false);
    }
}
