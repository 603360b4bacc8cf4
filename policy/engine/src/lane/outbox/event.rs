//! What becomes of deliveries, for whoever tells people about it.

use std::sync::Arc;
use std::time::Duration;

use policy_core::Deliver;
use schemas::delivery::Notification;
use schemas::{Act, AgentId, DeliveryId, NegotiationId};
use telemetry::{SpanId, TraceContext};
use tokio::time::Instant;

use super::OutboxEntry;
use crate::metrics::DeadLetterReason;

/// Something became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryEvent {
    /// The delivery.
    pub(crate) id: DeliveryId,
    /// Its negotiation.
    pub(crate) negotiation: NegotiationId,
    /// Its recipient.
    pub(crate) to: AgentId,
    /// What it says.
    pub(crate) act: Act,
    /// Times it was sent; 0 when an earlier owner sent it.
    pub(crate) attempts: u32,
    /// When it was made, or this engine came to hold it.
    pub(crate) made_at: Instant,
    /// From its first sending to its acknowledgement; absent where it is not acknowledged, or an earlier owner sent it.
    pub(crate) waited: Option<Duration>,
    /// What is sent, where it says of a bargain its rules, the offer that stands, or the agreement.
    pub(crate) bargain: Option<Arc<Notification>>,
    /// Where it hangs; absent where its trace is not kept, unless it was given up.
    pub(crate) trace: Option<TraceContext>,
    /// What became of it.
    pub(crate) step: DeliveryStep,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryStep {
    /// It was sent for the first time.
    Sent,
    /// It was sent, and will not be again.
    SentOnce,
    /// Its recipient acknowledged it.
    Acknowledged,
    /// It was given up.
    GivenUp(DeadLetterReason),
}

impl DeliveryEvent {
    pub(super) fn of(entry: &OutboxEntry, step: DeliveryStep) -> Self {
        let deliver = &entry.deliver;
        let trace = entry.trace.as_deref().copied();
        Self {
            id: deliver.id,
            negotiation: deliver.negotiation.clone(),
            to: deliver.to.clone(),
            act: deliver.told.act(),
            attempts: entry.attempts,
            made_at: entry.made_at,
            waited: None,
            bargain: (matches!(step, DeliveryStep::Sent | DeliveryStep::SentOnce) && is_of_a_bargain(&deliver.told))
                .then(|| Arc::clone(&deliver.told)),
            trace: trace.or_else(|| matches!(step, DeliveryStep::GivenUp(_)).then(|| unkept(deliver))),
            step,
        }
    }
}

/// Whether it says what a journal keeps of a bargain.
fn is_of_a_bargain(told: &Notification) -> bool {
    match told {
        Notification::Cfp(call) => call.bargain.is_some(),
        Notification::Turn(turn) => turn.standing.is_some(),
        Notification::Closed(closing) => closing.agreement.is_some(),
        Notification::Accept(_)
        | Notification::Reject(_)
        | Notification::Cancel(_)
        | Notification::Inform(_)
        | Notification::Failure(_)
        | Notification::NotUnderstood(_)
        | Notification::Ack(_) => false,
    }
}

/// Where a delivery hangs whose trace is not kept: known well enough to tell that it failed.
fn unkept(deliver: &Deliver) -> TraceContext {
    let trace = TraceContext::of(deliver.traceparent.as_deref(), &deliver.negotiation).trace;
    TraceContext { trace, parent: SpanId::of(&deliver.negotiation) }
}
