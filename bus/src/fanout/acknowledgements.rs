//! Acknowledgements of many agents, which leave as one message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use schemas::acknowledgement::{COLLECTED_IDS_MAX, encode_collected};
use schemas::{AgentId, DeliveryId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{BusError, PubSub};

/// Longest an acknowledgement waits for others: a fiftieth of the gap before a delivery is repeated.
pub const COLLECT_FOR: Duration = Duration::from_millis(10);

/// Collects acknowledgements. Nothing depends on one: what is lost costs a repeat of its delivery.
pub struct AckCollector {
    pub_sub: Arc<dyn PubSub>,
    /// Where collected acknowledgements go.
    subject: String,
    has_room: HasRoom,
    waiting: Mutex<WaitingAcks>,
    /// The first of a message is there, or the last that fits into it.
    changed: Notify,
}

/// Whether so many acknowledgements, of so many ids together, may wait.
pub type HasRoom = fn(acknowledgements: usize, ids: usize) -> bool;

#[derive(Default)]
struct WaitingAcks {
    ids_by_agent: BTreeMap<AgentId, Vec<DeliveryId>>,
    acknowledgements: usize,
    ids: usize,
}

impl AckCollector {
    /// Nothing waits yet. What is collected goes to `subject`.
    #[must_use]
    pub fn new(pub_sub: Arc<dyn PubSub>, subject: String, has_room: HasRoom) -> Self {
        Self { pub_sub, subject, has_room, waiting: Mutex::default(), changed: Notify::new() }
    }

    /// Takes an agent's acknowledgement in, which leaves within [`COLLECT_FOR`]; `false` where there is no room for it.
    #[must_use]
    pub fn collect(&self, agent: &AgentId, deliveries: &[DeliveryId]) -> bool {
        let mut waiting = self.waiting.lock();
        let (before, after) = (waiting.ids, waiting.ids + deliveries.len());
        if !(self.has_room)(waiting.acknowledgements + 1, after) {
            return false;
        }
        match waiting.ids_by_agent.get_mut(agent) {
            Some(ids) => ids.extend_from_slice(deliveries),
            None => drop(waiting.ids_by_agent.insert(agent.clone(), deliveries.to_vec())),
        }
        waiting.acknowledgements += 1;
        waiting.ids = after;
        drop(waiting);
        if before == 0 || (before < COLLECTED_IDS_MAX && after >= COLLECTED_IDS_MAX) {
            self.changed.notify_one();
        }
        true
    }

    /// Passes on what was collected, until `stop`. What comes afterwards leaves with [`Self::flush`].
    pub async fn drive(&self, stop: &CancellationToken, on_passed: impl Fn(Result<(), BusError>, usize) + Sync) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.changed.notified() => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.full() => {}
                () = tokio::time::sleep(COLLECT_FOR) => {}
            }
            self.flush(&on_passed).await;
        }
        self.flush(&on_passed).await;
    }

    /// Passes on what waits, and tells of each message what became of it and how many ids are in it. What the bus does not take
    /// is dropped.
    pub async fn flush(&self, on_passed: impl Fn(Result<(), BusError>, usize) + Sync) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let messages = match encode_collected(waiting.ids_by_agent) {
            Ok(messages) => messages,
            Err(error) => {
                tracing::error!(%error, count = waiting.ids, "acknowledgements cannot be written");
                return on_passed(Err(BusError::Unusable(error.to_string())), waiting.ids);
            }
        };
        for message in messages {
            let published = self.pub_sub.publish(self.subject.clone(), Bytes::from(message.body)).await;
            on_passed(published, message.ids);
        }
    }

    /// Waits until a message is full.
    async fn full(&self) {
        while self.waiting.lock().ids < COLLECTED_IDS_MAX {
            self.changed.notified().await;
        }
    }
}
