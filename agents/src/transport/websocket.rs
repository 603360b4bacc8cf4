//! Over one WebSocket connection to a gateway (`GET /v1/ws`), JSON text frames both ways.
//!
//! One task owns the socket. It never waits for anything but the socket and the agent, and the agent always reads its
//! inbox, so a full inbox slows the gateway down and cannot lock the two up.

mod keepalive;
mod shared;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use schemas::delivery::{Delivery, LINGER_MS_MAX};
use schemas::{AgentId, DeliveryId, Refusal};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use self::keepalive::{Keepalive, KeepaliveAction, PONG_TIMEOUT};
use self::shared::{SharedSeat, SharedSockets};
use super::{
    ANSWER_TIMEOUT, Accepted, Connection, Inbox, InboxMessage, SendReply, Transport, TransportError, Uplink,
    read_problem,
};
use crate::identity::Identity;

/// Frames waiting for the socket; a sender beyond them waits.
const FRAMES_MAX: usize = 1024;
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
/// Unanswered messages of a connection before those are looked for that nobody waits for any more.
const ASKED_ROOM: usize = 64;
/// How long the farewell may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// `/v1/ws` is added unless there is one. Addresses with `wss://` connect only where `tokio-tungstenite` is built
    /// with TLS, which this workspace does not do: put a TLS proxy on the agent's side, or use HTTP.
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
        let mut bearer = HeaderValue::try_from(bearer).map_err(|_| no_header())?;
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
        let (commands, acks) = Pump::start(self.open(identity).await?, recipients);
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
        let deliveries: Vec<_> = batch.into_iter().flatten().collect();
        let unreadable = u32::try_from(count - deliveries.len()).unwrap_or(u32::MAX);
        (count > 0).then_some((InboxMessage { deliveries, unreadable }, receiver))
    })
    .boxed()
}

struct WebSocketUplink {
    commands: mpsc::Sender<SocketCommand>,
    acks: WrittenSoon,
    /// Who it is, on a shared connection.
    agent: Option<AgentId>,
    _seat: Option<SharedSeat>,
}

/// Acknowledgements that go into the next write, whatever makes it, each with who was delivered to on a shared connection.
/// Bounded by how many agents have under way.
#[derive(Debug, Clone, Default)]
struct WrittenSoon(Arc<Mutex<Vec<NamedAcks>>>);

type NamedAcks = (Option<AgentId>, Vec<DeliveryId>);

impl WrittenSoon {
    fn lock(&self) -> MutexGuard<'_, Vec<NamedAcks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an agent asks of the task that owns the socket.
enum SocketCommand {
    Send(Option<AgentId>, Bytes, oneshot::Sender<SendReply>),
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
    reply: oneshot::Sender<Result<(), TransportError>>,
}

impl Uplink for WebSocketUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        let (commands, agent) = (self.commands.clone(), self.agent.clone());
        let exchange = async move {
            let (sender, answer) = oneshot::channel();
            if commands.send(SocketCommand::Send(agent, document, sender)).await.is_err() {
                return None;
            }
            answer.await.ok()
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

/// The task that owns the socket.
struct Pump {
    sink: SplitSink<Socket, Message>,
    stream: SplitStream<Socket>,
    commands: mpsc::Receiver<SocketCommand>,
    acks: WrittenSoon,
    recipients: Recipients,
    /// Who waits for the answer to which message, by the reference given to the gateway. Those whose asker has given
    /// up are dropped when there are as many as `asked_room`.
    asked: HashMap<u64, Asker>,
    asked_room: usize,
    last: u64,
    keepalive: Keepalive,
}

/// Who gets the deliveries of a connection. `None` stands for one that this build cannot read.
enum Recipients {
    One(mpsc::Sender<Option<Delivery>>),
    /// Agents that share it, each with the number under which it joined.
    Many(HashMap<AgentId, (u64, mpsc::Sender<Option<Delivery>>)>),
}

enum Asker {
    Sender(oneshot::Sender<SendReply>),
    Joining(oneshot::Sender<Result<(), TransportError>>),
}

impl Asker {
    fn is_gone(&self) -> bool {
        match self {
            Self::Sender(sender) => sender.is_closed(),
            Self::Joining(reply) => reply.is_closed(),
        }
    }

    /// Tells it the answer. It may have given up meanwhile.
    fn answer(self, answer: SendReply) {
        match self {
            Self::Sender(sender) => drop(sender.send(answer)),
            Self::Joining(reply) => drop(reply.send(match answer {
                SendReply::Accepted(_) => Ok(()),
                SendReply::Refused(refusal) => Err(TransportError::Refused(refusal)),
                SendReply::Unknown(why) => Err(TransportError::Unreachable(why)),
            })),
        }
    }
}

enum SocketEvent {
    Command(Option<SocketCommand>),
    Frame(Option<Result<Message, WebSocketError>>),
    Timer,
}

impl Pump {
    /// Begins to serve an open connection.
    fn start(socket: Socket, recipients: Recipients) -> (mpsc::Sender<SocketCommand>, WrittenSoon) {
        let (sender, commands) = mpsc::channel(FRAMES_MAX);
        let (sink, stream) = socket.split();
        let (acks, keepalive) = (WrittenSoon::default(), Keepalive::new(Instant::now()));
        let pump = Self {
            sink,
            stream,
            commands,
            acks: acks.clone(),
            recipients,
            asked: HashMap::new(),
            asked_room: ASKED_ROOM,
            last: 0,
            keepalive,
        };
        tokio::spawn(pump.drive());
        (sender, acks)
    }

    async fn drive(mut self) {
        let mut alarm = std::pin::pin!(tokio::time::sleep_until(self.keepalive.poll_timeout()));
        loop {
            let wake = tokio::select! {
                command = self.commands.recv() => SocketEvent::Command(command),
                frame = self.stream.next() => SocketEvent::Frame(frame),
                () = &mut alarm => SocketEvent::Timer,
            };
            let is_up = match wake {
                SocketEvent::Command(Some(command)) => self.handle_commands(command).await,
                // The agent dropped the link.
                SocketEvent::Command(None) => false,
                SocketEvent::Frame(frame) => self.handle_frames(frame).await,
                SocketEvent::Timer => self.handle_timer().await,
            };
            if !is_up {
                break;
            }
            // One that goes off too early is set again then: to set it for every frame would cost more than the frame.
            let timeout = self.keepalive.poll_timeout();
            if timeout < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(timeout);
            }
        }
        // Nobody joins any more, and whoever waits knows at once.
        self.commands.close();
        self.asked.clear();
        self.recipients = Recipients::Many(HashMap::new());
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.sink.close()).await;
    }

