//! What happens to negotiations.

use std::time::Duration;

use policy_core::{Event, Phase};
use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge};

use super::labels::{self, CLOSE_REASONS, OPEN_PHASES, OUTCOMES, PROTOCOL};
use super::maker::Maker;

/// Buckets of whole negotiations, in seconds: from one round in process to the longest the schema allows, and between
/// them the default timers.
const NEGOTIATION_S: [f64; 14] =
    [1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 120.0, 600.0, 3600.0];
/// Buckets of rounds; a policy allows at most 64.
const ROUNDS: [f64; 8] = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0];

pub(super) struct NegotiationMetrics {
    /// In the order of [`OPEN_PHASES`].
    pub(super) open: Vec<IntGauge>,
    started: IntCounter,
    ended: Vec<IntCounter>,
    ended_duration: Vec<Histogram>,
    rounds: Vec<Histogram>,
    collections_closed: Vec<IntCounter>,
    decision_duration: Histogram,
    transitions: IntCounterVec,
    dispositions: Vec<Vec<IntCounter>>,
}

impl NegotiationMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let metrics = Self {
            open: make.protocol_gauges(
                "exchange_negotiations_open",
                "Open negotiations by state.",
                "state",
                &OPEN_PHASES.map(Phase::as_str),
            )?,
            started: make.protocol_counter("exchange_negotiations_started_total", "Negotiations opened.")?,
            ended: make.protocol_counters(
                "exchange_negotiations_closed_total",
                "Negotiations ended.",
                "outcome",
                &OUTCOMES,
            )?,
            ended_duration: make.protocol_histograms(
                "exchange_negotiation_duration_seconds",
                "Log time from the call to the end.",
                ("outcome", &OUTCOMES),
                &NEGOTIATION_S,
            )?,
            rounds: make.protocol_histograms(
                "exchange_negotiation_rounds",
                "Rounds of collection.",
                ("outcome", &OUTCOMES),
                &ROUNDS,
            )?,
            collections_closed: make.protocol_counters(
                "exchange_collections_closed_total",
                "Closes of a collection, by reason.",
                "reason",
                &CLOSE_REASONS,
            )?,
            decision_duration: make.protocol_histogram(
                "exchange_decision_duration_seconds",
                "Log time from the call to the close of its collection, where the award is decided.",
                &NEGOTIATION_S,
            )?,
            transitions: make.transitions()?,
            dispositions: make.dispositions()?,
        };
        Ok(metrics)
    }

    pub(super) fn count(&self, event: &Event) {
        match event {
            Event::Started { .. } => self.started.inc(),
            Event::Disposed { act, disposition, .. } => {
                self.dispositions[*act as usize][*disposition as usize].inc();
            }
            Event::Transition { from, to, .. } => {
                self.transitions.with_label_values(&[PROTOCOL, from.as_str(), to.as_str()]).inc();
            }
            Event::Closed { reason, elapsed_us, .. } => {
                self.collections_closed[labels::close_reason(*reason)].inc();
                self.decision_duration.observe(seconds(*elapsed_us));
            }
            Event::Ended { outcome, rounds, elapsed_us, .. } => {
                let index = labels::outcome(*outcome);
                self.ended[index].inc();
                self.ended_duration[index].observe(seconds(*elapsed_us));
                self.rounds[index].observe(f64::from(*rounds));
            }
            Event::Decided(_)
            | Event::Excluded { .. }
            | Event::Committed { .. }
            | Event::AwardLost { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => {}
        }
    }
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}
