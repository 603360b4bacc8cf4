//! One open WebSocket: a single task that reads, admits, delivers and writes.

use std::io;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use schemas::delivery::may_linger;
use schemas::validate::Checked;
use schemas::{AgentId, DeliveryId, Refusal};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use super::members::{MemberChange, SessionStream};
use super::{ClientFrame, ServerFrame, delivery_frame};
use crate::Transport;
use crate::admission::{Accepted, Credentials, Ingress, Known};
use crate::auth::Identity;
use crate::http::streams::StreamLifetime;
use crate::http::{Site, causes};
use crate::metrics::{CloseReason, StreamKind, StreamResult};
use crate::problem::Problem;
use crate::registry::PresenceSignal;
use crate::streams::UnreadableInbox;

/// Messages being admitted at once, for each agent of a connection. Beyond it nothing further is read: the client waits.
const IN_FLIGHT_MAX: usize = 256;
/// Agents of a shared connection for which that is counted at most.
const COUNTED_MEMBERS_MAX: usize = 16;
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
    stream: SessionStream,
    in_flight: FuturesUnordered<BoxFuture<'static, Admitted>>,
    pings: Interval,
    missed_pings: u32,
    /// How long the client may take to read what waits for it. Then it is closed as slow; what it missed comes again.
    patience: Duration,
    /// How long some frames may wait for others (docs/spec/deliveries.md#dl-40).
    linger: Duration,
    outgoing: Outgoing,
    /// Why the token with which the connection was opened is taken no longer; agents that share it may go on.
    opener_over: Option<CloseReason>,
}

/// Frames that are not written yet, in their order.
#[derive(Default)]
struct Outgoing {
    frames: Vec<Message>,
    /// Deliveries among them.
    deliveries: usize,
    /// One of them may not wait.
    is_urgent: bool,
    /// The alarm for those that wait is set.
    is_alarm_set: bool,
}

impl Outgoing {
    fn push(&mut self, frame: impl Into<Message>, is_urgent: bool) {
        self.frames.push(frame.into());
        self.is_urgent |= is_urgent || self.frames.len() >= BATCH_MAX;
    }
}

/// What an answer is to.
#[derive(Default)]
struct AnsweredFrame {
    /// Whose frame it was, on a shared connection.
    agent: Option<AgentId>,
    /// The client's reference.
    id: Option<String>,
}

/// A message that was answered.
pub(super) struct Admitted {
    asked: AnsweredFrame,
    outcome: Result<Accepted, Refusal>,
}

/// Everything that can wake the task.
pub(super) enum SessionEvent {
    Frame(Option<Result<Message, axum::Error>>),
    Delivery(Option<Result<Bytes, UnreadableInbox>>),
    Admitted(Admitted),
    Member(MemberChange),
    Ping,
    Alarm,
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
    stream: SessionStream,
    mut lifetime: StreamLifetime,
    linger: Duration,
    socket: WebSocket,
) {
    let mut pings = tokio::time::interval_at(Instant::now() + PING_PERIOD, PING_PERIOD);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let in_flight = FuturesUnordered::new();
    let patience = Duration::from_millis(site.config.limits.client_timeout_ms);
    let outgoing = Outgoing::default();
    let session = WebSocketSession {
        site,
        identity,
        stream,
        in_flight,
        pings,
        missed_pings: 0,
        patience,
        linger,
        outgoing,
        opener_over: None,
    };
    // One future for the whole stream: to begin to listen costs more than to be asked again.
    session.run(socket, std::pin::pin!(lifetime.over())).await;
}

