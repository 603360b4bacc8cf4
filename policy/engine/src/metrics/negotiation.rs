//! What happens to negotiations.

use std::time::Duration;

use policy_core::{Event, Phase, Protocol};
use schemas::Act;
use schemas::delivery::{CloseReason, Disposition, Outcome};

use super::labels::{ENDS, OPEN_PHASES, protocol_of, transitions};
use super::turns::{DEADLINES, Deadline, Noticed, ROLES, Role};

/// Buckets of whole negotiations, in seconds: from one round in process to the longest the schema allows, and between
/// them the default timers.
pub(super) const NEGOTIATION_S: [f64; 14] =
    [1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 120.0, 600.0, 3600.0];
/// Buckets of rounds; a policy allows at most 64, a bargain a thousand.
const ROUNDS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1000.0];

telemetry::metrics! {
    /// What happens to negotiations.
    pub(super) struct NegotiationMetrics {
        /// Open negotiations by state.
        pub(super) open: Gauge[protocol: Protocol, state: Phase; OPEN_PHASES] = "exchange_negotiations_open";
        /// Negotiations opened.
        started: Counter[protocol: Protocol] = "exchange_negotiations_started_total";
        /// Negotiations ended.
        ended: Counter[protocol: Protocol, outcome: Outcome; ENDS] = "exchange_negotiations_closed_total";
        /// Log time from the call to the end.
        ended_duration: Histogram(NEGOTIATION_S)[protocol: Protocol, outcome: Outcome; ENDS]
            = "exchange_negotiation_duration_seconds";
        /// Rounds of collection, or of a bargain.
        rounds: Histogram(ROUNDS)[protocol: Protocol, outcome: Outcome; ENDS] = "exchange_negotiation_rounds";
        /// Closes of a collection, by reason.
        collections_closed: Counter[protocol: Protocol = [Protocol::ContractNet], reason: CloseReason]
            = "exchange_collections_closed_total";
        /// Log time agents take for their turns, from when they were asked.
        responses: Histogram(NEGOTIATION_S)[protocol: Protocol, role: Role; ROLES]
            = "exchange_negotiation_response_duration_seconds";
        /// Deadlines that passed before what they were for, by what was waited for.
        misses: Counter[protocol: Protocol, phase: Deadline; DEADLINES] = "exchange_deadline_misses_total";
        /// Open negotiations in which nothing has happened for two minutes of log time.
        pub(super) stalled: Gauge = "exchange_negotiations_stalled";
        /// Changes of a negotiation's state.
        transitions: Counter[protocol: Protocol, from: Phase, to: Phase; transitions()]
            = "exchange_state_transitions_total";
        /// Logged messages by what became of them.
        dispositions: Counter[kind: Act = Act::FROM_AGENTS, disposition: Disposition] = "exchange_dispositions_total";
    }
}

impl NegotiationMetrics {
    pub(super) fn count_turn(&self, noticed: Noticed) {
        match noticed {
            Noticed::Turn(protocol, role, took_us) => self.responses.of(protocol, role).observe(seconds(took_us)),
            Noticed::Miss(protocol, deadline) => self.misses.of(protocol, deadline).inc(),
        }
    }

    pub(super) fn count(&self, event: &Event) {
        match event {
            Event::Started { protocol, .. } => self.started.of(*protocol).inc(),
            Event::Disposed { act, disposition, .. } => self.dispositions.of(*act, *disposition).inc(),
            Event::Transition { from, to, .. } => {
                if let Some(protocol) = protocol_of(*from) {
                    self.transitions.of(protocol, *from, *to).inc();
                }
            }
            Event::Closed { reason, .. } => self.collections_closed.of(Protocol::ContractNet, *reason).inc(),
            Event::Ended { protocol, outcome, rounds, elapsed_us, .. } => {
                self.ended.of(*protocol, *outcome).inc();
                self.ended_duration.of(*protocol, *outcome).observe(seconds(*elapsed_us));
                self.rounds.of(*protocol, *outcome).observe(f64::from(*rounds));
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
