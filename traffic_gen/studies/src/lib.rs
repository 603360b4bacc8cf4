//! Experiments: what is asked of the exchange, measured over a grid of cells, and reported with intervals.
//!
//! An experiment leaves a folder. `experiment.json` is the plan as it was resolved; each folder under `cells` holds what one
//! cell measured ([`record`]), and every figure of the report is computed from those lines and nothing else. A [`soak`]
//! leaves its samples instead, [`mod@agora`] its queries, and [`ioa`] its formations, a [`tournament`] its bargains.

pub mod agora;
pub mod dylan;
pub mod figures;
pub mod ioa;
pub mod model;
pub mod plan;
pub mod record;
pub mod report;
pub mod run;
pub mod soak;
pub mod study;
pub mod tournament;
