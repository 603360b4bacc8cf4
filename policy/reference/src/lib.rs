//! A naive contract net and a naive bargain beside the real ones: plain maps, every question answered by counting through everything,
//! written from docs/spec alone. For tests and the simulator; never part of a running exchange.
//!
//! [`Reference`] takes the records of a lane and tells, for each, every [fact] the lane's state should have produced;
//! [`scoring`] answers what an offer is worth. Of the real core only the names of things are used (effects, events,
//! phases): nothing here calls code that decides.
//!
//! Where the rules are silent it follows the contract in the docs of `LaneState::handle_record`: a timer is evaluated at its
//! deadline, what it arms counts from the record's time, and the k-th timer of a record stands at `u32::MAX - k`.

mod alternating_offers;
mod contract_net;
pub mod fact;
mod negotiation;
mod reference;
pub mod scoring;

use reference::{Moment, Wins};

pub use alternating_offers::is_inside;
pub use reference::Reference;
