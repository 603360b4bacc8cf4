//! What agents acknowledge over WebSocket, HTTP and calls within the process, collected and passed on to the engines: one
//! message for many agents.
//!
//! Nothing depends on an acknowledgement: one that is lost costs a repeat of its delivery, which its receiver drops.

use std::sync::Arc;

use bus::fanout::AckCollector;
use bus::{BusError, PubSub};
use schemas::{AgentId, Code, DeliveryId, Refusal, subject};
use tokio_util::sync::CancellationToken;

use crate::metrics::{AckResult, GatewayMetrics};

/// Deliveries one acknowledgement may name.
const ACKS_MAX: usize = 256;
/// Most ids that wait for the bus: more than a second of a busy gateway.
const WAITING_IDS_MAX: usize = 65_536;

/// Takes acknowledgements in. Clones are handles to those of one gateway.
#[derive(Clone)]
pub struct Acknowledgements {
    collector: Arc<AckCollector>,
    metrics: Arc<GatewayMetrics>,
}

impl Acknowledgements {
    pub(crate) fn new(pub_sub: &Arc<dyn PubSub>, gateway: &str, metrics: Arc<GatewayMetrics>) -> Self {
        let subject = subject::collected_acks(&subject::token(gateway));
        let collector = AckCollector::new(Arc::clone(pub_sub), subject, |_, ids| ids <= WAITING_IDS_MAX);
        Self { collector: Arc::new(collector), metrics }
    }

    /// Takes an agent's acknowledgement in. It leaves within [`COLLECT_FOR`](bus::fanout::COLLECT_FOR); what there is no room
    /// for is dropped and counted.
    ///
    /// # Errors
    /// [`Code::OutOfRange`] unless 1 to `ACKS_MAX` deliveries are named.
    pub fn collect(&self, agent: &AgentId, deliveries: &[DeliveryId]) -> Result<(), Refusal> {
        if deliveries.is_empty() || deliveries.len() > ACKS_MAX {
            return Err(Refusal::new(Code::OutOfRange, "an acknowledgement names no delivery, or too many")
                .at("/delivery_ids")
                .expecting(format!("1 to {ACKS_MAX} delivery ids")));
        }
        if !self.collector.collect(agent, deliveries) {
            self.metrics.serving.acknowledged(AckResult::Full, deliveries.len());
        }
        Ok(())
    }

    /// Passes on what was collected, until the gateway stops. What comes while it stops leaves with [`Self::flush`].
    pub(crate) async fn drive(self, stop: CancellationToken) {
        self.collector.drive(&stop, |passed, count| self.note(passed, count)).await;
    }

    /// Passes on what waits. What the bus does not take is dropped and counted.
    pub(crate) async fn flush(&self) {
        self.collector.flush(|passed, count| self.note(passed, count)).await;
    }

