//! What becomes of deliveries, for whoever tells people about it.

use schemas::{Act, AgentId, DeliveryId, NegotiationId};

use super::Outbox;
use super::item::Item;
use crate::metrics::DeadLetterReason;

/// Something became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passage {
    /// The delivery.
    pub(crate) id: DeliveryId,
    /// Its negotiation.
    pub(crate) negotiation: NegotiationId,
    /// Its recipient.
    pub(crate) to: AgentId,
    /// What it says.
    pub(crate) act: Act,
    /// What became of it.
    pub(crate) step: Step,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It was sent for the first time.
    Sent,
    /// Its recipient acknowledged it, after so many attempts; 0 when an earlier owner sent it.
    Acknowledged(u32),
    /// It was given up.
    GivenUp(DeadLetterReason),
}

impl Passage {
    pub(super) fn of(item: &Item, step: Step) -> Self {
        let deliver = &item.deliver;
        Self {
            id: deliver.id,
            negotiation: deliver.negotiation.clone(),
            to: deliver.to.clone(),
            act: deliver.told.act(),
            step,
        }
    }
}

impl Outbox {
    /// From now on keeps what becomes of deliveries until [`Outbox::take_passages`].
    pub(crate) fn keep_passages(&mut self) {
        self.passages.get_or_insert_default();
    }

    /// What became of deliveries since the last call. The lane asks after each batch of signals and each flush, which
    /// bounds how many there can be.
    pub(crate) fn take_passages(&mut self) -> Vec<Passage> {
        self.passages.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
