//! What happens to negotiations.

use std::time::Duration;

use policy_core::{Event, Protocol};
use prometheus::{Error, Histogram, IntCounter, IntCounterVec, IntGauge};
use telemetry::metrics::Maker;

use super::labels::{self, CLOSE_REASONS, ENDS, OPEN_PHASES};
use super::maker::MakeLabelled;
use super::turns::{DEADLINES, Noticed, ROLES};

/// Buckets of whole negotiations, in seconds: from one round in process to the longest the schema allows, and between
/// them the default timers.
pub(super) const NEGOTIATION_S: [f64; 14] =
    [1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 120.0, 600.0, 3600.0];
/// Buckets of rounds; a policy allows at most 64, a bargain a thousand.
const ROUNDS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1000.0];

pub(super) struct NegotiationMetrics {
    /// In the order of [`OPEN_PHASES`].
    pub(super) open: Vec<IntGauge>,
    /// In the order of [`PROTOCOLS`].
    started: Vec<IntCounter>,
    /// In the order of [`ENDS`], as the next two.
    ended: Vec<IntCounter>,
    ended_duration: Vec<Histogram>,
    rounds: Vec<Histogram>,
    collections_closed: Vec<IntCounter>,
    /// In the order of [`ROLES`].
    responses: Vec<Histogram>,
    /// In the order of [`DEADLINES`].
    misses: Vec<IntCounter>,
    pub(super) stalled: IntGauge,
    transitions: IntCounterVec,
    dispositions: Vec<Vec<IntCounter>>,
}

impl NegotiationMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, Error> {
        let ends = ENDS.map(|(protocol, outcome)| (protocol, outcome.as_str()));
        let metrics = Self {
            open: make.protocol_gauges(
                "exchange_negotiations_open",
                "Open negotiations by state.",
                "state",
                &OPEN_PHASES.map(|(protocol, phase)| (protocol, phase.as_str())),
            )?,
            started: make.by_protocol("exchange_negotiations_started_total", "Negotiations opened.")?,
            ended: make.protocol_counters(
                "exchange_negotiations_closed_total",
                "Negotiations ended.",
                "outcome",
                &ends,
            )?,
            ended_duration: make.protocol_histograms(
                "exchange_negotiation_duration_seconds",
                "Log time from the call to the end.",
                ("outcome", &ends),
                &NEGOTIATION_S,
            )?,
            rounds: make.protocol_histograms(
                "exchange_negotiation_rounds",
                "Rounds of collection, or of a bargain.",
                ("outcome", &ends),
                &ROUNDS,
            )?,
            collections_closed: make.protocol_counters(
                "exchange_collections_closed_total",
                "Closes of a collection, by reason.",
                "reason",
                &CLOSE_REASONS.map(|reason| (Protocol::ContractNet, reason)),
            )?,
            responses: make.protocol_histograms(
                "exchange_negotiation_response_duration_seconds",
                "Log time agents take for their turns, from when they were asked.",
                ("role", &ROLES),
                &NEGOTIATION_S,
            )?,
            misses: make.protocol_counters(
                "exchange_deadline_misses_total",
                "Deadlines that passed before what they were for, by what was waited for.",
                "phase",
                &DEADLINES,
            )?,
            stalled: make.gauge(
                "exchange_negotiations_stalled",
                "Open negotiations in which nothing has happened for two minutes of log time.",
            )?,
            transitions: make.transitions()?,
            dispositions: make.dispositions()?,
        };
        Ok(metrics)
    }

    pub(super) fn count_turn(&self, noticed: Noticed) {
        match noticed {
            Noticed::Turn(role, took_us) => self.responses[role].observe(seconds(took_us)),
            Noticed::Miss(deadline) => self.misses[deadline].inc(),
        }
    }

    pub(super) fn count(&self, event: &Event) {
        match event {
            Event::Started { protocol, .. } => self.started[labels::protocol(*protocol)].inc(),
            Event::Disposed { act, disposition, .. } => {
                self.dispositions[*act as usize][*disposition as usize].inc();
            }
            Event::Transition { from, to, .. } => {
                if let Some(index) = labels::open_phase(*from) {
                    let protocol = OPEN_PHASES[index].0.as_str();
                    self.transitions.with_label_values(&[protocol, from.as_str(), to.as_str()]).inc();
                }
            }
            Event::Closed { reason, .. } => self.collections_closed[labels::close_reason(*reason)].inc(),
            Event::Ended { protocol, outcome, rounds, elapsed_us, .. } => {
                let Some(index) = labels::end(*protocol, *outcome) else { return };
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
