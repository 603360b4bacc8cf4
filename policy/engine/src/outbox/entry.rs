//! One delivery in the outbox, and those of one recipient in order.

use std::collections::VecDeque;

use bytes::Bytes;
use policy_core::Deliver;
use schemas::DeliveryId;
use telemetry::TraceContext;
use tokio::time::Instant;

use super::GivenUp;
use super::retry::RetrySlot;
use crate::config::OutboxConfig;

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
}

/// The deliveries that wait for one agent, in the order they were made. Removal from the middle is lazy: the outbox knows which ids still live.
#[derive(Debug, Default)]
pub(crate) struct Recipient {
    order: VecDeque<DeliveryId>,
    live: usize,
}

impl Recipient {
    /// Ids that may be stale before they are swept, beyond as many as live; keeps sweeping linear in what is added.
    const SLACK: usize = 16;

    pub(crate) fn push(&mut self, id: DeliveryId) {
        self.order.push_back(id);
        self.live += 1;
    }

    /// Notes that one id no longer lives; `lives` tells which still do. Returns whether any is left.
    pub(crate) fn note_gone(&mut self, lives: impl Fn(&DeliveryId) -> bool) -> bool {
        self.live = self.live.saturating_sub(1);
        while self.order.front().is_some_and(|id| !lives(id)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.live + Self::SLACK {
            self.order.retain(|id| lives(id));
        }
        self.live > 0
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// The ids, stale ones included.
    pub(crate) fn ids(&self) -> impl Iterator<Item = DeliveryId> + '_ {
        self.order.iter().copied()
    }
}
