//! The log: a list of records per lane.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use parking_lot::RwLock;
use schemas::Lane;
use schemas::record::RECORD_BYTES_MAX;
use tokio::sync::watch;

use super::{MemoryClock, MemoryOptions};
use crate::name::check_lane;
use crate::{BusError, Log, LogRecord, LogStream};

/// Records a reader takes under one lock, so that neither it nor the writer waits long for the other.
const READ_BATCH_MAX: usize = 256;

pub(super) struct MemoryLog {
    lanes: Vec<LaneRecords>,
    /// The last sequence given, over all lanes.
    last_seq: AtomicU64,
    bytes: AtomicUsize,
    bytes_max: usize,
    clock: MemoryClock,
}

struct LaneRecords {
    records: Arc<RwLock<Records>>,
    /// Wakes the lane's readers; holds the lane's number of records.
    len: watch::Sender<usize>,
}

impl MemoryLog {
    pub(super) fn new(options: MemoryOptions) -> Self {
        let lane = || LaneRecords { records: Arc::default(), len: watch::Sender::new(0) };
        Self {
            lanes: (0..options.lanes.max(1)).map(|_| lane()).collect(),
            last_seq: AtomicU64::new(0),
            bytes: AtomicUsize::new(0),
            bytes_max: options.log_bytes_max,
            clock: options.clock,
        }
    }

