//! The streams agents have open at this gateway, and the deliveries that reach them.
//!
//! An engine that knows that all streams of an agent are here sends a delivery the first time to the gateway
//! (`deliver.<gateway>`, [`schemas::routed`]), together with those of other agents; a table says whose streams each is for.
//! Repeats, and whatever an engine does not know so well, come on the agent's own inbox, to which each stream is subscribed:
//! whatever engines believe of where an agent is costs one gap between repeats at most.
//!
//! Engines learn it from hellos, when a stream opens and when the last one closes, and from a list of all agents that have
//! one, published every few seconds for engines that missed them.

mod shared;

use std::sync::Arc;

use ahash::HashMap;
use bus::fanout::{Fanout, QUEUE_MAX, QueuePlace, RoutedResult};
use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, Stream};
use parking_lot::Mutex;
use schemas::presence::Hello;
use schemas::{AgentId, Code, GatewayId, Refusal, subject};
use serde_json::value::RawValue;
use strum::VariantArray as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::metrics::{GatewayMetrics, ShedReason};
use crate::registry::{PresenceSignal, Registry};
use crate::until;

pub(crate) use self::shared::{OpenedInbox, SharedStream};

/// Open streams, by agent. Shared by handle.
#[derive(Clone)]
pub struct AgentStreams(Arc<StreamTable>);

struct StreamTable {
    fanout: Arc<Fanout>,
    pub_sub: Arc<dyn PubSub>,
    registry: Arc<Registry>,
    metrics: Arc<GatewayMetrics>,
    per_agent_max: usize,
    /// How many shared streams each agent has opened, whoever takes part in them.
    shared_by_opener: Mutex<HashMap<AgentId, usize>>,
}

/// One open stream of an agent. Dropping it closes it.
pub struct AgentStream {
    inbox: BoxStream<'static, Received>,
    deliveries: Deliveries,
    place: QueuePlace,
}

/// What is there for a stream beside its inbox.
struct Deliveries {
    /// What engines sent to this gateway.
    routed: mpsc::Receiver<Bytes>,
    /// What is left of the last message of an inbox.
    pending: std::vec::IntoIter<Bytes>,
}

/// A message of an inbox was no JSON array of deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableInbox;

impl AgentStreams {
    /// No streams yet.
    pub(crate) fn new(
        gateway: GatewayId,
        pub_sub: Arc<dyn PubSub>,
        registry: Arc<Registry>,
        metrics: Arc<GatewayMetrics>,
        per_agent_max: usize,
    ) -> Self {
        let (fanout, shared_by_opener) = (Fanout::new(gateway, pub_sub.clone()), Mutex::default());
        Self(Arc::new(StreamTable { fanout, pub_sub, registry, metrics, per_agent_max, shared_by_opener }))
    }

    /// Opens a stream: it hears everything from here on, and engines send at once what is unacknowledged.
    ///
    /// # Errors
    /// [`Code::RateLimited`] when the agent has as many as it may; [`Code::Unavailable`] when the bus does not answer.
    pub async fn open(&self, agent: &AgentId) -> Result<AgentStream, Refusal> {
        let (sender, routed) = mpsc::channel(QUEUE_MAX);
        let (place, inbox) = self.open_into(agent, sender).await?;
        Ok(AgentStream { inbox, deliveries: Deliveries::new(routed), place })
    }

    /// The same, of which what engines send to this gateway comes on a queue that is there.
    async fn open_into(
        &self,
        agent: &AgentId,
        queue: mpsc::Sender<Bytes>,
    ) -> Result<(QueuePlace, BoxStream<'static, Received>), Refusal> {
        let table = &self.0;
        table.registry.note_presence(agent, PresenceSignal::Here);
        // On a shared stream an agent that joins again takes its own place.
        let place = table.fanout.open_within(table.per_agent_max, agent, queue).ok_or_else(|| table.too_many())?;
        let inbox = table.pub_sub.subscribe(subject::inbox(agent), None).await.map_err(|error| unavailable(&error))?;
        table.say_hello(agent, &Hello::Connected(Some(table.fanout.id().clone()))).await?;
        Ok((place, inbox))
    }

