//! What a generator of calls offers, and what it gets, for Prometheus: open-loop, so every duration is told from the time a
//! call was meant to leave and from the time it did.

use std::time::Duration;

use prometheus::{Error, Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use schemas::delivery::Outcome;
use telemetry::metrics::Maker;

#[cfg(test)]
mod tests;

/// Bounds of durations of calls, in seconds: the latencies of every process, and on to the longest negotiation.
const DURATION_BUCKETS: [f64; 18] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];
/// Bounds of how late a call leaves, in seconds: the pacer keeps to tens of microseconds.
const LAG_BUCKETS: [f64; 13] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// What a generator plays: value of the label `scenario`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScenarioKind {
    /// Calls for proposals.
    ContractNet,
    /// Bargains by alternating offers.
    AlternatingOffers,
}

impl ScenarioKind {
    /// The kind as it stands in metrics: the protocol's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContractNet => "contract_net",
            Self::AlternatingOffers => "alternating_offers",
        }
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Agents connect.
    Starting,
    /// Calls arrive.
    Running,
    /// No further calls; open ones may end.
    Draining,
    /// It is over.
    Ended,
}

impl Phase {
    /// Every phase, in their order.
    pub const ALL: [Self; 4] = [Self::Starting, Self::Running, Self::Draining, Self::Ended];

    /// The phase as it stands in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
    }
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// The negotiation ended.
    Closed(Outcome),
    /// A gateway refused the call.
    Refused,
    /// It is in the log, but opened nothing.
    TurnedDown,
    /// No end was heard of for [`crate::recorder::OPEN_AGE_MAX`].
    Lost,
}

impl CallResult {
    /// Every result.
    pub const ALL: [Self; 13] = [
        Self::Closed(Outcome::Completed),
        Self::Closed(Outcome::NoOffers),
        Self::Closed(Outcome::Incomplete),
        Self::Closed(Outcome::NoCandidate),
        Self::Closed(Outcome::Timeout),
        Self::Closed(Outcome::Cancelled),
        Self::Closed(Outcome::Aborted),
        Self::Closed(Outcome::Agreement),
        Self::Closed(Outcome::NoAgreement),
        Self::Closed(Outcome::Ended),
        Self::Refused,
        Self::TurnedDown,
        Self::Lost,
    ];

    /// The result as it stands in metrics; an outcome as on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed(outcome) => outcome.as_str(),
            Self::Refused => "refused",
            Self::TurnedDown => "turned_down",
            Self::Lost => "lost",
        }
    }
}

/// Which run it is: the labels of `trafficgen_run_info`.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// What is played.
    pub scenario: ScenarioKind,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The build's commit.
    pub git_sha: &'a str,
}

/// The metrics of one generator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TrafficMetrics {
    scenario: &'static str,
    target_rate: Gauge,
    arrivals: IntCounter,
    requests: IntCounterVec,
    in_flight: IntGauge,
    response: Histogram,
    service: Histogram,
    rounds: Histogram,
    lag: Histogram,
    dropped: IntCounter,
    phase: IntGaugeVec,
}

/// Value of `reason` of a call that was due while [`crate::live::OPEN_MAX`] were open.
const TOO_MANY_OPEN: &str = "too_many_open";

impl TrafficMetrics {
    /// Registers them; the run is starting.
    ///
    /// # Errors
    /// When one is registered already.
    pub fn try_new(registry: &Registry, run: &Run<'_>) -> Result<Self, Error> {
        let maker = Maker(registry);
        let scenario = run.scenario.as_str();
        let only =
            |name, help, label, value| maker.counters(name, help, label, &[value]).map(|mut made| made.remove(0));
        let duration = |name, help| {
            let labels = ("scenario", &[scenario][..]);
            maker.histograms(name, help, labels, &DURATION_BUCKETS).map(|mut made| made.remove(0))
        };
        let target_rate = Gauge::new("trafficgen_target_rate", "Calls per second asked for (Poisson).")?;
        registry.register(Box::new(target_rate.clone()))?;
        let (seed, git_sha) = (run.seed.to_string(), run.git_sha);
        let labels = [("seed", seed.as_str()), ("scenario", scenario), ("git_sha", git_sha)];
        maker.info("trafficgen_run_info", "Which run it is.", &labels)?;
        let metrics = Self {
            scenario,
            target_rate,
            arrivals: only("trafficgen_arrivals_total", "Calls that fell due.", "scenario", scenario)?,
            requests: maker.counter_vec(
                "trafficgen_requests_total",
                "Calls by what became of them.",
                &["scenario", "result"],
            )?,
            in_flight: maker.gauge("trafficgen_in_flight", "Calls made that have not ended.")?,
            response: duration(
                "trafficgen_response_duration_seconds",
                "From the time a call was meant to leave to the decision known to the initiator.",
            )?,
            service: duration(
                "trafficgen_service_duration_seconds",
                "From the time a call did leave to the decision known to the initiator.",
            )?,
            rounds: duration(
                "trafficgen_round_duration_seconds",
                "From the time a call was meant to leave to the end known to the initiator.",
            )?,
            lag: maker.histogram(
                "trafficgen_schedule_lag_seconds",
                "From the time a call was meant to leave to the time it did.",
                &LAG_BUCKETS,
            )?,
            dropped: only("trafficgen_dropped_total", "Calls that were due and not made.", "reason", TOO_MANY_OPEN)?,
            phase: maker.gauge_vec("trafficgen_phase", "1 for the phase the run is in.", &["phase"])?,
        };
        for result in CallResult::ALL {
            metrics.requests.with_label_values(&[scenario, result.as_str()]);
        }
        metrics.set_phase(Phase::Starting);
        Ok(metrics)
    }

    /// Calls per second asked for.
    pub fn set_target_rate(&self, rate: f64) {
        self.target_rate.set(rate);
    }

    /// Where the run stands.
    pub fn set_phase(&self, phase: Phase) {
        for other in Phase::ALL {
            self.phase.with_label_values(&[other.as_str()]).set(i64::from(other == phase));
        }
    }

    /// The phase the run is in.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let is_in = |phase: &Phase| self.phase.with_label_values(&[phase.as_str()]).get() == 1;
        Phase::ALL.into_iter().find(is_in).unwrap_or(Phase::Starting)
    }

    /// A call fell due; it was not made where too many were open.
    pub fn arrived(&self, is_dropped: bool) {
        self.arrivals.inc();
        if is_dropped {
            self.dropped.inc();
        }
    }

    /// A call left, so long after it was meant to.
    pub fn left(&self, lag: Duration) {
        self.lag.observe(lag.as_secs_f64());
    }

    /// The decision on a call became known.
    pub fn decided(&self, response: Duration, service: Duration) {
        self.response.observe(response.as_secs_f64());
        self.service.observe(service.as_secs_f64());
    }

    /// A call ended, so long after it was meant to leave.
    pub fn ended(&self, result: CallResult, took: Duration) {
        self.requests.with_label_values(&[self.scenario, result.as_str()]).inc();
        if matches!(result, CallResult::Closed(_)) {
            self.rounds.observe(took.as_secs_f64());
        }
    }

    /// Calls made that have not ended.
    pub fn set_in_flight(&self, open: usize) {
        self.in_flight.set(i64::try_from(open).unwrap_or(i64::MAX));
    }
}