    /// Handles a frame and those that are there behind it, a bounded number; false when the connection is over.
    async fn handle_frames(&mut self, first: Option<Result<Message, WebSocketError>>) -> bool {
        self.keepalive.handle_sign(Instant::now());
        let mut is_up = self.handle_frame(first).await;
        let mut handled = 1;
        while is_up
            && handled < BATCH_MAX
            && let Some(frame) = self.stream.next().now_or_never()
        {
            is_up = self.handle_frame(frame).await;
            handled += 1;
        }
        is_up
    }

    async fn handle_timer(&mut self) -> bool {
        let gone = self.recipients.gone();
        for (agent, number) in gone {
            if let Some(frame) = self.leave(&agent, number)
                && !self.feed(frame).await
            {
                return false;
            }
        }
        if self.recipients.is_empty() {
            return false;
        }
        match self.keepalive.handle_timeout(Instant::now()) {
            KeepaliveAction::Wait => is_written(self.sink.flush()).await,
            KeepaliveAction::Ping => is_written(self.sink.send(Message::Ping(Bytes::new()))).await,
            KeepaliveAction::Dead => false,
        }
    }

    /// Writes every frame that is ready, then flushes once.
    async fn handle_commands(&mut self, first: SocketCommand) -> bool {
        if self.asked.len() >= self.asked_room {
            self.asked.retain(|_, asker| !asker.is_gone());
            self.asked_room = ASKED_ROOM.max(2 * self.asked.len());
        }
        let mut next = Some(first);
        let mut has_left = false;
        while let Some(command) = next {
            let frame = match command {
                SocketCommand::Send(agent, document, sender) => {
                    let reference = self.ask(Asker::Sender(sender));
                    Some(message_frame(agent.as_ref(), reference, &document))
                }
                SocketCommand::Join(joining) => self.join(*joining),
                SocketCommand::Leave(agent, number) => {
                    has_left = true;
                    // Of whoever has left nothing is taken any more.
                    if !self.feed_acks().await {
                        return false;
                    }
                    self.leave(&agent, number)
                }
                SocketCommand::Ack => None,
            };
            if let Some(frame) = frame
                && !self.feed(frame).await
            {
                return false;
            }
            next = self.commands.try_recv().ok();
        }
        self.feed_acks().await && is_written(self.sink.flush()).await && !(has_left && self.recipients.is_empty())
    }

    /// Writes the acknowledgements that wait; false when the connection is over.
    async fn feed_acks(&mut self) -> bool {
        let acks = std::mem::take(&mut *self.acks.lock());
        for (agent, ids) in acks {
            if !self.feed(ack_frame(agent.as_ref(), &ids)).await {
                return false;
            }
        }
        true
    }

