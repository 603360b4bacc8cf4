//! Connections that several agents of one process share.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use ahash::{HashMap, HashMapExt as _};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use schemas::AgentId;
use tokio::sync::{mpsc, oneshot};

use super::{
    DELIVERIES_MAX, Joining, Recipients, SocketCommand, WebSocketTransport, WebSocketUplink, WrittenSoon, inbox, pump,
};
use crate::identity::Identity;
use crate::transport::{CONNECT_TIMEOUT, Connection, SendReply, TransportError};

/// The shared connections of one transport. Clones are handles to the same.
#[derive(Clone)]
pub(super) struct SharedSockets {
    agents_max: usize,
    sockets: Arc<Mutex<Vec<SharedSocket>>>,
}

/// What the task of a connection is told by.
type SocketLine = (mpsc::Sender<SocketCommand>, WrittenSoon);

/// One connection, open or about to be.
#[derive(Clone)]
struct SharedSocket {
    opened: Shared<BoxFuture<'static, Result<SocketLine, TransportError>>>,
    agents: Arc<Mutex<BTreeSet<AgentId>>>,
}

/// An agent's place on a shared connection. Dropping it gives the place up.
pub(super) struct SharedConnectionSlot {
    socket: SharedSocket,
    agent: AgentId,
    /// How the agent is taken off the connection, once it was to join.
    joined: Option<(mpsc::Sender<SocketCommand>, u64)>,
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
        let (mut seat, is_opener) = self.take(transport, identity);
        let (commands, acks) = match seat.socket.opened.clone().await {
            // Of the token of another agent.
            Err(TransportError::Refused(refusal)) if !is_opener => {
                return Err(TransportError::Unreachable(refusal.to_string()));
            }
            opened => opened?,
        };
        let (deliveries, receiver) = mpsc::channel(DELIVERIES_MAX);
        let (reply, joined) = oneshot::channel();
        let (agent, number) = (identity.agent.clone(), transport.next_number());
        seat.joined = Some((commands.clone(), number));
        let joining = Joining { agent: agent.clone(), number, token: identity.token.current(), deliveries, reply };
        let lost = || TransportError::Unreachable("the connection was lost".to_owned());
        commands.send(SocketCommand::Join(Box::new(joining))).await.map_err(|_| lost())?;
        match joined.await.map_err(|_| lost())? {
            None | Some(SendReply::Accepted(_)) => {}
            Some(SendReply::Refused(refusal)) => return Err(refusal.into()),
            Some(SendReply::Unknown(why)) => return Err(TransportError::Unreachable(why)),
        }
        let link = WebSocketUplink { commands, acks, agent: Some(agent), _seat: Some(seat) };
        Ok(Connection { link: Arc::new(link), inbox: inbox(receiver) })
    }

    /// A place on a connection, and whether it is opened in the name of this agent.
    fn take(&self, transport: &WebSocketTransport, identity: &Identity) -> (SharedConnectionSlot, bool) {
        let agent = &identity.agent;
        let seat = |socket: SharedSocket| SharedConnectionSlot { socket, agent: agent.clone(), joined: None };
        let mut sockets = self.sockets.lock();
        sockets.retain(|socket| !socket.is_over());
        for socket in sockets.iter() {
            let mut agents = socket.agents.lock();
            if agents.len() < self.agents_max && agents.insert(agent.clone()) {
                return (seat(socket.clone()), false);
            }
        }
        // In a task of its own: others wait for it as well, whatever becomes of this agent's attempt.
        let (transport, identity) = (transport.clone(), identity.clone());
        let opening = tokio::spawn(async move {
            let socket = tokio::time::timeout(CONNECT_TIMEOUT, transport.open(&identity)).await;
            let late = |_| TransportError::Unreachable(format!("no connection within {CONNECT_TIMEOUT:?}"));
            Ok(pump::start(socket.map_err(late)??, Recipients::Many(HashMap::new())))
        });
        let opened =
            async { opening.await.unwrap_or_else(|error| Err(TransportError::Unreachable(error.to_string()))) };
        let agents = Arc::new(Mutex::new(BTreeSet::from([agent.clone()])));
        let socket = SharedSocket { opened: opened.boxed().shared(), agents };
        sockets.push(socket.clone());
        (seat(socket), true)
    }
}

impl SharedSocket {
    /// Whether nobody can join any more.
    fn is_over(&self) -> bool {
        match self.opened.peek() {
            None => false,
            Some(Ok((commands, _))) => commands.is_closed(),
            Some(Err(_)) => true,
        }
    }
}

impl Drop for SharedConnectionSlot {
    fn drop(&mut self) {
        // Said before the place is free: whoever takes it joins after this agent has left. Where there is no room to say so, the
        // task that owns the socket finds out.
        if let Some((commands, number)) = &self.joined {
            let _ = commands.try_send(SocketCommand::Leave(self.agent.clone(), *number));
        }
        self.socket.agents.lock().remove(&self.agent);
    }
}

impl fmt::Debug for SharedSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSockets").field("agents_max", &self.agents_max).finish_non_exhaustive()
    }
}
