//! What the agents of a process see and do, counted for Prometheus. Every label is a closed set and there from the start.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Error, HistogramVec, IntCounterVec, IntGaugeVec, Registry};
use schemas::delivery::{Delivery, Notification};
use schemas::{Act, AgentId, Code};
use telemetry::metrics::Maker;
use tokio::time::Instant;

use crate::observer::{Observed, Observer};
use crate::strategy::{Action, SendOutcome, Sent};

#[cfg(test)]
mod tests;

/// Bounds of the time from writing a message to its end, in seconds: an append takes milliseconds, a retry seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// What agents are told.
const TOLD: [Act; 10] = [
    Act::Cfp,
    Act::Accept,
    Act::Reject,
    Act::Cancel,
    Act::Inform,
    Act::Failure,
    Act::NotUnderstood,
    Act::Closed,
    Act::Ack,
    Act::Turn,
];
/// Values of `outcome`, in the order of [`SendOutcome`].
const OUTCOMES: [&str; 3] = ["accepted", "refused", "unanswered"];
/// Value of `action` of a call or an award that is left without an answer.
const SILENCE: &str = "silence";

/// What kind of agent decides: value of the label `strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// [`crate::Contractor`].
    Contractor,
    /// [`crate::Initiator`].
    Initiator,
    /// [`crate::bargain::Bargainer`].
    Bargainer,
    /// Any other.
    Other,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Contractor, Self::Initiator, Self::Bargainer, Self::Other];

    /// The role as it stands in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contractor => "contractor",
            Self::Initiator => "initiator",
            Self::Bargainer => "bargainer",
            Self::Other => "other",
        }
    }
}

/// The metrics of all agents of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AgentMetrics {
    connected: IntGaugeVec,
    connects: IntCounterVec,
    disconnects: IntCounterVec,
    deliveries: IntCounterVec,
    decisions: IntCounterVec,
    transmissions: IntCounterVec,
    messages: IntCounterVec,
    refusals: IntCounterVec,
    durations: HistogramVec,
}

impl AgentMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When one is registered already.
    pub fn try_new(registry: &Registry) -> Result<Self, Error> {
        let maker = Maker(registry);
        let counter = |name, help, labels: &[&str]| maker.counter_vec(name, help, labels);
        let metrics = Self {
            connected: maker.gauge_vec(
                "agent_connected",
                "Agents of this process that are connected.",
                &["strategy"],
            )?,
            connects: counter("agent_connects_total", "Connections made.", &["strategy"])?,
            disconnects: counter(
                "agent_disconnects_total",
                "Connections ended, also by the agent's own end.",
                &["strategy"],
            )?,
            deliveries: counter(
                "agent_deliveries_total",
                "Deliveries heard: for the first time, or repeated.",
                &["act", "result"],
            )?,
            decisions: counter(
                "agent_decisions_total",
                "Decisions: what agents chose to say, or that a call or award gets no answer.",
                &["strategy", "action"],
            )?,
            transmissions: counter(
                "agent_transmissions_total",
                "Times a message left: first, or repeated.",
                &["attempt"],
            )?,
            messages: counter("agent_messages_total", "Messages by how sending them ended.", &["act", "outcome"])?,
            refusals: counter("agent_refusals_total", "Messages refused, by code.", &["code"])?,
            durations: maker.histogram_vec(
                "agent_message_duration_seconds",
                "From writing a message until it is in the log, refused or given up.",
                &["outcome"],
                &DURATION_BUCKETS,
            )?,
        };
        metrics.fill();
        Ok(metrics)
    }

    /// Makes every label's values appear, from 0.
    fn fill(&self) {
        for role in Role::ALL.map(Role::as_str) {
            self.connected.with_label_values(&[role]);
            self.connects.with_label_values(&[role]);
            self.disconnects.with_label_values(&[role]);
            for action in Act::FROM_AGENTS.map(Act::as_str).into_iter().chain([SILENCE]) {
                self.decisions.with_label_values(&[role, action]);
            }
        }
        for act in TOLD.map(Act::as_str) {
            for result in ["first", "repeated"] {
                self.deliveries.with_label_values(&[act, result]);
            }
        }
        for attempt in ["first", "repeated"] {
            self.transmissions.with_label_values(&[attempt]);
        }
        for outcome in OUTCOMES {
            self.durations.with_label_values(&[outcome]);
            for act in Act::FROM_AGENTS.map(Act::as_str) {
                self.messages.with_label_values(&[act, outcome]);
            }
        }
        for code in Code::ALL {
            self.refusals.with_label_values(&[code.as_str()]);
        }
    }

    /// Counts the agents of one role; goes into [`crate::AgentOptions::observer`].
    #[must_use]
    pub fn observer(&self, role: Role) -> Arc<dyn Observer> {
        Arc::new(Counting { metrics: self.clone(), role: role.as_str() })
    }

    /// Agents connected now.
    #[must_use]
    pub fn connected(&self) -> u64 {
        let connected: i64 =
            Role::ALL.iter().map(|role| self.connected.with_label_values(&[role.as_str()]).get()).sum();
        u64::try_from(connected).unwrap_or(0)
    }

    fn settled(&self, sent: &Sent, took: Duration) {
        let outcome = match &sent.outcome {
            SendOutcome::Accepted { .. } => "accepted",
            SendOutcome::Refused(refusal) => {
                self.refusals.with_label_values(&[refusal.code.as_str()]).inc();
                "refused"
            }
            SendOutcome::Unanswered => "unanswered",
        };
        self.messages.with_label_values(&[sent.act.as_str(), outcome]).inc();
        self.durations.with_label_values(&[outcome]).observe(took.as_secs_f64());
    }

    fn decided(&self, role: &'static str, cause: Option<&Delivery>, actions: &[Action]) {
        let mut said = 0;
        for action in actions {
            match action {
                Action::Send(outgoing) => {
                    said += 1;
                    self.decisions.with_label_values(&[role, outgoing.payload.act().as_str()]).inc();
                }
                Action::Unschedule(_) | Action::Release(_) | Action::Stop => {}
            }
        }
        // Everything else may go without an answer; that is no decision.
        let is_asked =
            cause.is_some_and(|cause| matches!(cause.payload, Notification::Cfp(_) | Notification::Accept(_)));
        if is_asked && said == 0 {
            self.decisions.with_label_values(&[role, SILENCE]).inc();
        }
    }
}

/// Counts for one role.
struct Counting {
    metrics: AgentMetrics,
    role: &'static str,
}

impl Observer for Counting {
    fn handle(&self, _agent: &AgentId, _at: Instant, event: Observed<'_>) {
        let Self { metrics, role } = self;
        match event {
            Observed::Connected => {
                metrics.connected.with_label_values(&[role]).inc();
                metrics.connects.with_label_values(&[role]).inc();
            }
            Observed::Disconnected => {
                metrics.connected.with_label_values(&[role]).dec();
                metrics.disconnects.with_label_values(&[role]).inc();
            }
            Observed::Transmitted { attempt, .. } => {
                let attempt = if attempt == 1 { "first" } else { "repeated" };
                metrics.transmissions.with_label_values(&[attempt]).inc();
            }
            Observed::Settled { sent, took } => metrics.settled(sent, took),
            Observed::Delivered { delivery, is_repeat } => {
                let result = if is_repeat { "repeated" } else { "first" };
                metrics.deliveries.with_label_values(&[delivery.payload.act().as_str(), result]).inc();
            }
            Observed::Decided { cause, actions } => metrics.decided(role, cause, actions),
        }
    }
}
