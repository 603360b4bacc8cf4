//! Ordered consumers: every reader of a stream is one.
//!
//! An ordered consumer is an ephemeral push consumer without acknowledgements. The server numbers what it sends; a
//! number that is missing, a heartbeat that is late or names another number, or a new connection ends the consumer, and
//! the next one starts behind the last message taken. So a reader sees every message once, in order.
//!
//! The client has ordered consumers of its own. They miss a reconnection that is over before they are polled, then wait
//! 10 s for a heartbeat; and one that is recreated before its first message starts at the beginning of the stream. Pull
//! consumers measured no faster, and ask the server for every batch.

mod session;

use std::time::Duration;

use async_nats::Message;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::DeliverPolicy;
use schemas::Timestamp;
use tokio::sync::watch;

use self::session::{ConsumerSession, Failed, SessionStep};
use super::stream_position::StreamPosition;
use crate::BusError;

/// Longest pause before a lost consumer is replaced again; the actual one is drawn from zero to it.
const REPLACE_PAUSE_MAX: Duration = Duration::from_millis(500);

/// What readers read from: a connection, and the news that it was made again.
#[derive(Debug, Clone)]
pub(super) struct StreamSource {
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

/// A message and its position in the stream.
#[derive(Debug)]
pub(super) struct StoredMessage {
    pub(super) message: Message,
    pub(super) seq: u64,
    /// Never goes back from one message to the next, though a new leader's clock may.
    pub(super) time: Timestamp,
    /// The time as the server stamped it.
    pub(super) stamped: Timestamp,
    /// Messages that were waiting behind it when it was sent.
    pub(super) pending: u64,
}

/// What a reader comes across.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "almost every one is a message, and a box for each would cost more")]
pub(super) enum ConsumerEvent {
    /// The next message.
    Message(StoredMessage),
    /// A new consumer has taken the place of a lost one, and begins behind the last message given. Whether that message
    /// still stands in the stream is for those to check who rely on it.
    Resumed {
        /// Messages that wait.
        waiting: u64,
    },
    /// The server may have held messages back until now, because those before were not taken.
    Held,
}

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
