//! Hears what agents and gateways say outside the log, acknowledgements and hellos, and hands it to the lanes.
//!
//! Nothing here is binding: an acknowledgement that is lost costs one repeat of a delivery, which its receiver drops.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Bus, BusError, Received};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use schemas::presence::is_renewal;
use schemas::{AgentId, DeliveryId, Lane, subject};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::metrics::{EngineMetrics, Observation};
use crate::status::DigestPoint;

/// Most further ids in one acknowledgement: four full inbox messages.
const ACK_IDS_MAX: usize = 1024;
/// Most signals that wait for a busy lane; beyond it they are dropped and counted. A lane takes in a thousand between
/// two flushes.
const SIGNALS_MAX: usize = 16_384;

/// What a lane hears beside its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The agent acknowledged these deliveries of this lane.
    Acked(AgentId, Vec<DeliveryId>),
    /// The agent has connected.
    Hello(AgentId),
    /// State digests of another engine.
    Digests(String, Vec<DigestPoint>),
}

/// The one task of an engine that listens.
pub(crate) struct Ingress {
    acks: BoxStream<'static, Received>,
    hellos: BoxStream<'static, Received>,
    lanes: BTreeMap<Lane, mpsc::Sender<Signal>>,
    metrics: Arc<EngineMetrics>,
}

impl Ingress {
    /// Subscribes; signals are heard from here on.
    pub(crate) async fn subscribe(bus: &Bus, metrics: Arc<EngineMetrics>) -> Result<Self, BusError> {
        let acks = bus.pub_sub.subscribe(subject::ALL_ACKS.to_owned(), None).await?;
        let hellos = bus.pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await?;
        Ok(Self { acks, hellos, lanes: BTreeMap::new(), metrics })
    }

    /// Opens the way to a lane.
    pub(crate) fn connect(&mut self, lane: Lane) -> (mpsc::Sender<Signal>, mpsc::Receiver<Signal>) {
        let (sender, receiver) = mpsc::channel(SIGNALS_MAX);
        self.lanes.insert(lane, sender.clone());
        (sender, receiver)
    }

    /// Listens until told to stop or the bus closes. What was received before is still handed on.
    pub(crate) async fn drive(mut self, cancel: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => return self.handle_received(),
                received = self.hellos.next() => match received {
                    Some(received) => self.handle_hello(&received),
                    None => return,
                },
                received = self.acks.next() => match received {
                    Some(received) => self.handle_ack(&received),
                    None => return,
                },
            }
            // However many hellos there are, acknowledgements get their turn.
            if let Some(received) = self.acks.next().now_or_never().flatten() {
                self.handle_ack(&received);
            }
        }
    }

    fn handle_received(mut self) {
        for _ in 0..SIGNALS_MAX {
            let Some(received) = self.acks.next().now_or_never().flatten() else { return };
            self.handle_ack(&received);
        }
    }

    fn handle_ack(&self, received: &Received) {
        let Some((agent, first)) = subject::parse_ack(&received.subject) else {
            self.metrics.observe(Observation::AckIgnored);
            return;
        };
        let further = parse_ids(&received.payload).unwrap_or_else(|| {
            self.metrics.observe(Observation::AckIgnored);
            Vec::new()
        });
        for (lane, ids) in by_lane(first, further) {
            self.send(lane, Signal::Acked(agent.clone(), ids));
        }
    }

    /// A renewal is for the gateways, which keep presence: the agent has what was sent to it.
    fn handle_hello(&self, received: &Received) {
        if is_renewal(&received.payload) {
            return;
        }
        let Some(agent) = subject::agent_of(&received.subject) else { return };
        for lane in self.lanes.keys() {
            self.send(*lane, Signal::Hello(agent.clone()));
        }
    }

    fn send(&self, lane: Lane, signal: Signal) {
        // Lanes of other engines are not ours to tell; a full lane loses the signal, which is counted.
        if self.lanes.get(&lane).is_some_and(|sender| sender.try_send(signal).is_err()) {
            self.metrics.observe(Observation::SignalDropped);
        }
    }
}

/// The further ids in an acknowledgement's body; nothing when the body is not a bounded JSON array of delivery ids.
fn parse_ids(payload: &[u8]) -> Option<Vec<DeliveryId>> {
    if payload.is_empty() {
        return Some(Vec::new());
    }
    let texts: Vec<&str> = serde_json::from_slice(payload).ok()?;
    if texts.len() > ACK_IDS_MAX {
        return None;
    }
    texts.into_iter().map(|text| DeliveryId::try_new(text).ok()).collect()
}

/// The ids of one acknowledgement by lane; nearly always all of one lane, since an inbox message comes from one.
fn by_lane(first: DeliveryId, further: Vec<DeliveryId>) -> BTreeMap<Lane, Vec<DeliveryId>> {
    let mut ids_by_lane: BTreeMap<Lane, Vec<DeliveryId>> = BTreeMap::new();
    ids_by_lane.insert(first.lane(), vec![first]);
    for id in further {
        ids_by_lane.entry(id.lane()).or_default().push(id);
    }
    ids_by_lane
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_split_by_lane() {
        let id = |lane, number| DeliveryId::new(Lane(lane), [number; 16]);
        let split = by_lane(id(1, 1), vec![id(0, 2), id(1, 3)]);
        assert_eq!(split, BTreeMap::from([(Lane(0), vec![id(0, 2)]), (Lane(1), vec![id(1, 1), id(1, 3)])]));
    }

    #[tokio::test]
    async fn a_hello_reaches_every_lane_and_a_renewal_none() {
        let bus = bus::memory::open(bus::memory::MemoryOptions::default());
        let metrics = Arc::new(EngineMetrics::new(&prometheus::Registry::new()).unwrap());
        let mut ingress = Ingress::subscribe(&bus, metrics).await.unwrap();
        let (_sender, mut signals) = ingress.connect(Lane(0));
        let bob = AgentId::try_new("bob").unwrap();
        let cancel = CancellationToken::new();
        let driving = tokio::spawn(ingress.drive(cancel.clone()));
        for body in [schemas::presence::RENEWAL, b"", schemas::presence::RENEWAL] {
            bus.pub_sub.publish(subject::hello(&bob), bytes::Bytes::from_static(body)).await.unwrap();
        }
        bus.pub_sub.publish(subject::hello(&AgentId::try_new("carol").unwrap()), bytes::Bytes::new()).await.unwrap();
        assert_eq!(signals.recv().await, Some(Signal::Hello(bob)));
        assert_eq!(signals.recv().await, Some(Signal::Hello(AgentId::try_new("carol").unwrap())));
        cancel.cancel();
        driving.await.unwrap();
    }

    #[test]
    fn a_body_that_is_no_bounded_array_of_ids_is_ignored_whole() {
        let id = DeliveryId::new(Lane(1), [1; 16]);
        let text = |ids: &[DeliveryId]| serde_json::to_vec(ids).unwrap();
        assert_eq!(parse_ids(b""), Some(vec![]));
        assert_eq!(parse_ids(&text(&[id, id])), Some(vec![id, id]));
        for bad in [&b"{}"[..], b"[1]", b"[\"x\"]", b"nonsense", b"[", &text(&vec![id; ACK_IDS_MAX + 1])] {
            assert_eq!(parse_ids(bad), None);
        }
    }
}
