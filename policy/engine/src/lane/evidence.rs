//! Publishes what panels have shown: each owned lane hands its ledger on when that has changed, one task of the engine stores
//! it under the lane's name and tells gateways that it did. A stored ledger never gives way to an earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Blobs, PubSub};
use bytes::Bytes;
use policy_core::panel::evidence::EvidenceLedger;
use schemas::evidence::LaneEvidence;
use schemas::{Lane, subject};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{LaneReceivers, Shared};

/// Least gap between two publications of a lane.
const GAP_MIN: Duration = Duration::from_secs(1);
/// Entries beyond which the gap grows: a second for each as many, so that a full ledger is written every 16 seconds.
const ENTRIES_PER_SECOND: usize = 4096;
/// Gap after a ledger that could not be stored, and between two tellings of the same one: whoever missed the first hears the
/// next.
const AGAIN_GAP: Duration = Duration::from_secs(30);
/// Gap after a failure.
const FAILED_GAP: Duration = Duration::from_secs(2);
/// Longest a telling may take.
const TELL_MAX: Duration = Duration::from_secs(1);

/// Hands on the ledger of one lane.
pub(crate) struct EvidenceSender {
    sender: watch::Sender<Arc<LaneEvidence>>,
    /// Additions of the ledger handed on last.
    additions: u64,
    /// The next is not handed on before.
    at: Instant,
    wake: Arc<Notify>,
}

impl EvidenceSender {
    pub(crate) fn new(shared: &Shared, now: Instant) -> (Self, watch::Receiver<Arc<LaneEvidence>>) {
        let (sender, receiver) = watch::channel(Arc::default());
        (Self { sender, additions: 0, at: now, wake: Arc::clone(&shared.evidence_wake) }, receiver)
    }

    /// Hands on the ledger as it stands after the record at `position`, where it has changed; only the owner of a lane does.
    pub(crate) fn report(&mut self, ledger: &EvidenceLedger, position: u64, is_owner: bool, now: Instant) {
        if !is_owner || now < self.at || ledger.additions() == self.additions {
            return;
        }
        self.additions = ledger.additions();
        let times = u32::try_from(ledger.len() / ENTRIES_PER_SECOND).unwrap_or(u32::MAX).saturating_add(1);
        self.at = now + GAP_MIN.saturating_mul(times);
        self.sender.send_replace(Arc::new(ledger.published(position)));
        self.wake.notify_one();
    }

    /// When the owner's ledger is due.
    pub(crate) fn wake_at(&self, ledger: &EvidenceLedger) -> Option<Instant> {
        (ledger.additions() != self.additions).then_some(self.at)
    }
}

/// The task of an engine that stores ledgers.
pub(crate) struct EvidencePublisher {
    blobs: Arc<dyn Blobs>,
    pub_sub: Arc<dyn PubSub>,
    lanes: Vec<(Lane, watch::Receiver<Arc<LaneEvidence>>)>,
    /// A lane has handed its ledger on.
    wake: Arc<Notify>,
    /// Positions of what was stored.
    stored: BTreeMap<Lane, u64>,
}

impl EvidencePublisher {
    /// Stores what these lanes hand on.
    pub(crate) fn new(shared: &Shared, lanes: &[LaneReceivers]) -> Self {
        Self {
            blobs: Arc::clone(&shared.bus.blobs),
            pub_sub: Arc::clone(&shared.bus.pub_sub),
            lanes: lanes.iter().map(|lane| (lane.status.borrow().lane, lane.evidence.clone())).collect(),
            wake: Arc::clone(&shared.evidence_wake),
            stored: BTreeMap::new(),
        }
    }

    /// Publishes until it is dropped.
    pub(crate) async fn drive(mut self) {
        loop {
            let is_stored = self.store().await;
            let gap = if is_stored { AGAIN_GAP } else { FAILED_GAP };
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                () = sleep(gap), if !(is_stored && self.stored.is_empty()) => {
                    for (lane, position) in self.stored.clone() {
                        self.tell(lane, position).await;
                    }
                }
            }
        }
    }

    /// Stores what is new; false when something could not be.
    async fn store(&mut self) -> bool {
        let mut is_stored = true;
        let lanes: Vec<_> = self.lanes.iter().map(|(lane, evidence)| (*lane, Arc::clone(&evidence.borrow()))).collect();
        for (lane, evidence) in lanes {
            let position = evidence.position;
            if self.stored.get(&lane).copied().unwrap_or_default() >= position {
                continue;
            }
            let Ok(document) = serde_json::to_vec(&*evidence).map(Bytes::from) else { continue };
            match self.blobs.put(subject::evidence_document(lane), position, document).await {
                Ok(_) => {
                    self.stored.insert(lane, position);
                    self.tell(lane, position).await;
                }
                Err(error) => {
                    tracing::debug!(lane = lane.0, %error, "the lane's evidence was not stored; it is tried again");
                    is_stored = false;
                }
            }
        }
        is_stored
    }

    /// Nobody waits for it: one that is lost is followed by another.
    async fn tell(&self, lane: Lane, position: u64) {
        let telling = self.pub_sub.publish(subject::evidence(lane), Bytes::from(position.to_string()));
        let _ = timeout(TELL_MAX, telling).await;
    }
}
