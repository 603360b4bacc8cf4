//! The spans of admission: `admit <act>` from arrival to answer, and under it `publish log`.
//!
//! What follows a message in its trace names its parent by [`SpanId::admitted`]. So that id goes to the attempt which put
//! the message into the log, or may have (`log_unavailable`); a refused attempt, and a repeat of what this gateway took
//! before, have ids of their own. (A repeat through another gateway is not known as one, and has the same ids again.)
//!
//! A message that is refused before its envelope could be read belongs to no negotiation that is known: its span is alone in
//! a trace of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use schemas::{Code, Digest, subject};
use telemetry::{Kind, Span, SpanId, TraceContext, TraceId, Tracer};

use super::Transport;
use super::trail::Trail;

/// Makes the spans of one gateway's admission.
pub(crate) struct AdmissionSpans {
    tracer: Tracer,
    lanes: u8,
    /// Distinguishes this gateway's own ids from those of others and of its earlier runs.
    seed: Digest,
    count: AtomicU64,
}

/// Where an attempt stands in which trace.
#[derive(Clone, Copy)]
pub(super) struct Step {
    context: TraceContext,
    id: SpanId,
    is_alone: bool,
}

impl Step {
    pub(super) fn trace(&self) -> TraceId {
        self.context.trace
    }
}

impl AdmissionSpans {
    pub(crate) fn new(tracer: Tracer, gateway: &str, lanes: u8) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let seed = Digest::of_parts(&[gateway.as_bytes(), &since.to_be_bytes()]);
        Self { tracer, lanes, seed, count: AtomicU64::new(0) }
    }

    pub(super) fn is_on(&self) -> bool {
        self.tracer.is_on()
    }

    /// Where an attempt that ended so stands; nothing when nobody wants to know.
    pub(super) fn step(&self, trail: &Trail, refused: Option<Code>) -> Option<Step> {
        if !self.is_on() {
            return None;
        }
        let named = trail.named.as_ref();
        let carried = named.and_then(|named| named.traceparent.as_deref()).and_then(TraceContext::parse);
        let context = carried.or_else(|| Some(TraceContext::of(None, trail.negotiation()?)));
        let may_be_stored = refused.is_none_or(|code| code == Code::LogUnavailable && trail.publishing.is_some());
        let own = match (&trail.agent, named) {
            (Some(agent), Some(named)) if may_be_stored && !trail.is_repeat => {
                Some(SpanId::admitted(agent, &named.message))
            }
            (_, _) => None,
        };
        match (context, own) {
            (Some(context), Some(id)) => Some(Step { context, id, is_alone: false }),
            (Some(context), None) => Some(Step { context, id: self.fresh()?.parent, is_alone: false }),
            (None, _) => {
                let context = self.fresh()?;
                Some(Step { context, id: context.parent, is_alone: true })
            }
        }
    }

    /// Hands the spans of an attempt on, as far as its trace is kept.
    pub(super) fn record(&self, step: Step, trail: &Trail, refused: Option<Code>) {
        let Some(arrived) = trail.arrived else { return };
        // By the clock that never goes back: a step of the machine's clock must not make a span end before it began.
        let ended = arrived + trail.began.elapsed();
        let error = refused.map(Code::as_str);
        let hand_on = |make: &dyn Fn() -> Span| match error {
            Some(_) => self.tracer.record_failed(step.trace(), make),
            None => self.tracer.record(step.trace(), make),
        };
        hand_on(&|| Span { end: ended, ..admission(step, trail, arrived).failed(error) });
        if trail.publishing.is_some() {
            hand_on(&|| Span { end: ended, ..self.publication(step, trail, arrived).failed(error) });
        }
    }

    fn publication(&self, step: Step, trail: &Trail, arrived: SystemTime) -> Span {
        let waited = trail.publishing.map(|publishing| publishing.duration_since(trail.began)).unwrap_or_default();
        let id = match (&trail.agent, &trail.named) {
            (Some(agent), Some(named)) if step.id == SpanId::admitted(agent, &named.message) => {
                Some(SpanId::published(agent, &named.message))
            }
            (_, _) => self.fresh().map(|context| context.parent),
        };
        let context = step.context.under(step.id);
        let span = Span::new("publish log", Kind::Producer, context, id.unwrap_or(step.id), arrived + waited)
            .with("messaging.system", "nats")
            .with("messaging.operation.type", "send")
            .with("messaging.operation.name", "publish");
        let Some(negotiation) = trail.negotiation() else { return span };
        let lane = negotiation.lane(self.lanes);
        identified(span, trail)
            .with("messaging.destination.name", subject::log(lane))
            .with("llmx.lane", u32::from(lane.0))
    }

    /// A place in a trace that nobody else names.
    fn fresh(&self) -> Option<TraceContext> {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let digits = hex::encode(Digest::of_parts(&[&self.seed.0, &count.to_be_bytes()]).0);
        TraceContext::parse(&format!("00-{}-{}-00", &digits[..32], &digits[32..48]))
    }
}

fn admission(step: Step, trail: &Trail, arrived: SystemTime) -> Span {
    let name = trail.act.map_or_else(|| "admit message".to_owned(), |act| format!("admit {act}"));
    let mut span = Span::new(name, Kind::Server, step.context, step.id, arrived)
        .with("messaging.operation.type", "receive")
        .with("messaging.operation.name", "admit")
        .with("messaging.message.body.size", trail.bytes)
        .with("llmx.transport", trail.transport.as_str());
    span.is_root = step.is_alone;
    if trail.transport == Transport::Nats {
        span = span.with("messaging.system", "nats");
    }
    if trail.is_repeat {
        span = span.with("llmx.repeat", true);
    }
    identified(span, trail)
}

/// Adds what the message is, as far as that is known.
fn identified(mut span: Span, trail: &Trail) -> Span {
    if let Some(act) = trail.act {
        span = span.with("llmx.act", act.as_str());
    }
    if let Some(agent) = &trail.agent {
        span = span.with("llmx.agent", agent.to_string());
    }
    if let Some(named) = &trail.named {
        span = span.with("messaging.message.id", named.message.to_string());
    }
    match trail.negotiation() {
        Some(negotiation) => span.with("messaging.message.conversation_id", negotiation.to_string()),
        None => span,
    }
}
