//! What the core decides beside the naive reference, in tables, from vectors and from texts that are meant to take long; one program,
//! because each one links everything.

#![allow(clippy::duplicate_mod, reason = "other test programs load the same helpers")]

#[path = "support/alike.rs"]
mod alike;
mod bargains_alike;
mod found;
mod panel_arithmetic;
mod panel_fuzz;
mod panels_alike;
mod snapshot;
mod teams_alike;
mod vectors;