    /// Says to every gateway that an agent is there. What is lost they learn from the next report.
    pub async fn renew(&self, agent: &AgentId) {
        if let Err(refusal) = self.0.say_hello(agent, &Hello::Renewal(Some(self.0.fanout.id().clone()))).await {
            tracing::debug!(%refusal, "a renewal was not published");
        }
    }

    /// The agents that have a stream open, in the order of their ids.
    pub fn agents(&self) -> Vec<AgentId> {
        self.0.fanout.agents()
    }

    /// How many agents have a stream open.
    pub fn agents_len(&self) -> usize {
        self.0.fanout.agents_len()
    }

    /// Ends the streams an agent has open, at this gateway and every other; the agent may open others.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the bus does not answer.
    pub async fn end_everywhere(&self, agent: &AgentId) -> Result<(), Refusal> {
        let published = self.0.pub_sub.publish(subject::stream_end(agent), Bytes::new()).await;
        published.map_err(|error| unavailable(&error))?;
        self.0.pub_sub.flush().await.map_err(|error| unavailable(&error))
    }
}

/// What the gateway does for its streams.
impl AgentStreams {
    /// Begins to hand out what engines send to this gateway, to end streams when an administrator orders it, and to say whose
    /// it holds, until `stop`.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    pub(crate) async fn start(&self, tasks: &TaskTracker, stop: &CancellationToken) -> Result<(), BusError> {
        let deliveries = subject::gateway_deliveries(self.0.fanout.id());
        let deliveries = self.0.pub_sub.subscribe(deliveries, None).await?;
        let orders = self.0.pub_sub.subscribe(subject::ALL_STREAM_ENDS.to_owned(), None).await?;
        // Streams that are still open while the gateway stops hear what comes.
        let all_closed = CancellationToken::new();
        tasks.spawn(self.clone().drive_deliveries(deliveries, all_closed.clone()));
        tasks.spawn(self.clone().drive_orders(orders, stop.clone()));
        tasks.spawn(self.clone().drive_announcements(stop.clone(), all_closed));
        Ok(())
    }

    async fn drive_deliveries(self, mut deliveries: BoxStream<'static, Received>, all_closed: CancellationToken) {
        let handing_out = async {
            while let Some(received) = deliveries.next().await {
                self.0.hand_out(&received.payload);
            }
            tracing::error!("the bus ended the subscription: deliveries reach streams by repeats only");
        };
        until(&all_closed, handing_out).await;
    }

    async fn drive_orders(self, mut orders: BoxStream<'static, Received>, stop: CancellationToken) {
        let ending = async {
            while let Some(order) = orders.next().await {
                if let Some(agent) = subject::agent_of(&order.subject) {
                    self.0.fanout.end(&agent);
                }
            }
            tracing::error!("the bus ended the subscription: administrators end no streams of this gateway any more");
        };
        until(&stop, ending).await;
    }

    /// Cancels `all_closed` once the gateway stops and no stream is open.
    async fn drive_announcements(self, stop: CancellationToken, all_closed: CancellationToken) {
        self.0.fanout.drive_announcements(&stop, on_unannounced).await;
        all_closed.cancel();
    }
}

impl StreamTable {
    /// Refuses a further stream, and counts that.
    fn too_many(&self) -> Refusal {
        self.metrics.messages.shed.of(ShedReason::Streams).inc();
        Refusal::new(Code::RateLimited, "this agent has too many streams open")
            .expecting(format!("at most {}; close one first", self.per_agent_max))
            .retry_after_ms(1000)
    }

    /// Counts a shared stream that an agent opens.
    fn take_shared(&self, opener: &AgentId) -> Result<(), Refusal> {
        let mut shared_by_opener = self.shared_by_opener.lock();
        let opened = shared_by_opener.entry(opener.clone()).or_default();
        if *opened >= self.per_agent_max {
            return Err(self.too_many());
        }
        *opened += 1;
        Ok(())
    }

