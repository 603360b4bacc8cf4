//! One lane of the log, read on through failures.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Log, LogRecord, LogStream};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use retry::Backoff;
use schemas::Lane;

/// Most openings in a row that may fail. The bus's own reader resumes by itself; what gets here is serious, and with
/// these gaps it has lasted about a minute.
const OPENINGS_MAX: u32 = 16;
/// Gaps between openings.
const OPENING_GAPS: Backoff = Backoff::exact(Duration::from_millis(100), Duration::from_secs(5));

/// See the module.
pub(crate) struct LogReader {
    log: Arc<dyn Log>,
    lane: Lane,
    from_seq: u64,
    /// The last record given: whoever opens the log again must find it there.
    last: Option<LogRecord>,
    failures: u32,
    source: ReaderState,
}

enum ReaderState {
    Open(LogStream),
    Opening(BoxFuture<'static, Result<LogStream, BusError>>),
}

impl LogReader {
    /// Opens a lane at the first record whose sequence is at least `from_seq`.
    pub(crate) async fn open(log: Arc<dyn Log>, lane: Lane, from_seq: u64) -> Result<Self, BusError> {
        let stream = log.read(lane, from_seq).await?;
        Ok(Self { log, lane, from_seq, last: None, failures: 0, source: ReaderState::Open(stream) })
    }

    /// The next record. May be dropped and called again at any time.
    ///
    /// # Errors
    /// [`BusError::Diverged`] and [`BusError::Trimmed`]: reading on would leave a gap. Otherwise the last of
    /// [`OPENINGS_MAX`] failures in a row.
    pub(crate) async fn next(&mut self) -> Result<LogRecord, BusError> {
        loop {
            let failure = match &mut self.source {
                ReaderState::Open(stream) => match stream.next().await {
                    Some(Ok(record)) => {
                        self.from_seq = record.seq + 1;
                        self.failures = 0;
                        self.last = Some(record.clone());
                        return Ok(record);
                    }
                    Some(Err(error)) => error,
                    None => BusError::Closed,
                },
                ReaderState::Opening(opening) => match opening.await {
                    Ok(stream) => {
                        self.source = ReaderState::Open(stream);
                        continue;
                    }
                    Err(error) => error,
                },
            };
            self.failures += 1;
            if self.failures > OPENINGS_MAX || matches!(failure, BusError::Diverged(_) | BusError::Trimmed(_)) {
                return Err(failure);
            }
            tracing::warn!(lane = self.lane.0, from_seq = self.from_seq, %failure, "the log is opened again");
            self.source = ReaderState::Opening(self.reopen());
        }
    }

    fn reopen(&self) -> BoxFuture<'static, Result<LogStream, BusError>> {
        let (log, lane, from_seq) = (Arc::clone(&self.log), self.lane, self.from_seq);
        let last = self.last.clone();
        let gap = OPENING_GAPS.ceiling(self.failures);
        Box::pin(async move {
            tokio::time::sleep(gap).await;
            if let Some(last) = &last {
                still_holds(&*log, last).await?;
            }
            log.read(lane, from_seq).await
        })
    }
}

/// Checks that the log still holds a record that was read from it, or has trimmed it.
async fn still_holds(log: &dyn Log, last: &LogRecord) -> Result<(), BusError> {
    let is_same = match log.record(last.lane, last.seq).await? {
        Some(found) => found.bytes == last.bytes,
        None => log.trimmed(last.lane).await? >= last.seq,
    };
    if is_same { Ok(()) } else { Err(BusError::Diverged(format!("record {} is not what it was", last.seq))) }
}
