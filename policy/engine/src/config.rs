//! Settings of an engine. Every bound has a default with the reason for its value.

use policy_core::Limits;
use schemas::Lane;

/// Settings of one engine.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Names this running instance in the log (`by`, `claim`). Must differ between two engines that run at once.
    pub id: String,
    /// The lanes to serve; absent: every lane of the log.
    pub lanes: Option<Vec<Lane>>,
    /// Bounds of each lane's book.
    pub limits: Limits,
    /// The outbox.
    pub outbox: OutboxConfig,
    /// How much is taken in before anything goes out.
    pub batch: BatchConfig,
}

impl EngineConfig {
    /// Default settings under a name.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            lanes: None,
            limits: Limits::default(),
            outbox: OutboxConfig::default(),
            batch: BatchConfig::default(),
        }
    }
}

/// Settings of a lane's outbox.
#[derive(Debug, Clone)]
pub struct OutboxConfig {
    /// Gap before the first repeat, in milliseconds; each further gap is twice the one before. 500 is far above any
    /// healthy round trip, so that a repeat means a loss.
    pub retry_base_ms: u64,
    /// Largest gap, in milliseconds.
    pub retry_ms_max: u64,
    /// Most times one delivery is sent, the first included. Eight attempts at doubling gaps span about a minute, the
    /// default time to perform.
    pub attempts_max: u32,
    /// Most deliveries of a lane that wait for an acknowledgement; at this many the lane stops reading the log until
    /// some are acknowledged or given up.
    pub in_flight_max: usize,
    /// Most deliveries that wait for one agent; further ones are given up at once, so that one silent agent can never
    /// use up `in_flight_max`.
    pub per_agent_max: usize,
    /// Most deliveries in one inbox message.
    pub bundle_deliveries_max: usize,
    /// Most bytes in one inbox message, unless a single delivery is larger; a quarter of NATS's default payload limit.
    pub bundle_bytes_max: usize,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self {
            retry_base_ms: 500,
            retry_ms_max: 30_000,
            attempts_max: 8,
            in_flight_max: 262_144,
            per_agent_max: 16_384,
            bundle_deliveries_max: 256,
            bundle_bytes_max: 256 * 1024,
        }
    }
}

/// How much a lane takes in before it sends. Larger batches bundle more deliveries into one message; an idle lane never
/// waits for a batch to fill.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// Most records folded between two flushes.
    pub records_max: usize,
    /// Most acknowledgement messages taken in between two flushes.
    pub acks_max: usize,
    /// Acknowledged deliveries that are worth a `delivered` entry while the lane is busy.
    pub delivered_ids: usize,
    /// Longest an acknowledgement waits for its `delivered` entry, in milliseconds.
    pub delivered_ms: u64,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { records_max: 64, acks_max: 1024, delivered_ids: 256, delivered_ms: 1000 }
    }
}
