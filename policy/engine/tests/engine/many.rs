//! Several engines, and agents that acknowledge everything at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use policy_engine::{EngineHandle, LanePhase};
use schemas::delivery::Delivery;
use schemas::record::{EngineEvent, Qos};
use schemas::{DeliveryId, Lane, subject};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::exchange::{append_to, call, engine_events_of, negotiation, policy};

/// Every delivery that was sent, and when; everything is acknowledged at once.
pub(crate) struct Agents {
    sent: Arc<Mutex<Vec<(DeliveryId, Instant)>>>,
    task: JoinHandle<()>,
}

impl Agents {
    pub(crate) async fn connect(bus: &Bus) -> Self {
        let mut inboxes = bus.pub_sub.subscribe(subject::ALL_INBOXES.to_owned(), None).await.unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (noted, bus) = (Arc::clone(&sent), bus.clone());
        let task = tokio::spawn(async move {
            while let Some(received) = inboxes.next().await {
                let agent = subject::agent_of(&received.subject).unwrap();
                let deliveries: Vec<Delivery> = serde_json::from_slice(&received.payload).unwrap();
                for delivery in deliveries {
                    let id = delivery.envelope.msg_id;
                    noted.lock().push((id, Instant::now()));
                    bus.pub_sub.publish(subject::ack(&agent, id), Bytes::new()).await.unwrap();
                }
            }
        });
        Self { sent, task }
    }

    /// How often each delivery was sent.
    pub(crate) fn times_sent(&self) -> BTreeMap<DeliveryId, usize> {
        let mut times = BTreeMap::new();
        for (id, _) in self.sent.lock().iter() {
            *times.entry(*id).or_default() += 1;
        }
        times
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Calls bob and carol in a negotiation, on its own lane.
pub(crate) async fn open(bus: &Bus, own: &str) {
    let lane = negotiation(own).lane(bus.log.lanes());
    append_to(bus, lane, vec![call(own, policy("high"), &["bob", "carol"], Qos::AtLeastOnce)]).await;
}

/// Opens a negotiation every so often, and tells the longest time until its calls were sent.
pub(crate) async fn open_steadily(bus: &Bus, agents: &Agents, name: &str, count: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..count {
        let (before, opened_at) = (agents.times_sent().len(), Instant::now());
        open(bus, &format!("{name}-{number}")).await;
        while agents.times_sent().len() < before + 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(opened_at.elapsed() < Duration::from_secs(60), "the call and its receipt are sent");
        }
        longest = longest.max(opened_at.elapsed());
    }
    longest
}

/// The engine that owns each lane, by its index; another one stands by, if there is one.
pub(crate) fn owners(engines: &[&EngineHandle]) -> Vec<usize> {
    let by_engine: Vec<_> = engines.iter().map(|engine| engine.status().lanes).collect();
    let owner = |lane: usize| {
        let phases: Vec<_> = by_engine.iter().map(|lanes| lanes[lane].phase.clone()).collect();
        let owning: Vec<_> = (0..phases.len()).filter(|engine| phases[*engine] == LanePhase::Owner).collect();
        let standing_by = phases.iter().filter(|phase| **phase == LanePhase::Standby).count();
        assert!(owning.len() == 1 && standing_by >= 1.min(phases.len() - 1), "lane {lane}: {phases:?}");
        owning[0]
    };
    (0..by_engine[0].len()).map(owner).collect()
}

/// The engines that claimed a lane, in the order of the log.
pub(crate) async fn claims(bus: &Bus, lane: Lane) -> Vec<String> {
    let events = engine_events_of(bus, lane).await.into_iter();
    events
        .filter_map(|event| match event {
            EngineEvent::Claim { engine } => Some(engine),
            EngineEvent::Delivered { .. }
            | EngineEvent::DeliveryFailed { .. }
            | EngineEvent::Abort { .. }
            | EngineEvent::Rules { .. } => None,
        })
        .collect()
}

/// A handle of a bus that carries everything but heartbeats.
pub(crate) fn without_heartbeats(bus: &Bus) -> Bus {
    Bus { pub_sub: Arc::new(WithoutHeartbeats(Arc::clone(&bus.pub_sub))), ..bus.clone() }
}

struct WithoutHeartbeats(Arc<dyn PubSub>);

#[bus::async_trait]
impl PubSub for WithoutHeartbeats {
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError> {
        if subject::engine_of(&subject).is_some() {
            return Ok(());
        }
        self.0.publish(subject, payload).await
    }

    async fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> Result<BoxStream<'static, Received>, BusError> {
        self.0.subscribe(subject, queue).await
    }

    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        self.0.request(subject, token, payload, timeout).await
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.0.flush().await
    }

    fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}
