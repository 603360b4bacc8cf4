//! What a process does for agents whose deliveries and acknowledgements share messages on the bus: a gateway for its streams, a
//! host for its agents.
//!
//! Engines send it the deliveries of all of them as one message to `deliver.<id>` ([`schemas::routed`]). It names its agents on
//! `streams.<id>` every [`REPORT_PERIOD_MS`], and says in a hello who has gone. [`AckCollector`] passes on what they
//! acknowledge.

mod acknowledgements;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ahash::HashMap;
use bytes::Bytes;
use parking_lot::Mutex;
use schemas::presence::{Hello, REPORT_PERIOD_MS, encode_report};
use schemas::{AgentId, GatewayId, routed, subject};
use tokio::sync::{Notify, mpsc};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{BusError, PubSub};

pub use self::acknowledgements::{AckCollector, COLLECT_FOR, HasRoom};

/// Deliveries that may wait for one agent: as many as an engine lets wait for one. Further ones come again.
pub const QUEUE_MAX: usize = 16_384;

/// Queues by agent.
pub struct Fanout {
    id: GatewayId,
    pub_sub: Arc<dyn PubSub>,
    queues: Mutex<Queues>,
    /// Told when the last queue of an agent has closed.
    has_closed: Notify,
}

#[derive(Default)]
struct Queues {
    open_by_agent: HashMap<AgentId, AgentQueues>,
    /// Agents whose last queue has closed, which engines have not been told. None of them has one open.
    closed: BTreeSet<AgentId>,
    opened: u64,
}

/// The open queues of one agent.
#[derive(Default)]
struct AgentQueues {
    senders: Vec<(u64, mpsc::Sender<Bytes>)>,
    /// Cancelled when those that are open now are to end; later ones have another.
    ended: CancellationToken,
}

/// A queue's place in the table. Dropping it closes the queue.
pub struct QueuePlace {
    fanout: Arc<Fanout>,
    agent: AgentId,
    number: u64,
    ended: CancellationToken,
}

/// What became of a delivery that an engine sent to a gateway or host. None but the first is there: it comes again on the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RoutedResult {
    /// Handed to a queue.
    Handed,
    /// The agent has no queue here.
    Nobody,
    /// A queue had no room for it.
    Full,
    /// Not readable.
    Unreadable,
}

/// Called with a message that the bus did not take: a list of agents, or that this one has gone.
pub type OnUnannounced = fn(Option<&AgentId>, &BusError);

impl Fanout {
    /// No queues yet; engines know it by this id.
    #[must_use]
    pub fn new(id: GatewayId, pub_sub: Arc<dyn PubSub>) -> Arc<Self> {
        Arc::new(Self { id, pub_sub, queues: Mutex::default(), has_closed: Notify::new() })
    }

    /// The id under which engines know it.
    #[must_use]
    pub fn id(&self) -> &GatewayId {
        &self.id
    }

    /// Opens a queue of an agent.
    #[must_use]
    pub fn open(self: &Arc<Self>, agent: &AgentId, queue: mpsc::Sender<Bytes>) -> QueuePlace {
        self.place(&mut self.queues.lock(), agent, queue)
    }

    /// The same, unless the agent has `max` other queues. One that it joins again is no other.
    #[must_use]
    pub fn open_within(
        self: &Arc<Self>,
        max: usize,
        agent: &AgentId,
        queue: mpsc::Sender<Bytes>,
    ) -> Option<QueuePlace> {
        let mut queues = self.queues.lock();
        let open = queues.open_by_agent.get(agent).into_iter().flat_map(|open| &open.senders);
        let others = open.filter(|(_, other)| !other.same_channel(&queue)).count();
        (others < max).then(|| self.place(&mut queues, agent, queue))
    }

