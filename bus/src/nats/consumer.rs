//! Ordered consumers: every reader of a stream is one.
//!
//! An ordered consumer is an ephemeral push consumer without acknowledgements. The server numbers what it sends; a
//! number that is missing, a heartbeat that is late or names another number, or a new connection ends the consumer, and
//! the next one starts behind the last message taken. So a reader sees every message once, in order.
//!
//! The client has ordered consumers of its own. They miss a reconnection that is over before they are polled, then wait
//! 10 s for a heartbeat; and one that is recreated before its first message starts at the beginning of the stream. Pull
//! consumers measured no faster, and ask the server for every batch.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::jetstream::consumer::push::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Message, Statistics, StatusCode, Subscriber, header};
use bytes::Bytes;
use futures_util::StreamExt;
use schemas::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};

use super::place::{Place, Received};
use crate::BusError;

/// How often the server says that nothing has happened.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Silence after which the consumer is taken for lost: two heartbeats late.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Time after which the server forgets a consumer nobody listens to.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// Longest pause before a lost consumer is replaced again; the actual one is drawn from zero to it.
const REPLACE_PAUSE_MAX: Duration = Duration::from_millis(500);
/// Header of a heartbeat that names the flow control message it still waits for.
const STALLED_HEADER: &str = "Nats-Consumer-Stalled";

/// What readers read from: a connection, and the news that it was made again.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) context: Context,
    /// Changes after every connection.
    pub(super) connected: watch::Receiver<u64>,
}

/// Which messages a reader is for.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    pub(super) stream: String,
    /// Filter subject.
    pub(super) subject: String,
    pub(super) from: DeliverPolicy,
}

/// A message and its place in the stream.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) message: Message,
    pub(super) seq: u64,
    /// Never goes back from one message to the next, though a new leader's clock may.
    pub(super) time: Timestamp,
    /// Messages that were waiting behind it when it was sent.
    pub(super) pending: u64,
}

/// A reader that resumes by itself.
pub(super) struct OrderedReader {
    source: Source,
    selection: Selection,
    /// None while a new consumer is needed.
    session: Option<Session>,
    last_time: Timestamp,
}

impl OrderedReader {
    /// Starts reading; also returns how many messages wait.
    pub(super) async fn start(source: Source, selection: Selection) -> Result<(Self, u64), BusError> {
        let (session, pending) = Session::start(&source, &selection).await.map_err(Failed::into_error)?;
        Ok((Self { source, selection, session: Some(session), last_time: Timestamp(0) }, pending))
    }

    /// The next message. An error, which means that the stream is gone, or the end of the connection is final.
    pub(super) async fn next(&mut self) -> Option<Result<Stored, BusError>> {
        loop {
            let Some(session) = &mut self.session else {
                if let Err(error) = self.replace_session().await {
                    return Some(Err(error));
                }
                continue;
            };
            match session.step().await {
                Step::Message(message, place) => return Some(Ok(self.take(message, place))),
                Step::Idle => {}
                Step::Lost(reason) => {
                    tracing::debug!(stream = self.selection.stream, reason, "a reader starts again where it was");
                    self.session = None;
                }
                Step::Closed => return None,
            }
        }
    }

    fn take(&mut self, message: Message, place: Place) -> Stored {
        self.selection.from = DeliverPolicy::ByStartSequence { start_sequence: place.seq + 1 };
        self.last_time = self.last_time.max(place.time);
        Stored { message, seq: place.seq, time: self.last_time, pending: place.pending }
    }

    /// Tries until there is a consumer again, or the stream is gone.
    async fn replace_session(&mut self) -> Result<(), BusError> {
        loop {
            match Session::start(&self.source, &self.selection).await {
                Ok((session, _)) => {
                    self.session = Some(session);
                    return Ok(());
                }
                Err(failed @ Failed::StreamGone(_)) => return Err(failed.into_error()),
                Err(failed @ Failed::ForNow(_)) => {
                    tracing::debug!(error = %failed.into_error(), "a reader cannot start again yet");
                    tokio::time::sleep(REPLACE_PAUSE_MAX.mul_f64(rand::random())).await;
                }
            }
        }
    }
}

/// Why there is no consumer.
enum Failed {
    StreamGone(String),
    ForNow(String),
}

impl Failed {
    fn into_error(self) -> BusError {
        match self {
            Self::StreamGone(reason) => BusError::Unreachable(reason),
            Self::ForNow(reason) => BusError::Unknown(reason),
        }
    }
}

/// What one look at a consumer's messages gives.
enum Step {
    Message(Message, Place),
    Idle,
    /// The consumer may have lost something: replace it.
    Lost(&'static str),
    Closed,
}

/// One consumer, from its creation until anything about it is doubtful.
struct Session {
    messages: Subscriber,
    context: Context,
    received: Received,
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

impl Session {
    async fn start(source: &Source, selection: &Selection) -> Result<(Self, u64), Failed> {
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
            Self { messages, context, received: Received::default(), connected, statistics, connection, heard, alarm },
            pending,
        ))
    }

    async fn step(&mut self) -> Step {
        let reconnected = until_reconnected(&mut self.connected, &self.statistics, self.connection);
        tokio::select! {
            biased;
            message = self.messages.next() => self.judge(message).await,
            () = reconnected => Step::Lost("the connection was made again"),
            () = &mut self.alarm => {
                let silent_until = self.heard + SILENCE_MAX;
                if silent_until <= Instant::now() {
                    return Step::Lost("the server is silent");
                }
                self.alarm.as_mut().reset(silent_until);
                Step::Idle
            }
        }
    }

    async fn judge(&mut self, message: Option<Message>) -> Step {
        let Some(message) = message else { return Step::Closed };
        self.heard = Instant::now();
        match message.status {
            None => self.accept(message),
            Some(StatusCode::IDLE_HEARTBEAT) => self.answer_heartbeat(&message).await,
            Some(_) => Step::Lost("the consumer was ended by the server"),
        }
    }

    fn accept(&mut self, message: Message) -> Step {
        let Some(place) = message.reply.as_deref().and_then(Place::parse) else {
            return Step::Lost("a message without its place");
        };
        if !self.received.count(place) {
            return Step::Lost("a message is missing");
        }
        Step::Message(message, place)
    }

    /// Answers flow control, so that the server sends on, and compares what was sent with what came.
    async fn answer_heartbeat(&self, message: &Message) -> Step {
        let headers = message.headers.as_ref();
        let stalled_on = headers.and_then(|headers| headers.get(STALLED_HEADER)).map(ToString::to_string);
        if let Some(subject) = message.reply.as_ref().map(ToString::to_string).or(stalled_on)
            && self.context.client().publish(subject, Bytes::new()).await.is_err()
        {
            return Step::Closed;
        }
        let sent = headers.and_then(|headers| headers.get(header::NATS_LAST_CONSUMER));
        match sent.and_then(|sent| sent.as_str().parse::<u64>().ok()) {
            Some(sent) if !self.received.is_complete(sent) => Step::Lost("the last message is missing"),
            Some(_) | None => Step::Idle,
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
