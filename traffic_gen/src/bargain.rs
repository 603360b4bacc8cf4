//! Bargains under the alternating offers protocol: played through the core, measured, drawn, and judged.
//!
//! | module | question it answers |
//! |---|---|
//! | [`analysis`] | what was possible, and how far from it is an agreement? |
//! | [`anchoring`] | how much of its first offer is a party given? |
//! | [`in_memory`] | how does the core alone serve as an exchange? |
//! | [`session`] | how is one bargain opened and carried on there? |
//! | [`run`] | how do strategies play it to the end? |
//! | [`played`] | what came of one? |
//! | [`figures`] | what came of many? |
//! | [`matchup`] | which domain, with which strategies? |
//! | [`report`] | how is one told? |
//! | [`load`] | what comes of many on a running exchange? |
//! | [`plot`] | what does one look like? |
//! | [`mandate_fuzz`] | does a mandate hold, whatever its party tries? |

pub mod analysis;
pub mod anchoring;
pub mod figures;
pub mod in_memory;
pub mod load;
pub mod mandate_fuzz;
pub mod matchup;
pub mod played;
pub mod plot;
pub mod report;
pub mod run;
pub mod session;
