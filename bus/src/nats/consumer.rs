//! Ordered consumers: every reader of a stream is one. The client recreates them after a gap, a lost connection or a
//! missed heartbeat, from the last message that was taken out of them.

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::push::{Ordered, OrderedConfig, OrderedError, OrderedErrorKind};
use async_nats::jetstream::consumer::{DeliverPolicy, ReplayPolicy};
use async_nats::jetstream::message::Message;
use futures_util::StreamExt;
use schemas::Timestamp;

use crate::BusError;

/// A message with its place in the stream.
pub(super) struct Stored {
    pub(super) message: Message,
    pub(super) seq: u64,
    pub(super) time: Timestamp,
    /// Messages that were waiting behind it when it was sent.
    pub(super) pending: u64,
}

pub(super) struct OrderedReader {
    messages: Ordered,
    /// Sequences below were taken, or not asked for. A consumer that is recreated before its first message starts at
    /// the first of the stream, whatever it was asked for.
    next_seq: u64,
    /// Time of the last message; server clocks may be set back, log time is not.
    last_time: Timestamp,
}

impl OrderedReader {
    /// Starts reading; also returns how many messages wait.
    pub(super) async fn start(
        context: &Context,
        stream_name: &str,
        subject: String,
        deliver_policy: DeliverPolicy,
    ) -> Result<(Self, u64), BusError> {
        let next_seq = match deliver_policy {
            DeliverPolicy::ByStartSequence { start_sequence } => start_sequence,
            DeliverPolicy::All
            | DeliverPolicy::Last
            | DeliverPolicy::New
            | DeliverPolicy::ByStartTime { .. }
            | DeliverPolicy::LastPerSubject => 0,
        };
        let failed = |error: &dyn std::fmt::Display| BusError::Unknown(format!("`{subject}` cannot be read: {error}"));
        let config = OrderedConfig {
            deliver_subject: context.client().new_inbox(),
            filter_subject: subject.clone(),
            deliver_policy,
            replay_policy: ReplayPolicy::Instant,
            ..OrderedConfig::default()
        };
        let consumer = context.create_consumer_on_stream(config, stream_name).await.map_err(|error| failed(&error))?;
        let pending = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|error| failed(&error))?;
        Ok((Self { messages, next_seq, last_time: Timestamp(0) }, pending))
    }

    /// The next message; an error or the end is final.
    pub(super) async fn next(&mut self) -> Option<Result<Stored, BusError>> {
        loop {
            match self.messages.next().await? {
                Ok(message) => match self.accept(message) {
                    Ok(Some(stored)) => return Some(Ok(stored)),
                    Ok(None) => {}
                    Err(error) => return Some(Err(error)),
                },
                Err(error) if is_recovered(&error) => tracing::debug!(%error, "a reader starts again where it was"),
                Err(error) => return Some(Err(BusError::Unreachable(format!("a reader ended: {error}")))),
            }
        }
    }

    /// Adds the message's place, unless it was taken before.
    fn accept(&mut self, message: Message) -> Result<Option<Stored>, BusError> {
        let (seq, pending, nanoseconds) = match message.info() {
            Ok(info) => (info.stream_sequence, info.pending, info.published.unix_timestamp_nanos()),
            Err(error) => return Err(BusError::Unknown(format!("a message without its place: {error}"))),
        };
        if seq < self.next_seq {
            return Ok(None);
        }
        self.next_seq = seq + 1;
        let published = Timestamp(u64::try_from(nanoseconds / 1000).unwrap_or(0));
        self.last_time = self.last_time.max(published);
        Ok(Some(Stored { message, seq, time: self.last_time, pending }))
    }
}

/// Whether the consumer goes on by itself.
fn is_recovered(error: &OrderedError) -> bool {
    match error.kind() {
        OrderedErrorKind::MissingHeartbeat => true,
        OrderedErrorKind::ConsumerDeleted
        | OrderedErrorKind::PullBasedConsumer
        | OrderedErrorKind::Recreate
        | OrderedErrorKind::Other => false,
    }
}
