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

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::HashMap;
use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use schemas::presence::{Hello, REPORT_PERIOD_MS, encode_report};
use schemas::{AgentId, Code, GatewayId, Refusal, routed, subject};
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::metrics::{GatewayMetrics, RoutedResult, Shed};
use crate::registry::{PresenceSignal, Registry};

pub(crate) use self::shared::{OpenedInbox, SharedStream};

/// Deliveries that may wait for one stream: as many as an engine lets wait for one agent. Further ones come again.
const STREAM_QUEUE_MAX: usize = 16_384;

/// Open streams, by agent. Shared by handle.
#[derive(Clone)]
pub struct AgentStreams(Arc<StreamTable>);

struct StreamTable {
    gateway: GatewayId,
    pub_sub: Arc<dyn PubSub>,
    registry: Arc<Registry>,
    metrics: Arc<GatewayMetrics>,
    per_agent_max: usize,
    streams: Mutex<Streams>,
    /// Told when the last stream of an agent has closed.
    has_closed: Notify,
}

#[derive(Default)]
struct Streams {
    open_by_agent: HashMap<AgentId, OpenStreams>,
    /// Agents whose last stream has closed, which engines have not been told. Each had a stream open, so there are no more
    /// than connections.
    closed: BTreeSet<AgentId>,
    /// How many shared streams each agent has opened, whoever takes part in them.
    shared_by_opener: HashMap<AgentId, usize>,
    opened: u64,
}

/// The open streams of one agent.
#[derive(Default)]
struct OpenStreams {
    queues: Vec<(u64, mpsc::Sender<Bytes>)>,
    /// Cancelled when those that are open now are to end; later ones have another.
    ended: CancellationToken,
}

/// One open stream of an agent. Dropping it closes it.
pub struct AgentStream {
    inbox: BoxStream<'static, Received>,
    routed: mpsc::Receiver<Bytes>,
    /// What is left of the last message of the inbox.
    pending: std::vec::IntoIter<Bytes>,
    place: StreamPlace,
}

/// A stream's place in the table.
struct StreamPlace {
    streams: AgentStreams,
    agent: AgentId,
    number: u64,
    ended: CancellationToken,
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
        let (streams, has_closed) = (Mutex::default(), Notify::new());
        Self(Arc::new(StreamTable { gateway, pub_sub, registry, metrics, per_agent_max, streams, has_closed }))
    }

    /// Opens a stream: it hears everything from here on, and engines send at once what is unacknowledged.
    ///
    /// # Errors
    /// [`Code::RateLimited`] when the agent has as many as it may; [`Code::Unavailable`] when the bus does not answer.
    pub async fn open(&self, agent: &AgentId) -> Result<AgentStream, Refusal> {
        let (sender, routed) = mpsc::channel(STREAM_QUEUE_MAX);
        let (place, inbox) = self.open_into(agent, sender).await?;
        Ok(AgentStream { inbox, routed, pending: Vec::new().into_iter(), place })
    }

    /// The same, of which what engines send to this gateway comes on a queue that is there.
    async fn open_into(
        &self,
        agent: &AgentId,
        queue: mpsc::Sender<Bytes>,
    ) -> Result<(StreamPlace, BoxStream<'static, Received>), Refusal> {
        let table = &self.0;
        table.registry.note_presence(agent, PresenceSignal::Here);
        let place = self.take(agent, queue).inspect_err(|_| table.metrics.messages.shed.of(Shed::Streams).inc())?;
        let inbox = table.pub_sub.subscribe(subject::inbox(agent), None).await.map_err(|error| unavailable(&error))?;
        table.say_hello(agent, &Hello::Connected(Some(table.gateway.clone()))).await?;
        Ok((place, inbox))
    }

    /// Says to every gateway that an agent is there. What is lost they learn from the next report.
    pub async fn renew(&self, agent: &AgentId) {
        if let Err(refusal) = self.0.say_hello(agent, &Hello::Renewal(Some(self.0.gateway.clone()))).await {
            tracing::debug!(%refusal, "a renewal was not published");
        }
    }

    /// The agents that have a stream open, in the order of their ids.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentId> {
        let mut agents: Vec<_> = self.0.streams().open_by_agent.keys().cloned().collect();
        agents.sort_unstable();
        agents
    }

    /// How many agents have a stream open.
    #[must_use]
    pub fn agents_len(&self) -> usize {
        self.0.streams().open_by_agent.len()
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

    /// Takes a place for one stream.
    fn take(&self, agent: &AgentId, queue: mpsc::Sender<Bytes>) -> Result<StreamPlace, Refusal> {
        let mut streams = self.0.streams();
        streams.opened += 1;
        let number = streams.opened;
        let open = streams.open_by_agent.entry(agent.clone()).or_default();
        // On a shared stream an agent that joins again takes its own place.
        let others = open.queues.iter().filter(|(_, other)| !other.same_channel(&queue)).count();
        if others >= self.0.per_agent_max {
            return Err(self.0.too_many());
        }
        open.queues.push((number, queue));
        Ok(StreamPlace { streams: self.clone(), agent: agent.clone(), number, ended: open.ended.clone() })
    }
}

