//! One delivery in the outbox.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use bytes::Bytes;
use policy_core::Deliver;
use telemetry::TraceContext;
use tokio::time::Instant;

use super::GivenUp;
use super::schedule::RetrySlot;
use crate::config::OutboxConfig;

/// A gap is lengthened by up to a quarter; less than a doubling, so that gaps always grow.
const JITTER_PARTS: u64 = 1024;
/// Doublings beyond this pass every sensible `retry_ms_max`.
const DOUBLINGS_MAX: u32 = 20;

/// A delivery and where it stands.
#[derive(Debug)]
pub(crate) struct OutboxEntry {
    pub(crate) deliver: Deliver,
    /// Its document, once written; a slice of the message it first went out in.
    pub(crate) document: Option<Bytes>,
    /// Where it hangs in its trace, if that is kept.
    pub(crate) trace: Option<Box<TraceContext>>,
    /// Rank in the order of making.
    pub(crate) made: u64,
    pub(crate) made_at: Instant,
    pub(crate) attempts: u32,
    pub(crate) state: DeliveryState,
    /// The slot its timer is armed in; any other slot that still lists it is out of date.
    pub(crate) due: Option<RetrySlot>,
}

/// See the diagram in the parent module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// Not to be sent by this engine yet.
    Held,
    /// Waits for the register.
    Gated,
    /// Leaves with the next flush; `counts` as an attempt, or is an extra for a hello.
    Queued { counts: bool },
    /// Waits for its acknowledgement.
    Sent,
    /// Waits until its failure is logged.
    GivenUp,
    /// Waits until its failure, which is logged, is folded.
    Failed,
}

impl OutboxEntry {
    pub(crate) fn new(deliver: Deliver, made: u64, now: Instant) -> Self {
        Self {
            deliver,
            document: None,
            trace: None,
            made,
            made_at: now,
            attempts: 0,
            state: DeliveryState::Held,
            due: None,
        }
    }

    /// Whether the recipient may have seen it: sent by this engine, or held, when an earlier owner may have sent it.
    pub(crate) fn may_be_sent(&self) -> bool {
        self.attempts > 0 || self.state == DeliveryState::Held
    }

    pub(crate) fn given_up(&self) -> GivenUp {
        GivenUp {
            id: self.deliver.id,
            negotiation: self.deliver.negotiation.clone(),
            to: self.deliver.to.clone(),
            attempts: self.attempts,
            may_answer: self.deliver.attempts_max.is_some(),
        }
    }

    /// Times it may be sent.
    pub(crate) fn attempts_max(&self, config: &OutboxConfig) -> u32 {
        self.deliver.attempts_max.map_or(config.attempts_max, |attempts| attempts.min(config.attempts_max))
    }

    /// Gap after the latest attempt: base * 2^(attempts - 1), capped, plus jitter.
    ///
    /// The jitter is a hash of recipient and attempt: it spreads recipients that fell silent together, repeats in a test,
    /// and lets one recipient's deliveries stay in one message.
    pub(crate) fn gap(&self, config: &OutboxConfig) -> Duration {
        let doublings = self.attempts.saturating_sub(1).min(DOUBLINGS_MAX);
        let gap_ms = config.retry_base_ms.saturating_mul(1 << doublings).min(config.retry_ms_max);
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((&self.deliver.to, self.attempts));
        let jitter_ms = gap_ms.saturating_mul(hash % (JITTER_PARTS / 4)) / JITTER_PARTS;
        Duration::from_millis(gap_ms + jitter_ms)
    }
}
