//! The spans of admission: `admit <act>` from arrival to answer, and under it `publish log`.
//!
//! What follows a message in its trace names its parent by [`SpanId::admitted`]. So that id goes to the attempt which put
//! the message into the log, or may have (`log_unavailable`); a refused attempt, and a repeat of what this gateway took
//! before, have ids of their own. (A repeat through another gateway is not known as one, and has the same ids again.)
//!
//! A message that is refused before its envelope could be read belongs to no negotiation that is known: its span is alone in
//! a trace of its own.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use schemas::{Act, Code, Digest, subject};
use telemetry::{Kind, Span, SpanId, TraceContext, TraceId, Tracer};

use super::AdmissionContext;
use crate::Transport;

/// Makes the spans of one gateway's admission.
pub(super) struct AdmissionSpans {
    tracer: Tracer,
    lanes: u8,
    /// Distinguishes this gateway's own ids from those of others and of its earlier runs.
    seed: Digest,
    count: AtomicU64,
}

/// Where an attempt stands.
#[derive(Clone, Copy)]
struct AdmissionSpan {
    context: TraceContext,
    /// Its id, where it stands alone in its trace.
    alone: Option<SpanId>,
}

/// An attempt whose spans are wanted.
#[derive(Clone, Copy)]
struct Kept<'t> {
    step: AdmissionSpan,
    context: &'t AdmissionContext,
    /// The span of the admission.
    id: SpanId,
    /// Whether it has the ids that others name.
    is_known: bool,
    arrived: SystemTime,
    ended: SystemTime,
    error: Option<&'static str>,
}

impl AdmissionSpans {
    pub(super) fn new(tracer: Tracer, gateway: &str, lanes: u8) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let seed = Digest::of_parts(&[gateway.as_bytes(), &since.to_be_bytes()]);
        Self { tracer, lanes, seed, count: AtomicU64::new(0) }
    }

    pub(super) fn is_on(&self) -> bool {
        self.tracer.is_on()
    }

    /// Where an attempt stands; nothing when nobody wants to know. Costs no more than reading a `traceparent`, or hashing
    /// the negotiation where there is none.
    fn step(&self, context: &AdmissionContext) -> Option<AdmissionSpan> {
        if !self.is_on() {
            return None;
        }
        let carried = context.named.as_ref().and_then(|named| named.traceparent.as_deref());
        let carried = carried.and_then(TraceContext::parse);
        match carried.or_else(|| Some(TraceContext::of(None, context.negotiation()?))) {
            Some(context) => Some(AdmissionSpan { context, alone: None }),
            None => self.fresh().map(|context| AdmissionSpan { context, alone: Some(context.parent) }),
        }
    }

    /// Hands the spans of an attempt that has ended now on, as far as its trace is kept, and says which trace that is.
    pub(super) fn record(&self, context: &AdmissionContext, refused: Option<Code>) -> Option<TraceId> {
        let step = self.step(context)?;
        let trace = step.context.trace;
        let kept = OnceCell::new();
        let kept = || *kept.get_or_init(|| self.keep(step, context, refused));
        let hand_on = |make: &dyn Fn() -> Span| self.tracer.record(trace, refused.is_some(), make);
        hand_on(&|| admission(kept()));
        if let Some(publishing) = context.publishing {
            hand_on(&|| self.publication(kept(), publishing));
        }
        Some(trace)
    }

    fn keep<'t>(&self, step: AdmissionSpan, context: &'t AdmissionContext, refused: Option<Code>) -> Kept<'t> {
        let may_be_stored = refused.is_none_or(|code| code == Code::LogUnavailable && context.publishing.is_some());
        let known = context.message().filter(|_| may_be_stored && !context.is_repeat);
        let known = known.map(|(agent, message)| SpanId::admitted(agent, message));
        let arrived = context.arrived.unwrap_or_else(SystemTime::now);
        Kept {
            step,
            context,
            id: known.or(step.alone).unwrap_or_else(|| self.fresh_id(step)),
            is_known: known.is_some(),
            arrived,
            // By the clock that never goes back: a step of the machine's clock must not make a span end before it began.
            ended: arrived + context.began.elapsed(),
            error: refused.map(Code::as_str),
        }
    }

    fn publication(&self, kept: Kept<'_>, publishing: Instant) -> Span {
        let Kept { step, context, .. } = kept;
        let known =
            context.message().filter(|_| kept.is_known).map(|(agent, message)| SpanId::published(agent, message));
        let id = known.unwrap_or_else(|| self.fresh_id(step));
        let start = kept.arrived + publishing.duration_since(context.began);
        let span = Span::new("publish log", Kind::Producer, step.context.under(kept.id), id, start)
            .on_nats("send", "publish")
            .failed(kept.error);
        let span = Span { end: kept.ended, ..identified(span, context) };
        let lane = context.negotiation().map(|negotiation| negotiation.lane(self.lanes));
        span.with_some("messaging.destination.name", lane.map(subject::log))
            .with_some("llmx.lane", lane.map(|lane| u32::from(lane.0)))
    }

    /// An id that nobody else names.
    fn fresh_id(&self, step: AdmissionSpan) -> SpanId {
        self.fresh().map_or(step.context.parent, |context| context.parent)
    }

    /// A place in a trace that nobody else names.
    fn fresh(&self) -> Option<TraceContext> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let digits = HEXLOWER.encode(&Digest::of_parts(&[&self.seed.0, &count.to_be_bytes()]).0);
        TraceContext::parse(&format!("00-{}-{}-00", &digits[..32], &digits[32..48]))
    }
}

fn admission(kept: Kept<'_>) -> Span {
    let Kept { step, context, .. } = kept;
    let name = context.act.map_or_else(|| "admit message".to_owned(), |act| format!("admit {act}"));
    let is_over_nats = context.transport == Transport::Nats;
    let span = Span::new(name, Kind::Server, step.context, kept.id, kept.arrived)
        .with("messaging.operation.type", "receive")
        .with("messaging.operation.name", "admit")
        .with("messaging.message.body.size", context.bytes)
        .with("llmx.transport", <&str>::from(context.transport))
        .with_some("messaging.system", is_over_nats.then_some("nats"))
        .with_some("llmx.repeat", context.is_repeat.then_some(true))
        .failed(kept.error);
    Span { end: kept.ended, is_root: step.alone.is_some(), ..identified(span, context) }
}

/// Adds what the message is, as far as that is known.
fn identified(span: Span, context: &AdmissionContext) -> Span {
    span.with_some("llmx.act", context.act.map(Act::as_str))
        .with_some("llmx.agent", context.agent.as_ref().map(ToString::to_string))
        .with_some("messaging.message.id", context.named.as_ref().map(|named| named.message.to_string()))
        .with_some("messaging.message.conversation_id", context.negotiation().map(ToString::to_string))
}