/// What the gateway does for its streams.
impl AgentStreams {
    /// Begins to hand out what engines send to this gateway, to end streams when an administrator orders it, and to say whose
    /// it holds, until `stop`.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    pub(crate) async fn start(
        &self,
        tasks: &tokio_util::task::TaskTracker,
        stop: &CancellationToken,
    ) -> Result<(), BusError> {
        let deliveries = subject::gateway_deliveries(&self.0.gateway);
        let deliveries = self.0.pub_sub.subscribe(deliveries, None).await?;
        let orders = self.0.pub_sub.subscribe(subject::ALL_STREAM_ENDS.to_owned(), None).await?;
        // Streams that are still open while the gateway stops hear what comes.
        let all_closed = CancellationToken::new();
        tasks.spawn(Self::drive_deliveries(self.clone(), deliveries, all_closed.clone()));
        tasks.spawn(Self::drive_orders(self.clone(), orders, stop.clone()));
        tasks.spawn(Self::drive_announcements(self.clone(), stop.clone(), all_closed));
        Ok(())
    }

    async fn drive_deliveries(self, mut deliveries: BoxStream<'static, Received>, all_closed: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = all_closed.cancelled() => return,
                received = deliveries.next() => match received {
                    Some(received) => self.0.hand_out(&received.payload),
                    None => return tracing::error!("the bus ended the subscription: deliveries reach streams by repeats only"),
                },
            }
        }
    }

    async fn drive_orders(self, mut orders: BoxStream<'static, Received>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                order = orders.next() => match order.as_ref().map(|order| subject::agent_of(&order.subject)) {
                    Some(Some(agent)) => self.0.end(&agent),
                    Some(None) => {}
                    None => {
                        tracing::error!("the bus ended the subscription: administrators end no streams of this gateway any more");
                        return;
                    }
                },
            }
        }
    }

    /// Cancels `all_closed` once the gateway stops and no stream is open.
    async fn drive_announcements(self, stop: CancellationToken, all_closed: CancellationToken) {
        let mut reporting = interval(Duration::from_millis(REPORT_PERIOD_MS));
        reporting.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.0.has_closed.notified() => self.0.announce_closed().await,
                _ = reporting.tick() => self.announce_open().await,
            }
        }
        // Streams end one by one: engines learn at once that this gateway holds none of them any more.
        self.0.announce_closed().await;
        while self.agents_len() > 0 {
            self.0.has_closed.notified().await;
            self.0.announce_closed().await;
        }
        all_closed.cancel();
    }

    async fn announce_open(&self) {
        let Ok(messages) = encode_report(&self.agents()) else { return };
        for message in messages {
            let published = self.0.pub_sub.publish(subject::streams(&self.0.gateway), message.into()).await;
            if let Err(error) = published {
                tracing::debug!(%error, "a list of streams was not published");
            }
        }
    }
}

impl StreamTable {
    /// The streams, for as long as no `await` stands between.
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn too_many(&self) -> Refusal {
        Refusal::new(Code::RateLimited, "this agent has too many streams open")
            .expecting(format!("at most {}; close one first", self.per_agent_max))
            .retry_after_ms(1000)
    }

    /// Counts a shared stream that an agent opens.
    fn take_shared(&self, opener: &AgentId) -> Result<(), Refusal> {
        let mut streams = self.streams();
        let opened = streams.shared_by_opener.entry(opener.clone()).or_default();
        if *opened >= self.per_agent_max {
            self.metrics.messages.shed.of(Shed::Streams).inc();
            return Err(self.too_many());
        }
        *opened += 1;
        Ok(())
    }

