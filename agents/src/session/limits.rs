//! A session's bounds and gaps.

use schemas::{Code, Refusal};

/// What a session may hold and how it repeats.
#[derive(Debug, Clone)]
pub struct SessionLimits {
    /// Most messages without an answer; further ones are refused with `overloaded`.
    pub unanswered_max: usize,
    /// At least this many of the latest deliveries are recognised when they come again, at most twice as many.
    pub deliveries_remembered: usize,
    /// At least this many of the latest negotiations in which something was said `once`, at most twice as many.
    pub negotiations_remembered: usize,
    /// Most times a message leaves.
    pub attempts_max: u32,
    /// First gap between attempts, in milliseconds.
    pub retry_base_ms: u64,
    /// Longest gap between attempts, in milliseconds.
    pub retry_max_ms: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            // About 50 MB of offers: an agent this far behind should slow down, not remember more.
            unanswered_max: 65_536,
            // Some 15 s of repeats at 4 000 deliveries a second; 2 MB for the busiest agent, nothing for a quiet one.
            deliveries_remembered: 65_536,
            // 4 096 times an offer and a confirmation is some 4 MB.
            negotiations_remembered: 4096,
            // With the gaps below: two and a half minutes, longer than the default hard deadline of a negotiation.
            attempts_max: 20,
            retry_base_ms: 200,
            retry_max_ms: 10_000,
        }
    }
}

/// What is answered beyond the bounds.
pub(super) fn overloaded() -> Refusal {
    Refusal::new(Code::Overloaded, "the agent has too many messages waiting; send fewer, or wait for answers")
}
