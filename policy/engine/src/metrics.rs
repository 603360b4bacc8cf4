//! Every metric the engine sets. Labels are closed sets, and every known combination starts at 0.
//!
//! Counters tell what this process did as an owner, and what happened while nobody owned the lane it then took (see
//! `observer/uncounted.rs`): what another owner folded, that one has counted. Gauges tell the state, however it came about.

mod awards;
mod delivery;
mod engines;
mod labels;
mod lane;
mod negotiation;
mod rounds;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use policy_core::{Event, Protocol};
use prometheus::{Error, IntCounter, Registry};
use schemas::Lane;
use telemetry::metrics::LATENCY_S;

use awards::AwardMetrics;
pub use awards::Jain;
use delivery::DeliveryMetrics;
use engines::EnginesMetrics;
use labels::INVARIANTS;
pub(crate) use labels::{DeadLetterReason, WriteResult};
pub(crate) use lane::LaneGauges;
use lane::LaneMetrics;
use negotiation::NegotiationMetrics;
use rounds::RoundMetrics;

/// The engine's metrics; one per process, shared by its lanes.
pub struct EngineMetrics {
    negotiations: NegotiationMetrics,
    rounds: RoundMetrics,
    awards: AwardMetrics,
    /// What became of deliveries.
    pub(crate) deliveries: DeliveryMetrics,
    /// What engines know of each other.
    pub(crate) engines: EnginesMetrics,
    lanes: LaneMetrics,
    register: RegisterMetrics,
}

