//! A stream that several agents of one process share. What is for any of them comes on one queue, so that it can leave in one
//! write.

use ahash::HashMap;
use bus::Received;
use bus::fanout::QueuePlace;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, SelectAll};
use schemas::{AgentId, Refusal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{AgentStreams, Deliveries, UnreadableInbox, until_ended};

/// Routed deliveries a shared stream holds for its client; beyond them they are dropped and come again. What may be under way to
/// 32 agents at first, from four lanes.
const SHARED_QUEUE_MAX: usize = 32_768;

/// See the module. Dropping it closes it for all of its agents.
pub(crate) struct SharedStream {
    streams: AgentStreams,
    /// Who has opened it: an agent opens only so many.
    opener: AgentId,
    queue: mpsc::Sender<Bytes>,
    deliveries: Deliveries,
    /// The agents' inboxes; an item is nothing where the bus has ended one.
    inboxes: SelectAll<BoxStream<'static, Option<Received>>>,
    /// The agents, each with what closes its inbox here.
    places: HashMap<AgentId, (QueuePlace, CancellationToken)>,
}

/// A stream that was opened for an agent, to be added to a shared one.
pub(crate) struct OpenedInbox {
    place: QueuePlace,
    inbox: BoxStream<'static, Received>,
}

/// Opens streams of agents that come on a shared one.
pub(crate) struct SharedOpener {
    streams: AgentStreams,
    queue: mpsc::Sender<Bytes>,
}

impl SharedOpener {
    /// Opens the stream of an agent, to be [added](SharedStream::add).
    ///
    /// # Errors
    /// As [`AgentStreams::open`].
    pub(crate) async fn open(self, agent: &AgentId) -> Result<OpenedInbox, Refusal> {
        let (place, inbox) = self.streams.open_into(agent, self.queue).await?;
        Ok(OpenedInbox { place, inbox })
    }
}

impl SharedStream {
    /// Opened by an agent, and of none yet.
    ///
    /// # Errors
    /// [`Code::RateLimited`](schemas::Code::RateLimited) when it has opened as many as it may.
    pub(crate) fn open(streams: &AgentStreams, opener: &AgentId) -> Result<Self, Refusal> {
        streams.0.take_shared(opener)?;
        let (queue, routed) = mpsc::channel(SHARED_QUEUE_MAX);
        let (streams, opener, deliveries) = (streams.clone(), opener.clone(), Deliveries::new(routed));
        Ok(Self { streams, opener, queue, deliveries, inboxes: SelectAll::new(), places: HashMap::default() })
    }

    /// What opens streams of agents whose deliveries come here.
    pub(crate) fn opener(&self) -> SharedOpener {
        SharedOpener { streams: self.streams.clone(), queue: self.queue.clone() }
    }

    /// Adds an agent. Returns what is cancelled when an administrator ends its stream, and when it is removed.
    pub(crate) fn add(&mut self, OpenedInbox { place, inbox }: OpenedInbox) -> (CancellationToken, CancellationToken) {
        let (left, ended) = (CancellationToken::new(), place.ended().clone());
        self.inboxes.push(until_ended(inbox).take_until(left.clone().cancelled_owned()).boxed());
        self.places.insert(place.agent().clone(), (place, left.clone()));
        (ended, left)
    }

    /// Closes the stream for one agent.
    pub(crate) fn remove(&mut self, agent: &AgentId) {
        if let Some((_, left)) = self.places.remove(agent) {
            left.cancel();
        }
    }

    /// The next delivery for any of the agents, as [`AgentStream::next`](super::AgentStream::next).
    ///
    /// # Errors
    /// [`UnreadableInbox`] where something came that is no delivery; the stream goes on.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, UnreadableInbox>> {
        self.deliveries.next(&mut self.inboxes).await
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        self.streams.0.give_back_shared(&self.opener);
    }
}
