//! Traces: one negotiation is one trace, whoever takes part.
//!
//! Every process can tell the trace of a negotiation, and the span of each step in it, from what the message at hand says.
//! So nothing has to be carried from process to process besides W3C's `traceparent`, and even that may be missing: a
//! client that knows nothing of tracing is traced all the same.
//!
//! * The **trace** is that of the `traceparent` the message carries, otherwise [`TraceId::of`] the negotiation.
//! * The **span** of a step is a hash of what the step is about ([`SpanId::sent`] and its like): whoever does the next step
//!   knows its parent without being told.
//! * Whether a trace is **kept** depends on its id alone (W3C trace ids are random in their last seven bytes), so every process
//!   with the same ratio keeps the same traces. Refusals and errors are kept besides, up to a bound per second.
//!
//! ```text
//! negotiation <protocol>            engine, at the end; the root where the call carried no traceparent
//! └─ send cfp                       agent
//!    └─ admit cfp                   gateway: from arrival to the answer
//!       ├─ publish log              gateway: until the log has acknowledged
//!       └─ fold cfp                 engine: from the record's time to the end of its fold
//!          ├─ write register        engine
//!          └─ deliver cfp           engine: until acknowledged, or given up
//!             └─ process cfp        agent
//!                └─ send offer      agent
//!                   └─ admit offer  ...
//! ```

mod context;
mod tracer;

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

pub use context::{SpanId, TraceContext, TraceId};
pub use tracer::{Spans, Tracer};

/// What a span is to those it touches (OpenTelemetry, span kinds).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Within a process.
    Internal,
    /// It answers a request.
    Server,
    /// It asks another process and waits.
    Client,
    /// It hands a message on.
    Producer,
    /// It takes a message.
    Consumer,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// A step that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// What was done to what, from a small set: `admit cfp`.
    pub name: Cow<'static, str>,
    /// Its kind.
    pub kind: Kind,
    /// Its trace and its parent.
    pub context: TraceContext,
    /// Its own id.
    pub id: SpanId,
    /// Whether it has no parent although its context names one: the negotiation itself, whose context names it.
    pub is_root: bool,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What else is known, by the names of OpenTelemetry's semantic conventions where it has one.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, as a code from a closed set (`error.type`); such spans are kept beside the sampled ones.
    pub error: Option<&'static str>,
}

impl Span {
    /// A span under `context`, which ends now.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        context: TraceContext,
        id: SpanId,
        start: SystemTime,
    ) -> Self {
        Self {
            name: name.into(),
            kind,
            context,
            id,
            is_root: false,
            start,
            end: SystemTime::now(),
            attributes: Vec::new(),
            error: None,
        }
    }

    /// Adds an attribute.
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Adds an attribute whose value is known.
    pub fn with_some(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds what was done with a message on NATS: the type of the operation, and its name.
    pub fn on_nats(self, operation_type: &'static str, operation: &'static str) -> Self {
        self.with("messaging.system", "nats")
            .with("messaging.operation.type", operation_type)
            .with("messaging.operation.name", operation)
    }

    /// Ends it so long after its beginning.
    pub fn lasting(mut self, took: Duration) -> Self {
        self.end = self.start.checked_add(took).unwrap_or(self.start);
        self
    }

    /// Marks it as failed.
    pub fn failed(mut self, code: Option<&'static str>) -> Self {
        self.error = code;
        self
    }
}

/// Declares what becomes a value of an attribute.
macro_rules! values {
    ($($given:ident: $ty:ty => $value:expr;)+) => {$(
        impl From<$ty> for Value {
            fn from($given: $ty) -> Self {
                $value
            }
        }
    )+};
}

values! {
    text: &'static str => Self::Text(Cow::Borrowed(text));
    text: String => Self::Text(Cow::Owned(text));
    number: i64 => Self::Number(number);
    number: u32 => Self::Number(i64::from(number));
    number: usize => Self::Number(i64::try_from(number).unwrap_or(i64::MAX));
    flag: bool => Self::Flag(flag);
}
