//! Over one WebSocket connection to a gateway (`GET /v1/ws`), JSON text frames both ways.
//!
//! One task owns the socket. It never waits for anything but the socket and the agent, and the agent always reads its
//! inbox, so a full inbox slows the gateway down and cannot lock the two up.

mod keepalive;
mod pump;
mod shared;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ahash::HashMap;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use schemas::delivery::{Delivery, LINGER_MS_MAX};
use schemas::{AgentId, DeliveryId, Refusal};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::UrlError;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use self::shared::{SharedConnectionSlot, SharedSockets};
use super::{ANSWER_TIMEOUT, Connection, Inbox, InboxMessage, SendReply, Transport, TransportError, Uplink};
use crate::identity::Identity;

/// Deliveries waiting for the agent; beyond them the socket is not read.
const DELIVERIES_MAX: usize = 1024;
/// Most deliveries handed to the agent at a time, and most frames read before commands have their turn.
const BATCH_MAX: usize = 128;
/// Largest frame read: a delivery to an initiator with a thousand offers fits.
const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Buffers of one connection, in bytes. The reading one is zeroed before every read, so the library's 128 KiB cost more than
/// the frames.
const BUFFER_BYTES: usize = 4 * 1024;
/// The same where agents share it.
const SHARED_BUFFER_BYTES: usize = 16 * 1024;
/// How long contractors let frames wait at the gateway ([`WebSocketTransport::lingering`]).
pub const CONTRACTOR_LINGER: Duration = Duration::from_millis(20);
/// Agents that share a connection where commands of llmx start them: what one write holds for all, and few enough to spread
/// over gateways ([`WebSocketTransport::shared_by`]).
pub const AGENTS_PER_CONNECTION: u16 = 32;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A gateway by its WebSocket address.
#[derive(Debug, Clone)]
pub struct WebSocketTransport {
    url: String,
    linger: Duration,
    shared: Option<SharedSockets>,
    /// Tells apart who has joined a shared connection, and joined it again.
    joined: Arc<AtomicU64>,
}

impl WebSocketTransport {
    /// The gateway at this address, for example `ws://127.0.0.1:8080`; `http://` is read as `ws://`, and the path
    /// `/v1/ws` is added unless there is one. Addresses with `wss://` connect only with the feature `tls`, which `llmx` is
    /// built with.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let url = match url.split_once("://") {
            Some(("http", rest)) => format!("ws://{rest}"),
            Some(("https", rest)) => format!("wss://{rest}"),
            Some(_) | None => url.to_owned(),
        };
        let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.trim_end_matches('/').contains('/'));
        let url = if has_path { url } else { format!("{}/v1/ws", url.trim_end_matches('/')) };
        Self { url, linger: Duration::ZERO, shared: None, joined: Arc::default() }
    }

    /// Lets the gateway keep answers to the agent's messages, and that an offer is out, for so long, 100 ms at most, until
    /// something else leaves for the agent: many frames then share a write (docs/spec/deliveries.md#dl-40). For agents that
    /// answer others, as contractors do; the next message of the same negotiation waits for the answer.
    #[must_use]
    pub fn lingering(self, linger: Duration) -> Self {
        Self { linger: linger.min(Duration::from_millis(LINGER_MS_MAX)), ..self }
    }

    /// Lets up to so many agents that connect by this transport or its clones share a connection, where fewer than two leave
    /// each its own: what is for several of them leaves in one write (docs/spec/deliveries.md#dl-41). A gateway takes 256.
    #[must_use]
    pub fn shared_by(self, agents_max: usize) -> Self {
        Self { shared: (agents_max > 1).then(|| SharedSockets::new(agents_max)), ..self }
    }

    /// The address with what is wished of the stream.
    fn stream_url(&self) -> Cow<'_, str> {
        let linger = (!self.linger.is_zero()).then(|| format!("linger_ms={}", self.linger.as_millis()));
        let shared = self.shared.is_some().then(|| "shared=true".to_owned());
        let wishes: Vec<String> = linger.into_iter().chain(shared).collect();
        if wishes.is_empty() {
            return Cow::Borrowed(&self.url);
        }
        let sign = if self.url.contains('?') { '&' } else { '?' };
        Cow::Owned(format!("{}{sign}{}", self.url, wishes.join("&")))
    }

    fn next_number(&self) -> u64 {
        self.joined.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens a connection, in the name of this agent.
    async fn open(&self, identity: &Identity) -> Result<Socket, TransportError> {
        let mut request = self.stream_url().as_ref().into_client_request().map_err(unusable)?;
        let bearer = format!("Bearer {}", identity.token.current());
        let no_header = |_| TransportError::Unusable("the token cannot stand in a header".to_owned());
        let mut bearer = HeaderValue::try_from(bearer).map_err(no_header)?;
        bearer.set_sensitive(true);
        request.headers_mut().insert("authorization", bearer);
        let buffer_bytes = if self.shared.is_some() { SHARED_BUFFER_BYTES } else { BUFFER_BYTES };
        let config = WebSocketConfig::default()
            .read_buffer_size(buffer_bytes)
            .write_buffer_size(buffer_bytes)
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX));
        let connecting = connect_async_with_config(request, Some(config), true);
        Ok(connecting.await.map_err(refused_or_unreachable)?.0)
    }

    async fn connect_alone(&self, identity: &Identity) -> Result<Connection, TransportError> {
        let (deliveries, receiver) = mpsc::channel(DELIVERIES_MAX);
        let recipients = Recipients::One(deliveries);
        let (commands, acks) = pump::start(self.open(identity).await?, recipients);
        let link = WebSocketUplink { commands, acks, agent: None, _seat: None };
        Ok(Connection { link: Arc::new(link), inbox: inbox(receiver) })
    }
}

