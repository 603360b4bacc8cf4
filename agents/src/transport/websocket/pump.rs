//! The task that owns one connection, and the frames it writes and reads.

use std::borrow::Cow;
use std::time::Duration;

use ahash::{HashMap, HashMapExt as _};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use schemas::delivery::Delivery;
use schemas::{AgentId, DeliveryId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message, Utf8Bytes};

use super::keepalive::{Keepalive, KeepaliveAction, PONG_TIMEOUT};
use super::{Asker, BATCH_MAX, Joining, Recipients, Socket, SocketCommand, WrittenSoon};
use crate::transport::{SendReply, read_problem};

/// Frames waiting for the socket; a sender beyond them waits.
const FRAMES_MAX: usize = 1024;
/// Unanswered messages of a connection before those are looked for that nobody waits for any more.
const ASKED_ROOM: usize = 64;
/// How long the farewell may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

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

/// Begins to serve an open connection.
pub(super) fn start(socket: Socket, recipients: Recipients) -> (mpsc::Sender<SocketCommand>, WrittenSoon) {
    let (sender, commands) = mpsc::channel(FRAMES_MAX);
    let (sink, stream) = socket.split();
    let (acks, keepalive) = (WrittenSoon::default(), Keepalive::new(Instant::now()));
    let pump = Pump {
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

impl Pump {
    async fn drive(mut self) {
        let mut alarm = std::pin::pin!(tokio::time::sleep_until(self.keepalive.poll_timeout()));
        loop {
            let is_up = tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.handle_commands(command).await,
                    // The agent dropped the link.
                    None => false,
                },
                frame = self.stream.next() => self.handle_frames(frame).await,
                () = &mut alarm => self.handle_timer().await,
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
        for (agent, number) in self.recipients.gone() {
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
            self.asked.retain(|_, asker| !asker.is_closed());
            self.asked_room = ASKED_ROOM.max(2 * self.asked.len());
        }
        let mut next = Some(first);
        let mut has_left = false;
        while let Some(command) = next {
            let frame = match command {
                SocketCommand::Send(agent, document, sender) => {
                    let reference = self.ask(sender);
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
        let reference = self.ask(reply);
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
                    // Whoever has given up leaves by itself.
                    let _ = asker.send(answer);
                }
                true
            }
            ServerFrame::Closing(agent) => {
                // Its inbox ends, and it joins again with the token that it has then.
                if let Recipients::Many(recipients) = &mut self.recipients {
                    recipients.remove(&agent);
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
    /// Nothing where the agent has joined.
    Answer(u64, Option<SendReply>),
    /// The agent may not stay on a shared connection.
    Closing(AgentId),
    /// `hello`, and whatever later versions add.
    Other,
}

fn read_frame(text: &str) -> ServerFrame {
    #[derive(Deserialize)]
    struct RawServerFrame<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        id: Option<String>,
        agent: Option<AgentId>,
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
        ("closing", _) => frame.agent.map_or(ServerFrame::Other, ServerFrame::Closing),
        ("delivery", _) => {
            let delivery = frame.delivery.and_then(|delivery| Delivery::decode(delivery.get().as_bytes()).ok());
            ServerFrame::Delivery(delivery.map(Box::new))
        }
        ("accepted", Some(reference)) => {
            let answer = serde_json::from_str(text);
            let answer = answer.map_or_else(|e| SendReply::Unknown(e.to_string()), SendReply::Accepted);
            ServerFrame::Answer(reference, Some(answer))
        }
        ("joined", Some(reference)) => ServerFrame::Answer(reference, None),
        ("refused", Some(reference)) => {
            let problem = frame.problem.map_or("{}", RawValue::get);
            ServerFrame::Answer(reference, Some(SendReply::Refused(read_problem(problem.as_bytes(), None))))
        }
        (_, _) => ServerFrame::Other,
    }
}

/// A delivery in a frame as gateways write it, read without looking for the frame's other members first. Nothing of another
/// frame, or of one written otherwise: what stands between the two ends is then no delivery.
fn sole_delivery(text: &str) -> Option<Box<Delivery>> {
    let delivery = text.strip_prefix(r#"{"type":"delivery","delivery":"#)?.strip_suffix('}')?;
    Delivery::decode(delivery.as_bytes()).ok().map(Box::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Accepted;

    #[test]
    fn frames_are_read_and_unknown_ones_ignored() {
        let accepted = r#"{"type":"accepted","id":"4","agent":"bob","seq":9,"msg_id":"m","negotiation":"alice~job"}"#;
        let read = read_frame(accepted);
        assert!(matches!(read, ServerFrame::Answer(4, Some(SendReply::Accepted(Accepted { seq: 9, .. })))));
        let refused = r#"{"type":"refused","id":"5","problem":{"code":"no_consent","detail":"nobody"}}"#;
        assert!(matches!(read_frame(refused), ServerFrame::Answer(5, Some(SendReply::Refused(_)))));
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
