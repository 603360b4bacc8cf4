//! Plans, cells, figures and verdicts of experiments; one program, because each one links everything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod agora;
mod drift;
mod ioa;
mod model;
mod plans;
mod tournament;