telemetry::metrics! {
    /// The register, and what must never happen.
    struct RegisterMetrics {
        /// Writes to the register, by answer.
        writes: Counter[result: WriteResult] = "exchange_register_writes_total";
        /// Time until the register answered.
        write_duration: Histogram(LATENCY_S) = "exchange_register_write_duration_seconds";
        /// Writes refused because another value stands there: two histories of one log.
        conflicts: Counter[protocol: Protocol] = "exchange_register_conflicts_total";
        /// Broken invariants; any but 0 is a fault.
        invariants: Counter[invariant: &'static str = INVARIANTS] = "exchange_invariant_violations_total";
    }
}

impl EngineMetrics {
    /// Registers every metric of the engine.
    ///
    /// # Errors
    /// The registry's error when a name is taken, for example by a second engine of the same process.
    pub fn new(registry: &Registry) -> Result<Self, Error> {
        Ok(Self {
            negotiations: NegotiationMetrics::try_new(registry)?,
            rounds: RoundMetrics::try_new(registry)?,
            awards: AwardMetrics::try_new(registry)?,
            deliveries: DeliveryMetrics::try_new(registry)?,
            engines: EnginesMetrics::try_new(registry)?,
            lanes: LaneMetrics::try_new(registry)?,
            register: RegisterMetrics::try_new(registry)?,
        })
    }

    /// The counter of one invariant, for whoever checks it; nothing for another name.
    #[must_use]
    pub fn invariant(&self, name: &str) -> Option<&IntCounter> {
        INVARIANTS.iter().find(|known| **known == name).map(|known| self.register.invariants.of(known))
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

    /// Counts a fact from while nobody owned the lane: the negotiation it is of may be followed no more.
    pub(crate) fn count_uncounted(&self, event: &Event) {
        self.count(event);
        if let Event::Closed { expected, offers, elapsed_us, .. } = event {
            self.rounds.count(rounds::OTHER_POLICY, *expected, *offers, *elapsed_us);
        }
    }

    pub(crate) fn register_answered(&self, result: WriteResult, waited: Duration) {
        self.register.writes.of(result).inc();
        self.register.write_duration.observe(waited.as_secs_f64());
    }

    /// The register holds another value, as a write found or as it was read at the start.
    pub(crate) fn register_conflict(&self, protocol: Option<Protocol>) {
        // A negotiation nobody remembers any more is most likely of the older protocol.
        self.register.conflicts.of(protocol.unwrap_or(Protocol::ContractNet)).inc();
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
    use policy_core::Phase;
    use schemas::delivery::CloseReason;
    use schemas::{AgentId, AwardNo, Lot, NegotiationId, Timestamp};

    use super::*;

    /// Series an engine exposes at most, each bucket of a histogram being one: the bound of a gateway.
    const SERIES_MAX: usize = 3000;

    #[test]
    fn every_series_is_exposed_at_zero_before_anything_happens() {
        let registry = Registry::new();
        let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
        let mut lane = metrics.lane(Lane(0));
        lane.set(0, 0, false);
        let families = registry.gather();
        let series: usize = families.iter().map(|family| family.get_metric().len()).sum();
        assert!((400..600).contains(&series), "{series} series, a histogram taken for one");
        let text = telemetry::metrics::to_text(&registry).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(lines < SERIES_MAX, "{lines} series");
        let total: f64 = families
            .iter()
            .flat_map(|family| family.get_metric())
            .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
            .sum();
        assert!(total.abs() < f64::EPSILON);
        assert!(EngineMetrics::new(&registry).is_err(), "names are taken once per process");
        assert!(metrics.invariant("one_award").is_some() && metrics.invariant("another").is_none());
    }

    #[test]
    fn a_decision_counts_under_its_policy_and_population_and_as_other_where_the_call_was_not_seen() {
        let (registry, at) = (Registry::new(), Timestamp::from_ms(1_000));
        let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
        let mut lane = metrics.lane(Lane(0));
        lane.follow(&started("job", "high@1"), at, true);
        lane.follow(
            &Event::Transition { negotiation: id("job"), from: Phase::Collecting, to: Phase::Deciding },
            at,
            true,
        );
        for (negotiation, invited) in [("job", 12), ("older", 400)] {
            lane.follow(&closed(negotiation, invited), at, true);
            lane.follow(&closed(negotiation, invited), at, false);
        }
        metrics.count_uncounted(&closed("job", 3));
        for name in ["exchange_decision_duration_seconds", "exchange_offers_per_round"] {
            let counted = counted(&registry, name);
            assert_eq!(counted, ["high 12 1", "other 5 1", "other more 1"], "{name}");
        }
    }

    #[test]
    fn shares_of_awards_are_shown_without_a_name() {
        let (registry, at) = (Registry::new(), Timestamp::from_ms(60_000));
        let metrics = Arc::new(EngineMetrics::new(&registry).unwrap());
        let mut lane = metrics.lane(Lane(0));
        for contractor in ["bob", "bob", "bob", "carol"] {
            lane.follow(&committed(contractor), at, true);
            lane.follow(&committed("mallory"), at, false);
        }
        let shown = || {
            let families = registry.gather();
            let of = |name: &str| {
                let family = families.iter().find(|family| family.name() == name).unwrap();
                family.get_metric().iter().map(|metric| metric.get_gauge().get_value()).collect::<Vec<f64>>()
            };
            (of("exchange_award_share"), of("exchange_award_window_awards"), of("exchange_award_jain"))
        };
        lane.look(at);
        let (shares, awards, jain) = shown();
        let ranked: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0).collect();
        assert_eq!((shares.len(), ranked, awards, jain), (13, vec![0.75, 0.25], vec![4.0], vec![0.8]));
        lane.look(Timestamp::from_ms(60_000 * 7));
        let (shares, awards, jain) = shown();
        assert_eq!((shares.iter().sum::<f64>(), awards, jain), (0.0, vec![0.0], vec![0.0]), "five minutes later");
    }

    /// Policy, population and count of each histogram that has counted anything.
    fn counted(registry: &Registry, name: &str) -> Vec<String> {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let of = |metric: &prometheus::proto::Metric, label: &str| {
            metric.get_label().iter().find(|pair| pair.name() == label).unwrap().value().to_owned()
        };
        let lines = family.get_metric().iter().filter(|metric| metric.get_histogram().get_sample_count() > 0);
        let mut lines: Vec<String> = lines
            .map(|metric| {
                format!(
                    "{} {} {}",
                    of(metric, "policy"),
                    of(metric, "invited"),
                    metric.get_histogram().get_sample_count()
                )
            })
            .collect();
        lines.sort();
        lines
    }

    fn started(own: &str, policy: &str) -> Event {
        let (negotiation, protocol, invited, left_out, at) = (id(own), Protocol::ContractNet, 12, 0, Timestamp(1));
        Event::Started { negotiation, protocol, policy: policy.into(), invited, left_out, at }
    }

    fn closed(own: &str, expected: u32) -> Event {
        let (negotiation, round, reason, complete) = (id(own), 1, CloseReason::Window, true);
        let (offers, responded, at, elapsed_us) = (3, 3, Timestamp(1), 9_000);
        Event::Closed { negotiation, round, reason, complete, offers, responded, expected, at, elapsed_us }
    }

    fn committed(contractor: &str) -> Event {
        let contractor = AgentId::try_new(contractor).unwrap();
        Event::Committed { negotiation: id("job"), lot: Lot(0), award_no: AwardNo(1), contractor, elapsed_us: 1 }
    }

    fn id(own: &str) -> NegotiationId {
        NegotiationId::form(&AgentId::try_new("alice").unwrap(), own).unwrap()
    }
}