    fn place(self: &Arc<Self>, queues: &mut Queues, agent: &AgentId, queue: mpsc::Sender<Bytes>) -> QueuePlace {
        queues.opened += 1;
        let number = queues.opened;
        queues.closed.remove(agent);
        let open = queues.open_by_agent.entry(agent.clone()).or_default();
        open.senders.push((number, queue));
        QueuePlace { fanout: Arc::clone(self), agent: agent.clone(), number, ended: open.ended.clone() }
    }

    /// Cancels [`QueuePlace::ended`] of an agent's open queues.
    pub fn end(&self, agent: &AgentId) {
        if let Some(open) = self.queues.lock().open_by_agent.get_mut(agent) {
            std::mem::take(&mut open.ended).cancel();
        }
    }

    /// The agents that have a queue open, in the order of their ids.
    #[must_use]
    pub fn agents(&self) -> Vec<AgentId> {
        let mut agents: Vec<_> = self.queues.lock().open_by_agent.keys().cloned().collect();
        agents.sort_unstable();
        agents
    }

    /// How many agents have a queue open.
    #[must_use]
    pub fn agents_len(&self) -> usize {
        self.queues.lock().open_by_agent.len()
    }

    /// Hands the documents of a message to the queues they are for. `note` hears of each line and queue what became of it, with
    /// the agent, which a line that is none does not name.
    pub fn hand_out(&self, message: &Bytes, mut note: impl FnMut(RoutedResult, &str)) {
        let queues = self.queues.lock();
        for line in routed::lines(message) {
            let Some((agent, document)) = line else {
                note(RoutedResult::Unreadable, "");
                continue;
            };
            let Some(open) = queues.open_by_agent.get(agent) else {
                note(RoutedResult::Nobody, agent);
                continue;
            };
            for (_, queue) in &open.senders {
                let taken = queue.try_send(message.slice_ref(document));
                note(if taken.is_ok() { RoutedResult::Handed } else { RoutedResult::Full }, agent);
            }
        }
    }

    /// Announces who is here and who has gone until `stop`, and then who goes until nobody is left.
    pub async fn drive_announcements(&self, stop: &CancellationToken, on_unannounced: OnUnannounced) {
        let mut reporting = interval(Duration::from_millis(REPORT_PERIOD_MS));
        reporting.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.has_closed.notified() => self.announce_closed(on_unannounced).await,
                _ = reporting.tick() => self.announce_open(on_unannounced).await,
            }
        }
        // Queues end one by one: engines learn at once that this process holds none of them any more.
        while self.agents_len() > 0 {
            self.announce_closed(on_unannounced).await;
            self.has_closed.notified().await;
        }
        self.announce_closed(on_unannounced).await;
    }

    /// Names the agents that are here, for engines that have not heard their hellos.
    async fn announce_open(&self, on_unannounced: OnUnannounced) {
        let Ok(messages) = encode_report(&self.agents()) else { return };
        for message in messages {
            if let Err(error) = self.pub_sub.publish(subject::streams(&self.id), message.into()).await {
                on_unannounced(None, &error);
            }
        }
    }

    /// Says which agents have no queue here any more. One that opens a queue while it is called closed may be called so after
    /// its hello: its deliveries then come on its inbox until the next list.
    async fn announce_closed(&self, on_unannounced: OnUnannounced) {
        loop {
            let Some(agent) = self.queues.lock().closed.pop_first() else { return };
            let Ok(body) = Hello::Closed(self.id.clone()).to_body() else { continue };
            if let Err(error) = self.pub_sub.publish(subject::hello(&agent), body.into()).await {
                on_unannounced(Some(&agent), &error);
            }
        }
    }
}

impl QueuePlace {
    /// Whose queue it is.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// Cancelled by [`Fanout::end`].
    #[must_use]
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut queues = self.fanout.queues.lock();
        let Queues { open_by_agent, closed, .. } = &mut *queues;
        let Some(open) = open_by_agent.get_mut(&self.agent) else { return };
        open.senders.retain(|(number, _)| *number != self.number);
        if open.senders.is_empty() {
            open_by_agent.remove(&self.agent);
            closed.insert(self.agent.clone());
            self.fanout.has_closed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
