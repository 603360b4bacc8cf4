//! What a generator of calls offers, and what it gets, for Prometheus: open-loop, so every duration is told from the time a
//! call was meant to leave and from the time it did.

use std::time::Duration;

use prometheus::{Error, Registry};
use schemas::delivery::Outcome;
use schemas::protocols::Protocol;
use strum::VariantArray;

pub mod running;
#[cfg(test)]
mod tests;

/// Bounds of durations of calls, in seconds: the latencies of every process, and on to the longest negotiation.
const DURATION_BUCKETS: [f64; 18] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];
/// Bounds of how late a call leaves, in seconds: calls are paced to within tens of microseconds.
const LAG_BUCKETS: [f64; 13] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
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

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// The negotiation ended.
    Closed(Outcome),
    /// A gateway refused the call.
    Refused,
    /// It is in the log, but opened nothing.
    TurnedDown,
    /// No end was heard of for as long as the recorder keeps a call.
    Lost,
}

impl CallResult {
    /// Every result.
    fn all() -> Vec<Self> {
        let ends = Outcome::ALL.iter().map(|outcome| Self::Closed(*outcome));
        ends.chain([Self::Refused, Self::TurnedDown, Self::Lost]).collect()
    }

    /// The result as it stands in metrics; an outcome as on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed(outcome) => outcome.as_str(),
            Self::Refused => "refused",
            Self::TurnedDown => "turned_down",
            Self::Lost => "lost",
        }
    }
}

impl From<CallResult> for &'static str {
    fn from(result: CallResult) -> Self {
        result.as_str()
    }
}

/// Which run it is: the labels of `trafficgen_run_info`.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// What is played.
    pub scenario: Protocol,
    /// Seed of the arrivals.
    pub seed: u64,
    /// The build's commit.
    pub git_sha: &'a str,
}

/// Why a call that was due is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
enum DropReason {
    /// As many as may be were open.
    TooManyOpen,
}

telemetry::metrics! {
    /// The metrics of a generator that plays one scenario.
    struct RunMetrics(scenario: Protocol) {
        /// Which run it is.
        run: Gauge[seed, scenario, git_sha; open] = "trafficgen_run_info";
        /// Calls per second asked for (Poisson).
        target_rate: Ratio = "trafficgen_target_rate";
        /// Calls that fell due.
        arrivals: Counter[scenario: Protocol = [scenario]] = "trafficgen_arrivals_total";
        /// Calls by what became of them.
        requests: Counter[scenario: Protocol = [scenario], result: CallResult = CallResult::all()]
            = "trafficgen_requests_total";
        /// Calls made that have not ended.
        in_flight: Gauge = "trafficgen_in_flight";
        /// From the time a call was meant to leave to the decision known to the initiator.
        response: Histogram(DURATION_BUCKETS)[scenario: Protocol = [scenario]]
            = "trafficgen_response_duration_seconds";
        /// From the time a call did leave to the decision known to the initiator.
        service: Histogram(DURATION_BUCKETS)[scenario: Protocol = [scenario]]
            = "trafficgen_service_duration_seconds";
        /// From the time a call was meant to leave to the end known to the initiator.
        rounds: Histogram(DURATION_BUCKETS)[scenario: Protocol = [scenario]]
            = "trafficgen_round_duration_seconds";
        /// From the time a call was meant to leave to the time it did.
        lag: Histogram(LAG_BUCKETS) = "trafficgen_schedule_lag_seconds";
        /// Calls that were due and not made.
        dropped: Counter[reason: DropReason] = "trafficgen_dropped_total";
        /// 1 for the phase the run is in.
        phase: Gauge[phase: Phase] = "trafficgen_phase";
    }
}

/// The metrics of one generator. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TrafficMetrics {
    scenario: Protocol,
    metrics: RunMetrics,
}

impl TrafficMetrics {
    /// Registers them; the run is starting.
    ///
    /// # Errors
    /// When one is registered already.
    pub fn try_new(registry: &Registry, run: &Run<'_>) -> Result<Self, Error> {
        let (scenario, metrics) = (run.scenario, RunMetrics::try_new(registry, run.scenario)?);
        let labels: [&str; 3] = [&run.seed.to_string(), scenario.into(), run.git_sha];
        metrics.run.with_label_values(&labels).set(1);
        let metrics = Self { scenario, metrics };
        metrics.set_phase(Phase::Starting);
        Ok(metrics)
    }

    /// Calls per second asked for.
    pub fn set_target_rate(&self, rate: f64) {
        self.metrics.target_rate.set(rate);
    }

    /// Where the run stands.
    pub fn set_phase(&self, phase: Phase) {
        for other in Phase::VARIANTS {
            self.metrics.phase.of(*other).set(i64::from(*other == phase));
        }
    }

    /// The phase the run is in.
    pub fn phase(&self) -> Phase {
        let is_in = |phase: &Phase| self.metrics.phase.of(*phase).get() == 1;
        Phase::VARIANTS.iter().copied().find(is_in).unwrap_or(Phase::Starting)
    }

    /// A call fell due; it was not made where too many were open.
    pub fn arrived(&self, is_dropped: bool) {
        self.metrics.arrivals.of(self.scenario).inc();
        if is_dropped {
            self.metrics.dropped.of(DropReason::TooManyOpen).inc();
        }
    }

    /// A call left, so long after it was meant to.
    pub fn left(&self, lag: Duration) {
        self.metrics.lag.observe(lag.as_secs_f64());
    }

    /// The decision on a call became known.
    pub fn decided(&self, response: Duration, service: Duration) {
        self.metrics.response.of(self.scenario).observe(response.as_secs_f64());
        self.metrics.service.of(self.scenario).observe(service.as_secs_f64());
    }

    /// A call ended, so long after it was meant to leave.
    pub fn ended(&self, result: CallResult, took: Duration) {
        self.metrics.requests.of(self.scenario, result).inc();
        if matches!(result, CallResult::Closed(_)) {
            self.metrics.rounds.of(self.scenario).observe(took.as_secs_f64());
        }
    }

    /// Calls made that have not ended.
    pub fn set_in_flight(&self, open: usize) {
        self.metrics.in_flight.set(i64::try_from(open).unwrap_or(i64::MAX));
    }
}
