//! Every metric the engine sets. Labels are closed sets, and every known combination starts at 0.
//!
//! Counters tell what this process did as an owner, and what happened while nobody owned the lane it then took (see
//! `lane/observer.rs`): what another owner folded, that one has counted. Gauges tell the state, however it came about.

mod awards;
mod lane;
mod protocols;
mod rounds;
mod teams;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use policy_core::view::Role;
use policy_core::{AskKind, Event, Phase, Protocol};
use prometheus::{Error, IntCounter, Registry};
use schemas::delivery::{CloseReason, Disposition, Outcome, Stopped};
use schemas::{Act, Lane};
use strum::VariantArray;
use telemetry::metrics::LATENCY_S;

use awards::AwardMetrics;
pub use awards::Jain;
pub(crate) use lane::LaneGauges;
use protocols::{DEADLINES, Deadline, ROLES};
use rounds::{OTHER_POLICY, RoundMetrics};
use teams::TeamMetrics;

/// The engine's metrics; one per process, shared by its lanes. Whoever meets what is only counted counts it.
pub struct EngineMetrics {
    negotiations: NegotiationMetrics,
    rounds: RoundMetrics,
    awards: AwardMetrics,
    teams: TeamMetrics,
    pub(crate) deliveries: DeliveryMetrics,
    pub(crate) engines: EnginesMetrics,
    lanes: LaneMetrics,
    pub(crate) register: RegisterMetrics,
}

telemetry::metrics! {
    /// What happens to negotiations.
    struct NegotiationMetrics {
        /// Open negotiations by state.
        open: Gauge[protocol: Protocol, state: Phase; open_phases()] = "exchange_negotiations_open";
        /// Negotiations opened.
        started: Counter[protocol: Protocol] = "exchange_negotiations_started_total";
        /// Negotiations ended.
        ended: Counter[protocol: Protocol, outcome: Outcome; ends()] = "exchange_negotiations_closed_total";
        /// Log time from the call to the end.
        ended_duration: Histogram(NEGOTIATION_S)[protocol: Protocol, outcome: Outcome; ends()]
            = "exchange_negotiation_duration_seconds";
        /// Rounds of collection, or of a bargain.
        rounds: Histogram(ROUNDS)[protocol: Protocol, outcome: Outcome; ends_of_rounds()] = "exchange_negotiation_rounds";
        /// Closes of a collection, by reason.
        collections_closed: Counter[protocol: Protocol = COLLECTING, reason: CloseReason]
            = "exchange_collections_closed_total";
        /// Log time agents take for their turns, from when they were asked.
        responses: Histogram(NEGOTIATION_S)[protocol: Protocol, role: Role; ROLES]
            = "exchange_negotiation_response_duration_seconds";
        /// Deadlines that passed before what they were for, by what was waited for.
        misses: Counter[protocol: Protocol, phase: Deadline; DEADLINES] = "exchange_deadline_misses_total";
        /// Open negotiations in which nothing has happened for two minutes of log time.
        stalled: Gauge = "exchange_negotiations_stalled";
        /// Changes of a negotiation's state.
        transitions: Counter[protocol: Protocol, from: Phase, to: Phase; transitions()]
            = "exchange_state_transitions_total";
        /// Logged messages by what became of them.
        dispositions: Counter[kind: Act = Act::FROM_AGENTS, disposition: Disposition] = "exchange_dispositions_total";
        /// Asks of panels, by what was asked for.
        panel_calls: Counter[kind: AskKind] = "exchange_panel_calls_total";
        /// Panels that came to a finding, by what stopped them.
        panel_stops: Counter[by: Stopped] = "exchange_panel_stops_total";
        /// Log time of a panel's round, from its first ask to the first of the next round, or to the end.
        panel_rounds: Histogram(NEGOTIATION_S) = "exchange_panel_round_duration_seconds";
    }
}

telemetry::metrics! {
    /// What becomes of deliveries.
    pub(crate) struct DeliveryMetrics {
        /// Deliveries sent.
        sent: Counter[kind: Act = Act::FROM_EXCHANGE] = "exchange_deliveries_sent_total";
        /// Deliveries sent again, hellos included.
        retries: Counter[kind: Act = Act::FROM_EXCHANGE] = "exchange_delivery_retries_total";
        /// Deliveries acknowledged by their recipient.
        acked: Counter[kind: Act = Act::FROM_EXCHANGE] = "exchange_deliveries_acked_total";
        /// Time from the fold that made a delivery to its acknowledgement.
        duration: Histogram(DELIVERY_S)[kind: Act = Act::FROM_EXCHANGE] = "exchange_message_delivery_duration_seconds";
        /// Inbox messages published.
        inbox_messages: Counter = "exchange_inbox_messages_total";
        /// Inbox messages the bus did not take.
        inbox_failures: Counter = "exchange_inbox_failures_total";
        /// Messages published to gateways for the streams they hold.
        gateway_messages: Counter = "exchange_gateway_messages_total";
        /// Messages to gateways the bus did not take.
        gateway_failures: Counter = "exchange_gateway_failures_total";
        /// Deliveries given up.
        dead_letters: Counter[reason: DeadLetterReason] = "exchange_dead_letters_total";
        /// Acknowledgements that could not be read.
        acks_ignored: Counter = "exchange_acks_ignored_total";
        /// Acks and hellos lost to a busy lane.
        signals_dropped: Counter = "exchange_signals_dropped_total";
    }
}