    /// Notes who waits for an answer. Returns the reference by which it comes.
    fn ask(&mut self, asker: Asker) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, asker);
        self.keepalive.handle_asked(Instant::now());
        self.last
    }

    fn join(&mut self, joining: Joining) -> Option<Vec<u8>> {
        let Joining { agent, number, token, deliveries, reply } = joining;
        let Recipients::Many(recipients) = &mut self.recipients else { return None };
        recipients.insert(agent, (number, deliveries));
        let reference = self.ask(Asker::Joining(reply));
        Some(json!({"type": "join", "id": reference.to_string(), "token": token}).to_string().into_bytes())
    }

    fn leave(&mut self, agent: &AgentId, number: u64) -> Option<Vec<u8>> {
        let Recipients::Many(recipients) = &mut self.recipients else { return None };
        // It may have joined anew.
        if recipients.get(agent).is_none_or(|(joined, _)| *joined != number) {
            return None;
        }
        recipients.remove(agent);
        Some(json!({"type": "leave", "agent": agent}).to_string().into_bytes())
    }

    /// False when the connection is over.
    async fn feed(&mut self, frame: Vec<u8>) -> bool {
        let Ok(text) = Utf8Bytes::try_from(frame) else { return true };
        is_written(self.sink.feed(Message::Text(text))).await
    }

    /// False when the connection is over.
    async fn handle_frame(&mut self, frame: Option<Result<Message, WebSocketError>>) -> bool {
        let text = match frame {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return true,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return false,
        };
        match read_frame(&text) {
            ServerFrame::Delivery(delivery) => self.hand_over(delivery.map(|delivery| *delivery), &text).await,
            ServerFrame::Answer(reference, answer) => {
                if let Some(asker) = self.asked.remove(&reference) {
                    asker.answer(answer);
                }
                true
            }
            ServerFrame::Joined(reference) => {
                if let Some(Asker::Joining(reply)) = self.asked.remove(&reference) {
                    // Whoever has given up leaves by itself.
                    let _ = reply.send(Ok(()));
                }
                true
            }
            ServerFrame::Other => true,
        }
    }

    /// Hands a delivery to whom it is for; false when nobody is left.
    async fn hand_over(&mut self, delivery: Option<Delivery>, frame: &str) -> bool {
        let (recipients, agent) = match &mut self.recipients {
            Recipients::One(deliveries) => return deliveries.send(delivery).await.is_ok(),
            Recipients::Many(recipients) => {
                let agent = match &delivery {
                    Some(delivery) => recipient(&delivery.envelope.to[0]),
                    None => recipient_of_unreadable(frame),
                };
                (recipients, agent)
            }
        };
        // What is for nobody here any more comes again elsewhere, and later what an agent has no room for: the others do not wait.
        if let Some((_, deliveries)) = agent.as_ref().and_then(|agent| recipients.get(agent))
            && deliveries.try_send(delivery).is_err()
        {
            tracing::debug!(?agent, "a delivery finds no room; it comes again");
        }
        true
    }
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

/// The agent of an address as deliveries name it.
fn recipient(address: &str) -> Option<AgentId> {
    AgentId::try_new(address.strip_prefix("agent://")?).ok()
}

/// Whom a delivery is for that this build cannot read.
fn recipient_of_unreadable(frame: &str) -> Option<AgentId> {
    let frame: Value = serde_json::from_str(frame).ok()?;
    recipient(frame.pointer("/delivery/envelope/to/0")?.as_str()?)
}

/// Whether a write succeeded within the time after which the other end counts as gone.
async fn is_written(write: impl Future<Output = Result<(), WebSocketError>>) -> bool {
    tokio::time::timeout(PONG_TIMEOUT, write).await.is_ok_and(|written| written.is_ok())
}

fn no_header() -> TransportError {
    TransportError::Unusable("the token cannot stand in a header".to_owned())
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
        WebSocketError::Url(error) => TransportError::Unusable(error.to_string()),
        _ => TransportError::Unreachable(error.to_string()),
    }
}

fn refusal(response: &Response<Option<Vec<u8>>>) -> Refusal {
    let body = response.body().as_deref().unwrap_or_default();
    super::read_problem(body, Some(response.status().as_u16()))
}

fn message_frame(agent: Option<&AgentId>, reference: u64, document: &[u8]) -> Vec<u8> {
    let agent = agent_member(agent);
    let mut frame = format!("{{\"type\":\"message\",{agent}\"id\":\"{reference}\",\"message\":").into_bytes();
    frame.extend_from_slice(document);
    frame.push(b'}');
    frame
}

fn ack_frame(agent: Option<&AgentId>, ids: &[DeliveryId]) -> Vec<u8> {
    let agent = agent_member(agent);
    let ids = serde_json::to_string(ids).expect("delivery ids are texts");
    format!("{{\"type\":\"ack\",{agent}\"delivery_ids\":{ids}}}").into_bytes()
}

/// Whose a frame is, on a shared connection. Names of agents need no escapes.
fn agent_member(agent: Option<&AgentId>) -> String {
    agent.map(|agent| format!("\"agent\":\"{agent}\",")).unwrap_or_default()
}

