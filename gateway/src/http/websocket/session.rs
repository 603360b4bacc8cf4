//! One open WebSocket: a single task that reads, admits, delivers and writes.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use schemas::Refusal;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::{ClientFrame, ServerFrame, delivery_frame};
use crate::Transport;
use crate::admission::{Accepted, Credentials, Ingress};
use crate::auth::Identity;
use crate::http::Site;
use crate::http::streams::StreamLifetime;
use crate::metrics::{CloseReason, StreamKind, StreamResult};
use crate::problem::Problem;
use crate::registry::PresenceSignal;
use crate::streams::{AgentStream, UnreadableInbox};

/// Messages of one connection being admitted at once. Beyond it nothing further is read: the client waits.
const IN_FLIGHT_MAX: usize = 256;
/// Frames written between two flushes; also what is taken of each source in between, so that none starves another.
const BATCH_MAX: usize = 64;
/// Between two pings.
const PING_PERIOD: Duration = Duration::from_secs(20);
/// Silent pings after which the client is gone.
const MISSED_PINGS_MAX: u32 = 2;

/// An open stream.
struct WebSocketSession {
    site: Arc<Site>,
    identity: Arc<Identity>,
    stream: AgentStream,
    in_flight: FuturesUnordered<BoxFuture<'static, Admitted>>,
    pings: Interval,
    missed_pings: u32,
    /// How long the client may take to read what waits for it. Then it is closed as slow; what it missed comes again.
    patience: Duration,
    /// Deliveries among the frames that are not written yet.
    unsettled: usize,
}

/// A message that was answered.
struct Admitted {
    id: Option<String>,
    outcome: Result<Accepted, Refusal>,
}

/// Everything that can wake the task.
enum SessionEvent {
    Frame(Option<Result<Message, axum::Error>>),
    Delivery(Option<Result<Bytes, UnreadableInbox>>),
    Admitted(Admitted),
    Ping,
    Over(CloseReason),
}

/// Why the stream ends, and what the client is told.
struct SessionEnd {
    reason: CloseReason,
    close: Option<(u16, &'static str)>,
}

impl From<CloseReason> for SessionEnd {
    fn from(reason: CloseReason) -> Self {
        let code = match reason {
            CloseReason::Shutdown => close_code::AWAY,
            CloseReason::Bus => close_code::AGAIN,
            CloseReason::Protocol => close_code::PROTOCOL,
            CloseReason::Client
            | CloseReason::Expired
            | CloseReason::KeyRemoved
            | CloseReason::Ended
            | CloseReason::Slow
            | CloseReason::Idle => close_code::POLICY,
        };
        Self { reason, close: reason.farewell().map(|text| (code, text)) }
    }
}

/// Why frames were not written.
enum Unwritten {
    /// The client did not read them in time.
    Late,
    /// The client is gone.
    Gone,
}

impl From<Unwritten> for SessionEnd {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Late => CloseReason::Slow.into(),
            Unwritten::Gone => CloseReason::Client.into(),
        }
    }
}

/// Serves a stream until it ends.
pub(super) async fn serve(
    site: Arc<Site>,
    identity: Arc<Identity>,
    stream: AgentStream,
    mut lifetime: StreamLifetime,
    socket: WebSocket,
) {
    let mut pings = tokio::time::interval_at(Instant::now() + PING_PERIOD, PING_PERIOD);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let in_flight = FuturesUnordered::new();
    let patience = Duration::from_millis(site.config.limits.client_timeout_ms);
    let session =
        WebSocketSession { site, identity, stream, in_flight, pings, missed_pings: 0, patience, unsettled: 0 };
    // One future for the whole stream: to begin to listen costs more than to be asked again.
    session.run(socket, std::pin::pin!(lifetime.over())).await;
}

