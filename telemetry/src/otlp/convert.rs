//! A span as OpenTelemetry's SDK writes it.

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::trace::{Kind, Span, Value};

/// Name of the attribute that says why a step failed.
const ERROR_TYPE: &str = "error.type";

pub(super) fn span_data(span: Span, scope: &InstrumentationScope) -> SpanData {
    let trace = TraceId::from_bytes(span.context.trace.to_bytes());
    let id = SpanId::from_bytes(span.id.to_bytes());
    let parent = if span.is_root { SpanId::INVALID } else { SpanId::from_bytes(span.context.parent.to_bytes()) };
    let mut attributes: Vec<KeyValue> = Vec::with_capacity(span.attributes.len() + 1);
    attributes.extend(span.attributes.into_iter().map(|(name, value)| KeyValue::new(name, attribute(value))));
    attributes.extend(span.error.map(|code| KeyValue::new(ERROR_TYPE, code)));
    SpanData {
        span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
        parent_span_id: parent,
        // Whoever takes or answers a message was asked by another process.
        parent_span_is_remote: matches!(span.kind, Kind::Server | Kind::Consumer),
        span_kind: kind(span.kind),
        name: span.name,
        start_time: span.start,
        // Two clocks may have been read; what took no time took no negative time.
        end_time: span.end.max(span.start),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope.clone(),
    }
}

const fn kind(kind: Kind) -> SpanKind {
    match kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Client => SpanKind::Client,
        Kind::Producer => SpanKind::Producer,
        Kind::Consumer => SpanKind::Consumer,
    }
}

fn attribute(value: Value) -> opentelemetry::Value {
    match value {
        Value::Text(text) => opentelemetry::Value::String(text.into()),
        Value::Number(number) => opentelemetry::Value::I64(number),
        Value::Flag(flag) => opentelemetry::Value::Bool(flag),
    }
}
