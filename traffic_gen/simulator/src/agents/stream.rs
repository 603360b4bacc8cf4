//! An agent's stream at a gateway: opened in the process, and lost with the gateway.

use std::sync::Arc;
use std::time::Duration;

use bus::Received;
use bytes::Bytes;
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use gateway::AgentStream;
use schemas::AgentId;
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::{CONNECT_GAP_MS, Job, SimulatedAgent};
use crate::trace::Noted;
use crate::world::{LinkId, World};

/// How long an agent waits for a gateway to open its stream; one that is gone never does.
const OPEN_MAX: Duration = Duration::from_secs(2);

impl SimulatedAgent {
    /// Opens a stream at one of the gateways that run; whether one is there.
    pub(super) async fn open_stream(&mut self) -> bool {
        let mut gateways = self.context.world.gateways();
        if gateways.is_empty() {
            return false;
        }
        let (link, streams, runs) = gateways.swap_remove(self.context.index(gateways.len()));
        (self.inbox, self.renew_at) = (None, None);
        let world = Arc::clone(&self.context.world);
        let open = OpenStream::new(world, link, self.context.id.clone());
        let Ok(Ok(stream)) = timeout(OPEN_MAX, streams.open(&self.context.id)).await else {
            self.context.plan(CONNECT_GAP_MS, Job::Connect);
            return true;
        };
        let subject = self.subject.clone();
        self.inbox = Some(messages(stream, subject, (open, runs)).boxed());
        self.context.note(Noted::Connected);
        true
    }
}

/// Says to the world that an agent has a stream open, until it is dropped.
struct OpenStream {
    world: Arc<World>,
    gateway: LinkId,
    agent: AgentId,
}

impl OpenStream {
    fn new(world: Arc<World>, gateway: LinkId, agent: AgentId) -> Self {
        world.note_stream(gateway, &agent, true);
        Self { world, gateway, agent }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.world.note_stream(self.gateway, &self.agent, false);
    }
}

/// The deliveries of a stream, each as a message of the agent's inbox.
fn messages(
    stream: AgentStream,
    subject: String,
    open: (OpenStream, broadcast::Receiver<()>),
) -> impl Stream<Item = Received> {
    unfold((stream, subject, open), |(mut stream, subject, mut open)| async move {
        let delivery = tokio::select! {
            biased;
            _ = open.1.recv() => None,
            delivery = stream.next() => delivery,
        };
        let payload = match delivery? {
            Ok(document) => Bytes::from([b"[", document.as_ref(), b"]"].concat()),
            Err(_) => Bytes::new(),
        };
        let received = Received { subject: subject.clone(), reply: None, token: None, payload };
        Some((received, (stream, subject, open)))
    })
}
