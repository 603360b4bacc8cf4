//! What the agents of a process see and do, counted for Prometheus. Every label is a closed set and there from the start.

use std::sync::Arc;
use std::time::Duration;

use schemas::delivery::{Delivery, Notification};
use schemas::{Act, AgentId, Code};
use strum::VariantNames as _;
use tokio::time::Instant;

use crate::observer::{Observed, Observer};
use crate::strategy::{Action, SendOutcome, Sent};
use crate::transport::can_pass;

#[cfg(test)]
mod tests;

/// Bounds of the time from writing a message to its end, in seconds: an append takes milliseconds, a retry seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
/// Value of `action` of a call or an award that is left without an answer.
const SILENCE: &str = "silence";
/// What happens for the first time, and what happens again.
const REPETITIONS: [&str; 2] = ["first", "repeated"];

/// What kind of agent decides: value of the label `strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AgentRole {
    /// [`crate::Contractor`].
    Contractor,
    /// [`crate::Initiator`].
    Initiator,
    /// [`crate::bargain::Bargainer`].
    Bargainer,
    /// Any other.
    Other,
}

/// What agents choose: an act, or [`SILENCE`].
fn said() -> Vec<&'static str> {
    Act::FROM_AGENTS.into_iter().map(Act::as_str).chain([SILENCE]).collect()
}

/// The codes of refusals that are not final.
fn passing() -> Vec<Code> {
    Code::ALL.iter().copied().filter(|code| can_pass(*code)).collect()
}

telemetry::metrics! {
    /// The metrics of all agents of a process. Cheap to clone.
    pub struct AgentMetrics {
        /// Agents of this process that are connected.
        connected: Gauge[strategy: AgentRole] = "agent_connected";
        /// Connections made.
        connects: Counter[strategy: AgentRole] = "agent_connects_total";
        /// Connections ended, also by the agent's own end.
        disconnects: Counter[strategy: AgentRole] = "agent_disconnects_total";
        /// Deliveries heard: for the first time, or repeated.
        deliveries: Counter[act: Act = Act::FROM_EXCHANGE, result: &'static str = REPETITIONS] = "agent_deliveries_total";
        /// Decisions: what agents chose to say, or that a call or award gets no answer.
        decisions: Counter[strategy: AgentRole, action: &'static str = said()] = "agent_decisions_total";
        /// Times a message left: first, or repeated.
        transmissions: Counter[attempt: &'static str = REPETITIONS] = "agent_transmissions_total";
        /// Messages by how sending them ended.
        messages: Counter[act: Act = Act::FROM_AGENTS, outcome: &'static str = SendOutcome::VARIANTS] = "agent_messages_total";
        /// Messages refused, by code.
        refusals: Counter[code: Code] = "agent_refusals_total";
        /// Refusals for now, by code, and messages not answered in time (`log_unavailable`): all are sent again.
        deferrals: Counter[code: Code = passing()] = "agent_deferrals_total";
        /// From writing a message until it is in the log, refused or given up.
        durations: Histogram(DURATION_BUCKETS)[outcome: &'static str = SendOutcome::VARIANTS] = "agent_message_duration_seconds";
    }
}

impl AgentMetrics {
    /// Counts the agents of one role; goes into [`crate::AgentOptions::observer`].
    #[must_use]
    pub fn observer(&self, role: AgentRole) -> Arc<dyn Observer> {
        Arc::new(Counting { metrics: self.clone(), role })
    }

    /// Agents connected now.
    #[must_use]
    pub fn connected(&self) -> u64 {
        let connected: i64 = self.connected.iter().map(|gauge| gauge.get()).sum();
        u64::try_from(connected).unwrap_or(0)
    }

    fn settled(&self, sent: &Sent, took: Duration) {
        if let SendOutcome::Refused(refusal) = &sent.outcome {
            self.refusals.of(refusal.code).inc();
        }
        let outcome: &'static str = (&sent.outcome).into();
        self.messages.of(sent.act, outcome).inc();
        self.durations.of(outcome).observe(took.as_secs_f64());
    }

    fn decided(&self, role: AgentRole, cause: Option<&Delivery>, actions: &[Action]) {
        let mut is_settled = false;
        for action in actions {
            match action {
                Action::Send(outgoing) => {
                    is_settled = true;
                    self.decisions.of(role, outgoing.payload.act().as_str()).inc();
                }
                // What it comes to is counted when it comes.
                Action::Defer => is_settled = true,
                Action::Unschedule(_) | Action::Release(_) | Action::Stop => {}
            }
        }
        // Everything else may go without an answer; that is no decision.
        let is_asked =
            cause.is_some_and(|cause| matches!(cause.payload, Notification::Cfp(_) | Notification::Accept(_)));
        if is_asked && !is_settled {
            self.decisions.of(role, SILENCE).inc();
        }
    }
}

/// Counts for one role.
struct Counting {
    metrics: AgentMetrics,
    role: AgentRole,
}

impl Observer for Counting {
    fn handle(&self, _agent: &AgentId, _at: Instant, event: Observed<'_>) {
        let Self { metrics, role } = self;
        match event {
            Observed::Connected => {
                metrics.connected.of(*role).inc();
                metrics.connects.of(*role).inc();
            }
            Observed::Disconnected => {
                metrics.connected.of(*role).dec();
                metrics.disconnects.of(*role).inc();
            }
            Observed::Transmitted { attempt, .. } => {
                metrics.transmissions.of(REPETITIONS[usize::from(attempt != 1)]).inc();
            }
            Observed::Settled { sent, took } => metrics.settled(sent, took),
            Observed::Deferred { refusal } => metrics.deferrals.of(refusal.code).inc(),
            Observed::Delivered { delivery, is_repeat } => {
                metrics.deliveries.of(delivery.payload.act(), REPETITIONS[usize::from(is_repeat)]).inc();
            }
            Observed::Decided { cause, actions } => metrics.decided(*role, cause, actions),
        }
    }
}
