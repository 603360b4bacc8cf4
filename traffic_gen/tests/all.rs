//! Whole exchanges under load and beside what fails; one program, because each one links everything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod full_store;
mod matrix;
mod routines;
mod traces;
