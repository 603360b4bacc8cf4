//! A naive contract net, a naive bargain, a naive panel and a naive team beside the real ones: plain maps, every question answered by counting through everything,
//! written from docs/spec alone. For tests and the simulator; never part of a running exchange.
//!
//! [`Reference`] takes the records of a lane and tells, for each, every [fact] the lane's state should have produced;
//! [`scoring`] answers what an offer is worth, [`evidence`] what panels have shown. Of the real core only the names of things are used (effects, events,
//! phases): nothing here calls code that decides. One exception: keys of a panel's answers, and whether those agree, are the core's;
//! they are held against the programs they follow instead.
//!
//! Where the rules are silent it follows the contract in the docs of `LaneState::handle_record`: a timer is evaluated at its
//! deadline, what it arms counts from the record's time, and the k-th timer of a record stands at `u32::MAX - k`.

mod alternating_offers;
mod contract_net;
pub mod evidence;
pub mod fact;
mod negotiation;
mod panel;
mod reference;
pub mod scoring;
mod team;

use reference::{Moment, Wins};

pub use alternating_offers::is_inside;
pub use reference::Reference;
