//! Bargains under the alternating offers protocol: played through the core, measured, drawn, and judged.
//!
//! | module | question it answers |
//! |---|---|
//! | [`analysis`] | what was possible, and how far from it is an agreement? |
//! | [`anchoring`] | how much of its first offer is a party given? |
//! | [`table`] | how does the core alone serve as an exchange? |
//! | [`sitting`] | how is one bargain opened and carried on there? |
//! | [`play`] | how do strategies play it to the end? |
//! | [`played`] | what came of one? |
//! | [`figures`] | what came of many? |
//! | [`lineup`] | which domain, with which strategies? |
//! | [`report`] | how is one told? |
//! | [`market`] | what comes of many on a running exchange? |
//! | [`plot`] | what does one look like? |
//! | [`haggle`] | does a mandate hold, whatever its party tries? |

pub mod analysis;
pub mod anchoring;
pub mod figures;
pub mod haggle;
pub mod lineup;
pub mod market;
pub mod play;
pub mod played;
pub mod plot;
pub mod report;
pub mod sitting;
pub mod table;
