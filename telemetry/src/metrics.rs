//! Making metrics, and those every process has.

mod exposition;
mod maker;
pub mod process;
pub mod runtime;
mod traces;

pub use exposition::{CONTENT_TYPE, to_text};
pub use maker::Maker;
pub use process::Build;
pub use traces::SpanCounts;

/// Latency buckets in seconds for what happens inside the exchange: from 50 µs to 2.5 s.
pub const LATENCY_S: [f64; 15] =
    [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
