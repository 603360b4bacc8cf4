//! Figures, verdicts and reports over cells whose true values are known.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "a test has no public interface, and may panic")]

mod figures;
mod reports;
mod verdicts;
mod world;
