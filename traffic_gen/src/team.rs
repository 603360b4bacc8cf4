//! Teams on a running exchange: a scenario played, what was said and done in it, and many of them under load.
//!
//! | module | question it answers |
//! |---|---|
//! | [`transcript`] | what was said and done, as the members were told? |
//! | [`play`] | how does a scenario run on an exchange? |
//! | [`load`] | what comes of many teams on a running exchange? |

pub mod load;
pub mod play;
pub mod transcript;

pub use play::{Stage, TeamPlayError, play};
pub use transcript::{Transcript, TranscriptKeeper};
