//! Reading a lane, and noticing when the log is no longer the one that was read.
//!
//! Two things can happen to a log behind a reader's back. A server that loses its tail (a power cut, a restored backup)
//! gives the same sequences to other records, and an ordered consumer goes on as if nothing had happened. And records
//! can be trimmed before a slow reader has come to them; the consumer then goes on behind them. The first is looked for
//! whenever reading resumes. The second can only happen to records that the server has not sent yet: it sends them at
//! once to a reader that keeps up. To any other the reader gives what it received only after it has asked how far the
//! lane may have been trimmed.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use schemas::{Lane, subject};
use tokio::time::Instant;

use super::Leader;
use crate::nats::LOG_STREAM;
use crate::nats::consumer::{ConsumerEvent, OrderedReader, Selection, StoredMessage};
use crate::{BusError, LogRecord};

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

pub(super) struct LaneReader {
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
    pub(super) async fn start(leader: Leader, lane: Lane, from_seq: u64) -> Result<Self, BusError> {
        let from_seq = from_seq.max(1);
        let from = DeliverPolicy::ByStartSequence { start_sequence: from_seq };
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
    pub(super) async fn next(&mut self) -> Option<Result<LogRecord, BusError>> {
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