impl Transport for WebSocketTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        match &self.shared {
            Some(sockets) => sockets.connect(self, identity).boxed(),
            None => self.connect_alone(identity).boxed(),
        }
    }
}

/// Everything that is ready goes to the agent together.
fn inbox(receiver: mpsc::Receiver<Option<Delivery>>) -> Inbox {
    futures_util::stream::unfold(receiver, |mut receiver| async move {
        let mut batch = Vec::new();
        let count = receiver.recv_many(&mut batch, BATCH_MAX).await;
        (count > 0).then(|| (batch.into_iter().collect::<InboxMessage>(), receiver))
    })
    .boxed()
}

struct WebSocketUplink {
    commands: mpsc::Sender<SocketCommand>,
    acks: WrittenSoon,
    /// Who it is, on a shared connection.
    agent: Option<AgentId>,
    _seat: Option<SharedConnectionSlot>,
}

/// Acknowledgements that go into the next write, whatever makes it, each with who was delivered to on a shared connection.
/// Bounded by how many agents have under way.
type WrittenSoon = Arc<Mutex<Vec<NamedAcks>>>;

type NamedAcks = (Option<AgentId>, Vec<DeliveryId>);

/// Waits for an answer, which is nothing where the agent has joined.
type Asker = oneshot::Sender<Option<SendReply>>;

/// What an agent asks of the task that owns the socket.
enum SocketCommand {
    Send(Option<AgentId>, Bytes, Asker),
    /// Acknowledgements are to be written.
    Ack,
    Join(Box<Joining>),
    /// The agent that joined under this number is gone.
    Leave(AgentId, u64),
}

/// An agent about to join a shared connection.
struct Joining {
    agent: AgentId,
    number: u64,
    token: String,
    deliveries: mpsc::Sender<Option<Delivery>>,
    reply: Asker,
}

impl Uplink for WebSocketUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        let (commands, agent) = (self.commands.clone(), self.agent.clone());
        let exchange = async move {
            let (sender, answer) = oneshot::channel();
            if commands.send(SocketCommand::Send(agent, document, sender)).await.is_err() {
                return None;
            }
            answer.await.ok().flatten()
        };
        async move {
            match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
                Ok(Some(answer)) => answer,
                Ok(None) => SendReply::Unknown("the connection was lost".to_owned()),
                Err(_) => SendReply::Unknown(format!("no answer within {ANSWER_TIMEOUT:?}")),
            }
        }
        .boxed()
    }

    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
        // From here on they leave with any message that is handed over.
        self.acks.lock().push((self.agent.clone(), deliveries));
        let (commands, acks) = (self.commands.clone(), self.acks.clone());
        async move {
            if acks.lock().is_empty() {
                return Ok(());
            }
            let lost = |_| TransportError::Unreachable("the connection was lost".to_owned());
            commands.send(SocketCommand::Ack).await.map_err(lost)
        }
        .boxed()
    }

    fn acks_with_documents(&self) -> bool {
        true
    }
}

