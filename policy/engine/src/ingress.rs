//! Hears what agents and gateways say outside the log, acknowledgements and hellos, and hands it to the lanes.
//!
//! Nothing here is binding: an acknowledgement that is lost costs one repeat of a delivery, which its receiver drops.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Bus, BusError, Received};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use schemas::acknowledgement::{AgentAcks, decode_collected};
use schemas::presence::{Hello, decode_report};
use schemas::{AgentId, DeliveryId, Lane, subject};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::EngineMetrics;
use crate::routes::AgentRoutes;
use crate::status::{DigestPoint, LanePhase, LaneStatus};

/// Most further ids in an agent's own acknowledgement: four full inbox messages.
const ACK_IDS_MAX: usize = 1024;
/// Most signals that wait for a busy lane; beyond it they are dropped and counted. A lane takes in a thousand between
/// two flushes.
const SIGNALS_MAX: usize = 16_384;

/// What a lane hears beside its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Agents acknowledged these deliveries of this lane.
    Acked(Vec<AgentAcks>),
    /// The agent has connected.
    Hello(AgentId),
    /// State digests of another engine.
    Digests(String, Vec<DigestPoint>),
}

/// The one task of an engine that listens.
pub(crate) struct Ingress {
    acks: BoxStream<'static, Received>,
    collected: BoxStream<'static, Received>,
    hellos: BoxStream<'static, Received>,
    streams: BoxStream<'static, Received>,
    routes: Arc<AgentRoutes>,
    /// The way to each lane, and whether it is folded here.
    lanes: BTreeMap<Lane, (mpsc::Sender<Signal>, watch::Receiver<LaneStatus>)>,
    metrics: Arc<EngineMetrics>,
}

impl Ingress {
    /// Subscribes; signals are heard from here on.
    pub(crate) async fn subscribe(bus: &Bus, metrics: Arc<EngineMetrics>) -> Result<Self, BusError> {
        let acks = bus.pub_sub.subscribe(subject::ALL_ACKS.to_owned(), None).await?;
        let collected = bus.pub_sub.subscribe(subject::ALL_COLLECTED_ACKS.to_owned(), None).await?;
        let hellos = bus.pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await?;
        let streams = bus.pub_sub.subscribe(subject::ALL_STREAMS.to_owned(), None).await?;
        Ok(Self { acks, collected, hellos, streams, routes: Arc::default(), lanes: BTreeMap::new(), metrics })
    }

    /// Where agents are, as far as is heard of it.
    pub(crate) fn routes(&self) -> Arc<AgentRoutes> {
        Arc::clone(&self.routes)
    }

    /// Opens the way to a lane, for as long as it is folded here.
    pub(crate) fn connect(
        &mut self,
        lane: Lane,
        status: watch::Receiver<LaneStatus>,
    ) -> (mpsc::Sender<Signal>, mpsc::Receiver<Signal>) {
        let (sender, receiver) = mpsc::channel(SIGNALS_MAX);
        self.lanes.insert(lane, (sender.clone(), status));
        (sender, receiver)
    }

    /// Listens until told to stop or the bus closes. What was received before is still handed on.
    pub(crate) async fn drive(mut self, cancel: CancellationToken) {
        loop {
            let heard = tokio::select! {
                biased;
                () = cancel.cancelled() => return self.handle_received(),
                // Before hellos: a list was made before the hellos that arrive with it.
                received = self.streams.next() => received.map(|received| self.handle_streams(&received)),
                received = self.hellos.next() => received.map(|received| self.handle_hello(&received)),
                received = self.collected.next() => received.map(|received| self.handle_collected(&received)),
                received = self.acks.next() => received.map(|received| self.handle_ack(&received)),
            };
            if heard.is_none() {
                return;
            }
            // However many of the others there are, acknowledgements get their turn.
            self.handle_ready();
        }
    }

    /// Takes in one acknowledgement of each kind, if they are there; whether one was.
    fn handle_ready(&mut self) -> bool {
        let collected = self.collected.next().now_or_never().flatten();
        let ack = self.acks.next().now_or_never().flatten();
        collected.iter().for_each(|received| self.handle_collected(received));
        ack.iter().for_each(|received| self.handle_ack(received));
        collected.is_some() || ack.is_some()
    }

    fn handle_received(mut self) {
        for _ in 0..SIGNALS_MAX {
            if !self.handle_ready() {
                return;
            }
        }
    }

    fn handle_collected(&self, received: &Received) {
        match decode_collected(&received.payload) {
            Ok(acks) => self.send_acks(acks),
            Err(_) => self.metrics.deliveries.acks_ignored.inc(),
        }
    }

    fn handle_ack(&self, received: &Received) {
        let Some((agent, first)) = subject::parse_ack(&received.subject) else {
            self.metrics.deliveries.acks_ignored.inc();
            return;
        };
        let mut ids = parse_ids(&received.payload).unwrap_or_else(|| {
            self.metrics.deliveries.acks_ignored.inc();
            Vec::new()
        });
        ids.insert(0, first);
        self.send_acks(vec![(agent, ids)]);
    }

    fn send_acks(&self, acks: Vec<AgentAcks>) {
        for (lane, acks) in by_lane(acks) {
            self.send(lane, Signal::Acked(acks));
        }
    }

    /// Beside where the agent is, a renewal is for the gateways, which keep presence: the agent has what was sent to it.
    fn handle_hello(&self, received: &Received) {
        let Some(agent) = subject::agent_of(&received.subject) else { return };
        let hello = Hello::parse(&received.payload);
        self.routes.handle_hello(&agent, &hello, Instant::now());
        if !matches!(hello, Hello::Connected(_)) {
            return;
        }
        for lane in self.lanes.keys() {
            self.send(*lane, Signal::Hello(agent.clone()));
        }
    }

