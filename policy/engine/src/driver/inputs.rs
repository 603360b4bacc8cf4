//! Everything that can wake a lane, and nothing else does.

use std::future::pending;

use bus::appender::AppendError;
use bus::{BusError, LogRecord, Received, Registered};
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use schemas::{DeliveryId, NegotiationId, Position, RegisterKey};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ingress::Signal;
use crate::log_reader::LogReader;

/// What woke the lane.
pub(super) enum Wake {
    /// The log has a record, or cannot be read any more.
    Record(Result<LogRecord, BusError>),
    /// An acknowledgement or a hello.
    Signal(Signal),
    /// The register answered.
    Write(WriteDone),
    /// The log answered an append.
    Append(AppendDone),
    /// Somebody asks for a view.
    View(Received),
    /// An instant the lane waited for.
    Time,
    /// The engine shuts down.
    Shutdown,
}

/// An answer of the register.
pub(super) struct WriteDone {
    pub(super) key: RegisterKey,
    pub(super) started: Instant,
    pub(super) answer: Result<Registered, BusError>,
}

/// An answer of the log.
pub(super) struct AppendDone {
    pub(super) purpose: Purpose,
    pub(super) outcome: Result<Position, AppendError>,
}

/// What an engine's entry was appended for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Claim,
    Tick,
    Delivered(Vec<DeliveryId>),
    DeliveryFailed(DeliveryId),
    Abort(NegotiationId),
}

/// The sources. Futures and streams that a wake leaves unread keep what they have.
pub(super) struct Inputs {
    pub(super) cancel: CancellationToken,
    pub(super) log: LogReader,
    pub(super) signals: mpsc::Receiver<Signal>,
    /// Absent until the lane is owned: nobody else answers for it.
    pub(super) views: Option<BoxStream<'static, Received>>,
    pub(super) writes: FuturesUnordered<BoxFuture<'static, WriteDone>>,
    pub(super) appends: FuturesUnordered<BoxFuture<'static, AppendDone>>,
}

impl Inputs {
    /// Waits for the next wake; `at` is when time alone would be one. Records are left in the log unless `reads`.
    pub(super) async fn wait(&mut self, at: Option<Instant>, reads: bool) -> Wake {
        let Self { cancel, log, signals, views, writes, appends } = self;
        let view = async {
            match views {
                Some(views) => views.next().await,
                None => pending().await,
            }
        };
        let time = async {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = cancel.cancelled() => Wake::Shutdown,
            record = log.next(), if reads => Wake::Record(record),
            Some(signal) = signals.recv() => Wake::Signal(signal),
            Some(done) = writes.next() => Wake::Write(done),
            Some(done) = appends.next() => Wake::Append(done),
            Some(request) = view => Wake::View(request),
            () = time => Wake::Time,
        }
    }

    /// The next record, if it is there already.
    pub(super) fn ready_record(&mut self) -> Option<Result<LogRecord, BusError>> {
        self.log.next().now_or_never()
    }

    /// The next answer of the register, if it is there already.
    pub(super) fn ready_write(&mut self) -> Option<WriteDone> {
        self.writes.next().now_or_never().flatten()
    }

    /// The next answer of the log, if it is there already.
    pub(super) fn ready_append(&mut self) -> Option<AppendDone> {
        self.appends.next().now_or_never().flatten()
    }

    /// The next request for a view, if it is there already.
    pub(super) fn ready_view(&mut self) -> Option<Received> {
        self.views.as_mut()?.next().now_or_never().flatten()
    }
}
