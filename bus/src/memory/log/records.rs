//! The records of one lane.

use std::collections::VecDeque;

use crate::LogRecord;

/// Records per block of a lane: large enough that blocks are few, small enough that adding one never copies much.
const BLOCK_LEN: usize = 4096;

/// A list that grows by blocks: readers of a long log never wait for it to be copied to a larger place. Its beginning
/// can be trimmed; indexes stay what they were.
#[derive(Default)]
pub(super) struct Records {
    blocks: VecDeque<Vec<LogRecord>>,
    /// Blocks removed at the front.
    blocks_gone: usize,
    pub(super) len: usize,
    /// Index of the first record that is not trimmed.
    pub(super) first: usize,
    /// Everything up to this sequence may have been trimmed.
    pub(super) trimmed: u64,
}

impl Records {
    pub(super) fn push(&mut self, record: LogRecord) {
        if self.len.is_multiple_of(BLOCK_LEN) {
            self.blocks.push_back(Vec::with_capacity(if self.len == 0 { 0 } else { BLOCK_LEN }));
        }
        if let Some(block) = self.blocks.back_mut() {
            block.push(record);
            self.len += 1;
        }
    }

    /// A record, unless it is trimmed.
    pub(super) fn get(&self, index: usize) -> Option<&LogRecord> {
        let block = (index / BLOCK_LEN).checked_sub(self.blocks_gone)?;
        self.blocks.get(block)?.get(index % BLOCK_LEN).filter(|_| index >= self.first)
    }

    pub(super) fn last(&self) -> Option<&LogRecord> {
        self.blocks.back()?.last()
    }

    /// Index of the first record whose sequence is at least `seq`, the trimmed ones aside.
    pub(super) fn first_from(&self, seq: u64) -> usize {
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
    pub(super) fn trim(&mut self, below_seq: u64) -> usize {
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