    fn give_back_shared(&self, opener: &AgentId) {
        let mut shared_by_opener = self.shared_by_opener.lock();
        if let Some(opened) = shared_by_opener.get_mut(opener) {
            *opened -= 1;
            if *opened == 0 {
                shared_by_opener.remove(opener);
            }
        }
    }

    async fn say_hello(&self, agent: &AgentId, hello: &Hello) -> Result<(), Refusal> {
        let body = hello.to_body().map_err(|_| Refusal::new(Code::Internal, "the hello cannot be written"))?;
        let published = self.pub_sub.publish(subject::hello(agent), Bytes::from(body)).await;
        published.map_err(|error| unavailable(&error))
    }

    /// Hands the documents of a message to the streams they are for.
    fn hand_out(&self, message: &Bytes) {
        let mut counts = [0; RoutedResult::VARIANTS.len()];
        self.fanout.hand_out(message, |result, _| counts[result as usize] += 1);
        for (result, count) in RoutedResult::VARIANTS.iter().zip(counts) {
            self.metrics.serving.routed.of(*result).inc_by(count);
        }
    }
}

impl AgentStream {
    /// The next delivery, as its engine wrote it; nothing once the bus has ended the stream. May be dropped and called again.
    ///
    /// # Errors
    /// [`UnreadableInbox`] where something came that is no delivery; the stream goes on.
    pub async fn next(&mut self) -> Option<Result<Bytes, UnreadableInbox>> {
        self.deliveries.next(&mut until_ended(&mut self.inbox)).await
    }

    /// Cancelled when an administrator ends the stream.
    pub fn ended(&self) -> CancellationToken {
        self.place.ended().clone()
    }
}

impl Deliveries {
    fn new(routed: mpsc::Receiver<Bytes>) -> Self {
        Self { routed, pending: Vec::new().into_iter() }
    }

    /// The next delivery, of an inbox or of what engines sent to this gateway; nothing once the bus has ended an inbox.
    async fn next(
        &mut self,
        inbox: &mut (impl Stream<Item = Option<Received>> + Unpin),
    ) -> Option<Result<Bytes, UnreadableInbox>> {
        loop {
            if let Some(document) = self.pending.next() {
                return Some(Ok(document));
            }
            let received = tokio::select! {
                biased;
                Some(received) = inbox.next() => received?,
                Some(document) = self.routed.recv() => return Some(Ok(document)),
            };
            match documents(&received.payload) {
                Ok(documents) => self.pending = documents.into_iter(),
                Err(unreadable) => return Some(Err(unreadable)),
            }
        }
    }
}

/// The messages of an inbox, and nothing as its last item.
fn until_ended<S: Stream<Item = Received>>(inbox: S) -> impl Stream<Item = Option<Received>> {
    inbox.map(Some).chain(stream::iter([None]))
}

/// The deliveries of an inbox message.
fn documents(payload: &Bytes) -> Result<Vec<Bytes>, UnreadableInbox> {
    let unreadable = |error: serde_json::Error| {
        tracing::error!(%error, "an inbox message is not readable");
        UnreadableInbox
    };
    let documents: Vec<&RawValue> = serde_json::from_slice(payload).map_err(unreadable)?;
    Ok(documents.into_iter().map(|document| payload.slice_ref(document.get().as_bytes())).collect())
}

/// What a client is told when the bus does not answer.
fn unavailable(error: &BusError) -> Refusal {
    tracing::warn!(%error, "the bus does not take messages");
    Refusal::new(Code::Unavailable, "the bus did not answer; try again").retry_after_ms(1000)
}

/// That an agent has closed its streams, or a list of all, was not published.
fn on_unannounced(closed: Option<&AgentId>, error: &BusError) {
    let Some(agent) = closed else { return tracing::debug!(%error, "a list of streams was not published") };
    let refusal = unavailable(error);
    tracing::debug!(%agent, %refusal, "that an agent has closed its streams was not published");
}
