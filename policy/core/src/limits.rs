//! Every bound of the fold, with the reason for its value. All engines of a lane must run the same limits.

/// Bounds of one [`crate::LaneState`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most open negotiations; a call beyond them is answered `rate_limited`. 2^20 at 4 KiB each are 4 GiB.
    pub open_max: usize,
    /// Most contractors in one negotiation: the largest group the control plane allows.
    pub invited_max: usize,
    /// Most messages of one party in one negotiation that are remembered; further ones are answered `rate_limited`.
    /// A contractor needs three (offer, confirm, inform); 64 leaves room for revisions.
    pub messages_per_party_max: usize,
    /// Most tombstones; the oldest is dropped first. At some 700 bytes each, 2^20 are 700 MiB.
    pub tombstones_max: usize,
    /// How long after its hard deadline a closed negotiation is still recognised, and its deliveries are retried, in
    /// milliseconds. One minute covers a receiver that restarts.
    pub tombstone_grace_ms: u64,
    /// How long a receipt of a message that reached no negotiation is retried, in milliseconds.
    pub stranger_receipt_ms: u64,
    /// Most agents whose names are shared between negotiations; further ones are stored once per negotiation.
    pub names_shared_max: usize,
    /// Most contractors whose last win is remembered (`tie_break: least_recent_winner`); the least recent is forgotten.
    pub winners_max: usize,
}

/// Attempts at delivering a call after which nobody waits for an agent that is not durable: at the outbox's gaps three and
/// a half seconds, in which a connection that is there has shown itself.
pub const CALL_ATTEMPTS_MAX: u32 = 3;

impl Default for Limits {
    fn default() -> Self {
        Self {
            open_max: 1 << 20,
            invited_max: schemas::control::GROUP_MEMBERS_MAX,
            messages_per_party_max: 64,
            tombstones_max: 1 << 20,
            tombstone_grace_ms: 60_000,
            stranger_receipt_ms: 60_000,
            names_shared_max: 1 << 16,
            winners_max: 1 << 16,
        }
    }
}
