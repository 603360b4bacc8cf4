//! The spans themselves.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy_core::{Event, Protocol};
use schemas::delivery::{Disposition, Outcome};
use schemas::record::Record;
use schemas::{Act, AgentId, NegotiationId, RegisterKey, Timestamp, subject};
use telemetry::{Kind, Span, SpanId, TraceContext, TraceId, Tracer};
use tokio::time::Instant;

use super::{Traces, hanging_at, message, message_at};
use crate::lane::outbox::{DeliveryEvent, DeliveryStep};
use crate::metrics::WriteResult;

/// What goes over.
const SYSTEM: &str = "nats";

/// A message that was folded.
pub(crate) struct FoldedMessage {
    pub(crate) from: AgentId,
    pub(crate) act: Act,
    pub(crate) disposition: Disposition,
    /// Log time of its record.
    pub(crate) at: Timestamp,
}

/// A negotiation that has ended.
pub(crate) struct FinishedNegotiation {
    pub(super) negotiation: NegotiationId,
    protocol: Protocol,
    outcome: Outcome,
    at: Timestamp,
    elapsed_us: u64,
}

impl FoldedMessage {
    /// What the core reports of a message, at the log time of its record.
    pub(crate) fn of(event: &Event, at: Timestamp) -> Option<Self> {
        match event {
            Event::Disposed { from, act, disposition, .. } => {
                Some(Self { from: from.clone(), act: *act, disposition: *disposition, at })
            }
            // A call that opens a negotiation has no other disposition.
            Event::Started { negotiation, .. } => {
                let from = AgentId::try_new(negotiation.initiator()).ok()?;
                Some(Self { from, act: Act::Cfp, disposition: Disposition::Ok, at })
            }
            Event::Transition { .. }
            | Event::Closed { .. }
            | Event::Decided(_)
            | Event::Excluded { .. }
            | Event::Committed { .. }
            | Event::AwardLost { .. }
            | Event::Ended { .. }
            | Event::Claimed { .. }
            | Event::InvariantViolated { .. } => None,
        }
    }

    /// Why it was not followed.
    fn error(&self) -> Option<&'static str> {
        match self.disposition {
            // What was done already, or came after the end, is no failure of anybody.
            Disposition::Ok | Disposition::Duplicate | Disposition::Committed | Disposition::Closed => None,
            Disposition::Late
            | Disposition::Expired
            | Disposition::StaleRound
            | Disposition::OutOfTurn
            | Disposition::Malformed
            | Disposition::Conflict
            | Disposition::StaleSeq
            | Disposition::Unauthorized
            | Disposition::PolicyReject
            | Disposition::RateLimited
            | Disposition::Revoked
            | Disposition::MandateViolation => Some(self.disposition.as_str()),
        }
    }
}

impl FinishedNegotiation {
    /// The end of a negotiation, if this is one.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let Event::Ended { negotiation, protocol, outcome, at, elapsed_us, .. } = event else { return None };
        let (negotiation, protocol, outcome) = (negotiation.clone(), *protocol, *outcome);
        Some(Self { negotiation, protocol, outcome, at: *at, elapsed_us: *elapsed_us })
    }

    /// Records the negotiation as a whole. It is the root of its trace, unless its call came from another one.
    pub(super) fn record(self, tracer: &Tracer, root: TraceContext) {
        let error = (self.outcome == Outcome::Aborted).then_some("aborted");
        let make = || {
            let name = format!("negotiation {}", self.protocol.as_str());
            let end = system_time(self.at);
            let start = end.checked_sub(Duration::from_micros(self.elapsed_us)).unwrap_or(UNIX_EPOCH);
            let id = SpanId::of(&self.negotiation);
            let mut span = Span::new(name, Kind::Internal, root, id, start)
                .with("messaging.message.conversation_id", self.negotiation.to_string())
                .with("llmx.outcome", self.outcome.as_str())
                .failed(error);
            span.end = end;
            span.is_root = root.trace == TraceId::of(&self.negotiation);
            span
        };
        if error.is_some() { tracer.record_failed(root.trace, make) } else { tracer.record(root.trace, make) }
    }
}

