//! When each ACCEPT was first sent: heard on the subjects of inboxes and gateways, whether or not the agent got it.

use std::collections::BTreeMap;

use bus::{Bus, BusError, Received};
use futures_util::stream::select;
use schemas::delivery::{Delivery, Notification};
use schemas::{AwardNo, NegotiationId, Timestamp, routed, subject};

use super::heartbeats::Listener;
use super::journal::WallClock;

/// What every inbox message with an ACCEPT contains. Most contain none, and are not decoded.
const MARK: &[u8] = br#""act":"accept""#;

/// First departures by award.
pub type Departures = BTreeMap<(NegotiationId, AwardNo), Timestamp>;

impl Listener<Departures> {
    /// Begins to listen to what is sent. What is sent while its own connection is down is not heard.
    ///
    /// # Errors
    /// [`BusError`] when the subscription fails.
    pub async fn of_departures(bus: &Bus, clock: WallClock) -> Result<Self, BusError> {
        let inboxes = bus.pub_sub.subscribe(subject::ALL_INBOXES.to_owned(), None).await?;
        let routed = bus.pub_sub.subscribe(subject::ALL_GATEWAY_DELIVERIES.to_owned(), None).await?;
        let note = move |departures: &mut Departures, received: &Received| {
            let at = clock.now();
            for award in awards(received) {
                departures.entry(award).or_insert(at);
            }
        };
        Ok(Self::spawn(select(inboxes, routed), note))
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