impl WebSocketSession {
    async fn run(mut self, mut socket: WebSocket, over: Pin<&mut impl Future<Output = CloseReason>>) {
        self.site.metrics.serving.stream_connections.of(StreamKind::WebSocket).inc();
        let hello = ServerFrame::Hello { agent: &self.identity.agent }.to_text();
        let end = match write(&mut socket, vec![hello.into()], self.patience).await {
            Ok(()) => self.drive(&mut socket, over).await,
            Err(failure) => failure.into(),
        };
        if let Some((code, reason)) = end.close {
            let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
            // The client may be gone or not reading: its close frame is a courtesy with a deadline.
            let _ = tokio::time::timeout(self.patience, socket.send(Message::Close(Some(frame)))).await;
        }
        self.site.metrics.serving.stream_ended(StreamKind::WebSocket, end.reason);
    }

    async fn drive(
        &mut self,
        socket: &mut WebSocket,
        mut over: Pin<&mut impl Future<Output = CloseReason>>,
    ) -> SessionEnd {
        loop {
            let wake = self.next(socket, over.as_mut()).await;
            let mut frames = Vec::new();
            // Whatever else is ready goes out with the same flush; when nothing is, nothing waits.
            let handled = self.handle(wake, &mut frames).and_then(|()| self.handle_ready(socket, &mut frames));
            if let Err(end) = handled {
                self.settle(&Err(Unwritten::Gone));
                return end;
            }
            let written = write(socket, frames, self.patience).await;
            self.settle(&written);
            if let Err(failure) = written {
                return failure.into();
            }
        }
    }

    /// Handles what is ready, a bounded part of each source: asking each of them again after every event would cost more
    /// than the events.
    fn handle_ready(&mut self, socket: &mut WebSocket, frames: &mut Vec<Message>) -> Result<(), SessionEnd> {
        for _ in 0..BATCH_MAX {
            let Some(Some(admitted)) = self.in_flight.next().now_or_never() else { break };
            self.handle(SessionEvent::Admitted(admitted), frames)?;
        }
        for _ in 0..BATCH_MAX {
            let Some(delivery) = self.stream.next().now_or_never() else { break };
            self.handle(SessionEvent::Delivery(delivery), frames)?;
        }
        for _ in 0..BATCH_MAX {
            if self.in_flight.len() >= IN_FLIGHT_MAX {
                break;
            }
            let Some(frame) = socket.recv().now_or_never() else { break };
            self.handle(SessionEvent::Frame(frame), frames)?;
        }
        Ok(())
    }

    /// Counts the deliveries of a batch of frames once it is known what became of them.
    fn settle(&mut self, written: &Result<(), Unwritten>) {
        let result = match written {
            Ok(()) => StreamResult::Sent,
            Err(Unwritten::Late) => StreamResult::Timeout,
            Err(Unwritten::Gone) => StreamResult::Gone,
        };
        let count = std::mem::take(&mut self.unsettled);
        self.site.metrics.serving.delivered(StreamKind::WebSocket, result, count);
    }

    async fn next(
        &mut self,
        socket: &mut WebSocket,
        over: Pin<&mut impl Future<Output = CloseReason>>,
    ) -> SessionEvent {
        tokio::select! {
            Some(admitted) = self.in_flight.next(), if !self.in_flight.is_empty() => SessionEvent::Admitted(admitted),
            delivery = self.stream.next() => SessionEvent::Delivery(delivery),
            frame = socket.recv(), if self.in_flight.len() < IN_FLIGHT_MAX => SessionEvent::Frame(frame),
            _ = self.pings.tick() => SessionEvent::Ping,
            reason = over => SessionEvent::Over(reason),
        }
    }

    fn handle(&mut self, wake: SessionEvent, frames: &mut Vec<Message>) -> Result<(), SessionEnd> {
        match wake {
            SessionEvent::Frame(Some(Ok(message))) => self.handle_frame(message, frames),
            SessionEvent::Frame(Some(Err(_))) => Err(CloseReason::Protocol.into()),
            SessionEvent::Frame(None) => Err(CloseReason::Client.into()),
            SessionEvent::Delivery(Some(delivery)) => {
                self.handle_delivery(delivery, frames);
                Ok(())
            }
            SessionEvent::Delivery(None) => Err(CloseReason::Bus.into()),
            SessionEvent::Admitted(admitted) => {
                frames.push(answer(&admitted).into());
                Ok(())
            }
            SessionEvent::Ping => self.handle_ping(frames),
            SessionEvent::Over(reason) => Err(reason.into()),
        }
    }