    fn lane(&self, lane: Lane) -> Result<&LaneRecords, BusError> {
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
        let mut records = lane_log.records.write();
        let time = records.last().map_or(now, |last| last.time.max(now));
        // Taken under the lane's lock: sequences rise within a lane.
        let seq = self.last_seq.fetch_add(1, Ordering::Relaxed) + 1;
        records.push(LogRecord { lane, seq, time, stamped: now, bytes });
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

#[async_trait]
impl Log for MemoryLog {
    fn lanes(&self) -> u8 {
        u8::try_from(self.lanes.len()).unwrap_or(u8::MAX)
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        // Lets others run: a writer that never waits would otherwise keep its thread.
        tokio::task::consume_budget().await;
        self.append_now(lane, record)
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        let lane_log = self.lane(lane)?;
        let from_seq = from_seq.max(1);
        let next = {
            let records = lane_log.records.read();
            if from_seq <= records.trimmed {
                return Err(BusError::Trimmed(records.trimmed));
            }
            records.first_from(from_seq)
        };
        let reader = MemoryReader {
            records: Arc::clone(&lane_log.records),
            len: lane_log.len.subscribe(),
            next,
            from_seq,
            ready: VecDeque::new(),
            is_done: false,
        };
        Ok(stream::unfold(reader, MemoryReader::next).boxed())
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        let lane_log = self.lane(lane)?;
        let records = lane_log.records.read();
        Ok(records.last().map_or(0, |record| record.seq))
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        let records = self.lane(lane)?.records.read();
        Ok(records.get(records.first_from(seq)).filter(|record| record.seq == seq).cloned())
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        let freed = self.lane(lane)?.records.write().trim(below_seq);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
        Ok(())
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        Ok(self.lane(lane)?.records.read().trimmed)
    }
}

struct MemoryReader {
    records: Arc<RwLock<Records>>,
    len: watch::Receiver<usize>,
    /// Index of the first record not yet in `ready`.
    next: usize,
    /// What comes before is skipped: the position asked for may lie beyond the end.
    from_seq: u64,
    ready: VecDeque<LogRecord>,
    /// Whether an error was its last item.
    is_done: bool,
}

impl MemoryReader {
    /// The next record; none once every handle of the bus is gone.
    async fn next(mut self) -> Option<(Result<LogRecord, BusError>, Self)> {
        while !self.is_done {
            tokio::task::consume_budget().await;
            if let Some(record) = self.ready.pop_front() {
                return Some((Ok(record), self));
            }
            self.len.borrow_and_update();
            match self.refill() {
                Ok(is_at_end) => {
                    if is_at_end && self.ready.is_empty() && self.len.changed().await.is_err() {
                        return None;
                    }
                }
                Err(error) => {
                    self.is_done = true;
                    return Some((Err(error), self));
                }
            }
        }
        None
    }

    /// Takes the next batch and returns whether it was the last there is; fails when some of it is trimmed.
    fn refill(&mut self) -> Result<bool, BusError> {
        let records = self.records.read();
        if self.next < records.first {
            return Err(BusError::Trimmed(records.trimmed));
        }
        let end = records.len.min(self.next + READ_BATCH_MAX);
        let fresh = (self.next..end).filter_map(|index| records.get(index));
        self.ready.extend(fresh.filter(|record| record.seq >= self.from_seq).cloned());
        self.next = end;
        Ok(end == records.len)
    }
}

/// Records per block of a lane: large enough that blocks are few, small enough that adding one never copies much.
const BLOCK_LEN: usize = 4096;

/// A list that grows by blocks: readers of a long log never wait for it to be copied to a larger place. Its beginning
/// can be trimmed; indexes stay what they were.
#[derive(Default)]
struct Records {
    blocks: VecDeque<Vec<LogRecord>>,
    /// Blocks removed at the front.
    blocks_gone: usize,
    len: usize,
    /// Index of the first record that is not trimmed.
    first: usize,
    /// Everything up to this sequence may have been trimmed.
    trimmed: u64,
}

impl Records {
    fn push(&mut self, record: LogRecord) {
        if self.len.is_multiple_of(BLOCK_LEN) {
            self.blocks.push_back(Vec::with_capacity(if self.len == 0 { 0 } else { BLOCK_LEN }));
        }
        if let Some(block) = self.blocks.back_mut() {
            block.push(record);
            self.len += 1;
        }
    }

    /// A record, unless it is trimmed.
    fn get(&self, index: usize) -> Option<&LogRecord> {
        let block = (index / BLOCK_LEN).checked_sub(self.blocks_gone)?;
        self.blocks.get(block)?.get(index % BLOCK_LEN).filter(|_| index >= self.first)
    }

    fn last(&self) -> Option<&LogRecord> {
        self.blocks.back()?.last()
    }

    /// Index of the first record whose sequence is at least `seq`, the trimmed ones aside.
    fn first_from(&self, seq: u64) -> usize {
        let (mut low, mut high) = (self.first, self.len);
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

    /// Removes the records below `below_seq` but never the last one, and returns how many bytes they had.
    fn trim(&mut self, below_seq: u64) -> usize {
        let Some(last_seq) = self.last().map(|last| last.seq) else { return 0 };
        let below_seq = below_seq.min(last_seq);
        let end = self.first_from(below_seq);
        let mut freed = 0;
        for index in self.first..end {
            let block = self.blocks.get_mut(index / BLOCK_LEN - self.blocks_gone);
            if let Some(record) = block.and_then(|block| block.get_mut(index % BLOCK_LEN)) {
                freed += std::mem::take(&mut record.bytes).len();
            }
        }
        self.first = end;
        while (self.blocks_gone + 1) * BLOCK_LEN <= self.first {
            self.blocks.pop_front();
            self.blocks_gone += 1;
        }
        self.trimmed = self.trimmed.max(below_seq.saturating_sub(1));
        freed
    }
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;

    #[tokio::test]
    async fn log_time_does_not_follow_a_clock_that_goes_back() {
        let readings = Arc::new(AtomicU64::new(100));
        let clock: MemoryClock = {
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

#[cfg(test)]
mod records_tests {
    use bytes::Bytes;
    use schemas::{Lane, Timestamp};

    use super::*;

    #[test]
    fn a_position_is_found_across_blocks() {
        let mut records = Records::default();
        let count = 2 * BLOCK_LEN + 7;
        for index in 0..count {
            // Only even sequences: other lanes have the odd ones.
            let seq = 2 * u64::try_from(index).unwrap() + 2;
            records.push(LogRecord {
                lane: Lane(0),
                seq,
                time: Timestamp(0),
                stamped: Timestamp(0),
                bytes: Bytes::new(),
            });
        }
        for index in [0, 1, BLOCK_LEN - 1, BLOCK_LEN, 2 * BLOCK_LEN, count - 1] {
            let seq = records.get(index).unwrap().seq;
            assert_eq!(records.first_from(seq), index);
            assert_eq!(records.first_from(seq - 1), index);
            assert_eq!(records.first_from(seq + 1), index + 1);
        }
        assert_eq!(records.first_from(u64::MAX), count);
    }

    #[test]
    fn trimming_gives_back_every_byte_and_whole_blocks() {
        let mut records = Records::default();
        let count = 2 * BLOCK_LEN + 7;
        for index in 0..count {
            let (seq, time) = (u64::try_from(index).unwrap() + 1, Timestamp(0));
            records.push(LogRecord { lane: Lane(0), seq, time, stamped: time, bytes: Bytes::from_static(b"abc") });
        }
        let below = |index: usize| u64::try_from(index).unwrap() + 1;
        assert_eq!(records.trim(below(10)), 30);
        assert_eq!((records.blocks.len(), records.trimmed), (3, 10));
        assert_eq!(records.trim(below(BLOCK_LEN)), 3 * (BLOCK_LEN - 10));
        assert_eq!(records.blocks.len(), 2);
        assert_eq!(records.trim(u64::MAX), 3 * (BLOCK_LEN + 6));
        assert_eq!(records.blocks.len(), 1);
        assert_eq!(records.trim(u64::MAX), 0);
        assert_eq!(records.get(count - 1).unwrap().bytes, "abc");
        assert!(records.get(count - 2).is_none());
    }
}
