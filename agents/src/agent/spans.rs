//! The agent's spans: `process` of what it hears, `send` of what it says ([`telemetry::trace`] shows where they hang).

use std::time::{Duration, SystemTime};

use schemas::delivery::{Delivery, Notification};
use schemas::{AgentId, Timestamp, subject};
use telemetry::{Kind, Span, SpanId, TraceContext, TraceId, Tracer};

use crate::session::Origin;
use crate::strategy::{Outgoing, SendOutcome, Sent};

/// `error.type` of a message nobody answered.
const UNANSWERED: &str = "unanswered";

/// Makes an agent's spans. Off, it costs a comparison for each message.
pub(super) struct Spans {
    tracer: Tracer,
    agent: AgentId,
}

impl Spans {
    pub(super) fn new(tracer: Tracer, agent: AgentId) -> Self {
        Self { tracer, agent }
    }

    /// When a message arrived, where that is wanted.
    pub(super) fn received_at(&self) -> Option<SystemTime> {
        self.tracer.is_on().then(SystemTime::now)
    }

    /// Where in a trace a message is sent: under the delivery that made the agent send it, if one did; otherwise where its
    /// own `traceparent` says; otherwise under its negotiation.
    pub(super) fn origin(&self, outgoing: &Outgoing, cause: Option<&Delivery>) -> Option<Origin> {
        if !self.tracer.is_on() {
            return None;
        }
        let negotiation = &outgoing.negotiation;
        let context = match cause.filter(|delivery| delivery.envelope.negotiation == *negotiation) {
            Some(delivery) => {
                TraceContext { trace: trace_of(delivery), parent: SpanId::processed(delivery.envelope.msg_id) }
            }
            None => TraceContext::of(outgoing.traceparent.as_deref(), negotiation),
        };
        Some(Origin { context, is_kept: self.tracer.keeps(context.trace) })
    }

    /// The agent has heard a delivery and done what it made it do.
    pub(super) fn processed(&self, delivery: &Delivery, received_at: Option<SystemTime>) {
        let Some(start) = received_at else { return };
        let envelope = &delivery.envelope;
        let id = envelope.msg_id;
        let trace = trace_of(delivery);
        self.tracer.record(trace, false, || {
            let context = TraceContext { trace, parent: SpanId::delivered(id) };
            let name = format!("process {}", delivery.payload.act());
            let span = Span::new(name, Kind::Consumer, context, SpanId::processed(id), start)
                .on_nats("process", "process")
                .with("messaging.destination.name", subject::inbox(&self.agent))
                .with("messaging.message.id", id.to_string())
                .with("messaging.message.conversation_id", envelope.negotiation.to_string())
                .with("llmx.agent", self.agent.to_string())
                .with("llmx.act", delivery.payload.act().as_str());
            if let Notification::Ack(receipt) = &delivery.payload {
                return span.with("llmx.disposition", receipt.disposition.as_str());
            }
            let Notification::Closed(closing) = &delivery.payload else { return span };
            span.with("llmx.outcome", closing.outcome.as_str())
        });
    }

    /// Sending a message has ended; `now` is the agent's own time.
    pub(super) fn sent(&self, sent: &Sent, now: Timestamp) {
        let Some(context) = sent.way.context else { return };
        let error = match &sent.outcome {
            SendOutcome::Accepted { .. } => None,
            SendOutcome::Refused(refusal) => Some(refusal.code.as_str()),
            SendOutcome::Unanswered => Some(UNANSWERED),
        };
        // The agent's time only measures: it may run apart from the wall clock, which a span must tell.
        let took = Duration::from_micros(now.since_us(sent.way.written_at));
        let make = || {
            let end = SystemTime::now();
            let start = end.checked_sub(took).unwrap_or(end);
            let id = SpanId::sent(&self.agent, &sent.msg_id);
            Span::new(format!("send {}", sent.act), Kind::Producer, context, id, start)
                .on_nats("send", "send")
                .with("messaging.message.id", sent.msg_id.to_string())
                .with("messaging.message.conversation_id", sent.negotiation.to_string())
                .with("llmx.agent", self.agent.to_string())
                .with("llmx.act", sent.act.as_str())
                .with("llmx.attempts", sent.way.attempts)
                .failed(error)
                .lasting(took)
        };
        self.tracer.record(context.trace, error.is_some(), make);
    }
}

/// The trace of a delivery: its call's, which the engine passes on, otherwise its negotiation's own.
fn trace_of(delivery: &Delivery) -> TraceId {
    let carried = delivery.envelope.traceparent.as_deref().and_then(TraceContext::parse);
    carried.map_or_else(|| TraceId::of(&delivery.envelope.negotiation), |context| context.trace)
}