impl WebSocketSession {
    async fn run(mut self, mut socket: WebSocket, over: Pin<&mut impl Future<Output = CloseReason>>) {
        self.site.metrics.serving.stream_connections.of(StreamKind::WebSocket).inc();
        let hello = ServerFrame::Hello { agent: &self.identity.agent }.to_text();
        self.outgoing.push(hello, true);
        let alarm = std::pin::pin!(tokio::time::sleep(self.linger));
        let end = match self.write(&mut socket).await {
            Ok(()) => self.drive(&mut socket, over, alarm).await,
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
        mut alarm: Pin<&mut Sleep>,
    ) -> SessionEnd {
        loop {
            let wake = self.next(socket, over.as_mut(), alarm.as_mut()).await;
            // Whatever else is ready goes out with the same flush; when nothing is, only what may wait does.
            let handled = self.handle(wake).and_then(|()| self.handle_ready(socket));
            if let Err(end) = handled {
                self.settle(self.outgoing.deliveries, &Err(Unwritten::Gone));
                return end;
            }
            if self.outgoing.is_urgent
                && let Err(failure) = self.write(socket).await
            {
                return failure.into();
            }
            if !self.outgoing.frames.is_empty() && !self.outgoing.is_alarm_set {
                alarm.as_mut().reset(Instant::now() + self.linger);
                self.outgoing.is_alarm_set = true;
            }
        }
    }

    /// Handles what is ready, a bounded part of each source: asking each of them again after every event would cost more
    /// than the events.
    fn handle_ready(&mut self, socket: &mut WebSocket) -> Result<(), SessionEnd> {
        for _ in 0..BATCH_MAX {
            let Some(Some(admitted)) = self.in_flight.next().now_or_never() else { break };
            self.handle(SessionEvent::Admitted(admitted))?;
        }
        for _ in 0..BATCH_MAX {
            let Some(event) = self.stream.next().now_or_never() else { break };
            self.handle(event)?;
        }
        for _ in 0..BATCH_MAX {
            if !self.has_room() {
                break;
            }
            let Some(frame) = socket.recv().now_or_never() else { break };
            self.handle(SessionEvent::Frame(frame))?;
        }
        Ok(())
    }

    async fn next(
        &mut self,
        socket: &mut WebSocket,
        over: Pin<&mut impl Future<Output = CloseReason>>,
        alarm: Pin<&mut Sleep>,
    ) -> SessionEvent {
        let has_room = self.has_room();
        tokio::select! {
            Some(admitted) = self.in_flight.next(), if !self.in_flight.is_empty() => SessionEvent::Admitted(admitted),
            event = self.stream.next() => event,
            frame = socket.recv(), if has_room => SessionEvent::Frame(frame),
            _ = self.pings.tick() => SessionEvent::Ping,
            () = alarm, if self.outgoing.is_alarm_set => SessionEvent::Alarm,
            reason = over, if self.opener_over.is_none() => SessionEvent::Over(reason),
        }
    }

    /// Whether a further message may be admitted.
    fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX * self.stream.agents_len().clamp(1, COUNTED_MEMBERS_MAX)
    }

    fn handle(&mut self, wake: SessionEvent) -> Result<(), SessionEnd> {
        self.handle_event(wake)?;
        match self.opener_over {
            Some(reason) if !self.stream.holds_others() => Err(reason.into()),
            Some(_) | None => Ok(()),
        }
    }

    fn handle_event(&mut self, wake: SessionEvent) -> Result<(), SessionEnd> {
        match wake {
            SessionEvent::Frame(Some(Ok(message))) => return self.handle_frame(message),
            SessionEvent::Frame(Some(Err(_))) => return Err(CloseReason::Protocol.into()),
            SessionEvent::Frame(None) => return Err(CloseReason::Client.into()),
            SessionEvent::Delivery(Some(delivery)) => self.handle_delivery(delivery),
            SessionEvent::Delivery(None) => return Err(CloseReason::Bus.into()),
            SessionEvent::Admitted(admitted) => self.answer(&admitted),
            SessionEvent::Member(MemberChange::Join { id, outcome }) => {
                let outcome = self.stream.add(outcome);
                self.handle_joined(AnsweredFrame { agent: None, id }, outcome);
            }
            SessionEvent::Member(MemberChange::Leave(agent)) => self.stream.remove(&agent),
            SessionEvent::Member(MemberChange::Over(_, CloseReason::Shutdown))
            | SessionEvent::Over(CloseReason::Shutdown) => return Err(CloseReason::Shutdown.into()),
            SessionEvent::Member(MemberChange::Over(agent, reason)) => {
                self.stream.remove(&agent);
                self.site.metrics.serving.stream_closed.of(StreamKind::WebSocket, reason).inc();
                let detail = reason.farewell().unwrap_or_default();
                let frame = ServerFrame::Closing { agent: &agent, reason: reason.into(), detail };
                self.outgoing.push(frame.to_text(), true);
            }
            SessionEvent::Alarm => self.outgoing.is_urgent = true,
            SessionEvent::Ping => return self.handle_ping(),
            SessionEvent::Over(reason) => self.opener_over = Some(reason),
        }
        Ok(())
    }

