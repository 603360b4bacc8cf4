//! One consumer, from its creation until anything about it is doubtful.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::consumer::push::Config;
use async_nats::jetstream::consumer::{AckPolicy, ReplayPolicy};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Message, Statistics, StatusCode, Subscriber, header};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::{Selection, StreamSource};
use crate::BusError;
use crate::nats::stream_position::{ConsumerCount, StreamPosition};

/// How often the server says that nothing has happened.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Silence after which the consumer is taken for lost: two heartbeats late.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Time after which the server forgets a consumer nobody listens to.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// Header of a heartbeat that names the flow control message it still waits for.
const STALLED_HEADER: &str = "Nats-Consumer-Stalled";

/// Why there is no consumer.
pub(super) enum Failed {
    StreamGone(String),
    ForNow(String),
}

impl Failed {
    pub(super) fn into_error(self) -> BusError {
        match self {
            Self::StreamGone(reason) => BusError::Unreachable(reason),
            Self::ForNow(reason) => BusError::Unknown(reason),
        }
    }
}

/// What one look at a consumer's messages gives.
pub(super) enum SessionStep {
    Message(Message, StreamPosition),
    Idle,
    /// Flow control was answered.
    Held,
    /// The consumer may have lost something: replace it.
    Lost(&'static str),
    Closed,
}

/// See the module.
pub(super) struct ConsumerSession {
    messages: Subscriber,
    context: Context,
    received: ConsumerCount,
    connected: watch::Receiver<u64>,
    statistics: Arc<Statistics>,
    /// Number of the connection it was made on.
    connection: u64,
    /// When anything came last.
    heard: Instant,
    /// Goes off after [`SILENCE_MAX`] and is then set again if anything came since: setting it for every message would
    /// cost more than the message.
    alarm: Pin<Box<Sleep>>,
}

impl ConsumerSession {
    pub(super) async fn start(source: &StreamSource, selection: &Selection) -> Result<(Self, u64), Failed> {
        let context = source.context.clone();
        let client = context.client();
        let statistics = client.statistics();
        let connection = statistics.connects.load(Ordering::Relaxed);
        let describe = |error: &dyn std::fmt::Display| format!("`{}` cannot be read: {error}", selection.subject);
        let inbox = client.new_inbox();
        let messages = client.subscribe(inbox.clone()).await.map_err(|error| Failed::ForNow(describe(&error)))?;
        let created = context.create_consumer_on_stream(config(inbox, selection), &selection.stream).await;
        let consumer = created.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Failed::StreamGone(describe(&error))
            }
            ConsumerErrorKind::JetStream(_)
            | ConsumerErrorKind::TimedOut
            | ConsumerErrorKind::Request
            | ConsumerErrorKind::InvalidConsumerType
            | ConsumerErrorKind::InvalidName
            | ConsumerErrorKind::Other => Failed::ForNow(describe(&error)),
        })?;
        let pending = consumer.cached_info().num_pending;
        let connected = source.connected.clone();
        let (heard, alarm) = (Instant::now(), Box::pin(tokio::time::sleep(SILENCE_MAX)));
        Ok((
            Self {
                messages,
                context,
                received: ConsumerCount::default(),
                connected,
                statistics,
                connection,
                heard,
                alarm,
            },
            pending,
        ))
    }

    pub(super) async fn step(&mut self) -> SessionStep {
        let reconnected = until_reconnected(&mut self.connected, &self.statistics, self.connection);
        tokio::select! {
            biased;
            message = self.messages.next() => self.judge(message).await,
            () = reconnected => SessionStep::Lost("the connection was made again"),
            () = &mut self.alarm => {
                let silent_until = self.heard + SILENCE_MAX;
                if silent_until <= Instant::now() {
                    return SessionStep::Lost("the server is silent");
                }
                self.alarm.as_mut().reset(silent_until);
                SessionStep::Idle
            }
        }
    }

    async fn judge(&mut self, message: Option<Message>) -> SessionStep {
        let Some(message) = message else { return SessionStep::Closed };
        let now = Instant::now();
        if now.duration_since(self.heard) > SILENCE_MAX {
            // The reader, or its whole process, was stopped meanwhile. What waits here is old, and what the server would
            // have sent may be gone.
            return SessionStep::Lost("it was not listened to");
        }
        self.heard = now;
        match message.status {
            None => self.accept(message),
            Some(StatusCode::IDLE_HEARTBEAT) => self.answer_heartbeat(&message).await,
            Some(_) => SessionStep::Lost("the consumer was ended by the server"),
        }
    }

    fn accept(&mut self, message: Message) -> SessionStep {
        let Some(position) = message.reply.as_deref().and_then(StreamPosition::parse) else {
            return SessionStep::Lost("a message without its position");
        };
        if !self.received.count(position) {
            return SessionStep::Lost("a message is missing");
        }
        SessionStep::Message(message, position)
    }

    /// Answers flow control, so that the server sends on, and compares what was sent with what came.
    async fn answer_heartbeat(&self, message: &Message) -> SessionStep {
        let headers = message.headers.as_ref();
        let stalled_on = headers.and_then(|headers| headers.get(STALLED_HEADER)).map(ToString::to_string);
        let answer_to = message.reply.as_ref().map(ToString::to_string).or(stalled_on);
        let is_held = answer_to.is_some();
        if let Some(subject) = answer_to
            && self.context.client().publish(subject, Bytes::new()).await.is_err()
        {
            return SessionStep::Closed;
        }
        let sent = headers.and_then(|headers| headers.get(header::NATS_LAST_CONSUMER));
        match sent.and_then(|sent| sent.as_str().parse::<u64>().ok()) {
            Some(sent) if !self.received.is_complete(sent) => SessionStep::Lost("the last message is missing"),
            Some(_) | None if is_held => SessionStep::Held,
            Some(_) | None => SessionStep::Idle,
        }
    }
}

async fn until_reconnected(connected: &mut watch::Receiver<u64>, statistics: &Statistics, connection: u64) {
    while connected.changed().await.is_ok() {
        // The news of the connection the consumer was made on may come after it.
        if statistics.connects.load(Ordering::Relaxed) != connection {
            return;
        }
    }
    // The connection is closed for good, which ends the messages too.
    std::future::pending().await
}

fn config(deliver_subject: String, selection: &Selection) -> Config {
    Config {
        deliver_subject,
        filter_subject: selection.subject.clone(),
        deliver_policy: selection.from,
        replay_policy: ReplayPolicy::Instant,
        ack_policy: AckPolicy::None,
        max_deliver: 1,
        flow_control: true,
        idle_heartbeat: HEARTBEAT,
        inactive_threshold: FORGET_AFTER,
        memory_storage: true,
        num_replicas: 1,
        ..Config::default()
    }
}
