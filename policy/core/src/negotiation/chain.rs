//! The hash chain over the inputs of a negotiation.

use schemas::ids::Position;
use schemas::{Digest, NegotiationId, Timestamp};

/// The chain before the first input.
pub const CHAIN_START: Digest = Digest([0; 32]);

/// One input of a negotiation. Kept only where [`crate::LaneState::keep_links`] asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// The digest of a message, or the tag of a timer or engine event.
    pub input: Box<[u8]>,
    /// Where it stands; of a timer as in [`crate::LaneState::handle_record`].
    pub position: Position,
    /// The instant it was evaluated at: a record's time, or a timer's deadline.
    pub at: Timestamp,
    /// Whether it opened the negotiation.
    pub is_first: bool,
}

/// The chain after an input: `SHA-256(chain, input, sequence, index, instant)`, each part preceded by its length in eight
/// bytes; numbers are big-endian, the instant in microseconds.
#[must_use]
pub fn chained(before: Digest, input: &[u8], position: Position, at: Timestamp) -> Digest {
    Digest::of_parts(&[
        &before.0,
        input,
        &position.seq.to_be_bytes(),
        &position.index.to_be_bytes(),
        &at.0.to_be_bytes(),
    ])
}
