//! Group commit: entries that arrive while an append is in flight share the next record.
//!
//! An idle lane writes one entry per record and adds no delay; a busy one fills records, so that one acknowledgement
//! (and one fsync) serves many senders. Each caller encodes its own entry, so the one task that appends only joins
//! bytes. An append whose outcome is unknown is repeated with the same bytes: the fold drops what stands in the log
//! twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use retry::Backoff;
use schemas::record::{Entry, RECORD_BYTES_MAX, RECORD_ENTRIES_MAX, Record};
use schemas::{Lane, Position};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::{BusError, Log};

/// Entries that may wait by default: eight full records, about what a lane appends in 20 ms when every append takes
/// 2.5 ms. Beyond that a sender is better told to come back.
pub const QUEUE_MAX_DEFAULT: usize = 8 * RECORD_ENTRIES_MAX;
/// Attempts at one append by default: as many as fit into [`DEADLINE_DEFAULT`] when each fails at once, as it does while a
/// cluster has no leader.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 100;
/// Default time after which everyone waiting for an append is told its outcome is unknown. A cluster of nats-servers that
/// has lost its leader takes 4 to 9 s to elect another, which no setting changes; an answer before that would only make
/// every client send again.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(12);
/// Between two attempts. Its limit is the delay of whoever waits for a new leader.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(50), max: Duration::from_millis(250), jitter: 1.0 };

/// How an [`Appender`] groups and repeats.
#[derive(Debug, Clone)]
pub struct AppenderOptions {
    /// Most entries in one record, at least 1; 1 turns group commit off.
    pub entries_max: usize,
    /// Largest record in bytes.
    pub bytes_max: usize,
    /// Most entries waiting, at least 1; a further one is refused at once.
    pub queue_max: usize,
    /// Attempts at one append, at least 1.
    pub attempts_max: u32,
    /// Time for all attempts at one append.
    pub deadline: Duration,
}

impl Default for AppenderOptions {
    fn default() -> Self {
        Self {
            entries_max: RECORD_ENTRIES_MAX,
            bytes_max: RECORD_BYTES_MAX,
            queue_max: QUEUE_MAX_DEFAULT,
            attempts_max: ATTEMPTS_MAX_DEFAULT,
            deadline: DEADLINE_DEFAULT,
        }
    }
}

/// Why an entry was not appended, or is not known to be.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Too many entries wait already; this one was not stored. Come back later.
    #[error("too many entries wait for the log")]
    Overloaded,
    /// Not stored: the log refused it, and would again.
    #[error("not stored: {0}")]
    Refused(BusError),
    /// May or may not be stored. Append the same entry again: the fold drops duplicates.
    #[error("not known to be stored: {0}")]
    Unknown(BusError),
}

/// Appends entries to one lane. Clones share the lane's queue; the task behind them ends, after everything queued is
/// appended, when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Appender {
    sender: mpsc::Sender<Waiting>,
    entry_bytes_max: usize,
}

impl Appender {
    /// Starts the task that appends to `lane`; `by` names the writer in each record, for audit.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn spawn(log: Arc<dyn Log>, lane: Lane, by: impl Into<String>, options: AppenderOptions) -> Self {
        let frame = RecordFrame::new(by.into());
        let entry_bytes_max = options.bytes_max.saturating_sub(frame.overhead());
        let (sender, receiver) = mpsc::channel(options.queue_max.max(1));
        tokio::spawn(Committer { log, lane, frame, options }.drive(receiver));
        Self { sender, entry_bytes_max }
    }

    /// Appends an entry and returns where it stands once it is stored. Dropping the future does not take the entry
    /// back.
    ///
    /// # Errors
    /// [`AppendError`]; after [`AppendError::Unknown`] the same entry may be appended again.
    pub async fn append(&self, entry: &Entry) -> Result<Position, AppendError> {
        let encoded = encode(entry).map_err(AppendError::Refused)?;
        if encoded.len() > self.entry_bytes_max {
            let error = BusError::TooLarge { bytes: encoded.len(), limit: self.entry_bytes_max };
            return Err(AppendError::Refused(error));
        }
        let (answer, outcome) = oneshot::channel();
        match self.sender.try_send(Waiting { encoded, answer }) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(AppendError::Overloaded),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(AppendError::Refused(BusError::Closed)),
        }
        // The task answers everyone; it is gone only when the runtime stops in the middle of an append.
        outcome.await.unwrap_or(Err(AppendError::Unknown(BusError::Closed)))
    }

    /// Entries that wait at this moment, for metrics.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }
}

/// The task: the only one that appends for its clones, so entries keep the order in which they were queued.
struct Committer {
    log: Arc<dyn Log>,
    lane: Lane,
    frame: RecordFrame,
    options: AppenderOptions,
}

impl Committer {
    async fn drive(self, mut receiver: mpsc::Receiver<Waiting>) {
        let mut left_over = None;
        loop {
            let first = match left_over.take() {
                Some(waiting) => waiting,
                None => match receiver.recv().await {
                    Some(waiting) => waiting,
                    None => return,
                },
            };
            let mut batch = AppendBatch::new(&self.frame, first);
            while left_over.is_none()
                && batch.len() < self.options.entries_max
                && let Ok(next) = receiver.try_recv()
            {
                left_over = batch.push_within(self.options.bytes_max, next);
            }
            let (record, senders) = batch.finish();
            senders.answer(self.append(record).await);
        }
    }

