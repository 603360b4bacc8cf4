//! Making metrics, and those every process has.

mod maker;

pub use maker::Maker;

/// Latency buckets in seconds for what happens inside the exchange: from 50 µs to 2.5 s.
pub const LATENCY_S: [f64; 15] =
    [5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