impl Traces {
    /// A message was folded, the one whose effects are being done.
    pub(crate) fn handle_folded(&self, folded: &FoldedMessage, record: &Record) {
        let Some(cause) = self.cause.as_ref() else { return };
        let (Some(caused), Some(message)) = (&cause.message, message_at(cause.position, record)) else { return };
        let error = folded.error();
        let make = || {
            // Of a trace that is not kept the message has not been read yet.
            let msg_id = caused.msg_id.clone().or_else(|| message::id_of(message));
            let id_of = |of: fn(&AgentId, &schemas::MsgId) -> SpanId| {
                msg_id.as_ref().map_or(caused.context.parent, |msg_id| of(&message.from, msg_id))
            };
            let context = TraceContext { trace: caused.context.trace, parent: id_of(SpanId::admitted) };
            let mut span = Span::new(
                fold_name(folded.act),
                Kind::Consumer,
                context,
                id_of(SpanId::folded),
                system_time(folded.at),
            );
            span.start = span.start.min(span.end);
            let span = span
                .with("messaging.system", SYSTEM)
                .with("messaging.operation.type", "process")
                .with("messaging.operation.name", "fold")
                .with("messaging.destination.name", subject::log(self.lane))
                .with("messaging.message.conversation_id", message.negotiation.to_string())
                .with("messaging.message.body.size", message.body.get().len())
                .with("llmx.act", folded.act.as_str())
                .with("llmx.agent", folded.from.to_string())
                .with("llmx.disposition", folded.disposition.as_str())
                .with("llmx.lane", u32::from(self.lane.0))
                .failed(error);
            match msg_id {
                Some(msg_id) => span.with("messaging.message.id", msg_id.to_string()),
                None => span,
            }
        };
        let trace = caused.context.trace;
        if error.is_some() { self.tracer.record_failed(trace, make) } else { self.tracer.record(trace, make) }
    }

    /// The register has answered a write that was begun at `started`. `traceparent` is the call's, if it is known.
    pub(crate) fn handle_written(
        &mut self,
        key: &RegisterKey,
        result: WriteResult,
        started: Instant,
        traceparent: Option<&str>,
    ) {
        if !self.is_on() {
            return;
        }
        let error = (result == WriteResult::Different).then_some("register_conflict");
        let kept = self.writes.remove(key);
        if kept.is_none() && error.is_none() {
            return;
        }
        let negotiation = key.negotiation();
        let context = kept.unwrap_or_else(|| hanging_at(self.trace_of(negotiation, traceparent), negotiation, None));
        let make = || {
            let key = key.to_string();
            Span::new("write register", Kind::Client, context, SpanId::registered(&key), began(started))
                .with("messaging.system", SYSTEM)
                .with("messaging.operation.type", "send")
                .with("messaging.operation.name", "write register")
                .with("messaging.destination.name", key)
                .with("messaging.message.conversation_id", negotiation.to_string())
                .with("llmx.result", result.as_str())
                .with("llmx.lane", u32::from(self.lane.0))
                .failed(error)
        };
        if error.is_some() {
            self.tracer.record_failed(context.trace, make);
        } else {
            self.tracer.record(context.trace, make);
        }
    }

    /// Something became of a delivery.
    pub(crate) fn handle_delivery(&self, event: &DeliveryEvent) {
        let (Some(context), true) = (event.trace, self.is_on()) else { return };
        let error = match event.step {
            DeliveryStep::Sent => return,
            DeliveryStep::SentOnce | DeliveryStep::Acknowledged => None,
            DeliveryStep::GivenUp(reason) => Some(reason.as_str()),
        };
        let make = || {
            let id = SpanId::delivered(event.id);
            Span::new(deliver_name(event.act), Kind::Producer, context, id, began(event.made_at))
                .with("messaging.system", SYSTEM)
                .with("messaging.operation.type", "send")
                .with("messaging.operation.name", "deliver")
                .with("messaging.destination.name", subject::inbox(&event.to))
                .with("messaging.message.id", event.id.to_string())
                .with("messaging.message.conversation_id", event.negotiation.to_string())
                .with("llmx.act", event.act.as_str())
                .with("llmx.agent", event.to.to_string())
                .with("llmx.attempts", event.attempts)
                .with("llmx.lane", u32::from(self.lane.0))
                .failed(error)
        };
        if error.is_some() {
            self.tracer.record_failed(context.trace, make);
        } else {
            self.tracer.record(context.trace, make);
        }
    }
}

fn fold_name(act: Act) -> String {
    format!("fold {}", act.as_str())
}

fn deliver_name(act: Act) -> String {
    format!("deliver {}", act.as_str())
}

/// When something began, by the wall clock.
fn began(at: Instant) -> SystemTime {
    SystemTime::now().checked_sub(at.elapsed()).unwrap_or(UNIX_EPOCH)
}

/// Log time as a time of the wall clock.
fn system_time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_micros(at.0)).unwrap_or(UNIX_EPOCH)
}
