//! Connections that several agents of one process share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::{HashMap, HashMapExt as _};
use schemas::AgentId;
use tokio::sync::{mpsc, oneshot};

use super::{
    DELIVERIES_MAX, Joining, Pump, Recipients, SocketCommand, WebSocketTransport, WebSocketUplink, WrittenSoon, inbox,
};
use crate::identity::Identity;
use crate::transport::{Connection, TransportError};

/// The shared connections of one transport. Clones are handles to the same.
#[derive(Debug, Clone)]
pub(super) struct SharedSockets {
    agents_max: usize,
    /// Held while one is opened: whoever comes meanwhile joins it.
    sockets: Arc<tokio::sync::Mutex<Vec<SharedSocket>>>,
}

/// One open connection.
#[derive(Debug, Clone)]
struct SharedSocket {
    commands: mpsc::Sender<SocketCommand>,
    acks: WrittenSoon,
    agents: Arc<Mutex<BTreeSet<AgentId>>>,
}

/// An agent's place on a shared connection. Dropping it gives the place up.
pub(super) struct SharedSeat {
    socket: SharedSocket,
    agent: AgentId,
    number: u64,
}

impl SharedSockets {
    pub(super) fn new(agents_max: usize) -> Self {
        Self { agents_max, sockets: Arc::default() }
    }

    /// Lets an agent join a connection that has room, or a new one.
    pub(super) async fn connect(
        &self,
        transport: &WebSocketTransport,
        identity: &Identity,
    ) -> Result<Connection, TransportError> {
        let socket = self.take(transport, identity).await?;
        let (deliveries, receiver) = mpsc::channel(DELIVERIES_MAX);
        let (reply, joined) = oneshot::channel();
        let agent = identity.agent.clone();
        let number = transport.next_number();
        // From here on its place is given up whatever happens.
        let seat = SharedSeat { socket: socket.clone(), agent: agent.clone(), number };
        let joining = Joining { agent: agent.clone(), number, token: identity.token.current(), deliveries, reply };
        let lost = || TransportError::Unreachable("the connection was lost".to_owned());
        socket.commands.send(SocketCommand::Join(Box::new(joining))).await.map_err(|_| lost())?;
        joined.await.map_err(|_| lost())??;
        let SharedSocket { commands, acks, .. } = socket;
        let link = WebSocketUplink { commands, acks, agent: Some(agent), _seat: Some(seat) };
        Ok(Connection { link: Arc::new(link), inbox: inbox(receiver) })
    }

    /// A place on an open connection.
    async fn take(&self, transport: &WebSocketTransport, identity: &Identity) -> Result<SharedSocket, TransportError> {
        let mut sockets = self.sockets.lock().await;
        sockets.retain(|socket| !socket.commands.is_closed());
        for socket in sockets.iter() {
            let mut agents = socket.agents();
            if agents.len() < self.agents_max && agents.insert(identity.agent.clone()) {
                drop(agents);
                return Ok(socket.clone());
            }
        }
        let (commands, acks) = Pump::start(transport.open(identity).await?, Recipients::Many(HashMap::new()));
        let agents = Arc::new(Mutex::new(BTreeSet::from([identity.agent.clone()])));
        let socket = SharedSocket { commands, acks, agents };
        sockets.push(socket.clone());
        Ok(socket)
    }
}

impl SharedSocket {
    fn agents(&self) -> MutexGuard<'_, BTreeSet<AgentId>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedSeat {
    fn drop(&mut self) {
        // Said before the place is free: whoever takes it joins after this agent has left. Where there is no room to say so, it
        // leaves with the next delivery that nobody takes.
        let _ = self.socket.commands.try_send(SocketCommand::Leave(self.agent.clone(), self.number));
        self.socket.agents().remove(&self.agent);
    }
}