/// Who gets the deliveries of a connection. `None` stands for one that this build cannot read.
enum Recipients {
    One(mpsc::Sender<Option<Delivery>>),
    /// Agents that share it, each with the number under which it joined.
    Many(HashMap<AgentId, (u64, mpsc::Sender<Option<Delivery>>)>),
}

impl Recipients {
    /// Agents that have gone without a word.
    fn gone(&self) -> Vec<(AgentId, u64)> {
        let Self::Many(recipients) = self else { return Vec::new() };
        let is_gone = |(_, (_, deliveries)): &(&AgentId, &(u64, mpsc::Sender<_>))| deliveries.is_closed();
        recipients.iter().filter(is_gone).map(|(agent, (number, _))| (agent.clone(), *number)).collect()
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Many(recipients) => recipients.is_empty(),
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
fn unusable(error: WebSocketError) -> TransportError {
    TransportError::Unusable(format!("the WebSocket address cannot be used: {error}"))
}

#[allow(clippy::needless_pass_by_value, reason = "the signature `map_err` wants")]
#[allow(clippy::wildcard_enum_match_arm, reason = "whatever else goes wrong on a socket, now or later, may pass")]
fn refused_or_unreachable(error: WebSocketError) -> TransportError {
    match &error {
        WebSocketError::Http(response) => TransportError::Refused(refusal(response)),
        WebSocketError::Url(UrlError::TlsFeatureNotEnabled) => TransportError::Unusable(
            "this build speaks no TLS over WebSockets: build `agents` with its feature `tls`, or go over HTTP, which does \
             (`HttpTransport`)"
                .to_owned(),
        ),
        WebSocketError::Url(error) => TransportError::Unusable(error.to_string()),
        _ => TransportError::Unreachable(error.to_string()),
    }
}

fn refusal(response: &Response<Option<Vec<u8>>>) -> Refusal {
    let body = response.body().as_deref().unwrap_or_default();
    super::read_problem(body, Some(response.status().as_u16()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_scheme_and_path_unless_it_has_them() {
        for (given, used) in [
            ("http://127.0.0.1:8080", "ws://127.0.0.1:8080/v1/ws"),
            ("ws://127.0.0.1:8080/", "ws://127.0.0.1:8080/v1/ws"),
            ("https://exchange.example", "wss://exchange.example/v1/ws"),
            ("ws://exchange.example/other/ws", "ws://exchange.example/other/ws"),
        ] {
            assert_eq!(WebSocketTransport::new(given).stream_url(), used);
        }
        let lingering = |url: &str, ms| WebSocketTransport::new(url).lingering(Duration::from_millis(ms));
        assert_eq!(lingering("ws://x", 20).stream_url(), "ws://x/v1/ws?linger_ms=20");
        assert_eq!(lingering("ws://x/v1/ws?a=b", 500).stream_url(), "ws://x/v1/ws?a=b&linger_ms=100");
    }

    #[tokio::test]
    async fn an_address_with_https_is_spoken_to_in_tls_or_another_way_is_named() {
        use tokio::io::AsyncReadExt as _;

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let transport = WebSocketTransport::new(&format!("https://{}", listener.local_addr().unwrap()));
        let identity = Identity { agent: AgentId::try_new("a").unwrap(), token: crate::Token::fixed("t") };
        let first = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_u8().await.unwrap()
        };
        let refused = if cfg!(feature = "tls") {
            // 22 begins a handshake of TLS.
            let (refused, first) = tokio::join!(transport.connect(&identity), first);
            assert_eq!(first, 22);
            refused
        } else {
            transport.connect(&identity).await
        };
        match refused.err() {
            Some(TransportError::Unusable(told)) => assert!(!cfg!(feature = "tls") && told.contains("HTTP"), "{told}"),
            other => assert!(cfg!(feature = "tls") && other.is_some(), "{other:?}"),
        }
    }
}
