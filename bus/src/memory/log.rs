//! The log: a list of records per lane.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use schemas::Lane;
use schemas::record::RECORD_BYTES_MAX;
use tokio::sync::watch;

use super::{Clock, MemoryOptions};
use crate::name::check_lane;
use crate::{BusError, Log, LogRecord, LogStream};

/// Records per block of a lane: large enough that blocks are few, small enough that adding one never copies much.
const BLOCK_LEN: usize = 4096;
/// Records a reader takes under one lock, so that neither it nor the writer waits long for the other.
const READ_BATCH_MAX: usize = 256;

pub(super) struct MemoryLog {
    lanes: Vec<LaneLog>,
    /// The last sequence given, over all lanes.
    last_seq: AtomicU64,
    bytes: AtomicUsize,
    bytes_max: usize,
    clock: Clock,
}

struct LaneLog {
    records: Arc<RwLock<Records>>,
    /// Wakes the lane's readers; holds the lane's number of records.
    len: watch::Sender<usize>,
}

/// A list that grows by blocks: readers of a long log never wait for it to be copied to a larger place.
#[derive(Default)]
struct Records {
    blocks: Vec<Vec<LogRecord>>,
    len: usize,
}

impl Records {
    fn push(&mut self, record: LogRecord) {
        if self.len.is_multiple_of(BLOCK_LEN) {
            self.blocks.push(Vec::with_capacity(if self.len == 0 { 0 } else { BLOCK_LEN }));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(record);
            self.len += 1;
        }
    }

    fn get(&self, index: usize) -> Option<&LogRecord> {
        self.blocks.get(index / BLOCK_LEN)?.get(index % BLOCK_LEN)
    }

    fn last(&self) -> Option<&LogRecord> {
        self.blocks.last()?.last()
    }

    /// Index of the first record whose sequence is at least `seq`.
    fn first_from(&self, seq: u64) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.get(middle).is_some_and(|record| record.seq < seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl MemoryLog {
    pub(super) fn new(options: MemoryOptions) -> Self {
        let lane = || LaneLog { records: Arc::default(), len: watch::Sender::new(0) };
        Self {
            lanes: (0..options.lanes.max(1)).map(|_| lane()).collect(),
            last_seq: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            bytes_max: options.log_bytes_max,
            clock: options.clock,
        }
    }

    fn lane(&self, lane: Lane) -> Result<&LaneLog, BusError> {
        check_lane(lane, self.lanes())?;
        self.lanes.get(usize::from(lane.0)).ok_or(BusError::Closed)
    }

    fn append_now(&self, lane: Lane, bytes: Bytes) -> Result<u64, BusError> {
        let lane_log = self.lane(lane)?;
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: bytes.len(), limit: RECORD_BYTES_MAX });
        }
        self.reserve(bytes.len())?;
        let now = (self.clock)();
        let mut records = lane_log.records.write().unwrap_or_else(PoisonError::into_inner);
        let time = records.last().map_or(now, |last| last.time.max(now));
        // Taken under the lane's lock: sequences rise within a lane.
        let seq = self.last_seq.fetch_add(1, Ordering::Relaxed) + 1;
        records.push(LogRecord { lane, seq, time, bytes });
        let len = records.len;
        drop(records);
        // Two appenders may report out of order; the larger length holds.
        lane_log.len.send_if_modified(|seen| {
            let is_news = len > *seen;
            *seen = len.max(*seen);
            is_news
        });
        Ok(seq)
    }

    /// Counts `bytes` in unless they do not fit.
    fn reserve(&self, bytes: usize) -> Result<(), BusError> {
        let fits = |held: usize| held.checked_add(bytes).filter(|&sum| sum <= self.bytes_max);
        match self.bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(held) => Err(BusError::Full(format!("the log holds {held} of at most {} bytes", self.bytes_max))),
        }
    }
}

impl Log for MemoryLog {
    fn lanes(&self) -> u8 {
        u8::try_from(self.lanes.len()).unwrap_or(u8::MAX)
    }