    fn handle_streams(&self, received: &Received) {
        let Some(gateway) = subject::streams_gateway_of(&received.subject) else { return };
        match decode_report(&received.payload) {
            Ok(agents) => self.routes.handle_list(&gateway, &agents, Instant::now()),
            Err(error) => tracing::debug!(%gateway, %error, "a list of streams is not readable"),
        }
    }

    fn send(&self, lane: Lane, signal: Signal) {
        // Lanes of other engines are not ours to tell; a full lane loses the signal, which is counted.
        let Some((signals, status)) = self.lanes.get(&lane) else { return };
        if status.borrow().phase != LanePhase::Elsewhere && signals.try_send(signal).is_err() {
            self.metrics.deliveries.signals_dropped.inc();
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

/// The acknowledgements of one message by lane: each lane hears of one message at most once.
fn by_lane(acks: Vec<AgentAcks>) -> BTreeMap<Lane, Vec<AgentAcks>> {
    let mut by_lane: BTreeMap<Lane, Vec<AgentAcks>> = BTreeMap::new();
    for (agent, ids) in acks {
        for id in ids {
            let acks = by_lane.entry(id.lane()).or_default();
            match acks.last_mut() {
                Some((last, ids)) if *last == agent => ids.push(id),
                Some(_) | None => acks.push((agent.clone(), vec![id])),
            }
        }
    }
    by_lane
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn id(lane: u8, number: u8) -> DeliveryId {
        DeliveryId::new(Lane(lane), [number; 16])
    }

    #[test]
    fn acknowledgements_are_split_by_lane_and_stay_their_agents() {
        let (alice, bob) = (agent("alice"), agent("bob"));
        let split = by_lane(vec![(alice.clone(), vec![id(1, 1), id(0, 2), id(1, 3)]), (bob.clone(), vec![id(1, 4)])]);
        let expected = BTreeMap::from([
            (Lane(0), vec![(alice.clone(), vec![id(0, 2)])]),
            (Lane(1), vec![(alice, vec![id(1, 1), id(1, 3)]), (bob, vec![id(1, 4)])]),
        ]);
        assert_eq!(split, expected);
    }

    #[tokio::test]
    async fn a_lane_hears_what_gateways_collected_and_what_agents_acknowledge_themselves() {
        let bus = bus::memory::open(bus::memory::MemoryOptions::default());
        let metrics = Arc::new(EngineMetrics::new(&prometheus::Registry::new()).unwrap());
        let mut ingress = Ingress::subscribe(&bus, metrics).await.unwrap();
        let (_status, watched) = watch::channel(LaneStatus::new(Lane(0)));
        let (_sender, mut signals) = ingress.connect(Lane(0), watched);
        let cancel = CancellationToken::new();
        let driving = tokio::spawn(ingress.drive(cancel.clone()));
        let publish = |subject: String, body: Vec<u8>| bus.pub_sub.publish(subject, bytes::Bytes::from(body));
        let collected = vec![(agent("alice"), vec![id(0, 1), id(1, 2)]), (agent("bob"), vec![id(0, 3)])];
        let body = serde_json::to_vec(&collected).unwrap();
        publish(subject::collected_acks("gateway-1"), b"nonsense".to_vec()).await.unwrap();
        publish(subject::collected_acks("gateway-1"), body).await.unwrap();
        let split = vec![(agent("alice"), vec![id(0, 1)]), (agent("bob"), vec![id(0, 3)])];
        assert_eq!(signals.recv().await, Some(Signal::Acked(split)));
        publish(subject::ack(&agent("carol"), id(0, 4)), Vec::new()).await.unwrap();
        assert_eq!(signals.recv().await, Some(Signal::Acked(vec![(agent("carol"), vec![id(0, 4)])])));
        cancel.cancel();
        driving.await.unwrap();
    }

    #[tokio::test]
    async fn a_hello_reaches_every_lane_that_is_folded_and_a_renewal_or_the_end_of_a_stream_none() {
        let bus = bus::memory::open(bus::memory::MemoryOptions::default());
        let metrics = Arc::new(EngineMetrics::new(&prometheus::Registry::new()).unwrap());
        let mut ingress = Ingress::subscribe(&bus, metrics).await.unwrap();
        let (_status, watched) = watch::channel(LaneStatus::new(Lane(0)));
        let (_sender, mut signals) = ingress.connect(Lane(0), watched);
        let elsewhere = LaneStatus { phase: LanePhase::Elsewhere, ..LaneStatus::new(Lane(1)) };
        let (_status, watched) = watch::channel(elsewhere);
        let (_sender, mut unheard) = ingress.connect(Lane(1), watched);
        let bob = AgentId::try_new("bob").unwrap();
        let cancel = CancellationToken::new();
        let driving = tokio::spawn(ingress.drive(cancel.clone()));
        let closed = br#"{"gateway":"one","closed":true}"#;
        for body in [schemas::presence::RENEWAL, closed, b"", schemas::presence::RENEWAL] {
            bus.pub_sub.publish(subject::hello(&bob), bytes::Bytes::from_static(body)).await.unwrap();
        }
        bus.pub_sub.publish(subject::hello(&AgentId::try_new("carol").unwrap()), bytes::Bytes::new()).await.unwrap();
        assert_eq!(signals.recv().await, Some(Signal::Hello(bob)));
        assert_eq!(signals.recv().await, Some(Signal::Hello(AgentId::try_new("carol").unwrap())));
        assert!(unheard.try_recv().is_err(), "another engine folds it");
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
