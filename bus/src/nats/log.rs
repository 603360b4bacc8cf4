//! The log: one stream, one subject per lane.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::datetime::parse_rfc3339;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::{Context, ErrorCode};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use schemas::record::RECORD_BYTES_MAX;
use schemas::{Lane, Timestamp, subject};
use serde_json::Value;
use tokio::time::Instant;

use super::blobs::NatsBlobs;
use super::consumer::OrderedReader;
use super::{ConsumerEvent, NotStored, Selection, StoredMessage, StreamSource, stored, to_timestamp};
use super::{LOG_STREAM, NatsOptions};
use crate::name::check_lane;
use crate::{Blobs, BusError, Log, LogRecord, LogStream, retry_until};

pub(super) struct NatsLog {
    write: Client,
    leader: Leader,
    lanes: u8,
    timeout: Duration,
    /// Time in which a reader must be given.
    open_timeout: Duration,
}

/// What is asked of the log beside reading and appending; always answered by the stream's leader, since another copy may
/// be behind.
#[derive(Clone)]
struct Leader {
    source: StreamSource,
    trimming: Trimming,
}

impl NatsLog {
    pub(super) fn new(
        write: Client,
        read: StreamSource,
        blobs: Arc<NatsBlobs>,
        lanes: u8,
        options: &NatsOptions,
    ) -> Self {
        let trimming = Trimming::new(read.context.clone(), blobs);
        let NatsOptions { request_timeout: timeout, open_timeout, .. } = *options;
        Self { write, leader: Leader { source: read, trimming }, lanes, timeout, open_timeout }
    }
}

impl Leader {
    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        let last = stored::last_on(&self.source.context, LOG_STREAM, &subject::log(lane)).await?;
        Ok(last.map_or(0, |message| message.sequence))
    }

    /// The time by the clock of the stream's leader.
    async fn time(&self) -> Result<Timestamp, BusError> {
        let unknown = |error: String| BusError::Unknown(format!("the time of stream {LOG_STREAM}: {error}"));
        let subject = format!("STREAM.INFO.{LOG_STREAM}");
        let info: Value =
            self.source.context.request(subject, &()).await.map_err(|error| unknown(error.to_string()))?;
        let text = info["ts"].as_str().ok_or_else(|| unknown("the server does not say it".to_owned()))?;
        parse_rfc3339(text).map(to_timestamp).map_err(|error| unknown(error.to_string()))
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        let message = stored::at(&self.source.context, LOG_STREAM, seq).await?;
        Ok(message.filter(|message| *message.subject == *subject::log(lane)).map(|message| to_record(lane, message)))
    }
}

fn to_record(lane: Lane, message: StreamMessage) -> LogRecord {
    let stamped = to_timestamp(message.time);
    LogRecord { lane, seq: message.sequence, time: stamped, stamped, bytes: message.payload }
}

