//! How much a lane may be asked to open: what its owner tells gateways on [`crate::subject::admission`].
//!
//! Nothing in the log depends on it: a gateway judges an opening act by it before the append. One word, from an owner of epoch 3
//! that has more to register than it keeps up with:
//!
//! ```json
//! {"rate_per_s": 640, "gateways": 2, "wait_ms": 31, "epoch": 3, "sent_us": 81200417, "queue": "register"}
//! ```

use serde::{Deserialize, Serialize};

/// A queue in which work of a lane waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneQueue {
    /// Records of the log that are not folded.
    Records,
    /// Entries of the register that are not written.
    Register,
}

impl LaneQueue {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::Records, Self::Register];
}

/// Openings per second of a lane before anything is known: a laptop does as many, and a faster machine shows within half a
/// second that it does more.
pub const RATE_FIRST: u32 = 250;

/// What the owner of a lane says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneAdmission {
    /// Opening acts per second that may be appended, by all gateways together.
    pub rate_per_s: u32,
    /// Gateways that share the rate.
    pub gateways: u32,
    /// The longest of the mean waits in the queues, in milliseconds.
    pub wait_ms: u32,
    /// Epoch of the owner.
    pub epoch: u64,
    /// When it was said, in microseconds of a clock of the owner's: of two words of one owner the difference counts.
    pub sent_us: u64,
    /// The queue that stands; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<LaneQueue>,
}