    fn give_back_shared(&self, opener: &AgentId) {
        let mut streams = self.streams();
        if let Some(opened) = streams.shared_by_opener.get_mut(opener) {
            *opened -= 1;
            if *opened == 0 {
                streams.shared_by_opener.remove(opener);
            }
        }
    }

    fn end(&self, agent: &AgentId) {
        if let Some(open) = self.streams().open_by_agent.get_mut(agent) {
            std::mem::take(&mut open.ended).cancel();
        }
    }

    async fn say_hello(&self, agent: &AgentId, hello: &Hello) -> Result<(), Refusal> {
        let body = hello.to_body().map_err(|_| Refusal::new(Code::Internal, "the hello cannot be written"))?;
        let published = self.pub_sub.publish(subject::hello(agent), Bytes::from(body)).await;
        published.map_err(|error| unavailable(&error))
    }

    /// Says which agents have no stream here any more. One that opens a stream at this very moment may be called closed
    /// after it: its deliveries then come on its inbox until the next list.
    async fn announce_closed(&self) {
        let closed = {
            let mut streams = self.streams();
            let closed = std::mem::take(&mut streams.closed);
            closed.into_iter().filter(|agent| !streams.open_by_agent.contains_key(agent)).collect::<Vec<_>>()
        };
        for agent in closed {
            if let Err(refusal) = self.say_hello(&agent, &Hello::Closed(self.gateway.clone())).await {
                tracing::debug!(%agent, %refusal, "that an agent has closed its streams was not published");
            }
        }
    }

    /// Hands the documents of a message to the streams they are for.
    fn hand_out(&self, message: &Bytes) {
        let mut counts = RoutedCounts::default();
        {
            let streams = self.streams();
            for line in routed::lines(message) {
                let Some((agent, document)) = line else {
                    counts.unreadable += 1;
                    continue;
                };
                let Some(open) = streams.open_by_agent.get(agent) else {
                    counts.nobody += 1;
                    continue;
                };
                let document = message.slice_ref(document);
                let taken = open.queues.iter().filter(|(_, queue)| queue.try_send(document.clone()).is_ok()).count();
                counts.handed += taken;
                counts.full += open.queues.len() - taken;
            }
        }
        let RoutedCounts { handed, nobody, full, unreadable } = counts;
        for (result, count) in [
            (RoutedResult::Handed, handed),
            (RoutedResult::Nobody, nobody),
            (RoutedResult::Full, full),
            (RoutedResult::Unreadable, unreadable),
        ] {
            self.metrics.serving.routed.of(result).inc_by(count as u64);
        }
    }
}

/// What became of the deliveries of one message.
#[derive(Default)]
struct RoutedCounts {
    handed: usize,
    nobody: usize,
    full: usize,
    unreadable: usize,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut streams = self.streams.0.streams();
        let Streams { open_by_agent, closed, .. } = &mut *streams;
        let Some(open) = open_by_agent.get_mut(&self.agent) else { return };
        open.queues.retain(|(number, _)| *number != self.number);
        if open.queues.is_empty() {
            open_by_agent.remove(&self.agent);
            closed.insert(self.agent.clone());
            self.streams.0.has_closed.notify_one();
        }
    }
}

impl AgentStream {
    /// The next delivery, as its engine wrote it; nothing once the bus has ended the stream. May be dropped and called again.
    ///
    /// # Errors
    /// [`UnreadableInbox`] where something came that is no delivery; the stream goes on.
    pub async fn next(&mut self) -> Option<Result<Bytes, UnreadableInbox>> {
        loop {
            if let Some(document) = self.pending.next() {
                return Some(Ok(document));
            }
            let received = tokio::select! {
                biased;
                received = self.inbox.next() => received?,
                Some(document) = self.routed.recv() => return Some(Ok(document)),
            };
            match documents(&received.payload) {
                Ok(documents) => self.pending = documents.into_iter(),
                Err(unreadable) => return Some(Err(unreadable)),
            }
        }
    }

    /// Cancelled when an administrator ends the stream.
    #[must_use]
    pub fn ended(&self) -> CancellationToken {
        self.place.ended.clone()
    }
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