telemetry::metrics! {
    /// What engines know of each other, and do beside the fold.
    pub(crate) struct EnginesMetrics {
        /// Live engines, this one included; 0 until it has listened.
        alive: Gauge = "llmx_engine_engines_alive";
        /// Heartbeats that could not be read, or came from another engine of the same name.
        heartbeats_ignored: Counter = "llmx_engine_beats_ignored_total";
        /// Lanes this engine took.
        takeovers: Counter = "llmx_engine_takeovers_total";
        /// Times the log had lost what it had acknowledged, and a lane was rebuilt.
        divergences: Counter = "llmx_engine_log_divergences_total";
        /// Times another engine had another state after the same records: emission stops.
        mismatches: Counter = "llmx_engine_digest_mismatches_total";
        /// Checkpoints this engine made; one is outdated when a later one is stored already.
        checkpoints: Counter[result: &'static str = ["stored", "outdated", "failed"]] = "exchange_checkpoints_total";
        /// Ticks appended.
        ticks: Counter = "exchange_ticks_total";
        /// Records that could not be read.
        records_skipped: Counter = "exchange_records_skipped_total";
    }
}

telemetry::metrics! {
    /// What lanes do.
    struct LaneMetrics {
        /// Records folded, catch-up included.
        records: Counter = "exchange_records_folded_total";
        /// Time to fold one record.
        fold_duration: Histogram(LATENCY_S) = "exchange_fold_duration_seconds";
        /// Log time between a record's stamp and its fold, as the engine estimates it.
        fold_lag: Histogram(LATENCY_S) = "exchange_fold_lag_seconds";
        /// Deliveries not yet acknowledged, of the lanes folded here.
        outbox: Gauge[lane; open] = "exchange_outbox_deliveries";
        /// Sequence of the last folded record, of the lanes folded here.
        position: Gauge[lane; open] = "exchange_lane_position";
        /// Log time since the earliest deadline of an owned lane that has passed and was not acted on; 0 where none has.
        overdue: Ratio[lane; open] = "exchange_lane_overdue_seconds";
        /// 1 where this engine owns the lane.
        owned: Gauge[lane; open] = "exchange_lane_owned";
        /// Sequence of the last checkpoint this engine stored or restored, of the lanes folded here.
        checkpoint: Gauge[lane; open] = "exchange_lane_checkpoint_position";
        /// Entries of the evidence that panels have left, of the lanes folded here.
        evidence: Gauge[lane; open] = "exchange_lane_evidence_entries";
        /// Openings per second that gateways are told to take in for an owned lane.
        admission_rate: Gauge[lane; open] = "exchange_lane_admission_rate";
        /// Mean wait in the longer queue of an owned lane, beyond what it is when nothing is asked for.
        admission_wait: Ratio[lane; open] = "exchange_lane_admission_wait_seconds";
    }
}

telemetry::metrics! {
    /// The register, and what must never happen.
    pub(crate) struct RegisterMetrics {
        /// Writes to the register, by answer.
        writes: Counter[result: WriteResult] = "exchange_register_writes_total";
        /// Entries the register holds, as an engine that owns a lane was told last; all engines show the same register.
        entries: Gauge = "exchange_register_entries";
        /// Bytes the register holds, as an engine that owns a lane was told last.
        bytes: Gauge = "exchange_register_bytes";
        /// Entries removed because their negotiation is archived and their time has passed.
        expired: Counter = "exchange_register_expired_total";
        /// Time until the register answered.
        write_duration: Histogram(LATENCY_S) = "exchange_register_write_duration_seconds";
        /// Writes refused because another value stands there: two histories of one log.
        conflicts: Counter[protocol: Protocol] = "exchange_register_conflicts_total";
        /// Broken invariants; any but 0 is a fault.
        invariants: Counter[invariant: &'static str = INVARIANTS] = "exchange_invariant_violations_total";
    }
}

/// Buckets of whole negotiations, in seconds: from one round in process to the longest the schema allows, and between
/// them the default timers.
const NEGOTIATION_S: [f64; 14] =
    [1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 120.0, 600.0, 3600.0];
/// Buckets of rounds; a policy allows at most 64, a bargain a thousand.
const ROUNDS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1000.0];
/// Buckets of what waits for an agent, in seconds: up to the longest delivery worth retrying.
const DELIVERY_S: [f64; 15] = [5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
/// The invariants, as reports and the fold name them.
const INVARIANTS: [&str; 12] = [
    "one_award",
    "no_lost_admission",
    "recomputable",
    "idempotent",
    "no_late_winner",
    "final_notice",
    "absorbing",
    "terminates",
    "sealed",
    "turn_order",
    "authentic",
    "bounded",
];

/// Why a delivery is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum DeadLetterReason {
    /// Sent as often as allowed.
    Attempts,
    /// The deadline it serves has passed.
    Expired,
    /// Too many deliveries wait for its recipient.
    Overflow,
    /// The register holds another value under the key it waits for.
    RegisterConflict,
    /// It could not be written as a document.
    Unwritable,
}

/// How the register answered a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WriteResult {
    Written,
    Same,
    Different,
    /// Entries of its time were removed already: nothing follows from it.
    Expired,
    Error,
}

