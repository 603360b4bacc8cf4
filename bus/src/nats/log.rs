//! The log: one stream, one subject per lane.

use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::DeliverPolicy;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use schemas::record::RECORD_BYTES_MAX;
use schemas::{Lane, subject};

use super::LOG_STREAM;
use super::consumer::{OrderedReader, Selection, Source};
use super::stored::{self, NotStored};
use crate::name::check_lane;
use crate::{BusError, Log, LogRecord, LogStream};

pub(super) struct NatsLog {
    write: Client,
    read: Source,
    lanes: u8,
    timeout: Duration,
}

impl NatsLog {
    pub(super) fn new(write: Client, read: Source, lanes: u8, timeout: Duration) -> Self {
        Self { write, read, lanes, timeout }
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
            Err(NotStored::Refused(code, reason)) if stored::is_full(code) => Err(BusError::Full(reason)),
            Err(NotStored::Refused(_, reason)) => Err(BusError::Unknown(reason)),
        }
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        check_lane(lane, self.lanes)?;
        let from = DeliverPolicy::ByStartSequence { start_sequence: from_seq.max(1) };
        let selection = Selection { stream: LOG_STREAM.to_owned(), subject: subject::log(lane), from };
        let (reader, _) = OrderedReader::start(self.read.clone(), selection).await?;
        let records = stream::unfold(Some(reader), move |reader| async move {
            let mut reader = reader?;
            match reader.next().await? {
                Ok(stored) => {
                    let bytes = stored.message.payload;
                    Some((Ok(LogRecord { lane, seq: stored.seq, time: stored.time, bytes }), Some(reader)))
                }
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(records.boxed())
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        check_lane(lane, self.lanes)?;
        let last = stored::last_on(&self.read.context, LOG_STREAM, &subject::log(lane)).await?;
        Ok(last.map_or(0, |message| message.sequence))
    }
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
        self.last_seq(lane).boxed()
    }
}