    fn handle_frame(&mut self, message: Message) -> Result<(), SessionEnd> {
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
        let handled = ClientFrame::parse(&text.into())
            .map_err(|refusal| of_frame(AnsweredFrame::default(), refusal))
            .and_then(|frame| {
                match frame {
                    ClientFrame::Message { agent, id, bytes, checked } => {
                        let identity = self.stream.identity_of(&self.identity, agent.as_ref());
                        let asked = AnsweredFrame { agent, id };
                        match identity.map(Arc::clone) {
                            Ok(identity) => {
                                self.admit(identity, asked, bytes, checked);
                                Ok(())
                            }
                            Err(refusal) => Err(of_frame(asked, refusal)),
                        }
                    }
                    ClientFrame::Ack { agent, delivery_ids } => self.acknowledge(agent, &delivery_ids),
                    ClientFrame::Join { id, token } => self
                        .stream
                        .join(id.clone(), token)
                        .map_err(|refusal| of_frame(AnsweredFrame { agent: None, id }, refusal)),
                    ClientFrame::Leave { agent } => {
                        // Charged once it has taken effect: no client repeats a leave that is refused.
                        let left = self.stream.leave(agent.clone());
                        let charged = left.and_then(|()| self.charge_opener());
                        charged.map_err(|refusal| of_frame(AnsweredFrame { agent: Some(agent), id: None }, refusal))
                    }
                }
            });
        if let Err((asked, refusal)) = handled.map_err(|refused| *refused) {
            // A frame that is none costs like a message: otherwise garbage would be free.
            let refusal = self.charge_opener().err().unwrap_or(refusal);
            self.site.admission.refused_before(Transport::WebSocket, Some(&self.identity.agent), None, &refusal);
            self.outgoing.push(refused(&asked, &refusal), true);
        }
        Ok(())
    }

    /// Charges whoever has opened the connection for a frame that is nobody's message. Its token may have run out meanwhile.
    fn charge_opener(&self) -> Result<(), Refusal> {
        match self.opener_over {
            None => self.site.admission.charge(&self.identity),
            Some(_) => self.site.admission.charge_further(&self.identity.agent, NonZeroU32::MIN),
        }
    }

    /// Takes acknowledgements in. Whoever has used up its rate is told so.
    fn acknowledge(&mut self, agent: Option<AgentId>, ids: &[DeliveryId]) -> Result<(), Box<(AnsweredFrame, Refusal)>> {
        let asked = AnsweredFrame { agent, id: None };
        let identity = match self.stream.identity_of(&self.identity, asked.agent.as_ref()) {
            Ok(identity) => identity,
            Err(refusal) => return Err(of_frame(asked, refusal)),
        };
        let charged = self.site.admission.charge(identity);
        match charged.and_then(|()| self.site.acknowledgements.collect(&identity.agent, ids)) {
            Ok(()) => self.site.registry.note_presence(&identity.agent, PresenceSignal::Here),
            Err(refusal) => self.outgoing.push(refused(&asked, &refusal), true),
        }
        Ok(())
    }

    fn handle_joined(&mut self, asked: AnsweredFrame, outcome: Result<AgentId, Refusal>) {
        let frame = match outcome {
            Ok(agent) => ServerFrame::Joined { id: asked.id.as_deref(), agent: &agent }.to_text(),
            Err(refusal) => {
                let refusal = self.charge_opener().err().unwrap_or(refusal);
                // Whose token it was is not known of all: the connection is its opener's.
                let opener = Some(&self.identity.agent);
                self.site.admission.refused_before(Transport::WebSocket, opener, None, &refusal);
                refused(&asked, &refusal)
            }
        };
        self.outgoing.push(frame, true);
    }