    fn handle_frame(&mut self, message: Message, frames: &mut Vec<Message>) -> Result<(), SessionEnd> {
        self.missed_pings = 0;
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
            Message::Close(_) => return Err(CloseReason::Client.into()),
            Message::Binary(_) => {
                let close = Some((close_code::UNSUPPORTED, "text frames only"));
                return Err(SessionEnd { reason: CloseReason::Protocol, close });
            }
        };
        match ClientFrame::parse(&text.into()) {
            Ok(ClientFrame::Message { id, bytes }) => self.admit(id, bytes, frames),
            Ok(ClientFrame::Ack { delivery_ids }) => {
                let agent = &self.identity.agent;
                let charged = self.site.admission.charge(&self.identity);
                match charged.and_then(|()| self.site.acknowledgements.collect(agent, &delivery_ids)) {
                    Ok(()) => self.site.registry.note_presence(agent, PresenceSignal::Here),
                    Err(refusal) => frames.push(refused(None, &refusal).into()),
                }
            }
            Err(refusal) => {
                // A frame that is none costs like a message: otherwise garbage would be free.
                let refusal = self.site.admission.charge(&self.identity).err().unwrap_or(refusal);
                self.site.admission.refused_before(Transport::WebSocket, Some(&self.identity.agent), &refusal);
                frames.push(refused(None, &refusal).into());
            }
        }
        Ok(())
    }

    /// Begins to admit a message. The first poll happens here, so that messages reach the log in the order they came.
    fn admit(&mut self, id: Option<String>, bytes: bytes::Bytes, frames: &mut Vec<Message>) {
        let (admission, identity) = (self.site.admission.clone(), self.identity.clone());
        let mut admitting = async move {
            let ingress = Ingress {
                transport: Transport::WebSocket,
                credentials: Credentials::Verified(&identity),
                named_sender: None,
                peer: None,
                bytes,
            };
            Admitted { id, outcome: admission.admit(ingress).await }
        }
        .boxed();
        match (&mut admitting).now_or_never() {
            Some(admitted) => frames.push(answer(&admitted).into()),
            None => self.in_flight.push(admitting),
        }
    }

    fn handle_delivery(&mut self, delivery: Result<Bytes, UnreadableInbox>, frames: &mut Vec<Message>) {
        match delivery.ok().and_then(|delivery| delivery_frame(&delivery)) {
            Some(frame) => {
                self.unsettled += 1;
                frames.push(frame.into());
            }
            None => self.site.metrics.serving.delivered(StreamKind::WebSocket, StreamResult::Unreadable, 1),
        }
    }

    fn handle_ping(&mut self, frames: &mut Vec<Message>) -> Result<(), SessionEnd> {
        self.missed_pings += 1;
        if self.missed_pings > MISSED_PINGS_MAX {
            return Err(CloseReason::Idle.into());
        }
        frames.push(Message::Ping(bytes::Bytes::new()));
        Ok(())
    }
}

/// Writes frames and flushes, within the time a client may take to read.
async fn write(socket: &mut WebSocket, frames: Vec<Message>, patience: Duration) -> Result<(), Unwritten> {
    if frames.is_empty() {
        return Ok(());
    }
    let writing = async {
        for frame in frames {
            socket.feed(frame).await?;
        }
        socket.flush().await
    };
    match tokio::time::timeout(patience, writing).await {
        Ok(Ok(())) => Ok(()),
        // The connection waits as long as this does: either may notice first.
        Ok(Err(error)) if is_timeout(&error) => Err(Unwritten::Late),
        Ok(Err(_)) => Err(Unwritten::Gone),
        Err(_) => Err(Unwritten::Late),
    }
}

/// Whether a write failed because it waited too long.
fn is_timeout(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn answer(admitted: &Admitted) -> String {
    let id = admitted.id.as_deref();
    match &admitted.outcome {
        Ok(accepted) => ServerFrame::Accepted { id, accepted }.to_text(),
        Err(refusal) => refused(id, refusal),
    }
}

fn refused(id: Option<&str>, refusal: &Refusal) -> String {
    ServerFrame::Refused { id, problem: Problem::from(refusal) }.to_text()
}
