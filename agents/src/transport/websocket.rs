//! Over one WebSocket connection to a gateway (`GET /v1/ws`), JSON text frames both ways.
//!
//! One task owns the socket. It never waits for anything but the socket and the agent, and the agent always reads its
//! inbox, so a full inbox slows the gateway down and cannot lock the two up.

mod frame;
mod keepalive;

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use schemas::delivery::Delivery;
use schemas::{DeliveryId, Refusal};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::{ANSWER_TIMEOUT, Connection, Inbox, InboxMessage, SendReply, Transport, TransportError, Uplink};
use crate::identity::Identity;

use frame::{ServerFrame, ack_frame, message_frame, read_frame};
use keepalive::{Keepalive, KeepaliveAction, PONG_TIMEOUT};

/// Frames waiting for the socket; a sender beyond them waits.
const FRAMES_MAX: usize = 1024;
/// Deliveries waiting for the agent; beyond them the socket is not read.
const DELIVERIES_MAX: usize = 1024;
/// Most deliveries handed to the agent, and acknowledged, at a time.
const BATCH_MAX: usize = 128;
/// Largest frame read: a delivery to an initiator with a thousand offers fits.
const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long the farewell may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A gateway by its WebSocket address.
#[derive(Debug, Clone)]
pub struct WebSocketTransport {
    url: String,
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
        Self { url }
    }
}

impl Transport for WebSocketTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let mut request = self.url.as_str().into_client_request().map_err(unusable)?;
            let bearer = format!("Bearer {}", identity.token.current());
            let mut bearer = HeaderValue::try_from(bearer).map_err(|_| no_header())?;
            bearer.set_sensitive(true);
            request.headers_mut().insert("authorization", bearer);
            let config = WebSocketConfig::default()
                .max_message_size(Some(FRAME_BYTES_MAX))
                .max_frame_size(Some(FRAME_BYTES_MAX));
            let (socket, _) =
                connect_async_with_config(request, Some(config), true).await.map_err(refused_or_unreachable)?;
            let (commands, command_receiver) = mpsc::channel(FRAMES_MAX);
            let (deliveries, delivery_receiver) = mpsc::channel(DELIVERIES_MAX);
            let (sink, stream) = socket.split();
            let keepalive = Keepalive::new(Instant::now());
            let pump = Pump {
                sink,
                stream,
                commands: command_receiver,
                deliveries,
                asked: HashMap::new(),
                last: 0,
                keepalive,
            };
            tokio::spawn(pump.drive());
            Ok(Connection { link: std::sync::Arc::new(WebSocketUplink { commands }), inbox: inbox(delivery_receiver) })
        }
        .boxed()
    }
}

/// Everything that is ready goes to the agent together, and is acknowledged together.
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
}

/// What the agent asks of the task that owns the socket.
enum SocketCommand {
    Send(Bytes, oneshot::Sender<SendReply>),
    Ack(Vec<DeliveryId>),
}

impl Uplink for WebSocketUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        let commands = self.commands.clone();
        let exchange = async move {
            let (sender, answer) = oneshot::channel();
            if commands.send(SocketCommand::Send(document, sender)).await.is_err() {
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
        let commands = self.commands.clone();
        async move {
            let lost = |_| TransportError::Unreachable("the connection was lost".to_owned());
            commands.send(SocketCommand::Ack(deliveries)).await.map_err(lost)
        }
        .boxed()
    }
}

/// The task that owns the socket.
struct Pump {
    sink: SplitSink<Socket, Message>,
    stream: SplitStream<Socket>,
    commands: mpsc::Receiver<SocketCommand>,
    /// `None` stands for a delivery this build cannot read.
    deliveries: mpsc::Sender<Option<Delivery>>,
    /// Who waits for the answer to which message, by the reference given to the gateway. Those whose asker has given
    /// up are dropped when the next message goes out.
    asked: HashMap<u64, oneshot::Sender<SendReply>>,
    last: u64,
    keepalive: Keepalive,
}

enum SocketEvent {
    Command(Option<SocketCommand>),
    Frame(Option<Result<Message, WebSocketError>>),
    Timer,
}

impl Pump {
    async fn drive(mut self) {
        loop {
            let wake = tokio::select! {
                command = self.commands.recv() => SocketEvent::Command(command),
                frame = self.stream.next() => SocketEvent::Frame(frame),
                () = tokio::time::sleep_until(self.keepalive.poll_timeout()) => SocketEvent::Timer,
            };
            let is_up = match wake {
                SocketEvent::Command(Some(command)) => self.handle_commands(command).await,
                // The agent dropped the link.
                SocketEvent::Command(None) => false,
                SocketEvent::Frame(Some(Ok(frame))) => {
                    self.keepalive.handle_sign(Instant::now());
                    self.handle_frame(frame).await
                }
                SocketEvent::Frame(Some(Err(_)) | None) => false,
                SocketEvent::Timer => self.handle_timer().await,
            };
            if !is_up {
                break;
            }
        }
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.sink.close()).await;
    }

    async fn handle_timer(&mut self) -> bool {
        match self.keepalive.handle_timeout(Instant::now()) {
            KeepaliveAction::Wait => true,
            KeepaliveAction::Ping => is_written(self.sink.send(Message::Ping(Bytes::new()))).await,
            KeepaliveAction::Dead => false,
        }
    }

    /// Writes every frame that is ready, then flushes once.
    async fn handle_commands(&mut self, first: SocketCommand) -> bool {
        self.asked.retain(|_, sender| !sender.is_closed());
        let mut next = Some(first);
        while let Some(command) = next {
            let frame = match command {
                SocketCommand::Send(document, sender) => {
                    self.last += 1;
                    let frame = message_frame(self.last, &document);
                    self.asked.insert(self.last, sender);
                    self.keepalive.handle_asked(Instant::now());
                    frame
                }
                SocketCommand::Ack(ids) => ack_frame(&ids),
            };
            let Ok(text) = Utf8Bytes::try_from(frame) else { return true };
            if !is_written(self.sink.feed(Message::Text(text))).await {
                return false;
            }
            next = self.commands.try_recv().ok();
        }
        is_written(self.sink.flush()).await
    }

    /// False when the connection is over.
    async fn handle_frame(&mut self, frame: Message) -> bool {
        let text = match frame {
            Message::Text(text) => text,
            Message::Close(_) => return false,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return true,
        };
        match read_frame(&text) {
            ServerFrame::Delivery(delivery) => self.deliveries.send(delivery.map(|delivery| *delivery)).await.is_ok(),
            ServerFrame::Answer(reference, answer) => {
                if let Some(sender) = self.asked.remove(&reference) {
                    // The asker may have given up meanwhile.
                    let _ = sender.send(answer);
                }
                true
            }
            ServerFrame::Other => true,
        }
    }
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
            assert_eq!(WebSocketTransport::new(given).url, used);
        }
    }
}
