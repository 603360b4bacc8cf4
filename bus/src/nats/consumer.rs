//! Ordered consumers: whoever follows a stream has one. Entries of the register are fetched (`register`).
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

use super::{ConsumerEvent, Selection, StoredMessage, StreamSource};
use crate::BusError;

/// Longest pause before a lost consumer is replaced again; the actual one is drawn from zero to it.
const REPLACE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// A reader that resumes by itself.
pub(super) struct OrderedReader {
    source: StreamSource,
    selection: Selection,
    /// None while a new consumer is needed.
    session: Option<ConsumerSession>,
    last_time: Timestamp,
}

impl OrderedReader {
    /// Starts reading; also returns how many messages wait.
    pub(super) async fn start(source: StreamSource, selection: Selection) -> Result<(Self, u64), BusError> {
        let (session, pending) = ConsumerSession::start(&source, &selection).await.map_err(Failed::into_error)?;
        Ok((Self { source, selection, session: Some(session), last_time: Timestamp(0) }, pending))
    }

    /// The next message. An error, which means that the stream is gone, or the end of the connection is final.
    pub(super) async fn next(&mut self) -> Option<Result<StoredMessage, BusError>> {
        loop {
            match self.next_event().await? {
                Ok(ConsumerEvent::Message(stored)) => return Some(Ok(stored)),
                Ok(ConsumerEvent::Resumed { .. } | ConsumerEvent::Held) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`Self::next`], and tells when it has resumed.
    pub(super) async fn next_event(&mut self) -> Option<Result<ConsumerEvent, BusError>> {
        loop {
            let Some(session) = &mut self.session else {
                return Some(self.replace_session().await.map(|waiting| ConsumerEvent::Resumed { waiting }));
            };
            match session.step().await {
                SessionStep::Message(message, position) => {
                    return Some(Ok(ConsumerEvent::Message(self.take(message, position))));
                }
                SessionStep::Idle => {}
                SessionStep::Held => return Some(Ok(ConsumerEvent::Held)),
                SessionStep::Lost(reason) => {
                    tracing::debug!(stream = self.selection.stream, reason, "a reader starts again where it was");
                    self.session = None;
                }
                SessionStep::Closed => return None,
            }
        }
    }

    fn take(&mut self, message: Message, position: StreamPosition) -> StoredMessage {
        self.selection.from = DeliverPolicy::ByStartSequence { start_sequence: position.seq + 1 };
        self.last_time = self.last_time.max(position.time);
        StoredMessage {
            message,
            seq: position.seq,
            time: self.last_time,
            stamped: position.time,
            pending: position.pending,
        }
    }

    /// Tries until there is a consumer again, or the stream is gone; returns how many messages wait.
    async fn replace_session(&mut self) -> Result<u64, BusError> {
        loop {
            match ConsumerSession::start(&self.source, &self.selection).await {
                Ok((session, waiting)) => {
                    self.session = Some(session);
                    return Ok(waiting);
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

/// How often the server says that nothing has happened.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Silence after which the consumer is taken for lost: two heartbeats late.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Time after which the server forgets a consumer nobody listens to.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// Header of a heartbeat that names the flow control message it still waits for.
const STALLED_HEADER: &str = "Nats-Consumer-Stalled";

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
enum SessionStep {
    Message(Message, StreamPosition),
    Idle,
    /// Flow control was answered.
    Held,
    /// The consumer may have lost something: replace it.
    Lost(&'static str),
    Closed,
}

/// One consumer, from its creation until anything about it is doubtful.
struct ConsumerSession {
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
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other error may pass")]
    async fn start(source: &StreamSource, selection: &Selection) -> Result<(Self, u64), Failed> {
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
            _ => Failed::ForNow(describe(&error)),
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

    async fn step(&mut self) -> SessionStep {
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

const PREFIX: &str = "$JS.ACK.";
/// Tokens after the prefix in the older form: stream, consumer, deliveries, stream and consumer sequence, nanoseconds,
/// pending.
const TOKENS: usize = 7;
/// The newer form has the domain and a hash of the account before them, and may have more behind.
const TOKENS_BEFORE: usize = 2;

/// A message's position, as one consumer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamPosition {
    /// Its sequence in the stream.
    seq: u64,
    /// Its number among the messages sent to this consumer, from 1 without a gap.
    consumer_seq: u64,
    /// When the stream's leader took it.
    time: Timestamp,
    /// Messages that were waiting behind it when it was sent.
    pending: u64,
}

impl StreamPosition {
    /// Parses a reply subject.
    fn parse(reply: &str) -> Option<Self> {
        let tail = reply.strip_prefix(PREFIX)?;
        let skipped = if tail.split('.').count() > TOKENS { TOKENS_BEFORE } else { 0 };
        let mut tokens = tail.split('.').skip(skipped);
        let (_stream, _consumer, _deliveries) = (tokens.next()?, tokens.next()?, tokens.next()?);
        let mut number = || tokens.next()?.parse::<u64>().ok();
        let (seq, consumer_seq, nanoseconds, pending) = (number()?, number()?, number()?, number()?);
        Some(Self { seq, consumer_seq, time: Timestamp(nanoseconds / 1000), pending })
    }
}

/// Counts what came of what one consumer was sent.
#[derive(Debug, Clone, Copy, Default)]
struct ConsumerCount {
    last: u64,
}

impl ConsumerCount {
    /// Counts a message, or refuses it because one before it is missing.
    fn count(&mut self, position: StreamPosition) -> bool {
        let is_next = position.consumer_seq == self.last + 1;
        if is_next {
            self.last = position.consumer_seq;
        }
        is_next
    }

    /// Whether everything came, when the server says which number it sent last.
    fn is_complete(self, sent: u64) -> bool {
        sent == self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_behind_a_gap_and_one_that_came_before_are_refused() {
        let mut received = ConsumerCount::default();
        let outcomes = [1, 2, 4, 3, 3, 2, 4].map(|consumer_seq| {
            received.count(StreamPosition { seq: 100, consumer_seq, time: Timestamp(0), pending: 0 })
        });
        assert_eq!(outcomes, [true, true, false, true, false, false, true]);
        assert!(received.is_complete(4));
        assert!(!received.is_complete(5), "the last message is missing");
    }

    #[test]
    fn both_forms_of_a_place_are_read_and_others_are_not() {
        let position = StreamPosition { seq: 17, consumer_seq: 3, time: Timestamp(1_700_000_000_123_456), pending: 9 };
        let numbers = "1.17.3.1700000000123456789.9";
        for (reply, expected) in [
            (format!("$JS.ACK.LLMX_LOG.abc.{numbers}"), Some(position)),
            (format!("$JS.ACK._.h4sh.LLMX_LOG.abc.{numbers}"), Some(position)),
            (format!("$JS.ACK.hub.h4sh.LLMX_LOG.abc.{numbers}.token"), Some(position)),
            ("$JS.ACK.LLMX_LOG.abc.1.17.3.1700000000123456789".to_owned(), None),
            ("$JS.ACK.LLMX_LOG.abc.1.x.3.1700000000123456789.9".to_owned(), None),
            ("$JS.FC.LLMX_LOG.abc.1".to_owned(), None),
            ("_INBOX.1".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(StreamPosition::parse(&reply), expected, "{reply}");
        }
    }
}