    fn note(&self, passed: Result<(), BusError>, count: usize) {
        let result = match passed {
            Ok(()) => AckResult::Sent,
            Err(error) => {
                tracing::debug!(%error, count, "acknowledgements were not published");
                AckResult::Failed
            }
        };
        self.metrics.serving.acknowledged(result, count);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bus::Received;
    use bus::fanout::COLLECT_FOR;
    use bus::memory::{MemoryOptions, open};
    use futures_util::stream::BoxStream;
    use futures_util::{FutureExt as _, StreamExt as _};
    use schemas::Lane;
    use schemas::acknowledgement::{COLLECTED_IDS_MAX, decode_collected};
    use tokio::time::Instant;

    use super::*;

    fn agent(number: usize) -> AgentId {
        AgentId::try_new(&format!("agent-{number:03}")).unwrap()
    }

    fn id(number: usize) -> DeliveryId {
        DeliveryId::new(Lane(u8::try_from(number % 4).unwrap()), (number as u128).to_be_bytes())
    }

    /// A gateway's acknowledgements, what it publishes of them, and the end of its task.
    async fn collecting() -> (Acknowledgements, BoxStream<'static, Received>, CancellationToken) {
        let bus = open(MemoryOptions::default());
        let published = bus.pub_sub.subscribe(subject::ALL_COLLECTED_ACKS.to_owned(), None).await.unwrap();
        let metrics = Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
        let acks = Acknowledgements::new(&bus.pub_sub, "gateway 1", metrics);
        let stop = CancellationToken::new();
        tokio::spawn(acks.clone().drive(stop.clone()));
        (acks, published, stop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_acknowledgements_from_many_agents_leaves_as_one_message() {
        let (acks, mut published, _stop) = collecting().await;
        let began = Instant::now();
        for number in 0..600 {
            acks.collect(&agent(number % 12), &[id(number)]).unwrap();
        }
        let message = published.next().await.unwrap();
        assert_eq!((message.subject.as_str(), began.elapsed()), ("acks.gateway_1", COLLECT_FOR));
        let collected = decode_collected(&message.payload).unwrap();
        assert_eq!(collected.len(), 12);
        for (number, (name, ids)) in collected.into_iter().enumerate() {
            let own: Vec<_> = (0..600).filter(|other| other % 12 == number).map(id).collect();
            assert_eq!((name, ids), (agent(number), own), "each agent's ids in the order they came, of every lane");
        }
        tokio::time::sleep(COLLECT_FOR * 10).await;
        assert!(published.next().now_or_never().is_none(), "one message");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_message_leaves_at_once_and_none_is_longer() {
        let (acks, mut published, _stop) = collecting().await;
        let began = Instant::now();
        let ids: Vec<_> = (0..COLLECTED_IDS_MAX + 200).map(id).collect();
        ids.chunks(ACKS_MAX).for_each(|ids| acks.collect(&agent(0), ids).unwrap());
        let mut read = Vec::new();
        while read.len() < ids.len() {
            let collected = decode_collected(&published.next().await.unwrap().payload).unwrap();
            read.extend(collected.into_iter().flat_map(|(_, ids)| ids));
        }
        assert_eq!((read, began.elapsed()), (ids, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_stops_passes_on_what_it_has_collected() {
        let (acks, mut published, stop) = collecting().await;
        acks.collect(&agent(1), &[id(1)]).unwrap();
        stop.cancel();
        assert_eq!(decode_collected(&published.next().await.unwrap().payload).unwrap(), [(agent(1), vec![id(1)])]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_there_is_no_room_for_is_dropped_and_counted() {
        let bus = open(MemoryOptions::default());
        let registry = prometheus::Registry::new();
        let metrics = Arc::new(GatewayMetrics::new(&registry).unwrap());
        let acks = Acknowledgements::new(&bus.pub_sub, "one", metrics);
        let ids: Vec<_> = (0..ACKS_MAX).map(id).collect();
        for _ in 0..=WAITING_IDS_MAX / ACKS_MAX {
            acks.collect(&agent(1), &ids).unwrap();
        }
        acks.flush().await;
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "exchange_acks_total{result=\"full\"} 256",
            "exchange_acks_total{result=\"sent\"} 65536",
            "exchange_ack_messages_total 64",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn an_acknowledgement_names_one_delivery_to_256() {
        let bus = open(MemoryOptions::default());
        let metrics = Arc::new(GatewayMetrics::new(&prometheus::Registry::new()).unwrap());
        let acks = Acknowledgements::new(&bus.pub_sub, "one", metrics);
        for count in [0, ACKS_MAX + 1] {
            let refused = acks.collect(&agent(1), &vec![id(1); count]).unwrap_err();
            assert_eq!(
                (refused.code, refused.pointer.as_deref()),
                (Code::OutOfRange, Some("/delivery_ids")),
                "{count}"
            );
        }
        for count in [1, ACKS_MAX] {
            acks.collect(&agent(1), &vec![id(1); count]).unwrap();
        }
    }
}
