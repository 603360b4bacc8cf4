//! Signed records of real logs: the golden logs of the core, archived, exported, verified, and everything that is no record.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod cost;
mod exported;
mod golden;
mod refused;
mod rig;