/// Something to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Noticed {
    /// An agent took its turn, in so many microseconds.
    Turn(Protocol, Role, u64),
    /// A deadline has passed.
    Miss(Protocol, Deadline),
    /// A round of a panel is over, after so many microseconds.
    Round(u64),
}

/// Protocols that collect offers.
const COLLECTING: [Protocol; 2] = [Protocol::ContractNet, Protocol::EnglishAuction];

/// The states of open negotiations.
fn open_phases() -> Vec<(Protocol, Phase)> {
    let of = |protocol: &Protocol| protocol.phases().iter().map(|phase| (*protocol, *phase)).collect::<Vec<_>>();
    Protocol::VARIANTS.iter().flat_map(of).collect()
}

/// Every change from an open state to another of its protocol, or to the end.
fn transitions() -> Vec<(Protocol, Phase, Phase)> {
    let after = |(protocol, from): (Protocol, Phase)| {
        let open = protocol.phases().iter().copied().chain([Phase::Ended]);
        open.filter(move |to| *to != from).map(move |to| (protocol, from, to))
    };
    open_phases().into_iter().flat_map(after).collect()
}

/// How negotiations end.
fn ends() -> Vec<(Protocol, Outcome)> {
    let of = |protocol: &Protocol| protocol.outcomes().iter().map(|outcome| (*protocol, *outcome)).collect::<Vec<_>>();
    Protocol::VARIANTS.iter().flat_map(of).collect()
}

/// The same, where there may be several rounds: an auction has one.
fn ends_of_rounds() -> Vec<(Protocol, Outcome)> {
    ends().into_iter().filter(|(protocol, _)| *protocol != Protocol::EnglishAuction).collect()
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
            teams: TeamMetrics::try_new(registry)?,
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
        self.teams.count(event);
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
            self.rounds.count(OTHER_POLICY, *expected, *offers, *elapsed_us);
        }
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

impl NegotiationMetrics {
    fn count_turn(&self, noticed: Noticed) {
        match noticed {
            Noticed::Turn(protocol, role, took_us) => self.responses.of(protocol, role).observe(seconds(took_us)),
            Noticed::Miss(protocol, deadline) => self.misses.of(protocol, deadline).inc(),
            Noticed::Round(took_us) => self.panel_rounds.observe(seconds(took_us)),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is not counted here")]
    fn count(&self, event: &Event) {
        match event {
            Event::Started { protocol, .. } => self.started.of(*protocol).inc(),
            Event::Disposed { act, disposition, .. } => self.dispositions.of(*act, *disposition).inc(),
            Event::Transition { protocol, from, to, .. } => self.transitions.of(*protocol, *from, *to).inc(),
            Event::Closed { protocol, reason, .. } => self.collections_closed.of(*protocol, *reason).inc(),
            Event::Ended { protocol, outcome, rounds, elapsed_us, .. } => {
                self.ended.of(*protocol, *outcome).inc();
                self.ended_duration.of(*protocol, *outcome).observe(seconds(*elapsed_us));
                self.rounds.of(*protocol, *outcome).observe(f64::from(*rounds));
            }
            Event::Asked { kind, count, .. } => self.panel_calls.of(*kind).inc_by(u64::from(*count)),
            Event::Found(decision) => self.panel_stops.of(decision.stopped).inc(),
            _ => {}
        }
    }
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}
