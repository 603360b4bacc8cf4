//! Repeating, and recognising what is repeated.
//!
//! [`Backoff`] says when to try again, [`RecentMap`] remembers what came lately. Equal calls give equal results, so that a simulated run repeats: neither reads a
//! clock or draws at random. [`SharedRecentMap`] is for many threads; which of its older keys it still remembers is a matter of chance.

mod backoff;
mod recent;

pub use backoff::{Backoff, draw, hash};
pub use recent::{RecentMap, SharedRecentMap};
