//! Repeating, and recognising what is repeated.
//!
//! [`Backoff`] says when to try again, [`RecentMap`] remembers what came lately, for many threads as [`SharedRecentMap`]. Neither reads a clock or draws at random:
//! equal calls give equal results, so that a simulated run repeats.

mod backoff;
mod recent;

pub use backoff::{Backoff, draw, hash};
pub use recent::{RecentMap, SharedRecentMap};
