//! One record in the making: the bytes of its entries joined, and those who wait for it.

use bytes::{Bytes, BytesMut};
use schemas::Position;
use schemas::record::{Entry, Record};
use tokio::sync::oneshot;

use super::AppendError;
use crate::BusError;

/// What closes a record after its last entry. [`Record`]'s encoding ends so because `entries` is its last member; a
/// test holds the two together.
const SUFFIX: &[u8] = b"]}";

/// An entry in the queue, encoded by its sender.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) encoded: Vec<u8>,
    pub(super) answer: oneshot::Sender<Result<Position, AppendError>>,
}

/// Encodes one entry as it stands in a record.
pub(super) fn encode(entry: &Entry) -> Result<Vec<u8>, BusError> {
    serde_json::to_vec(entry).map_err(|error| BusError::Invalid(format!("an entry that has no encoding: {error}")))
}

/// What stands around the entries of every record of one writer.
pub(super) struct RecordFrame {
    prefix: Vec<u8>,
}

impl RecordFrame {
    pub(super) fn new(by: String) -> Self {
        let mut prefix = Record::new(by, Vec::new()).encode().expect("a number, a text and no entries can be encoded");
        prefix.truncate(prefix.len() - SUFFIX.len());
        Self { prefix }
    }

    /// Bytes of a record beside its entries.
    pub(super) fn overhead(&self) -> usize {
        self.prefix.len() + SUFFIX.len()
    }
}

pub(super) struct Batch {
    bytes: BytesMut,
    senders: Senders,
}

/// Those who wait for a record, in the order of their entries.
pub(super) struct Senders(Vec<oneshot::Sender<Result<Position, AppendError>>>);

impl Batch {
    /// A record with one entry, whatever its size: whether it fits was checked when it was queued.
    pub(super) fn new(frame: &RecordFrame, first: Waiting) -> Self {
        let mut bytes = BytesMut::with_capacity(frame.overhead() + first.encoded.len());
        bytes.extend_from_slice(&frame.prefix);
        bytes.extend_from_slice(&first.encoded);
        Self { bytes, senders: Senders(vec![first.answer]) }
    }

    pub(super) fn len(&self) -> usize {
        self.senders.0.len()
    }

    /// Adds an entry, or gives it back when the record would grow beyond `bytes_max`.
    pub(super) fn push_within(&mut self, bytes_max: usize, next: Waiting) -> Option<Waiting> {
        if self.bytes.len() + 1 + next.encoded.len() + SUFFIX.len() > bytes_max {
            return Some(next);
        }
        self.bytes.extend_from_slice(b",");
        self.bytes.extend_from_slice(&next.encoded);
        self.senders.0.push(next.answer);
        None
    }

    pub(super) fn finish(mut self) -> (Bytes, Senders) {
        self.bytes.extend_from_slice(SUFFIX);
        (self.bytes.freeze(), self.senders)
    }
}

impl Senders {
    /// Tells everyone; those who no longer listen have dropped their future.
    pub(super) fn answer(self, outcome: Result<u64, AppendError>) {
        for (index, sender) in (0_u32..).zip(self.0) {
            let _ = sender.send(outcome.clone().map(|seq| Position { seq, index }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_may_be_exactly_as_long_as_allowed_and_not_a_byte_longer() {
        let frame = RecordFrame::new("gateway-1".to_owned());
        let waiting = || Waiting { encoded: encode(&Entry::Tick).unwrap(), answer: oneshot::channel().0 };
        let joined = |bytes_max| {
            let mut batch = Batch::new(&frame, waiting());
            let is_added = batch.push_within(bytes_max, waiting()).is_none();
            (is_added, batch.finish().0.len())
        };
        let (_, whole) = joined(usize::MAX);
        assert_eq!(joined(whole), (true, whole));
        let (is_added, alone) = joined(whole - 1);
        assert!(!is_added && alone < whole);
    }
}