    /// Appends a record, repeating unknown outcomes within the bounds.
    async fn append(&self, record: Bytes) -> Result<u64, AppendError> {
        let deadline = Instant::now() + self.options.deadline;
        let mut attempt = 1;
        let mut doubt = None;
        loop {
            let outcome = match tokio::time::timeout_at(deadline, self.log.append(self.lane, record.clone())).await {
                Ok(outcome) => outcome,
                Err(_) => Err(BusError::Unknown("the deadline of the append has passed".to_owned())),
            };
            let error = match outcome {
                Ok(seq) => return Ok(seq),
                Err(error) => error,
            };
            if !error.is_worth_repeating() {
                // A refusal speaks of its own attempt only: an earlier one may be in the log all the same.
                return Err(doubt.map_or(AppendError::Refused(error), AppendError::Unknown));
            }
            if attempt >= self.options.attempts_max || Instant::now() >= deadline {
                return Err(AppendError::Unknown(error));
            }
            doubt = Some(error);
            let delay = BACKOFF.delay(attempt, spread(&record, attempt + 1));
            attempt += 1;
            tokio::time::sleep_until(deadline.min(Instant::now() + delay)).await;
        }
    }
}

/// A number from 0 to 1 that differs from writer to writer, so that those which failed together do not try again together.
/// It follows from the record instead of being drawn: the same history gives the same pauses.
fn spread(record: &[u8], attempt: u32) -> f64 {
    let hash = record.iter().fold(u32::wrapping_add(0x811c_9dc5, attempt), |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    f64::from(hash) / f64::from(u32::MAX)
}

/// What closes a record after its last entry. [`Record`]'s encoding ends so because `entries` is its last member; a
/// test holds the two together.
const SUFFIX: &[u8] = b"]}";

/// An entry in the queue, encoded by its sender.
#[derive(Debug)]
struct Waiting {
    encoded: Vec<u8>,
    answer: oneshot::Sender<Result<Position, AppendError>>,
}

/// Room for an entry beside the body of its message, in bytes: a call with all it is pinned to takes more, others less.
const ENTRY_BYTES: usize = 512;

/// Encodes one entry as it stands in a record.
fn encode(entry: &Entry) -> Result<Vec<u8>, BusError> {
    let body_bytes = if let Entry::Message(message) = entry { message.body.get().len() } else { 0 };
    let mut encoded = Vec::with_capacity(ENTRY_BYTES + body_bytes);
    serde_json::to_writer(&mut encoded, entry)
        .map_err(|error| BusError::Invalid(format!("an entry that has no encoding: {error}")))?;
    Ok(encoded)
}

/// What stands around the entries of every record of one writer.
struct RecordFrame {
    prefix: Vec<u8>,
}

impl RecordFrame {
    fn new(by: String) -> Self {
        let mut prefix = Record::new(by, Vec::new()).encode().expect("a number, a text and no entries can be encoded");
        prefix.truncate(prefix.len() - SUFFIX.len());
        Self { prefix }
    }

    /// Bytes of a record beside its entries.
    fn overhead(&self) -> usize {
        self.prefix.len() + SUFFIX.len()
    }
}

struct AppendBatch {
    bytes: BytesMut,
    senders: Senders,
}

/// Those who wait for a record, in the order of their entries.
struct Senders(Vec<oneshot::Sender<Result<Position, AppendError>>>);

impl AppendBatch {
    /// A record with one entry, whatever its size: whether it fits was checked when it was queued.
    fn new(frame: &RecordFrame, first: Waiting) -> Self {
        let mut bytes = BytesMut::with_capacity(frame.overhead() + first.encoded.len());
        bytes.extend_from_slice(&frame.prefix);
        bytes.extend_from_slice(&first.encoded);
        Self { bytes, senders: Senders(vec![first.answer]) }
    }

    fn len(&self) -> usize {
        self.senders.0.len()
    }

    /// Adds an entry, or gives it back when the record would grow beyond `bytes_max`.
    fn push_within(&mut self, bytes_max: usize, next: Waiting) -> Option<Waiting> {
        if self.bytes.len() + 1 + next.encoded.len() + SUFFIX.len() > bytes_max {
            return Some(next);
        }
        self.bytes.extend_from_slice(b",");
        self.bytes.extend_from_slice(&next.encoded);
        self.senders.0.push(next.answer);
        None
    }

    fn finish(mut self) -> (Bytes, Senders) {
        self.bytes.extend_from_slice(SUFFIX);
        (self.bytes.freeze(), self.senders)
    }
}

impl Senders {
    /// Tells everyone; those who no longer listen have dropped their future.
    fn answer(self, outcome: Result<u64, AppendError>) {
        for (index, sender) in (0_u32..).zip(self.0) {
            let _ = sender.send(outcome.clone().map(|seq| Position { seq, index }));
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod batch_tests {
    use super::*;

    #[test]
    fn a_record_may_be_exactly_as_long_as_allowed_and_not_a_byte_longer() {
        let frame = RecordFrame::new("gateway-1".to_owned());
        let waiting = || Waiting { encoded: encode(&Entry::Tick).unwrap(), answer: oneshot::channel().0 };
        let joined = |bytes_max| {
            let mut batch = AppendBatch::new(&frame, waiting());
            let is_added = batch.push_within(bytes_max, waiting()).is_none();
            (is_added, batch.finish().0.len())
        };
        let (_, whole) = joined(usize::MAX);
        assert_eq!(joined(whole), (true, whole));
        let (is_added, alone) = joined(whole - 1);
        assert!(!is_added && alone < whole);
    }
}
