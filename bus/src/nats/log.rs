//! The log: one stream, one subject per lane.

mod reader;
mod trimming;

use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::message::StreamMessage;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use schemas::record::RECORD_BYTES_MAX;
use schemas::{Lane, Timestamp, subject};
use tokio::time::Instant;

use self::reader::LaneReader;
use self::trimming::Trimming;
use super::blobs::NatsBlobs;
use super::consumer::StreamSource;
use super::stored::{self, NotStored};
use super::{LOG_STREAM, NatsOptions};
use crate::name::check_lane;
use crate::{BusError, Log, LogRecord, LogStream, retry_until};

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

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        check_lane(lane, self.lanes)?;
        let bytes = record.len();
        if bytes > RECORD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes, limit: RECORD_BYTES_MAX });
        }
        match stored::publish(&self.write, subject::log(lane), record, self.timeout).await {
            Ok(seq) => Ok(seq),
            Err(NotStored::Unknown(reason)) => Err(BusError::Unknown(reason)),
            Err(NotStored::TooLarge(limit)) => Err(BusError::TooLarge { bytes, limit }),
            Err(NotStored::Refused(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, _)) => {
                Err(BusError::TooLarge { bytes, limit: RECORD_BYTES_MAX })
            }
            Err(NotStored::Refused(code, reason)) if stored::is_full(code) => {
                Err(stored::full(LOG_STREAM, code, &reason))
            }
            Err(NotStored::Refused(_, reason)) => Err(BusError::Unknown(reason)),
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

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        check_lane(lane, self.lanes)?;
        let below_seq = below_seq.min(self.leader.last_seq(lane).await?);
        if below_seq <= 1 {
            return Ok(());
        }
        self.leader.trimming.trim(lane, below_seq).await
    }
}

impl Leader {
    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        let last = stored::last_on(&self.source.context, LOG_STREAM, &subject::log(lane)).await?;
        Ok(last.map_or(0, |message| message.sequence))
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        let message = stored::at(&self.source.context, LOG_STREAM, seq).await?;
        Ok(message.filter(|message| *message.subject == *subject::log(lane)).map(|message| to_record(lane, message)))
    }
}

fn to_record(lane: Lane, message: StreamMessage) -> LogRecord {
    let stamped = Timestamp(u64::try_from(message.time.unix_timestamp_nanos() / 1000).unwrap_or_default());
    LogRecord { lane, seq: message.sequence, time: stamped, stamped, bytes: message.payload }
}

impl Log for NatsLog {
    fn lanes(&self) -> u8 {
        self.lanes
    }

    fn append(&self, lane: Lane, record: Bytes) -> BoxFuture<'_, Result<u64, BusError>> {
        self.append(lane, record).boxed()
    }

    fn read(&self, lane: Lane, from_seq: u64) -> BoxFuture<'_, Result<LogStream, BusError>> {
        self.read(lane, from_seq).boxed()
    }

    fn last_seq(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        async move {
            check_lane(lane, self.lanes)?;
            self.leader.last_seq(lane).await
        }
        .boxed()
    }

    fn record(&self, lane: Lane, seq: u64) -> BoxFuture<'_, Result<Option<LogRecord>, BusError>> {
        async move {
            check_lane(lane, self.lanes)?;
            if seq == 0 { Ok(None) } else { self.leader.record(lane, seq).await }
        }
        .boxed()
    }

    fn trim(&self, lane: Lane, below_seq: u64) -> BoxFuture<'_, Result<(), BusError>> {
        self.trim(lane, below_seq).boxed()
    }

    fn trimmed(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        async move {
            check_lane(lane, self.lanes)?;
            self.leader.trimming.trimmed(lane).await
        }
        .boxed()
    }
}
