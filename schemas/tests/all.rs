//! Documents against their schemas, checks and limits, one file each: one program, because each one links the whole crate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod agreement;
mod bad_inputs;
mod examples;
mod fuzz;
mod golden;
mod json_suite;
mod limits;