    fn append(&self, lane: Lane, record: Bytes) -> BoxFuture<'_, Result<u64, BusError>> {
        async move {
            // Lets others run: a writer that never waits would otherwise keep its thread.
            tokio::task::consume_budget().await;
            self.append_now(lane, record)
        }
        .boxed()
    }

    fn read(&self, lane: Lane, from_seq: u64) -> BoxFuture<'_, Result<LogStream, BusError>> {
        async move {
            let lane_log = self.lane(lane)?;
            let next = lane_log.records.read().unwrap_or_else(PoisonError::into_inner).first_from(from_seq);
            let reader = Reader {
                records: Arc::clone(&lane_log.records),
                len: lane_log.len.subscribe(),
                next,
                from_seq,
                ready: VecDeque::new(),
            };
            Ok(stream::unfold(reader, Reader::next).boxed())
        }
        .boxed()
    }

    fn last_seq(&self, lane: Lane) -> BoxFuture<'_, Result<u64, BusError>> {
        async move {
            let lane_log = self.lane(lane)?;
            let records = lane_log.records.read().unwrap_or_else(PoisonError::into_inner);
            Ok(records.last().map_or(0, |record| record.seq))
        }
        .boxed()
    }
}

struct Reader {
    records: Arc<RwLock<Records>>,
    len: watch::Receiver<usize>,
    /// Index of the first record not yet in `ready`.
    next: usize,
    /// What comes before is skipped: the position asked for may lie beyond the end.
    from_seq: u64,
    ready: VecDeque<LogRecord>,
}

impl Reader {
    /// The next record; none once every handle of the bus is gone.
    async fn next(mut self) -> Option<(Result<LogRecord, BusError>, Self)> {
        loop {
            tokio::task::consume_budget().await;
            if let Some(record) = self.ready.pop_front() {
                return Some((Ok(record), self));
            }
            self.len.borrow_and_update();
            let is_at_end = self.refill();
            if is_at_end && self.ready.is_empty() && self.len.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Takes the next batch and returns whether it was the last there is.
    fn refill(&mut self) -> bool {
        let records = self.records.read().unwrap_or_else(PoisonError::into_inner);
        let end = records.len.min(self.next + READ_BATCH_MAX);
        let fresh = (self.next..end).filter_map(|index| records.get(index));
        self.ready.extend(fresh.filter(|record| record.seq >= self.from_seq).cloned());
        self.next = end;
        end == records.len
    }
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;

    #[test]
    fn a_position_is_found_across_blocks() {
        let mut records = Records::default();
        let count = 2 * BLOCK_LEN + 7;
        for index in 0..count {
            // Only even sequences: other lanes have the odd ones.
            let seq = 2 * u64::try_from(index).unwrap() + 2;
            records.push(LogRecord { lane: Lane(0), seq, time: Timestamp(0), bytes: Bytes::new() });
        }
        for index in [0, 1, BLOCK_LEN - 1, BLOCK_LEN, 2 * BLOCK_LEN, count - 1] {
            let seq = records.get(index).unwrap().seq;
            assert_eq!(records.first_from(seq), index);
            assert_eq!(records.first_from(seq - 1), index);
            assert_eq!(records.first_from(seq + 1), index + 1);
        }
        assert_eq!(records.first_from(u64::MAX), count);
    }

    #[tokio::test]
    async fn log_time_does_not_follow_a_clock_that_goes_back() {
        let readings = Arc::new(AtomicU64::new(100));
        let clock: Clock = {
            let readings = Arc::clone(&readings);
            Arc::new(move || Timestamp(readings.fetch_sub(10, Ordering::Relaxed)))
        };
        let log = MemoryLog::new(MemoryOptions { lanes: 1, clock, ..MemoryOptions::default() });
        for _ in 0..3 {
            log.append(Lane(0), Bytes::from_static(b"x")).await.unwrap();
        }
        let times: Vec<_> =
            log.read(Lane(0), 1).await.unwrap().take(3).map(|record| record.unwrap().time).collect().await;
        assert_eq!(times, [Timestamp(100); 3]);
    }

    #[tokio::test]
    async fn readers_end_when_the_bus_is_gone() {
        let log = MemoryLog::new(MemoryOptions::default());
        let mut reader = log.read(Lane(0), 1).await.unwrap();
        drop(log);
        assert!(reader.next().await.is_none());
    }
}