#[async_trait]
impl Log for NatsLog {
    fn lanes(&self) -> u8 {
        self.lanes
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        check_lane(lane, self.lanes)?;
        let bytes = record.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes, limit: RECORD_BYTES_MAX });
        }
        match stored::publish(&self.write, subject::log(lane), record, self.timeout).await {
            Ok(seq) => Ok(seq),
            Err(NotStored::Refused(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, _)) => {
                Err(BusError::TooLarge { bytes, limit: RECORD_BYTES_MAX })
            }
            Err(error) => Err(error.into_error(LOG_STREAM, bytes)),
        }
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        check_lane(lane, self.lanes)?;
        // A cluster that elects gives no reader for seconds.
        let deadline = Instant::now() + self.open_timeout;
        let reader = retry_until(deadline, || LaneReader::start(self.leader.clone(), lane, from_seq)).await?;
        let records = stream::unfold(Some(reader), |reader| async move {
            let mut reader = reader?;
            match reader.next().await? {
                Ok(record) => Some((Ok(record), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(records.boxed())
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        check_lane(lane, self.lanes)?;
        self.leader.last_seq(lane).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        check_lane(lane, self.lanes)?;
        if seq == 0 { Ok(None) } else { self.leader.record(lane, seq).await }
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        check_lane(lane, self.lanes)?;
        let below_seq = below_seq.min(self.leader.last_seq(lane).await?);
        if below_seq <= 1 {
            return Ok(());
        }
        self.leader.trimming.trim(lane, below_seq).await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        check_lane(lane, self.lanes)?;
        self.leader.trimming.trimmed(lane).await
    }

    async fn time(&self) -> Result<Option<Timestamp>, BusError> {
        self.leader.time().await.map(Some)
    }
}

/// Records that wait behind the one just sent from which on the reader does not keep up.
const BEHIND: u64 = 1024;
/// How long a reader counts as not keeping up after the server may have held records back: ample for sending what waits.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Records taken together while not keeping up; how far the lane is trimmed is asked once for all of them.
const BATCH_MAX: usize = 256;
/// Looks at a record that is not there before it is taken for lost. A leader that has lost its followers, and will soon
/// notice, does not have the newest records either.
const ABSENT_LOOKS: u32 = 6;
/// Pause between two looks, and before a question is repeated.
const PAUSE: Duration = Duration::from_millis(500);

struct LaneReader {
    leader: Leader,
    lane: Lane,
    reader: OrderedReader,
    /// Everything up to this sequence is received, or was not asked for.
    received: u64,
    last: Option<LogRecord>,
    /// Until then it does not keep up.
    behind_until: Instant,
    ready: VecDeque<LogRecord>,
}

impl LaneReader {
    async fn start(leader: Leader, lane: Lane, from_seq: u64) -> Result<Self, BusError> {
        let from_seq = from_seq.max(1);
        // A consumer that starts further beyond the end is at times sent nothing (nats-server 2.15.1).
        let start_sequence = from_seq.min(leader.last_seq(lane).await? + 1);
        let from = DeliverPolicy::ByStartSequence { start_sequence };
        let selection = Selection { stream: LOG_STREAM.to_owned(), subject: subject::log(lane), from };
        // First the consumer, then the question: a record trimmed before the consumer began must not pass unnoticed.
        let (reader, _) = OrderedReader::start(leader.source.clone(), selection).await?;
        let trimmed = leader.trimming.trimmed(lane).await?;
        if trimmed >= from_seq {
            return Err(BusError::Trimmed(trimmed));
        }
        let (received, behind_until) = (from_seq - 1, Instant::now() + CATCH_UP);
        Ok(Self { leader, lane, reader, received, last: None, behind_until, ready: VecDeque::new() })
    }

    /// The next record. An error is final, as is the end.
    async fn next(&mut self) -> Option<Result<LogRecord, BusError>> {
        while self.ready.is_empty() {
            if let Err(error) = self.refill().await? {
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }

    /// Receives the next record, or several while it does not keep up.
    async fn refill(&mut self) -> Option<Result<(), BusError>> {
        let before = self.received;
        let mut is_doubtful = false;
        loop {
            let (waiting, is_behind) = match self.reader.next_event().await? {
                // Between the end and where it was to start.
                Ok(ConsumerEvent::Message(stored)) if stored.seq <= self.received => continue,
                Ok(ConsumerEvent::Message(stored)) => {
                    let waiting = self.receive(stored);
                    (waiting, waiting > BEHIND)
                }
                Ok(ConsumerEvent::Resumed { waiting }) => match self.check_resumed().await {
                    Ok(()) => (waiting, true),
                    Err(error) => return Some(Err(error)),
                },
                Ok(ConsumerEvent::Held) => (1, true),
                Err(error) => return Some(Err(error)),
            };
            let now = Instant::now();
            if is_behind {
                self.behind_until = now + CATCH_UP;
            }
            is_doubtful |= now < self.behind_until;
            if !is_doubtful {
                return Some(Ok(()));
            }
            if waiting == 0 || self.ready.len() >= BATCH_MAX {
                return Some(self.check_trimmed(before).await);
            }
        }
    }

    /// Takes a record and returns how many wait behind it.
    fn receive(&mut self, stored: StoredMessage) -> u64 {
        let StoredMessage { message, seq, time, stamped, pending } = stored;
        let record = LogRecord { lane: self.lane, seq, time, stamped, bytes: message.payload };
        self.received = seq;
        self.last = Some(record.clone());
        self.ready.push_back(record);
        pending
    }

    async fn check_resumed(&self) -> Result<(), BusError> {
        if let Some(last) = &self.last {
            self.check_stands(last).await?;
        }
        self.check_trimmed(self.received).await
    }

    /// Fails when the record no longer stands in the log as it was received.
    async fn check_stands(&self, last: &LogRecord) -> Result<(), BusError> {
        let (lane, seq) = (self.lane, last.seq);
        for _ in 0..ABSENT_LOOKS {
            match ask(|| self.leader.record(lane, seq)).await? {
                Some(standing) if standing.bytes == last.bytes && standing.stamped == last.stamped => return Ok(()),
                Some(_) => {
                    let reason = format!("record {seq} of lane {} is another than the one that was read", lane.0);
                    return Err(BusError::Diverged(reason));
                }
                None if ask(|| self.leader.trimming.trimmed(lane)).await? >= seq => return Ok(()),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
        let end = ask(|| self.leader.last_seq(lane)).await?;
        Err(BusError::Diverged(format!("record {seq} of lane {} was read and is gone; the lane ends at {end}", lane.0)))
    }

    /// Fails when records behind `after` may have been trimmed.
    async fn check_trimmed(&self, after: u64) -> Result<(), BusError> {
        let trimmed = ask(|| self.leader.trimming.trimmed(self.lane)).await?;
        if trimmed > after { Err(BusError::Trimmed(trimmed)) } else { Ok(()) }
    }
}

/// Asks until there is an answer: a reader outlasts every outage.
async fn ask<T, F: Future<Output = Result<T, BusError>>>(mut question: impl FnMut() -> F) -> Result<T, BusError> {
    loop {
        match question().await {
            Err(BusError::Unknown(reason)) => {
                tracing::debug!(reason, "a reader cannot check what it has read yet");
                tokio::time::sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

#[derive(Clone)]
struct Trimming {
    context: Context,
    blobs: Arc<NatsBlobs>,
}

impl Trimming {
    fn new(context: Context, blobs: Arc<NatsBlobs>) -> Self {
        Self { context, blobs }
    }

    /// Removes the records below `below_seq`, of which one must stay in the lane, and more than which may.
    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        // False when another has trimmed further already: what is to go here may go all the same.
        self.blobs.put(name(lane), below_seq - 1, Bytes::new()).await?;
        stored::purge(&self.context, LOG_STREAM, &subject::log(lane), Some(below_seq)).await?;
        self.blobs.restore_ballast().await;
        Ok(())
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        Ok(self.blobs.version(name(lane)).await?.unwrap_or(0))
    }
}

fn name(lane: Lane) -> String {
    format!("trimmed-{}", lane.0)
}
