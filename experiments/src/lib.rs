//! Experiments: what is asked of the exchange, measured over a grid of cells, and reported with intervals.
//!
//! An experiment leaves a folder. `experiment.json` is the plan as it was resolved; each folder under `cells` holds what one
//! cell measured ([`record`]), and every figure of the report is computed from those lines and nothing else. A [`soak`]
//! leaves its samples instead, and [`mod@agora`] its queries.

pub mod agora;
pub mod figures;
#[cfg(feature = "llm")]
pub mod model;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
pub mod soak;
