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
mod span;
mod tracer;

pub use context::{SpanId, TraceContext, TraceId};
pub use span::{Kind, Span, Value};
pub use tracer::{Spans, Tracer};
