//! The log.

use bus::{BusError, Log, LogRecord, LogStream};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use schemas::Lane;
use tokio::sync::mpsc;

use super::{CallKind, Handle, incoming};
use crate::points::Point;

impl Log for Handle {
    fn lanes(&self) -> u8 {
        self.lanes
    }

    fn append(&self, lane: Lane, record: Bytes) -> BoxFuture<'_, Result<u64, BusError>> {
        self.call(CallKind::Append, move |state, link| {
            let seq = state.append(link, lane, record.clone())?;
            if state.happens(state.weather.append_twice) {
                state.reached(Point::AppendDuplicated);
                // The client's own repetition of what it had no answer for: the second is the one that is answered.
                return state.append(link, lane, record);
            }
            Ok(seq)
        })
    }

    fn read(&self, lane: Lane, from_seq: u64) -> BoxFuture<'_, Result<LogStream, BusError>> {
        async move {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.call(CallKind::Other, move |state, link| state.read_log(link, lane, from_seq, sender)).await?;
            Ok(until_error(incoming(receiver)))
        }
        .boxed()
    }

    fn last_seq(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.lane(lane)?.last_seq()))
    }

    fn record(&self, lane: Lane, seq: u64) -> BoxFuture<'_, Result<Option<LogRecord>, BusError>> {
        self.call(CallKind::Other, move |state, _| {
            let first = state.broker.lane(lane)?.from(seq).first().cloned();
            Ok(first.filter(|record| record.seq == seq))
        })
    }

    fn trim(&self, lane: Lane, below_seq: u64) -> BoxFuture<'_, Result<(), BusError>> {
        self.call(CallKind::Other, move |state, _| {
            if state.broker.lane(lane)?.trim(below_seq) {
                state.reached(Point::LogTrimmed);
            }
            Ok(())
        })
    }

    fn trimmed(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.lane(lane)?.trimmed))
    }
}

/// Ends behind the first error.
fn until_error(records: BoxStream<'static, Result<LogRecord, BusError>>) -> LogStream {
    let next = |(mut records, is_over): (LogStream, bool)| async move {
        if is_over {
            return None;
        }
        let record = records.next().await?;
        let is_over = record.is_err();
        Some((record, (records, is_over)))
    };
    stream::unfold((records, false), next).boxed()
}