#[derive(Debug)]
enum ServerFrame {
    Delivery(Option<Box<Delivery>>),
    Answer(u64, SendReply),
    Joined(u64),
    /// `hello`, and whatever later versions add.
    Other,
}

fn read_frame(text: &str) -> ServerFrame {
    #[derive(Deserialize)]
    struct RawServerFrame<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        id: Option<String>,
        #[serde(borrow)]
        delivery: Option<&'a RawValue>,
        #[serde(borrow)]
        problem: Option<&'a RawValue>,
    }
    if let Some(delivery) = sole_delivery(text) {
        return ServerFrame::Delivery(Some(delivery));
    }
    let Ok(frame) = serde_json::from_str::<RawServerFrame<'_>>(text) else { return ServerFrame::Other };
    let reference = frame.id.and_then(|id| id.parse().ok());
    match (&*frame.r#type, reference) {
        ("delivery", _) => {
            let delivery = frame.delivery.and_then(|delivery| serde_json::from_str(delivery.get()).ok());
            ServerFrame::Delivery(delivery.map(Box::new))
        }
        ("accepted", Some(reference)) => {
            let answer = serde_json::from_str::<Accepted>(text);
            ServerFrame::Answer(
                reference,
                answer.map_or_else(|e| SendReply::Unknown(e.to_string()), SendReply::Accepted),
            )
        }
        ("joined", Some(reference)) => ServerFrame::Joined(reference),
        ("refused", Some(reference)) => {
            let problem = frame.problem.map_or("{}", RawValue::get);
            ServerFrame::Answer(reference, SendReply::Refused(read_problem(problem.as_bytes(), None)))
        }
        (_, _) => ServerFrame::Other,
    }
}

/// A delivery in a frame as gateways write it, read without looking for the frame's other members first. Nothing of another
/// frame, or of one written otherwise: what stands between the two ends is then no delivery.
fn sole_delivery(text: &str) -> Option<Box<Delivery>> {
    let delivery = text.strip_prefix(r#"{"type":"delivery","delivery":"#)?.strip_suffix('}')?;
    serde_json::from_str(delivery).ok().map(Box::new)
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

    #[test]
    fn frames_are_read_and_unknown_ones_ignored() {
        let accepted = r#"{"type":"accepted","id":"4","seq":9,"msg_id":"m","negotiation":"alice~job"}"#;
        assert!(matches!(read_frame(accepted), ServerFrame::Answer(4, SendReply::Accepted(Accepted { seq: 9, .. }))));
        let refused = r#"{"type":"refused","id":"5","problem":{"code":"no_consent","detail":"nobody"}}"#;
        assert!(matches!(read_frame(refused), ServerFrame::Answer(5, SendReply::Refused(_))));
        assert!(matches!(read_frame(r#"{"type":"delivery","delivery":{}}"#), ServerFrame::Delivery(None)));
        let delivery = r#"{"envelope":{"msg_id":"00000000000000000000000000000001","ts":"2026-11-20T00:00:00Z",
            "from":"exchange://llmx","to":["agent://bob"],"negotiation":"alice~job"},
            "payload":{"act":"ack","ack_of":"m1","disposition":"ok"}}"#;
        for frame in [
            format!(r#"{{"type":"delivery","delivery":{delivery}}}"#),
            format!(r#"{{"type":"delivery","delivery":{delivery},"later":{{}}}}"#),
            format!(r#"{{ "delivery": {delivery}, "type": "delivery" }}"#),
        ] {
            assert!(matches!(read_frame(&frame), ServerFrame::Delivery(Some(_))), "{frame}");
        }
        assert!(matches!(read_frame(r#"{"type":"hello","agent":"alice"}"#), ServerFrame::Other));
        assert!(matches!(read_frame("no json"), ServerFrame::Other));
    }

    #[test]
    fn the_document_goes_into_the_frame_byte_for_byte() {
        let document = br#"{"b":1, "a":2}"#;
        assert_eq!(message_frame(None, 3, document), br#"{"type":"message","id":"3","message":{"b":1, "a":2}}"#);
        let id = DeliveryId::new(schemas::Lane(0), [1; 16]);
        assert_eq!(ack_frame(None, &[id]), format!(r#"{{"type":"ack","delivery_ids":["{id}"]}}"#).into_bytes());
        let bob = AgentId::try_new("bob").unwrap();
        let shared = br#"{"type":"message","agent":"bob","id":"3","message":{"b":1, "a":2}}"#;
        assert_eq!(message_frame(Some(&bob), 3, document), shared);
        let ack = format!(r#"{{"type":"ack","agent":"bob","delivery_ids":["{id}"]}}"#);
        assert_eq!(ack_frame(Some(&bob), &[id]), ack.into_bytes());
    }
}
