//! Every metric the engine sets. Labels are closed sets, and every known combination starts at 0.
//!
//! Counters tell what this process did as an owner, and what happened while nobody owned the lane it then took (see
//! `driver/unseen.rs`): what another owner folded, that one has counted. Gauges tell the state, however it came about.

mod delivery;
mod engines;
mod labels;
mod lane;
mod maker;
mod negotiation;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use policy_core::{Event, Protocol};
use prometheus::{Error, Histogram, IntCounter, Registry};
use schemas::Lane;
use telemetry::metrics::{LATENCY_S, Maker};

use delivery::DeliveryMetrics;
use engines::EnginesMetrics;
use labels::INVARIANTS;
pub(crate) use labels::{DeadLetterReason, WriteResult};
pub(crate) use lane::LaneGauges;
use lane::LaneMetrics;
use maker::MakeLabelled;
use negotiation::NegotiationMetrics;

/// The engine's metrics; one per process, shared by its lanes.
pub struct EngineMetrics {
    negotiations: NegotiationMetrics,
    /// What became of deliveries.
    pub(crate) deliveries: DeliveryMetrics,
    /// What engines know of each other.
    pub(crate) engines: EnginesMetrics,
    lanes: LaneMetrics,
    register_writes: Vec<IntCounter>,
    register_write_duration: Histogram,
    register_conflicts: Vec<IntCounter>,
    invariants: Vec<IntCounter>,
}

impl EngineMetrics {
    /// Registers every metric of the engine.
    ///
    /// # Errors
    /// The registry's error when a name is taken, for example by a second engine of the same process.
    pub fn new(registry: &Registry) -> Result<Self, Error> {
        let make = Maker(registry);
        let metrics = Self {
            negotiations: NegotiationMetrics::new(&make)?,
            deliveries: DeliveryMetrics::new(&make)?,
            engines: EnginesMetrics::new(&make)?,
            lanes: LaneMetrics::new(&make)?,
            register_writes: make.counters(
                "exchange_register_writes_total",
                "Writes to the register, by answer.",
                "result",
                &WriteResult::ALL.map(WriteResult::as_str),
            )?,
            register_write_duration: make.histogram(
                "exchange_register_write_duration_seconds",
                "Time until the register answered.",
                &LATENCY_S,
            )?,
            register_conflicts: make.by_protocol(
                "exchange_register_conflicts_total",
                "Writes refused because another value stands there: two histories of one log.",
            )?,
            invariants: make.counters(
                "exchange_invariant_violations_total",
                "Broken invariants; any but 0 is a fault.",
                "invariant",
                &INVARIANTS,
            )?,
        };
        Ok(metrics)
    }

    /// The counter of one invariant of DESIGN.md section 6, for whoever checks it; nothing for another name.
    #[must_use]
    pub fn invariant(&self, name: &str) -> Option<&IntCounter> {
        INVARIANTS.iter().position(|known| *known == name).map(|index| &self.invariants[index])
    }

    /// Counts a fact of a lane that is live.
    pub(crate) fn count(&self, event: &Event) {
        self.negotiations.count(event);
        if let Event::InvariantViolated { invariant, .. } = event
            && let Some(counter) = self.invariant(invariant.as_str())
        {
            counter.inc();
        }
    }

    pub(crate) fn register_answered(&self, result: WriteResult, waited: Duration) {
        self.register_writes[result as usize].inc();
        self.register_write_duration.observe(waited.as_secs_f64());
    }

    /// The register holds another value, as a write found or as it was read at the start.
    pub(crate) fn register_conflict(&self, protocol: Option<Protocol>) {
        // A negotiation nobody remembers any more is most likely of the older protocol.
        self.register_conflicts[labels::protocol(protocol.unwrap_or(Protocol::ContractNet))].inc();
    }

    pub(crate) fn tick_appended(&self) {
        self.lanes.ticks.inc();
    }

    pub(crate) fn record_skipped(&self) {
        self.lanes.records_skipped.inc();
    }

    /// `lag_us` is absent while the lane catches up.
    pub(crate) fn record_folded(&self, took: Duration, lag_us: Option<u64>) {
        self.lanes.records.inc();
        self.lanes.fold_duration.observe(took.as_secs_f64());
        if let Some(lag_us) = lag_us {
            self.lanes.fold_lag.observe(Duration::from_micros(lag_us).as_secs_f64());
        }
    }

    /// Shows the gauges of a lane at 0, as an engine that knows it does.
    pub fn show_lane(self: &Arc<Self>, lane: Lane) {
        self.lane(lane).set(0, 0, false);
    }

    /// The gauges of one lane.
    pub(crate) fn lane(self: &Arc<Self>, lane: Lane) -> LaneGauges {
        LaneGauges::new(self, lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_exposed_at_zero_before_anything_happens() {
        let registry = Registry::new();
        let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
        let mut lane = metrics.lane(Lane(0));
        lane.set(0, 0, false);
        let families = registry.gather();
        let series: usize = families.iter().map(|family| family.get_metric().len()).sum();
        assert!((200..600).contains(&series), "{series} series");
        let total: f64 = families
            .iter()
            .flat_map(|family| family.get_metric())
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
            .sum();
        assert!(total.abs() < f64::EPSILON);
        assert!(EngineMetrics::new(&registry).is_err(), "names are taken once per process");
        assert!(metrics.invariant("one_award").is_some() && metrics.invariant("another").is_none());
    }
}
