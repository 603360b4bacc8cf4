//! What the processes of llmx tell about themselves: metrics ([`mod@metrics`]), traces ([`trace`], and over OTLP in [`otlp`]
//! with the feature `otlp`) and logs ([`log`]);
//! and how texts of others reach a terminal ([`terminal`]).
//!
//! Nothing here decides anything: every function may be left out, and the exchange does the same.

#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod terminal;
pub mod trace;

pub use trace::{Kind, Span, SpanId, Spans, TraceContext, TraceId, Tracer};
