//! When each ACCEPT was first sent: heard on the subjects of inboxes and gateways, whether or not the agent got it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bus::{Bus, BusError, Received};
use futures_util::StreamExt;
use futures_util::stream::select;
use schemas::delivery::{Delivery, Notification};
use schemas::{AwardNo, NegotiationId, Timestamp, routed, subject};
use tokio::task::JoinHandle;

use super::journal::WallClock;

/// What every inbox message with an ACCEPT contains. Most contain none, and are not decoded.
const MARK: &[u8] = br#""act":"accept""#;

/// First departures by award.
pub type Departures = BTreeMap<(NegotiationId, AwardNo), Timestamp>;

/// Listens until it is dropped. What is sent while its own connection is down is not heard.
pub struct DepartureWatcher {
    departures: Arc<Mutex<Departures>>,
    task: JoinHandle<()>,
}

impl DepartureWatcher {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`BusError`] when the subscription fails.
    pub async fn start(bus: &Bus, clock: WallClock) -> Result<Self, BusError> {
        let inboxes = bus.pub_sub.subscribe(subject::ALL_INBOXES.to_owned(), None).await?;
        let routed = bus.pub_sub.subscribe(subject::ALL_GATEWAY_DELIVERIES.to_owned(), None).await?;
        let mut sent = select(inboxes, routed);
        let departures = Arc::new(Mutex::new(Departures::new()));
        let noted = Arc::clone(&departures);
        let task = tokio::spawn(async move {
            while let Some(received) = sent.next().await {
                let at = clock.now();
                for award in awards(&received) {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).entry(award).or_insert(at);
                }
            }
        });
        Ok(Self { departures, task })
    }

    /// What was heard.
    #[must_use]
    pub fn departures(&self) -> Departures {
        self.departures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for DepartureWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn awards(received: &Received) -> Vec<(NegotiationId, AwardNo)> {
    if !received.payload.windows(MARK.len()).any(|window| window == MARK) {
        return Vec::new();
    }
    let deliveries = routed::read_deliveries(&received.subject, &received.payload);
    let accepted = |delivery: Delivery| {
        let Notification::Accept(award) = delivery.payload else { return None };
        Some((delivery.envelope.negotiation, award.award_no))
    };
    deliveries.into_iter().filter_map(|(_, delivery)| accepted(delivery)).collect()
}