    /// Begins to admit a message. The first poll happens here, so that messages reach the log in the order they came.
    fn admit(&mut self, identity: Arc<Identity>, asked: AnsweredFrame, bytes: Bytes, checked: Option<Box<Checked>>) {
        let admission = self.site.admission.clone();
        let judged = match checked {
            Some(_) => Ok(None),
            None => admission.judge(Transport::WebSocket, &identity, &bytes),
        };
        let known = match judged {
            Ok(judged) => Known { checked, judged },
            Err(refusal) => return self.answer(&Admitted { asked, outcome: Err(refusal) }),
        };
        let mut admitting = async move {
            let ingress = Ingress {
                transport: Transport::WebSocket,
                credentials: Credentials::Verified(&identity),
                named_sender: None,
                peer: None,
                bytes,
            };
            Admitted { asked, outcome: admission.admit_known(ingress, known).await }
        }
        .boxed();
        match (&mut admitting).now_or_never() {
            Some(admitted) => self.answer(&admitted),
            None => self.in_flight.push(admitting),
        }
    }

    fn answer(&mut self, admitted: &Admitted) {
        let AnsweredFrame { agent, id } = &admitted.asked;
        match &admitted.outcome {
            Ok(accepted) => {
                let frame = ServerFrame::Accepted { id: id.as_deref(), agent: agent.as_ref(), accepted };
                self.outgoing.push(frame.to_text(), self.linger.is_zero());
            }
            Err(refusal) => self.outgoing.push(refused(&admitted.asked, refusal), true),
        }
    }

    fn handle_delivery(&mut self, delivery: Result<Bytes, UnreadableInbox>) {
        let readable = delivery.ok().and_then(|document| Some((delivery_frame(&document)?, document)));
        match readable {
            Some((frame, document)) => {
                self.outgoing.deliveries += 1;
                self.outgoing.push(frame, self.linger.is_zero() || !may_linger(&document));
            }
            None => self.site.metrics.serving.delivered(StreamKind::WebSocket, StreamResult::Unreadable, 1),
        }
    }

    fn handle_ping(&mut self) -> Result<(), SessionEnd> {
        self.missed_pings += 1;
        if self.missed_pings > MISSED_PINGS_MAX {
            return Err(CloseReason::Idle.into());
        }
        self.outgoing.push(Message::Ping(bytes::Bytes::new()), true);
        Ok(())
    }

    /// Writes what waits.
    async fn write(&mut self, socket: &mut WebSocket) -> Result<(), Unwritten> {
        let Outgoing { frames, deliveries, .. } = std::mem::take(&mut self.outgoing);
        let written = write(socket, frames, self.patience).await;
        self.settle(deliveries, &written);
        written
    }

    /// Counts deliveries once it is known what became of them.
    fn settle(&self, deliveries: usize, written: &Result<(), Unwritten>) {
        let result = match written {
            Ok(()) => StreamResult::Sent,
            Err(Unwritten::Late) => StreamResult::Timeout,
            Err(Unwritten::Gone) => StreamResult::Gone,
        };
        self.site.metrics.serving.delivered(StreamKind::WebSocket, result, deliveries);
    }
}

/// Writes frames and flushes, within the time a client may take to read.
async fn write(socket: &mut WebSocket, frames: Vec<Message>, patience: Duration) -> Result<(), Unwritten> {
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
    let is_it = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
    causes(error).any(|cause| cause.downcast_ref().is_some_and(is_it))
}

fn refused(AnsweredFrame { agent, id }: &AnsweredFrame, refusal: &Refusal) -> String {
    ServerFrame::Refused { id: id.as_deref(), agent: agent.as_ref(), problem: Problem::from(refusal) }.to_text()
}

/// A refusal, with what it answers.
fn of_frame(asked: AnsweredFrame, refusal: Refusal) -> Box<(AnsweredFrame, Refusal)> {
    Box::new((asked, refusal))
}
