//! Load, traces and verdicts: what drives the exchange and what judges it from the outside.

pub mod arrivals;
pub mod fairness;
pub mod invariants;
