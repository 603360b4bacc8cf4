//! What the negotiations of all protocols share.

pub(crate) mod context;
pub(crate) mod disposition;
pub(crate) mod header;
pub(crate) mod opening;
pub(crate) mod party;
pub(crate) mod phase;
pub(crate) mod tombstone;
pub mod view;
